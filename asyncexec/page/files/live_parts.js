/* Small parts of the live page.  Names, errors and values are strangers': they become text nodes and never HTML. */

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

export function svg(tag, properties = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/* Lets the children of parent be those of items, by key: what is there stays, so that a focus in it does, too. */
export function sync(parent, items, keyOf, create, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let child = known.get(key);
    known.delete(key);
    if (!child) {
      child = create(item);
      child.dataset.key = key;
    }
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    update?.(child, item);
  }
  for (const child of known.values()) child.remove();
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const whole = (value) => Math.round(value).toLocaleString("en");

export function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  return size >= 100 || Number.isInteger(value) ? whole(value) : size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

export function milliseconds(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms >= 10000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(2)} s`;
  if (ms >= 10) return `${ms.toFixed(0)} ms`;
  return ms >= 0.1 ? `${ms.toFixed(1)} ms` : `${(ms * 1000).toFixed(0)} µs`;
}

/* A number of bytes, with a unit. */
export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  for (; value >= 1000 && unit < units.length - 1; unit += 1) value /= 1000;
  return `${unit && value < 10 ? value.toFixed(1) : whole(value)} ${units[unit]}`;
}

export function ago(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s ago`;
  return seconds < 3600 ? `${Math.floor(seconds / 60)} min ago` : `${Math.floor(seconds / 3600)} h ago`;
}

const WIDTH = 120, HEIGHT = 30;

/* A line of the last values, the latest at the right. */
export function sparkline() {
  const under = svg("path", { class: "under" }), line = svg("path");
  const picture = svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, under, line);
  picture.show = (values, most) => {
    if (values.length < 2) return;
    const top = Math.max(1e-9, ...values), step = WIDTH / (most - 1), start = WIDTH - step * (values.length - 1);
    const points = values.map((value, i) => `${(start + i * step).toFixed(1)},${(HEIGHT - 2 - (value / top) * (HEIGHT - 5)).toFixed(1)}`);
    line.setAttribute("d", `M${points.join("L")}`);
    under.setAttribute("d", `M${start.toFixed(1)},${HEIGHT}L${points.join("L")}L${WIDTH},${HEIGHT}Z`);
  };
  return picture;
}

/* Rows of a name, a number and a bar as long as its part of the largest. */
export function bars(list, rows, nothing) {
  const most = Math.max(1e-12, ...rows.map((row) => row.value));
  const items = rows.length ? rows : [{ name: nothing, isNone: true }];
  sync(list, items, (row) => (row.isNone ? "" : row.name), (row) => (row.isNone
    ? make("li", { class: "none" }, row.name)
    : make("li", {}, make("span", {}, row.name), make("span", { class: "number" }), make("span", { class: "bar" }, make("i")))),
  (item, row) => {
    if (row.isNone) return;
    setText(item.children[1], row.text ?? number(row.value));
    item.querySelector("i").style.width = `${(100 * row.value) / most}%`;
  });
}

/* Columns side by side, each with a name below it. */
export function columns(list, rows) {
  const most = Math.max(1e-12, ...rows.map((row) => row.value));
  sync(list, rows, (row) => row.name, (row) => make("li", {}, make("span", { class: "hidden" }), make("i", { "aria-hidden": "true" }),
    make("span", { class: "small", "aria-hidden": "true" }, row.name)), (item, row) => {
    setText(item.firstElementChild, row.text);
    item.title = row.text;
    item.children[1].style.height = `${(100 * row.value) / most}%`;
  });
}

/* Facts as a list of names and values. */
export function facts(list, rows) {
  sync(list, rows, ([name]) => name, ([name]) => make("div", {}, make("dt", {}, name), make("dd")), (item, [, value]) => setText(item.lastElementChild, value));
}

/* A table whose cells are texts; those of numbers stand at the right. */
export function table(heads, rows) {
  const isNumber = heads.map((_, i) => rows.every((row) => /^[-+–∞\d.,]/.test(row[i]) || row[i] === ""));
  const kind = (i) => ({ class: isNumber[i] && i ? "number" : undefined });
  return make("div", { class: "scroll" }, make("table", {},
    make("thead", {}, make("tr", {}, ...heads.map((head, i) => make("th", { scope: "col", ...kind(i) }, head)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell, i) => make("td", kind(i), cell)))))));
}
