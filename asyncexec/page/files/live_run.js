/* The form that runs a model: a field for each input, with a sample; its outputs, and when its nodes ran. */
import { make, milliseconds, svg, table, whole } from "./live_parts.js";

const MOST_ELEMENTS = 4096; // of a value that is written out in a field
const MOST_SHOWN = 200; // elements of an output
const WHITE = 255;

/* Runs the model that data describe, by call(path, options). */
export function runForm(data, call) {
  const fields = data.inputs.map((input, i) => field(input, data, `input-${i}`));
  const isTraced = make("input", { type: "checkbox", checked: true });
  const submit = make("button", { type: "submit", class: "main" }, "Run");
  const result = make("div", { class: "result" });
  const status = make("p", { class: "status", role: "status" });
  const timeline = make("div", { class: "timeline" });
  const form = make("form", { class: "run" }, make("div", {}, samplePicker(data, fields), ...fields.map((each) => each.element),
    make("div", { class: "actions" }, submit, make("label", {}, isTraced, "with a timeline"))), make("div", {}, status, result), timeline);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    result.replaceChildren();
    timeline.replaceChildren();
    report(status, "running");
    try {
      await run(data, fields, isTraced.checked, call, { status, result, timeline });
    } catch (error) {
      report(status, error.message, "bad");
    }
    submit.disabled = false;
  });
  return form;
}

function report(status, text, state = "") {
  status.dataset.state = state;
  status.textContent = text;
}

async function run(data, fields, isTraced, call, places) {
  const inputs = fields.map((each) => each.read()).filter(Boolean);
  const path = `models/${encodeURIComponent(data.name)}/versions/${encodeURIComponent(data.version)}/infer`;
  const began = performance.now();
  const response = await call(`${isTraced ? "live" : "v2"}/${path}`, { method: "POST", body: JSON.stringify({ inputs }),
    headers: { "Content-Type": "application/json" } });
  const answer = await response.json();
  const took = milliseconds(performance.now() - began);
  if (answer.timeline) showTimeline(places.timeline, answer.timeline);
  if (!response.ok) {
    report(places.status, `${response.status}: ${answer.error}`, "bad");
    return;
  }
  report(places.status, `done in ${took}`);
  places.result.replaceChildren(...answer.outputs.map(output));
}

// ---- inputs

function field(input, data, id) {
  const { name, datatype, shape, is_optional: isOptional } = input;
  const sizes = (shape ?? []).map((size) => (size < 0 ? 1 : size));
  const about = `${datatype} ${shape === null ? "of any shape" : `[${shape.map((size) => (size < 0 ? "?" : size)).join(", ")}]`}${isOptional ? ", optional" : ""}`;
  const text = make("textarea", { id, rows: 4, spellcheck: "false", "aria-describedby": `${id}-about` });
  const picture = pictureSize(input);
  const paint = picture ? paintBoard(input, picture, text) : null;
  const file = make("input", { type: "file", accept: paint ? "image/*,.json" : ".json,application/json", "aria-label": `a file for ${name}` });
  file.addEventListener("change", async () => {
    const [chosen] = file.files;
    if (!chosen) return;
    problem.textContent = "";
    try {
      if (paint && chosen.type.startsWith("image/")) paint.draw(await createImageBitmap(chosen));
      else write(JSON.parse(await chosen.text()));
    } catch (error) {
      problem.textContent = `${chosen.name} cannot be read: ${error.message}`;
    }
  });
  const problem = make("p", { class: "small kind", role: "alert" });
  const label = make("label", { for: id }, paint ? "as JSON" : "value, as JSON");
  const written = paint ? make("details", {}, make("summary", {}, "Elements"), label, text) : make("div", {}, make("span", { class: "hidden" }, label), text);
  const element = make("fieldset", {}, make("legend", {}, name, " ", make("span", { class: "small dim", id: `${id}-about` }, about)),
    ...(paint ? [paint.element] : []), written, make("p", { class: "small" }, "or a file: ", file), problem);

  function write(value) {
    text.value = JSON.stringify(value);
    paint?.show(value);
  }

  function read() {
    if (!text.value.trim() && isOptional) return null;
    let value;
    try {
      value = JSON.parse(text.value);
    } catch (error) {
      throw new Error(`${name} is no JSON: ${error.message}`);
    }
    if (value?.shape && "fill" in value) return { name, datatype, shape: value.shape, data: Array(value.shape.reduce((a, b) => a * b, 1)).fill(value.fill) };
    return { name, datatype, shape: shapeOf(value), data: [value].flat(Infinity) };
  }

  const samples = data.samples.map((sample) => sample?.[name]);
  write(samples[0] !== undefined ? samples[0] : isOptional ? "" : example(datatype, sizes));
  if (isOptional && samples[0] === undefined) text.value = "";
  return { element, write, read, name, picture };
}

function shapeOf(value) {
  const shape = [];
  for (let each = value; Array.isArray(each); [each] = each) shape.push(each.length);
  return shape;
}

/* A value by datatype and shape. */
function example(datatype, sizes) {
  const count = sizes.reduce((product, size) => product * size, 1);
  const element = { BYTES: "text", BOOL: true }[datatype] ?? (datatype.startsWith("FP") || datatype === "BF16" ? 0.5 : 1);
  if (count > MOST_ELEMENTS) return { shape: sizes, fill: element };
  return sizes.reduceRight((value, size) => Array(size).fill(value), element);
}

function samplePicker(data, fields) {
  if (data.samples.length < 2) return "";
  const buttons = data.samples.map((sample, i) => {
    const choose = () => fields.forEach((each) => { if (sample?.[each.name] !== undefined) each.write(sample[each.name]); });
    const pictured = fields.find((each) => each.picture && sample?.[each.name]);
    const button = make("button", { type: "button", "aria-label": `sample ${i + 1}`, class: pictured ? "" : "text", onclick: choose });
    if (pictured) {
      const canvas = make("canvas", { width: pictured.picture.w, height: pictured.picture.h });
      drawPixels(canvas, pictured.picture, [sample[pictured.name]].flat(Infinity));
      button.append(canvas);
    } else button.append(`${i + 1}`);
    return button;
  });
  return make("div", { class: "actions", role: "group", "aria-label": "Samples" }, make("span", { class: "small" }, "Samples"), make("div", { class: "samples" }, ...buttons));
}

// ---- pictures

/* Height and width of an input that is a picture in shades of grey: [?, h, w, 1], [?, h, w] or [h, w]. */
function pictureSize({ datatype, shape }) {
  if (!shape || !(datatype.startsWith("FP") || datatype === "UINT8")) return null;
  const sizes = shape.at(-1) === 1 ? shape.slice(0, -1) : shape;
  const [h, w] = sizes.slice(-2);
  const isOne = sizes.slice(0, -2).every((size) => size === 1 || size === -1) && sizes.length <= 3;
  return isOne && sizes.length >= 2 && Math.min(h, w) >= 4 && Math.max(h, w) <= 64 ? { h, w, white: datatype === "UINT8" ? WHITE : 1 } : null;
}

function drawPixels(canvas, { h, w, white }, values) {
  const context = canvas.getContext("2d"), image = context.createImageData(w, h);
  for (let i = 0; i < h * w; i++) {
    const grey = Math.max(0, Math.min(WHITE, ((values[i] ?? 0) / white) * WHITE));
    image.data.set([grey, grey, grey, WHITE], 4 * i);
  }
  context.putImageData(image, 0, 0);
}

function paintBoard({ name, shape }, size, text) {
  const { h, w, white } = size;
  let values = Array(h * w).fill(0), cursor = { x: w >> 1, y: h >> 1 };
  const canvas = make("canvas", { class: "board", width: w, height: h, tabindex: 0, role: "img",
    "aria-label": `${name}, a picture of ${h} by ${w}: draw with the pointer, or move by arrow keys and paint by Space` });
  const clear = make("button", { type: "button", onclick: () => set(Array(h * w).fill(0)) }, "Clear");
  const element = make("div", { class: "paint" }, canvas, clear);

  function show(value) {
    values = [value].flat(Infinity).slice(0, h * w).map((each) => Number(each) || 0);
    drawPixels(canvas, size, values);
  }

  /* The values in the shape of the input, of which one row is fed. */
  function nested() {
    const last = shape.at(-1) === 1 ? (each) => [each] : (each) => each;
    let rows = Array.from({ length: h }, (_, y) => values.slice(y * w, (y + 1) * w).map(last));
    const outer = shape.length - 2 - (shape.at(-1) === 1 ? 1 : 0);
    for (let i = 0; i < outer; i++) rows = [rows];
    return rows;
  }

  function set(given) {
    values = given;
    drawPixels(canvas, size, values);
    text.value = JSON.stringify(nested());
  }

  function dab(x, y) {
    const next = [...values];
    for (let dy = -1; dy <= 1; dy++) {
      for (let dx = -1; dx <= 1; dx++) {
        const px = Math.round(x) + dx, py = Math.round(y) + dy;
        if (px < 0 || py < 0 || px >= w || py >= h) continue;
        const far = Math.hypot(px - x, py - y);
        const part = Math.max(0, 1.15 - far) * white;
        next[py * w + px] = Math.min(white, Math.max(next[py * w + px], Math.round(part * 16) / 16));
      }
    }
    set(next);
  }

  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * w - 0.5, ((event.clientY - box.top) / box.height) * h - 0.5];
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    dab(...place(event));
  });
  canvas.addEventListener("pointermove", (event) => { if (event.buttons) dab(...place(event)); });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (event.key === " ") dab(cursor.x, cursor.y);
    else if (!step) return;
    else cursor = { x: Math.max(0, Math.min(w - 1, cursor.x + step[0])), y: Math.max(0, Math.min(h - 1, cursor.y + step[1])) };
    event.preventDefault();
    drawPixels(canvas, size, values);
    const context = canvas.getContext("2d");
    context.fillStyle = "#3b78e0";
    context.globalAlpha = 0.7;
    context.fillRect(cursor.x, cursor.y, 1, 1);
    context.globalAlpha = 1;
  });

  function draw(bitmap) {
    const small = make("canvas", { width: w, height: h }), context = small.getContext("2d");
    context.drawImage(bitmap, 0, 0, w, h);
    const { data } = context.getImageData(0, 0, w, h);
    set(Array.from({ length: h * w }, (_, i) => ((data[4 * i] + data[4 * i + 1] + data[4 * i + 2]) / 3 / WHITE) * white));
  }

  text.addEventListener("change", () => { try { show(JSON.parse(text.value)); } catch { /* the form tells */ } });
  return { element, show, draw };
}

// ---- outputs

function output({ name, datatype, shape, data = [] }) {
  const head = make("h3", {}, name, " ", make("span", { class: "small" }, `${datatype} [${shape.join(", ")}]`));
  return make("div", { class: "output" }, head, isDistribution(shape, data) ? classes(data) : values(shape, data));
}

function isDistribution(shape, data) {
  const isRow = shape.length === 1 || (shape.length === 2 && shape[0] === 1);
  if (!isRow || data.length < 2 || data.length > 10000) return false;
  const total = data.reduce((sum, each) => sum + each, 0);
  return data.every((each) => typeof each === "number" && each >= 0 && each <= 1) && Math.abs(total - 1) < 1e-3 && data.some((each) => each % 1);
}

function classes(data) {
  const top = data.map((value, i) => [i, value]).sort((one, other) => other[1] - one[1]).slice(0, 5);
  const list = make("ul", { class: "bars top-classes" });
  for (const [i, value] of top) {
    const bar = make("i");
    bar.style.width = `${100 * value}%`;
    list.append(make("li", {}, make("span", {}, `class ${i}`), make("span", { class: "number" }, `${(100 * value).toFixed(2)} %`), make("span", { class: "bar" }, bar)));
  }
  return list;
}

const written = (value) => (typeof value === "number" ? (Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(7)))) : String(value));

function values(shape, data) {
  if (data.length === 1) return make("p", { class: "message" }, written(data[0]));
  const width = shape.length > 1 ? shape.at(-1) : 1;
  const shown = data.slice(0, MOST_SHOWN).map(written);
  const rows = [];
  if (width > 1 && width <= 12) for (let i = 0; i < shown.length; i += width) rows.push([String(i / width), ...shown.slice(i, i + width)]);
  const more = data.length > MOST_SHOWN ? [make("p", { class: "small" }, `and ${whole(data.length - MOST_SHOWN)} more`)] : [];
  const body = rows.length ? table(["", ...Array.from({ length: width }, (_, i) => String(i))], rows) : make("p", { class: "message" }, shown.join(", "));
  return make("div", {}, body, ...more);
}

// ---- the timeline

function showTimeline(place, { rows, executions, end_us: end, left_out: leftOut }) {
  place.replaceChildren(make("h3", {}, "Timeline"));
  if (!executions.length) {
    place.append(make("p", { class: "small" }, "No node has run."));
    return;
  }
  const LEFT = 130, WIDTH = 1000, ROW = 24, AXIS = 20, scale = (WIDTH - LEFT - 10) / (end || 1);
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${rows.length * ROW + AXIS}`, role: "img",
    "aria-label": `${executions.length} executions in ${milliseconds(end / 1000)}; the table below lists the longest` });
  rows.forEach((label, i) => {
    picture.append(svg("line", { class: "rule", x1: LEFT, x2: WIDTH - 10, y1: (i + 1) * ROW, y2: (i + 1) * ROW }));
    picture.append(svg("text", { x: LEFT - 8, y: i * ROW + 16, "text-anchor": "end" }, label));
  });
  for (const each of executions) {
    const x = LEFT + each.start_us * scale, width = Math.max(1.5, each.took_us * scale);
    const title = [each.node, `${each.op}: ${milliseconds(each.took_us / 1000)} from ${milliseconds(each.start_us / 1000)} on`, each.outputs, each.failure];
    picture.append(svg("rect", { class: `run-bar${each.failure ? " failed" : ""}`, x, y: each.row * ROW + 3, width, height: ROW - 6, rx: 3 },
      svg("title", {}, title.filter(Boolean).join("\n"))));
    const label = each.node.slice(each.node.lastIndexOf("/") + 1);
    if (width > 7 * label.length) picture.append(svg("text", { x: x + width / 2, y: each.row * ROW + 16, "text-anchor": "middle", "pointer-events": "none" }, label));
  }
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    picture.append(svg("text", { class: "axis", x: LEFT + part * end * scale, y: rows.length * ROW + 15, "text-anchor": part === 1 ? "end" : part ? "middle" : "start" }, milliseconds((part * end) / 1000)));
  }
  const longest = [...executions].sort((one, other) => other.took_us - one.took_us).slice(0, 12);
  place.append(make("div", { class: "scroll" }, picture));
  if (leftOut) place.append(make("p", { class: "small" }, `${whole(leftOut)} executions, the shortest, are left out.`));
  place.append(make("details", {}, make("summary", {}, "The longest executions"), table(["node", "op", "took", "from", "gave"],
    longest.map((each) => [each.node, each.op, milliseconds(each.took_us / 1000), milliseconds(each.start_us / 1000), each.failure || each.outputs]))));
}
