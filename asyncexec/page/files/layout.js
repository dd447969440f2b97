"use strict";

/* Places for the boxes of one box: rows by the longest way from an input, each row ordered by where its neighbours are.

   Takes time in proportion to boxes and edges, so that thousands are placed at once.  sizes: [{w, h}]; edges: [[source,
   target]], loops allowed.  Gives {w, h, at: [{x, y}]}, the size of all and the middle of each, from the upper left. */
function placeBoxes(sizes, edges) {
  const GAP_X = 26, GAP_Y = 44, SWEEPS = 6;
  const count = sizes.length;
  const forward = withoutCycles(count, edges);
  const rows = asRows(sizes, forward, GAP_X);
  const rowOf = new Int32Array(count);
  rows.forEach((row, index) => row.forEach((box) => { rowOf[box] = index; }));
  const above = lists(count), below = lists(count);
  for (const [source, target] of forward) {
    above[target].push(source);
    below[source].push(target);
  }
  const x = new Float64Array(count);
  for (const row of rows) {
    let left = 0;
    for (const box of row) { x[box] = left + sizes[box].w / 2; left += sizes[box].w + GAP_X; }
    for (const box of row) x[box] -= left / 2;
  }
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    const mayReorder = sweep < SWEEPS - 2;
    for (const row of down ? rows : [...rows].reverse()) {
      const wanted = (box) => middle(down ? above[box] : below[box], x) ?? middle(down ? below[box] : above[box], x) ?? x[box];
      settle(row, wanted, mayReorder, sizes, x, GAP_X);
    }
  }
  return inColumns(rows, sizes, x, GAP_X, GAP_Y);
}

/* Rows one below the other; where that would be a thin strip, in columns side by side, as a newspaper is set. */
function inColumns(rows, sizes, x, gapX, gapY) {
  const ASPECT = 1.4, COLUMN_GAP = 2 * gapX;
  const heights = rows.map((row) => Math.max(...row.map((box) => sizes[box].h)) + gapY);
  const total = heights.reduce((sum, height) => sum + height, 0);
  const lefts = rows.map((row) => x[row[0]] - sizes[row[0]].w / 2);
  const rights = rows.map((row) => x[row[row.length - 1]] + sizes[row[row.length - 1]].w / 2);
  const width = Math.max(0, ...rights) - Math.min(0, ...lefts);
  const columns = total < 1500 ? 1 : Math.max(1, Math.round(Math.sqrt((total * ASPECT) / (width + COLUMN_GAP))));
  const at = new Array(x.length);
  let from = 0, start = 0, h = 0;
  for (let index = 0; index < rows.length; ) {
    let end = index, bottom = 0;
    while (end < rows.length && (end === index || bottom + heights[end] / 2 <= total / columns)) bottom += heights[end++];
    const left = Math.min(...lefts.slice(index, end)), right = Math.max(...rights.slice(index, end));
    for (let y = 0; index < end; y += heights[index++]) {
      for (const box of rows[index]) at[box] = { x: start + x[box] - left, y: y + (heights[index] - gapY) / 2 };
    }
    h = Math.max(h, bottom - gapY);
    from = start + right - left;
    start = from + COLUMN_GAP;
  }
  return { w: from, h, at };
}

function lists(count) {
  return Array.from({ length: count }, () => []);
}

/* The edges but for those that close a cycle, each once. */
function withoutCycles(count, edges) {
  const out = lists(count);
  for (const [source, target] of edges) if (source !== target) out[source].push(target);
  const state = new Uint8Array(count); // 1: on the way, 2: done
  const kept = [];
  for (let start = 0; start < count; start++) {
    if (state[start]) continue;
    const way = [[start, 0]];
    state[start] = 1;
    while (way.length) {
      const last = way[way.length - 1];
      const [box, index] = last;
      if (index === out[box].length) {
        state[box] = 2;
        way.pop();
        continue;
      }
      last[1]++;
      const next = out[box][index];
      if (state[next] === 1) continue; // closes a cycle
      kept.push([box, next]);
      if (!state[next]) {
        state[next] = 1;
        way.push([next, 0]);
      }
    }
  }
  return kept;
}

/* Rows of boxes; one that is too wide is broken into several, and boxes without edges come last. */
function asRows(sizes, forward, gap) {
  const count = sizes.length;
  const waiting = new Int32Array(count), level = new Int32Array(count), out = lists(count);
  const isLinked = new Uint8Array(count);
  for (const [source, target] of forward) {
    waiting[target]++;
    out[source].push(target);
    isLinked[source] = isLinked[target] = 1;
  }
  const hasInputs = waiting.map((number) => (number ? 1 : 0));
  const order = [];
  for (let box = 0; box < count; box++) if (!waiting[box]) order.push(box);
  for (let index = 0; index < order.length; index++) {
    for (const next of out[order[index]]) {
      level[next] = Math.max(level[next], level[order[index]] + 1);
      if (!--waiting[next]) order.push(next);
    }
  }
  // What has no inputs, such as a constant, stands right above the first that takes it.
  for (const box of order) {
    if (!hasInputs[box] && out[box].length) level[box] = Math.min(...out[box].map((next) => level[next])) - 1;
  }
  const byLevel = new Map();
  const alone = [];
  for (const box of order) {
    if (!isLinked[box]) alone.push(box);
    else if (byLevel.has(level[box])) byLevel.get(level[box]).push(box);
    else byLevel.set(level[box], [box]);
  }
  const area = sizes.reduce((sum, { w, h }) => sum + (w + gap) * (h + 2 * gap), 0);
  const widest = Math.max(1200, 1.6 * Math.sqrt(area));
  const rows = [];
  for (const key of [...byLevel.keys()].sort((a, b) => a - b)) rows.push(...broken(byLevel.get(key), sizes, widest, gap));
  return rows.concat(broken(alone, sizes, widest, gap));
}

function broken(row, sizes, widest, gap) {
  const rows = [];
  let width = Infinity;
  for (const box of row) {
    if (width + sizes[box].w > widest) {
      rows.push([]);
      width = 0;
    }
    rows[rows.length - 1].push(box);
    width += sizes[box].w + gap;
  }
  return rows;
}

function middle(boxes, x) {
  if (!boxes.length) return null;
  let sum = 0;
  for (const box of boxes) sum += x[box];
  return sum / boxes.length;
}

/* Puts the boxes of a row as near to where they want to be as the gaps between them allow (isotonic regression). */
function settle(row, wanted, mayReorder, sizes, x, gap) {
  const wish = new Map(row.map((box) => [box, wanted(box)]));
  if (mayReorder) row.sort((a, b) => wish.get(a) - wish.get(b));
  const blocks = [];
  let offset = 0;
  row.forEach((box, index) => {
    if (index) offset += (sizes[row[index - 1]].w + sizes[box].w) / 2 + gap;
    blocks.push({ sum: wish.get(box) - offset, count: 1 });
    while (blocks.length > 1) {
      const last = blocks[blocks.length - 1], before = blocks[blocks.length - 2];
      if (before.sum / before.count <= last.sum / last.count) break;
      before.sum += last.sum;
      before.count += last.count;
      blocks.pop();
    }
  });
  offset = 0;
  let index = 0;
  for (const block of blocks) {
    for (let i = 0; i < block.count; i++, index++) {
      if (index) offset += (sizes[row[index - 1]].w + sizes[row[index]].w) / 2 + gap;
      x[row[index]] = block.sum / block.count + offset;
    }
  }
}
