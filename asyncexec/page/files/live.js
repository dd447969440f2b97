/* The live page: takes a snapshot of the service each second (server-sent events), and shows what has changed.

   Counters count from the start of the service, so rates are made of two snapshots.  All addresses are relative to that of
   the page, which may be behind any prefix.  A token is sent in a header, which an EventSource cannot do: so it is fetch. */
import { ago, bars, bytes, columns, facts, make, milliseconds, number, setText, sparkline, sync, table, whole } from "./live_parts.js";
import { runForm } from "./live_run.js";

const HISTORY = 60, LONGEST_BACKOFF_MS = 10000, TOKEN = "asyncexec-token";
const by = (id) => document.getElementById(id);
const keyOf = ({ name, version }) => JSON.stringify([name, version]);

let latest = null, before = null, isPaused = false;
let reading = null; // what ends the connection
let shownGraph = null; // of the model that is chosen: {key, abort, marks, view}
let wantedNode = null; // to be chosen in the graph, when it is there
let described = null; // of the model that is chosen: {key, data, form}
const histories = new Map(); // of numbers, by their names

// ---- calls of the service

export async function call(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(path, { ...options, headers, cache: "no-store" });
  if (response.status === 401) askForToken();
  return response;
}

async function follow() {
  let backoff = 500;
  for (;;) {
    if (document.hidden) await new Promise((shown) => document.addEventListener("visibilitychange", shown, { once: true }));
    reading = new AbortController();
    try {
      const response = await call("live/events", { signal: reading.signal });
      if (response.status === 401) {
        tell("lost", "needs a token");
        await tokenGiven();
        continue;
      }
      if (!response.ok) throw new Error((await response.json()).error);
      await readEvents(response.body.pipeThrough(new TextDecoderStream()).getReader());
      backoff = 500;
    } catch (error) {
      if (document.hidden) continue; // it ends when nobody looks
      tell("lost", `no connection: ${error.message}`);
      await new Promise((later) => setTimeout(later, backoff));
      backoff = Math.min(LONGEST_BACKOFF_MS, backoff * 2);
    }
  }
}

async function readEvents(reader) {
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    const event = events.pop(); // the latest is enough
    if (event?.startsWith("data: ")) take(JSON.parse(event.slice(6)));
  }
}

function tell(state, text) {
  by("connection").dataset.state = state;
  setText(by("connection"), text);
}

let tokenIsGiven = () => {};
const tokenGiven = () => new Promise((given) => { tokenIsGiven = given; });

function askForToken() {
  showTokenForm(true);
}

function showTokenForm(isShown) {
  const wasHidden = by("token-form").hidden;
  by("token-form").hidden = !isShown;
  by("show-token").setAttribute("aria-expanded", isShown);
  if (isShown && wasHidden) by("token").focus();
}

// ---- a snapshot

function take(snapshot) {
  if (isPaused) return;
  // Of another process, or after a pause: there are no rates between them.
  before = latest && snapshot.at_ms > latest.at_ms && snapshot.at_ms - latest.at_ms < 10000 ? latest : null;
  latest = snapshot;
  tell("live", "live");
  setText(by("version"), snapshot.server.version);
  const models = snapshot.models.map((model) => withRates(model));
  showTiles(snapshot, models);
  showModels(snapshot, models);
  showWorkers(snapshot);
  showNow(models);
  showWaits(models);
  showFailures(snapshot);
  showChosen(models);
  document.documentElement.dataset.state = "ready";
  document.documentElement.dataset.seen = Number(document.documentElement.dataset.seen ?? 0) + 1;
}

function withRates(model) {
  const old = before?.models.find((each) => keyOf(each) === keyOf(model));
  const seconds = before ? (latest.at_ms - before.at_ms) / 1000 : 1;
  const rate = (count) => (old && model[count] >= old[count] ? (model[count] - old[count]) / seconds : null);
  const runs = rate("runs"), rows = rate("rows"), calls = rate("calls");
  // What comes by a stream is a run, and no call.
  const isStream = model.streams.length > 0;
  return { ...model, key: keyOf(model), rate: isStream ? runs : calls, failureRate: rate("failures"), isStream,
    rowsPerRun: !isStream && runs ? rows / runs : null, waiting: model.queued + model.waiting_in_batch };
}

function noted(name, value) {
  const values = histories.get(name) ?? histories.set(name, []).get(name);
  if (value !== null) values.push(value);
  if (values.length > HISTORY) values.shift();
  return values;
}

const sum = (values) => values.reduce((total, value) => total + (value ?? 0), 0);

function showTiles(snapshot, models) {
  const cores = before ? (snapshot.cpu_s - before.cpu_s) / ((snapshot.at_ms - before.at_ms) / 1000) : null;
  const isFirst = !before;
  const tiles = [
    ["calls and items", isFirst ? null : sum(models.map((model) => model.rate)), "/s"],
    ["failures", isFirst ? null : sum(models.map((model) => model.failureRate)), "/s", (value) => value > 0],
    ["steps under way", sum(models.map((model) => model.running)), ""],
    ["calls that wait", sum(models.map((model) => model.waiting)), ""],
    ["event loop late by", snapshot.loop.most_lag_ms, "ms", (value) => value > 50],
    ["processor", cores, "cores"],
  ];
  sync(by("tiles"), tiles, ([label]) => label, ([label, , unit]) => {
    const picture = sparkline();
    const tile = make("div", { class: "tile", role: "group", "aria-label": label }, make("span", { class: "label" }, label),
      make("span", { class: "value" }), make("span", { class: "unit" }, unit), picture);
    tile.picture = picture;
    return tile;
  }, (tile, [label, value, , isBad]) => {
    setText(tile.querySelector(".value"), number(value));
    tile.dataset.state = isBad?.(value) ? "bad" : "";
    tile.picture.show(noted(label, value), HISTORY);
  });
}

const rowKey = (row) => `${row.isNotReady ? "not ready " : ""}${row.key}`;

function showModels(snapshot, models) {
  const rows = [...models, ...snapshot.not_ready.map((state) => ({ ...state, key: keyOf(state), isNotReady: true }))];
  by("no-models").hidden = rows.length > 0;
  if (snapshot.left_out) rows.push({ key: "more", name: `and ${whole(snapshot.left_out)} more`, version: "", isNotReady: true, state: "" });
  sync(by("models").tBodies[0], rows, rowKey, (row) => {
    if (row.isNotReady) {
      const told = row.state ? [" ", make("span", { class: "state" }, row.state)] : [];
      return make("tr", {}, make("th", { scope: "row" }, row.name, ...told), make("td", { colspan: 8, class: "dim reason" }));
    }
    const picture = sparkline();
    const open = make("button", { type: "button", class: "link", onclick: () => choose(row.key, null, true) }, row.name);
    const version = make("span", { class: "dim small" }, ` version ${row.version}`);
    const line = make("tr", {}, make("th", { scope: "row" }, open, version), make("td", { class: "number" }), make("td", { class: "chart" }, picture),
      ...["number more", "number", "number", "number", "number more", "number"].map((kind) => make("td", { class: kind })));
    line.picture = picture;
    return line;
  }, (line, row) => {
    if (row.isNotReady) {
      setText(line.lastElementChild, row.reason ?? "");
      return;
    }
    const [p50, , p99] = row.percentiles_ms ?? [null, null, null];
    const texts = [number(row.rate), null, milliseconds(p50), milliseconds(p99), whole(row.running), whole(row.waiting),
      row.rowsPerRun ? row.rowsPerRun.toFixed(1) : "–", whole(row.failures)];
    texts.forEach((text, i) => { if (text !== null) setText(line.cells[i + 1], text); });
    line.cells[8].classList.toggle("bad", row.failureRate > 0);
    line.picture.show(noted(row.key, row.rate), HISTORY);
  });
}

// ---- the workers of models, and what crosses to them and back

const nameOf = (worker) => worker.replace(/^\/job:/, "").replace("/replica:0/task:", ":");

/* What a worker counts, in a second, by two snapshots; null where there are none. */
function crossed(worker, count) {
  const old = before?.workers.find((each) => workerKey(each) === workerKey(worker));
  if (!old || worker[count] < old[count]) return null;
  return (worker[count] - old[count]) / ((latest.at_ms - before.at_ms) / 1000);
}

const workerKey = (worker) => JSON.stringify([worker.name, worker.models]);

function showWorkers(snapshot) {
  by("workers-card").hidden = !snapshot.workers.length;
  sync(by("workers").tBodies[0], snapshot.workers, workerKey, (worker) => {
    const pictures = [sparkline(), sparkline()];
    const name = make("th", { scope: "row" }, make("span", { title: worker.name }, nameOf(worker.name)), " ",
      make("span", { class: "state", hidden: true }, "not connected"), make("span", { class: "dim small block" }, worker.models.join(", ")));
    const cells = ["number", "number", "chart", "number", "chart", "number more", "number", "number more", "number more"].map((kind) => make("td", { class: kind }));
    pictures.forEach((picture, i) => {
      cells[2 * i + 1].append(make("span"), make("span", { class: "dim small block" }));
      cells[2 * i + 2].append(picture);
    });
    const line = make("tr", {}, name, ...cells);
    line.pictures = pictures;
    return line;
  }, (line, worker) => {
    line.querySelector(".state").hidden = worker.is_connected;
    const texts = [whole(worker.running_steps), null, null, null, null, bytes(worker.queued_bytes), milliseconds(worker.round_trip_ms),
      milliseconds(worker.shortest_round_trip_ms), whole(worker.times_lost)];
    texts.forEach((text, i) => { if (text !== null) setText(line.cells[i + 1], text); });
    line.cells[7].classList.toggle("bad", worker.round_trip_ms > 50);
    ["sent", "received"].forEach((way, i) => {
      const size = crossed(worker, `bytes_${way}`), [first, second] = line.cells[2 * i + 2].children;
      setText(first, size === null ? "–" : `${bytes(size)}/s`);
      setText(second, size === null ? "" : `${number(crossed(worker, `tensors_${way}`))} values/s`);
      line.pictures[i].show(noted(`${workerKey(worker)} ${way}`, size), HISTORY);
    });
  });
}

// ---- what runs, waits and fails

const REASONS = [[/^waited for /, "waits for "], [/^waited to /, "waits to "], [/^was at work /, "works "], [/^was running /, "runs "]];

/* The reason of a wait as one of now. */
function reason(waitsFor) {
  const text = waitsFor.at(-1);
  if (!text || text.startsWith("attempt ")) return "awaits in its function";
  for (const [past, now] of REASONS) if (past.test(text)) return text.replace(past, now);
  return text;
}

/* Leads to the graph of the model, where the node is chosen. */
function nodeLink(key, node) {
  return make("button", { type: "button", class: "link", onclick: () => {
    wantedNode = node;
    choose(key, "graph", true);
  } }, node);
}

function showNow(models) {
  const rows = models.flatMap((model) => model.under_way.map((each) => ({ ...each, model })));
  rows.sort((one, other) => other.count - one.count);
  const items = rows.length ? rows.slice(0, 12) : [null];
  sync(by("now"), items, (row) => (row ? JSON.stringify([row.model.key, row.node, row.loop, reason(row.waits_for)]) : "none"), (row) => {
    if (!row) return make("li", { class: "none" }, "Nothing at this moment.");
    const open = row.op === "Worker" ? make("span", {}, nameOf(row.node)) : nodeLink(row.model.key, row.node);
    return make("li", {}, make("div", { class: "line" }, open, make("span", { class: "count" })), make("p", { class: "small" }));
  }, (item, row) => {
    if (!row) return;
    setText(item.querySelector(".count"), `${whole(row.count)}×`);
    const told = [row.model.name, reason(row.waits_for)];
    if (row.oldest_s !== null) told.push(`for ${milliseconds(row.oldest_s * 1000)}`);
    const loop = row.loop ? [" ", make("span", { class: "loop" }, `${row.loop.replaceAll(", ", " › ")} ${row.iterations.join(", ")}`)] : [];
    item.querySelector("p").replaceChildren(told.join(" · "), ...loop);
  });
}

function showWaits(models) {
  const found = new Map();
  const add = (name, count) => { if (count) found.set(name, (found.get(name) ?? 0) + count); };
  for (const model of models) {
    for (const each of model.under_way) add(reason(each.waits_for), each.count);
    add("waits for its batch", model.waiting_in_batch);
    add("waits in the queue of its model", model.queued);
  }
  const rows = [...found].map(([name, value]) => ({ name, value })).sort((one, other) => other.value - one.value);
  bars(by("waits"), rows, "Nothing waits.");
}

function showFailures(snapshot) {
  const failures = snapshot.failures.length ? snapshot.failures : [null];
  sync(by("failures"), failures, (each) => (each ? JSON.stringify([each.at_ms, each.model, each.node, each.text]) : "none"), (each) => {
    if (!each) return make("li", { class: "none" }, "None.");
    const where = [each.model, each.op && `op ${each.op}`, each.iteration && `iteration ${each.iteration}`, each.line];
    return make("li", {}, make("div", { class: "line" }, make("span", { class: "kind" }, each.kind), make("span", { class: "small" })),
      make("p", { class: "message" }, each.text),
      make("p", { class: "small" }, ...(each.node ? [nodeLink(keyOf({ name: each.model, version: each.version }), each.node), " · "] : []),
        where.filter(Boolean).join(" · ")));
  }, (item, each) => { if (each) setText(item.querySelector(".line .small"), ago(snapshot.time_ms - each.at_ms)); });
}

// ---- the model that is chosen: the address says which

const TABS = ["now", "graph", "run"];

function asked() {
  const [key, tab] = location.hash.slice(1).split("&").map(decodeURIComponent);
  return { key: key || null, tab: TABS.includes(tab) ? tab : "now" };
}

function choose(key, tab, moves = false) {
  const hash = `#${encodeURIComponent(key)}&${tab ?? asked().tab}`;
  if (location.hash === hash) show();
  else location.hash = hash;
  if (moves) {
    show();
    by("chosen").scrollIntoView({ block: "nearest" });
    by("chosen-title").focus({ preventScroll: true });
  }
}

function show() {
  if (latest) showChosen(latest.models.map((model) => withRates(model)));
}

function showChosen(models) {
  const { key, tab } = asked();
  const model = models.find((each) => each.key === key) ?? (key ? null : models[0]);
  by("chosen").hidden = !model;
  for (const row of by("models").tBodies[0].rows) {
    if (model && row.dataset.key === rowKey(model)) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
  }
  if (!model) return;
  setText(by("chosen-title"), `${model.name} version ${model.version}`);
  for (const each of TABS) {
    by(`tab-${each}`).setAttribute("aria-selected", each === tab);
    by(`tab-${each}`).tabIndex = each === tab ? 0 : -1;
    by(`panel-${each}`).hidden = each !== tab;
  }
  if (described?.key !== model.key) {
    shownGraph?.abort.abort();
    shownGraph = null;
    described = { key: model.key, data: null };
    by("panel-now").replaceChildren();
    by("panel-graph").replaceChildren();
    by("panel-run").replaceChildren();
  }
  if (tab === "now") showOverview(model);
  else if (!described.data) describe(model);
  else if (tab === "graph") showGraphOf(model);
  else if (!described.form) {
    described.form = runForm(described.data, call);
    by("panel-run").replaceChildren(described.form);
  }
}

async function describe(model) {
  const mine = described;
  if (mine.isAsked) return;
  mine.isAsked = true;
  const told = (text) => { for (const tab of ["graph", "run"]) by(`panel-${tab}`).replaceChildren(make("p", { class: "dim" }, text)); };
  told("loading");
  try {
    const response = await call(`live/models/${encodeURIComponent(model.name)}/versions/${encodeURIComponent(model.version)}`);
    const answer = await response.json();
    if (described !== mine) return;
    if (!response.ok) throw new Error(answer.error);
    mine.data = answer;
    by("panel-graph").replaceChildren();
    by("panel-run").replaceChildren();
    show();
  } catch (error) {
    if (described !== mine) return;
    told(`It cannot be loaded: ${error.message}`);
    setTimeout(() => { mine.isAsked = false; }, 3000);
  }
}

function showOverview(model) {
  const panel = by("panel-now");
  if (!panel.firstElementChild) {
    panel.append(make("dl", { class: "facts" }), make("div", { class: "streams" }), make("div", { class: "batches" }), make("div", { class: "nodes" }));
    panel.querySelector(".batches").append(make("h3", {}, "Rows of a run"), make("ul", { class: "columns-of" }));
  }
  const [p50, p95, p99] = model.percentiles_ms ?? [null, null, null];
  const rows = [["calls", whole(model.calls)], ["rows", whole(model.rows)], ["runs", whole(model.runs)], ["failed", whole(model.failures)],
    ["cancelled", whole(model.cancelled)], ["median", milliseconds(p50)], ["95th percentile", milliseconds(p95)], ["99th percentile", milliseconds(p99)],
    ["held the loop for at most", milliseconds(model.longest_slice_ms)]];
  if (model.longest_node) rows.push(["longest node in the loop", `${model.longest_node}, ${milliseconds(model.longest_node_ms)}`]);
  for (const pool of model.pools) if (pool.threads) rows.push(["worker threads", `${pool.busy} of ${pool.threads} busy`]);
  facts(panel.querySelector("dl"), rows);
  panel.querySelector(".batches").hidden = !model.batches.length;
  const total = Math.max(1, sum(model.batches.map(([, count]) => count)));
  columns(panel.querySelector(".batches ul"), model.batches.map(([size, count]) => ({ name: whole(size), value: count,
    text: `${size === 1 ? "1 row" : `${size} rows`}: ${whole(count)} runs, ${((100 * count) / total).toFixed(0)} %` })));
  panel.querySelector(".streams").replaceChildren(...(model.streams.length ? [make("h3", {}, "Streams"), table(
    ["stream", "items in", "items out", "in flight", "window", "failed", "oldest"],
    model.streams.map((each) => [`${each.number}`, whole(each.items_in), whole(each.items_out), whole(each.in_flight), whole(each.window),
      whole(each.failed), milliseconds(each.lag_s * 1000)]))] : []));
  panel.querySelector(".nodes").replaceChildren(...(model.nodes.length ? [make("h3", {}, "Nodes that are timed"), table(
    ["node", "calls", "failed", "retries", "p50", "p99", "waited"],
    model.nodes.map((each) => [each.node, whole(each.count), whole(each.errors), whole(each.retries), milliseconds(each.p50_s * 1000),
      milliseconds(each.p99_s * 1000), `${each.total_s ? ((100 * each.waited_s) / each.total_s).toFixed(0) : 0} %`]))] : []));
}

function showGraphOf(model) {
  const panel = by("panel-graph"), { graph, num_nodes: count } = described.data;
  if (!graph) {
    panel.replaceChildren(make("p", {}, `The graph has ${whole(count)} nodes, which are too many for a picture.`));
    return;
  }
  if (!shownGraph) {
    const root = by("graph-view").content.firstElementChild.cloneNode(true);
    setText(root.querySelector(".facts"), `${whole(count)} nodes`);
    const large = make("button", { type: "button", onclick: () => (document.fullscreenElement ? document.exitFullscreen() : root.requestFullscreen()) }, "Full screen");
    root.querySelector(".tools").append(large);
    panel.replaceChildren(root);
    shownGraph = { root, abort: new AbortController() };
    shownGraph.view = showGraph(root, { ...graph, lines: described.data.lines }, shownGraph.abort.signal, 60, 45);
  }
  if (wantedNode !== null && shownGraph.root.dataset.state === "ready") {
    shownGraph.view.chooseNode(wantedNode);
    wantedNode = null;
  }
  const marks = new Map();
  for (const each of latest.failures) if (each.model === model.name && each.node) marks.set(each.node, { isFailed: true });
  for (const { node, count: running } of model.under_way) {
    const so = marks.get(node) ?? {};
    marks.set(node, { ...so, running: (so.running ?? 0) + running });
  }
  shownGraph.view.mark(marks);
}

// ---- what is pressed

window.addEventListener("hashchange", show);
by("tabs").addEventListener("click", (event) => {
  const tab = event.target.closest('[role="tab"]');
  if (tab) choose(described.key, tab.id.slice(4));
});
by("tabs").addEventListener("keydown", (event) => {
  const at = TABS.indexOf(asked().tab);
  const to = { ArrowRight: (at + 1) % TABS.length, ArrowLeft: (at + TABS.length - 1) % TABS.length, Home: 0, End: TABS.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  choose(described.key, TABS[to]);
  by(`tab-${TABS[to]}`).focus();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part of the address after # says which model is shown
  by("main").focus();
});
by("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  by("pause").setAttribute("aria-pressed", isPaused);
  tell(isPaused ? "waiting" : "live", isPaused ? "paused" : "live");
});
by("show-token").addEventListener("click", () => showTokenForm(by("token-form").hidden));
by("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = by("token").value.trim();
  by("token").value = "";
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
  showTokenForm(false);
  if (described) described.isAsked = false;
  reading?.abort();
  tokenIsGiven();
});
document.addEventListener("visibilitychange", () => { if (document.hidden) reading?.abort(); });

follow();
