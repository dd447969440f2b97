"use strict";

/* A graph: a picture (cytoscape) and a tree that says the same to a keyboard and to a screen reader.  What is unfolded in
   one is unfolded in the other.  The data are strangers': they become text nodes and never HTML.

   root holds graph.html; data are those of graph_data.py; signal ends it; a graph of more than mostWhole nodes begins folded
   into about mostFirst boxes.  The result marks nodes, and chooses one by its name.  data.lines, if it is there, tells where
   nodes were made. */
function showGraph(root, data, signal = undefined, mostWhole = 2000, mostFirst = 150) {
  const MOST_SHOWN = 2000; // boxes that can be unfolded at once
  const MOST_FOUND = 50, MOST_LINKS = 40, LONGEST_LABEL = 24, PAD = 32;
  const CONTROL_SLOT = -1;
  const NODE = { w: 176, h: 44 }, FOLDED = { w: 210, h: 56 };

  const { names, kinds, kindOf, inputs, outputs, outputsOf } = data;
  const count = names.length;
  const by = (id) => root.querySelector(`#${id}`);

  // ---- boxes: those of groups come first, then those of nodes

  const groups = data.groups.map(([kind, label, children]) => ({ kind, label, children: [], parent: -1, size: 0, given: children }));
  const numGroups = groups.length;
  const parentOf = new Int32Array(numGroups + count).fill(-1);
  const depthOf = new Int32Array(numGroups + count);
  const isOpen = new Uint8Array(numGroups);
  groups.forEach((group, index) => {
    // a child is the position of a node, or -1 - the position of a group
    group.children = group.given.map((child) => (child < 0 ? -1 - child : numGroups + child));
    delete group.given;
    for (const child of group.children) {
      parentOf[child] = index;
      depthOf[child] = depthOf[index] + 1;
    }
  });
  for (let index = numGroups - 1; index >= 0; index--) {
    for (const child of groups[index].children) groups[index].size += child < numGroups ? groups[child].size : 1;
  }
  const isGroup = (box) => box < numGroups;
  const nodeOf = (box) => box - numGroups;
  const boxOf = (node) => numGroups + node;

  /* Unfolds from the outside in, as long as not too many boxes are shown. */
  function openFirst() {
    const ahead = [0];
    let shown = 1;
    for (let index = 0; index < ahead.length; index++) {
      const group = groups[ahead[index]];
      // A graph that is too large to be shown whole is one to begin at the top of.
      const most = count <= mostWhole ? Infinity : mostFirst;
      if (ahead[index] !== 0 && shown + group.children.length > most) continue;
      isOpen[ahead[index]] = 1;
      shown += group.children.length - 1;
      ahead.push(...group.children.filter(isGroup));
    }
  }

  // ---- edges: [source, target, slot] of nodes; what is shown joins the boxes that they are folded into

  const sources = [], targets = [], isControl = [];
  const closesLoop = kinds.map(({ op }) => op === "NextIteration" || op === "RefNextIteration");
  const firstConsumer = new Int32Array(count + 1);
  inputs.forEach((flat, target) => {
    for (let i = 0; i < flat.length; i += 2) {
      sources.push(flat[i]);
      targets.push(target);
      isControl.push(flat[i + 1] === CONTROL_SLOT);
      firstConsumer[flat[i] + 1]++;
    }
  });
  for (let node = 0; node < count; node++) firstConsumer[node + 1] += firstConsumer[node];
  const consumers = new Int32Array(targets.length), filled = firstConsumer.slice();
  sources.forEach((source, edge) => { consumers[filled[source]++] = targets[edge]; });

  function shownBoxes() {
    const shown = []; // open groups stand before what is in them
    const standIn = new Int32Array(count);
    const visit = (box, stand) => {
      if (!isGroup(box)) {
        standIn[nodeOf(box)] = stand < 0 ? box : stand;
        if (stand < 0) shown.push(box);
        return;
      }
      if (stand < 0 && box) shown.push(box);
      const inside = stand < 0 && !isOpen[box] ? box : stand;
      for (const child of groups[box].children) visit(child, inside);
    };
    visit(0, -1);
    return { shown, standIn };
  }

  function shownEdges(standIn) {
    const edges = new Map();
    for (let edge = 0; edge < sources.length; edge++) {
      const source = standIn[sources[edge]], target = standIn[targets[edge]];
      if (source === target) continue;
      const key = source * (numGroups + count) + target;
      const found = edges.get(key);
      const isBack = closesLoop[kindOf[sources[edge]]];
      if (!found) edges.set(key, { source, target, count: 1, isControl: isControl[edge], isBack });
      else {
        found.count++;
        found.isBack = found.isBack && isBack;
        found.isControl = found.isControl && isControl[edge];
      }
    }
    return [...edges.values()];
  }

  // ---- places: each open group for itself, from the inside out

  function places(shown, edges) {
    const inside = new Map([[0, []]]);
    for (const box of shown) {
      if (isGroup(box) && isOpen[box]) inside.set(box, []);
      inside.get(parentOf[box]).push(box);
    }
    const edgesIn = new Map([...inside.keys()].map((group) => [group, []]));
    for (const { source, target, isBack } of edges) {
      let one = source, other = target;
      while (parentOf[one] !== parentOf[other]) {
        if (depthOf[one] >= depthOf[other]) one = parentOf[one];
        else other = parentOf[other];
      }
      if (one !== other && !isBack) edgesIn.get(parentOf[one]).push([one, other]);
    }
    const sizeOf = new Map(), placed = new Map();
    for (const group of [...inside.keys()].reverse()) {
      const boxes = inside.get(group), index = new Map(boxes.map((box, i) => [box, i]));
      const sizes = boxes.map((box) => sizeOf.get(box) ?? (isGroup(box) ? FOLDED : NODE));
      const result = placeBoxes(sizes, edgesIn.get(group).map(([one, other]) => [index.get(one), index.get(other)]));
      placed.set(group, result.at);
      sizeOf.set(group, { w: result.w + 2 * PAD, h: result.h + 2 * PAD });
    }
    const middleOf = new Map([[0, { x: 0, y: 0 }]]);
    for (const [group, boxes] of inside) {
      const middle = middleOf.get(group), size = sizeOf.get(group);
      boxes.forEach((box, i) => {
        const at = placed.get(group)[i];
        middleOf.set(box, { x: middle.x - size.w / 2 + PAD + at.x, y: middle.y - size.h / 2 + PAD + at.y });
      });
    }
    return { middleOf, sizeOf };
  }

  // ---- the picture

  const lastPart = (name) => name.slice(name.lastIndexOf("/") + 1);
  const shortened = (text) => (text.length <= LONGEST_LABEL ? text : `…${text.slice(1 - LONGEST_LABEL)}`);
  const number = (value) => value.toLocaleString("en");
  const WORDS = { device: "device ", loop: "loop ", scope: "", part: "nodes ", graph: "" };
  const groupName = (group) => `${WORDS[group.kind]}${group.label}`;

  function hueOf(text) {
    let hash = 0;
    for (let i = 0; i < text.length; i++) hash = (hash * 31 + text.charCodeAt(i)) >>> 0;
    return hash % 360;
  }

  function elements() {
    const { shown, standIn } = shownBoxes();
    drawnIn = standIn;
    const edges = shownEdges(standIn);
    const { middleOf, sizeOf } = places(shown, edges);
    whole = sizeOf.get(0);
    const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
    const drawn = shown.map((box) => {
      if (isGroup(box)) {
        const group = groups[box];
        const label = isOpen[box] ? groupName(group) : `${shortened(groupName(group))}\n${number(group.size)} nodes`;
        const classes = `${isOpen[box] ? "open" : "folded"} ${group.kind}`;
        // Boxes in boxes are drawn one upon the other: cytoscape's own compound nodes took four times as long.
        return { data: { id: String(box), label, ...sizeOf.get(box) }, classes, position: middleOf.get(box) };
      }
      const node = nodeOf(box), { op, isUnknown } = kinds[kindOf[node]];
      const color = isDark ? `hsl(${hueOf(op)}, 26%, 24%)` : `hsl(${hueOf(op)}, 62%, 90%)`;
      const border = isDark ? `hsl(${hueOf(op)}, 32%, 52%)` : `hsl(${hueOf(op)}, 38%, 55%)`;
      const label = `${shortened(lastPart(names[node]))}\n${shortened(op)}`;
      const classes = `node${isUnknown ? " unknown" : ""}${op.startsWith("Placeholder") ? " input" : ""}`;
      return { data: { id: String(box), label, color, border }, classes, position: middleOf.get(box) };
    });
    for (const { source, target, count: times, isControl: control, isBack } of edges) {
      const classes = `${control ? "control" : ""} ${isBack ? "back" : ""}`;
      const width = Math.min(5, 1.2 + Math.log2(times) / 2);
      drawn.push({ data: { id: `${source}-${target}`, source: String(source), target: String(target), width }, classes });
    }
    return drawn;
  }

  function style() {
    const colors = getComputedStyle(document.documentElement);
    const color = (name) => colors.getPropertyValue(`--${name}`).trim();
    // Each property takes time for each element: those with a good default are left out.
    return [
      { selector: "node", style: { color: color("text"), label: "data(label)", "font-size": 13, "min-zoomed-font-size": 4,
        "text-wrap": "wrap", "text-valign": "center", "border-width": 1, shape: "round-rectangle" } },
      { selector: ".node", style: { width: NODE.w, height: NODE.h, "background-color": "data(color)",
        "border-color": "data(border)" } },
      { selector: ".input", style: { "border-width": 2.5, "border-color": color("accent") } },
      { selector: ".unknown", style: { "border-style": "dashed", "border-width": 2, "border-color": color("warning") } },
      { selector: ".folded", style: { width: FOLDED.w, height: FOLDED.h, "font-weight": "bold", "font-size": 15,
        "background-color": color("folded"), "border-color": color("edge"), "border-width": 4, "border-style": "double" } },
      { selector: ".open", style: { width: "data(w)", height: "data(h)", "z-compound-depth": "bottom",
        "background-color": color("open"), "background-opacity": 0.5, "border-color": color("line"), "text-valign": "top",
        "text-margin-y": 27, "font-size": 20, "font-weight": "bold", color: color("dim") } },
      { selector: ".loop", style: { "border-style": "dashed", "border-width": 2, "border-color": color("accent") } },
      { selector: ".device", style: { "border-width": 2.5, "border-color": color("device") } },
      { selector: "edge", style: { width: "data(width)", "line-color": color("line"), "curve-style": "straight",
        "target-arrow-shape": "triangle", "target-arrow-color": color("line") } },
      { selector: "edge.control", style: { "line-style": "dotted" } },
      { selector: "edge.back", style: { "line-color": color("accent"), "target-arrow-color": color("accent"),
        "curve-style": "unbundled-bezier", "control-point-distances": 90, "control-point-weights": 0.5 } },
      { selector: "edge.near", style: { "line-color": color("accent"), "target-arrow-color": color("accent") } },
      { selector: "node.failed", style: { "border-color": color("warning"), "border-width": 3, "border-style": "dashed" } },
      { selector: "node.running", style: { label: "data(running)", "border-color": color("device"), "border-width": 5,
        "border-style": "solid" } },
      { selector: "node.chosen", style: { "border-color": color("accent"), "border-width": 4, "border-style": "solid" } },
    ];
  }

  const cy = cytoscape({ container: by("picture"), style: style(), layout: { name: "preset" }, minZoom: 0.005, maxZoom: 4,
    boxSelectionEnabled: false, autoungrabify: true });

  let drawnIn = new Int32Array(0); // the box that each node is drawn in
  let whole = { w: 1, h: 1 }; // the size of the picture, whose middle is at 0, 0

  function draw() {
    const made = elements();
    cy.batch(() => {
      cy.elements().remove();
      cy.add(made);
    });
    markChosen();
    if (marks.size) showMarks();
    const numShown = made.filter((each) => each.data.color).length;
    by("shown").textContent = `${number(numShown)} of ${number(count)} nodes shown for themselves`;
  }

  /* All of the picture; its size is known without asking each of its elements, which takes seconds. */
  function fit() {
    const room = 24, zoom = Math.min(1.5, (cy.width() - 2 * room) / whole.w, (cy.height() - 2 * room) / whole.h);
    cy.viewport({ zoom, pan: { x: cy.width() / 2, y: cy.height() / 2 } });
  }

  function zoomBy(factor) {
    cy.zoom({ level: cy.zoom() * factor, renderedPosition: { x: cy.width() / 2, y: cy.height() / 2 } });
  }

  function goTo(box) {
    const element = cy.getElementById(String(box));
    if (element.empty()) return;
    const seen = cy.extent(), at = element.position();
    if (at.x > seen.x1 && at.x < seen.x2 && at.y > seen.y1 && at.y < seen.y2 && cy.zoom() > 0.5) return;
    const zoom = Math.max(cy.zoom(), 0.7);
    const pan = { x: cy.width() / 2 - zoom * at.x, y: cy.height() / 2 - zoom * at.y };
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) cy.viewport({ zoom, pan });
    else cy.animate({ zoom, pan }, { duration: 220 });
  }

  // ---- marks: what runs now, and what has failed

  let marks = new Map(), nodeCalled = null;

  /* Lets nodes stand out, by their names: {running: count, isFailed}; the boxes that they are folded into do so, too. */
  function mark(given) {
    marks = given;
    showMarks();
  }

  const nodes = () => (nodeCalled ??= new Map(names.map((name, node) => [name, node])));

  function chooseNode(name) {
    if (nodes().has(name)) choose(boxOf(nodes().get(name)));
  }

  function showMarks() {
    const found = new Map();
    for (const [name, told] of marks) {
      if (!nodes().has(name)) continue;
      const box = drawnIn[nodes().get(name)], so = found.get(box) ?? { running: 0, isFailed: false };
      found.set(box, { running: so.running + (told.running ?? 0), isFailed: so.isFailed || Boolean(told.isFailed) });
    }
    cy.batch(() => {
      cy.nodes(".running, .failed").removeClass("running failed").removeData("running");
      for (const [box, { running, isFailed }] of found) {
        const element = cy.getElementById(String(box));
        if (isFailed) element.addClass("failed");
        if (running) element.data("running", `${element.data("label")}\n${number(running)} under way`).addClass("running");
      }
    });
  }

  // ---- folding

  function setOpen(group, open) {
    if (Boolean(isOpen[group]) === open || group === 0) return;
    isOpen[group] = open ? 1 : 0;
    const before = cy.getElementById(String(group)).renderedPosition();
    const held = before && { ...before };
    draw();
    const after = cy.getElementById(String(group));
    if (held && after.nonempty()) cy.panBy({ x: held.x - after.renderedPosition().x, y: held.y - after.renderedPosition().y });
    refreshItem(group);
    say(`${groupName(groups[group])} ${open ? "unfolded" : "folded"}`);
  }

  function reveal(box) {
    const closed = [];
    for (let group = parentOf[box]; group > 0; group = parentOf[group]) if (!isOpen[group]) closed.push(group);
    if (!closed.length) return;
    for (const group of closed) isOpen[group] = 1;
    draw();
    refreshItem(closed[closed.length - 1]);
  }

  function setAll(open) {
    isOpen.fill(open ? 1 : 0);
    isOpen[0] = 1;
    if (chosen > 0 && !open) choose(outermost(chosen), false);
    draw();
    renderTree();
    fit();
    say(open ? "all unfolded" : "all folded");
  }

  function outermost(box) {
    while (parentOf[box] > 0) box = parentOf[box];
    return box;
  }

  // ---- what is chosen

  let chosen = -1;

  function markChosen() {
    cy.elements(".chosen, .near").removeClass("chosen near");
    if (chosen < 0) return;
    const element = cy.getElementById(String(chosen));
    element.addClass("chosen");
    element.connectedEdges().addClass("near");
  }

  /* Chooses a box in the picture, the tree and the details; a focus in the tree goes along. */
  function choose(box, move = true) {
    reveal(box);
    chosen = box;
    markChosen();
    if (move) goTo(box);
    for (const item of by("tree").querySelectorAll('[aria-selected="true"]')) item.setAttribute("aria-selected", "false");
    const item = itemOf(box);
    if (item) {
      item.setAttribute("aria-selected", "true");
      setStop(item);
      item.querySelector(".row").scrollIntoView({ block: "nearest" });
    }
    showDetails(box);
  }

  function make(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }

  function link(node, tail = "") {
    return make("li", {}, make("button", { type: "button", class: "link", onclick: () => { choose(boxOf(node)); focusItem(boxOf(node)); } },
      names[node]), tail);
  }

  function capped(items, most) {
    const shown = items.slice(0, most);
    if (items.length > most) shown.push(make("li", {}, `... and ${number(items.length - most)} more`));
    return shown;
  }

  function facts(rows) {
    const list = make("dl");
    for (const [name, value] of rows) list.append(make("dt", {}, name), make("dd", {}, value));
    return list;
  }

  function showDetails(box) {
    const panel = by("details");
    if (isGroup(box)) {
      const group = groups[box];
      panel.replaceChildren(make("h2", {}, groupName(group)), make("p", {}, `${number(group.size)} nodes, ${number(group.children.length)} boxes`),
        make("button", { type: "button", onclick: () => setOpen(box, !isOpen[box]) }, "Fold or unfold"));
      return;
    }
    const node = nodeOf(box), { op, device, attrs, isUnknown } = kinds[kindOf[node]];
    const rows = [["op", isUnknown ? `${op} (not registered here)` : op]];
    if (device) rows.push(["device", device]);
    if (data.lines && Object.hasOwn(data.lines, names[node])) rows.push(["made at", data.lines[names[node]]]);
    outputs[outputsOf[node]].forEach(([dtype, shape], slot) => rows.push([`output ${slot}`, `${dtype} ${shape}`]));
    panel.replaceChildren(make("h2", {}, names[node]), facts(rows));
    if (attrs.length) panel.append(make("h3", {}, "Attributes"), facts(attrs));
    const flat = inputs[node], from = [];
    for (let i = 0; i < flat.length; i += 2) from.push([flat[i], flat[i + 1] === CONTROL_SLOT ? " (control)" : `:${flat[i + 1]}`]);
    const to = [...new Set(consumers.subarray(firstConsumer[node], firstConsumer[node + 1]))];
    if (from.length) panel.append(make("h3", {}, `Takes from (${number(from.length)})`), make("ul", {}, ...capped(from, MOST_LINKS).map((each) => (Array.isArray(each) ? link(...each) : each))));
    if (to.length) panel.append(make("h3", {}, `Taken by (${number(to.length)})`), make("ul", {}, ...capped(to, MOST_LINKS).map((each) => (typeof each === "number" ? link(each) : each))));
  }

  // ---- the tree

  const items = new Map();
  const itemOf = (box) => items.get(box);

  function treeItem(box, index, total) {
    const group = isGroup(box) ? groups[box] : null;
    const name = group ? groupName(group) : lastPart(names[nodeOf(box)]);
    const tail = group ? `${number(group.size)} nodes` : kinds[kindOf[nodeOf(box)]].op;
    const item = make("li", { role: "treeitem", "aria-level": depthOf[box], "aria-setsize": total, "aria-posinset": index + 1,
      "aria-selected": box === chosen, "aria-label": `${name}, ${tail}`, tabindex: -1, "data-box": box },
      make("div", { class: "row" }, make("span", { class: "mark", "aria-hidden": "true" }), make("span", { class: "name" }, name), make("span", { class: "tail" }, tail)));
    if (group) {
      item.setAttribute("aria-expanded", Boolean(isOpen[box]));
      if (isOpen[box]) item.append(branch(group));
    }
    items.set(box, item);
    return item;
  }

  function branch(group) {
    return make("ul", { role: "group" }, ...group.children.map((child, i) => treeItem(child, i, group.children.length)));
  }

  function renderTree() {
    const hadFocus = by("tree").contains(document.activeElement);
    items.clear();
    by("tree").replaceChildren(...groups[0].children.map((child, i) => treeItem(child, i, groups[0].children.length)));
    const first = itemOf(chosen) ?? by("tree").firstElementChild;
    if (first) setStop(first);
    if (first && hadFocus) first.focus();
  }

  function refreshItem(group) {
    const item = itemOf(group);
    if (!item) return;
    const hadFocus = item.contains(document.activeElement);
    item.querySelector(":scope > ul")?.remove();
    item.setAttribute("aria-expanded", Boolean(isOpen[group]));
    if (isOpen[group]) item.append(branch(groups[group]));
    if (!item.contains(stop) || !stop.isConnected) setStop(item);
    if (hadFocus && !item.contains(document.activeElement)) item.focus();
  }

  let stop = null; // the one item of the tree that Tab comes to

  function setStop(item) {
    stop?.setAttribute("tabindex", -1);
    stop = item;
    item.setAttribute("tabindex", 0);
  }

  function focusItem(box) {
    const item = itemOf(box);
    if (!item) return;
    setStop(item);
    item.focus();
  }

  function neighbour(item, step) {
    const all = [...by("tree").querySelectorAll('[role="treeitem"]')];
    return all[all.indexOf(item) + step];
  }

  by("tree").addEventListener("keydown", (event) => {
    const item = event.target.closest('[role="treeitem"]');
    if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
    const box = Number(item.dataset.box);
    const go = (other) => { if (other) { setStop(other); other.focus(); } };
    const keys = {
      ArrowDown: () => go(neighbour(item, 1)),
      ArrowUp: () => go(neighbour(item, -1)),
      ArrowRight: () => (isGroup(box) ? (isOpen[box] ? go(item.querySelector('[role="treeitem"]')) : setOpen(box, true)) : null),
      ArrowLeft: () => (isGroup(box) && isOpen[box] ? setOpen(box, false) : go(item.parentElement.closest('[role="treeitem"]'))),
      Home: () => go(by("tree").firstElementChild),
      End: () => go([...by("tree").querySelectorAll('[role="treeitem"]')].pop()),
      Enter: () => choose(box),
      " ": () => choose(box),
    };
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });

  by("tree").addEventListener("click", (event) => {
    const item = event.target.closest('[role="treeitem"]');
    if (!item) return;
    const box = Number(item.dataset.box);
    if (event.target.classList.contains("mark") && isGroup(box)) setOpen(box, !isOpen[box]);
    else choose(box);
    focusItem(box);
  });

  // ---- search

  let lowered = null;

  function find(text) {
    lowered ??= names.map((name, node) => `${name} ${kinds[kindOf[node]].op} ${kinds[kindOf[node]].device}`.toLowerCase());
    const wanted = text.trim().toLowerCase();
    const found = [];
    if (wanted) lowered.forEach((each, node) => { if (each.includes(wanted)) found.push(node); });
    return found;
  }

  function search() {
    const text = by("search").value;
    const found = find(text);
    by("found").replaceChildren(...capped(found, MOST_FOUND).map((each) => (typeof each === "number" ? link(each, ` ${kinds[kindOf[each]].op}`) : each)));
    by("found").hidden = !text.trim();
    say(text.trim() ? `${number(found.length)} found` : "");
    return found;
  }

  by("search").addEventListener("input", search);
  by("search").addEventListener("keydown", (event) => {
    if (event.key === "Escape") by("search").value = "";
    else if (event.key !== "Enter") return;
    const found = search();
    if (event.key === "Enter" && found.length) choose(boxOf(found[0]));
  });

  function say(text) {
    by("said").textContent = text;
  }

  // ---- what is pressed

  by("fit").addEventListener("click", fit);
  by("closer").addEventListener("click", () => zoomBy(1.4));
  by("farther").addEventListener("click", () => zoomBy(1 / 1.4));
  by("fold").addEventListener("click", () => setAll(false));
  by("unfold").addEventListener("click", () => setAll(true));
  by("unfold").disabled = count > MOST_SHOWN;
  cy.on("tap", "node", (event) => {
    const box = Number(event.target.id());
    choose(box, false);
    if (isGroup(box) && !isOpen[box]) setOpen(box, true);
  });
  cy.on("dbltap", ".open", (event) => {
    if (event.target.id() === String(chosen)) setOpen(chosen, false);
  });
  by("picture").addEventListener("keydown", (event) => {
    const keys = {
      "+": () => zoomBy(1.4), "=": () => zoomBy(1.4), "-": () => zoomBy(1 / 1.4), 0: fit,
      ArrowLeft: () => cy.panBy({ x: 60, y: 0 }), ArrowRight: () => cy.panBy({ x: -60, y: 0 }),
      ArrowUp: () => cy.panBy({ x: 0, y: 60 }), ArrowDown: () => cy.panBy({ x: 0, y: -60 }),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target === by("search")) return;
    event.preventDefault();
    by("search").focus();
  }, { signal });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    cy.style(style());
    draw();
  }, { signal });
  signal?.addEventListener("abort", () => cy.destroy());

  openFirst();
  cy.one("render", () => {
    requestAnimationFrame(() => {
      performance.mark("shown");
      setTimeout(() => {
        renderTree();
        root.dataset.state = "ready";
      });
    });
  });
  draw();
  fit();
  return { mark, chooseNode };
}
