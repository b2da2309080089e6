"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const colour = (place) => `hsl(${Math.round((place * 137.5) % 360)} 55% ${place % 2 ? 42 : 52}%)`;
const COLUMNS = [
  ["method", "method"], ["error", "error"], ["ratio", "to best certified"], ["bytes", "bytes"], ["microseconds", "µs a user"],
  ["users", "users"], ["words", "guarantee"],
];
let sorted = { by: "error", down: false };

const short = (value) => {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e4 || size < 1e-3) return value.toExponential(2).replace("e+", "e");
  return String(Number(value.toPrecision(4)));
};
const element = (name, content, attributes = {}) => {
  const made = document.createElement(name);
  if (content !== undefined) made.textContent = content;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
};
const unique = (values) => [...new Set(values)];

function choose(select, options, chosen) {
  select.replaceChildren(...options.map((one) => element("option", one, { value: one })));
  if (options.includes(chosen)) select.value = chosen;
}
const rowsOf = (task) => data.rows.filter((row) => row.task === task);
const here = () => rowsOf(byId("task").value).filter((row) => row.cell === byId("cell").value);

function bestOf(rows) {
  const own = rows.filter((row) => row.verdict === "certified" && row.by !== "noisette, other task" && !row.method.startsWith("auto, ") && !row.biased);
  return Math.min(...own.map((row) => row.error));
}

function line(row, best) {
  const made = element("tr");
  if (row.method === "auto") made.className = "auto";
  const first = element("td", row.method);
  first.append(element("small", row.chosen && row.chosen !== row.method ? `${row.by}: took ${row.chosen}` : row.by));
  const error = element("td", short(row.error));
  error.append(element("small", row.spread ? `± ${short(2 * row.spread * row.error)}` : "one run"));
  made.append(first, error, element("td", isFinite(best) && best > 0 ? (row.error / best).toFixed(3) : ""));
  made.append(element("td", row.bytes ? short(row.bytes) : ""), element("td", short(row.microseconds)), element("td", row.users.toLocaleString("en")));
  const last = element("td");
  last.append(element("span", row.verdict, { class: `verdict ${row.verdict}` }), element("small", row.words));
  made.append(last);
  return made;
}

function show() {
  const rows = here();
  const best = bestOf(rows);
  const value = (row) => (sorted.by === "ratio" ? row.error : row[sorted.by]);
  const order = (a, b) => {
    const [x, y] = [value(a), value(b)];
    const way = typeof x === "string" ? x.localeCompare(y) : x - y;
    return sorted.down ? -way : way;
  };
  const kept = rows.filter((row) => row.verdict !== "refuted").sort(order);
  const out = rows.filter((row) => row.verdict === "refuted").sort(order);
  byId("ranked").replaceChildren(...kept.map((row) => line(row, best)));
  byId("refuted").replaceChildren(...out.map((row) => line(row, best)));
  byId("measure").textContent = rows.length ? `Error: ${rows[0].measure}.` : "";
  document.querySelector("#methods thead tr").replaceChildren(...COLUMNS.map(([key, title]) => {
    const head = element("th", undefined, { scope: "col" });
    if (key === sorted.by) head.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
    const button = element("button", title, { type: "button" });
    button.addEventListener("click", () => {
      sorted = { by: key, down: sorted.by === key && !sorted.down };
      show();
    });
    head.append(button);
    return head;
  }));
  budget();
}

function plot(series, across, up) {
  const [width, height, left, bottom, top, right] = [Math.min(560, Math.max(300, window.innerWidth - 60)), 320, 62, 44, 12, 12];
  const points = series.flatMap((one) => one.points);
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  made.setAttribute("viewBox", `0 0 ${width} ${height}`);
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", `${up} against ${across}: ${series.map((one) => one.name).join(", ")}`);
  const range = (place) => {
    const found = points.map((point) => point[place]).filter((value) => value > 0).map(Math.log10);
    const [low, high] = [Math.min(...found), Math.max(...found)];
    return high - low < 0.3 ? [low - 0.15, high + 0.15] : [low, high];
  };
  const [xs, ys] = [range(0), range(1)];
  const x = (value) => left + ((Math.log10(value) - xs[0]) / (xs[1] - xs[0])) * (width - left - right);
  const y = (value) => height - bottom - ((Math.log10(value) - ys[0]) / (ys[1] - ys[0])) * (height - bottom - top);
  const add = (name, attributes, text) => {
    const one = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
    if (text !== undefined) one.textContent = text;
    made.append(one);
  };
  const ticks = ([low, high]) => {
    const found = [];
    for (let power = Math.floor(low); power <= Math.ceil(high); power += Math.max(1, Math.ceil((high - low) / 6))) {
      for (const step of high - low < 2 ? [1, 2, 5] : [1]) {
        const value = step * 10 ** power;
        if (Math.log10(value) >= low - 1e-9 && Math.log10(value) <= high + 1e-9) found.push(value);
      }
    }
    return found;
  };
  const own = [...new Set(points.map((point) => point[0]).filter((value) => value > 0))];
  for (const value of own.length <= 6 ? own : ticks(xs)) { // a few budgets are all marked
    add("line", { x1: x(value), x2: x(value), y1: top, y2: height - bottom });
    add("text", { x: x(value), y: height - bottom + 16, "text-anchor": "middle" }, short(value));
  }
  for (const value of ticks(ys)) {
    add("line", { x1: left, x2: width - right, y1: y(value), y2: y(value) });
    add("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, short(value));
  }
  add("text", { x: (left + width) / 2, y: height - 8, "text-anchor": "middle" }, across);
  add("text", { x: 12, y: (height - bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(height - bottom) / 2})` }, up);
  series.forEach((one) => {
    const shown = one.points.filter((point) => point[0] > 0 && point[1] > 0);
    const path = shown.map((point, place) => `${place ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[1]).toFixed(1)}`).join("");
    add("path", { d: path, stroke: one.colour, "stroke-dasharray": one.peer ? "6 4" : "none" });
    shown.forEach((point) => add("circle", { cx: x(point[0]), cy: y(point[1]), r: 3, fill: one.colour }));
  });
  return made;
}

function keys(series) {
  const list = element("ul", undefined, { class: "keys" });
  for (const one of series) {
    const item = element("li", undefined, one.peer ? { class: "peer" } : {});
    item.append(element("span", undefined, { style: `color:${one.colour}` }), one.name);
    list.append(item);
  }
  return list;
}

function budget() {
  const name = byId("cell").value.replace(/, ε = .*/, "");
  const rows = rowsOf(byId("task").value).filter((row) => row.cell.startsWith(`${name}, ε`) && row.verdict !== "refuted");
  const few = unique(rows.map((row) => row.epsilon)).length < 2;
  if (few) {
    byId("budget").replaceChildren(element("p", "This data set was measured at one budget.", { class: "hint" }));
    return;
  }
  const series = unique(rows.map((row) => row.method)).map((method, place) => {
    const own = rows.filter((row) => row.method === method).sort((a, b) => a.epsilon - b.epsilon);
    return { name: method, peer: !own[0].by.startsWith("noisette"), colour: colour(place), points: own.map((row) => [row.epsilon, row.error]) };
  }).filter((one) => one.points.length > 1);
  byId("budget").replaceChildren(plot(series, "ε", "error"), keys(series));
}

function curves() {
  const made = Object.entries(data.axes).map(([name, told]) => {
    const own = data.curves.filter((curve) => curve.axis === name);
    const block = element("div");
    if (!own.length) return block;
    const series = (place) => own.map((curve, number) => ({
      name: curve.by === "noisette" ? curve.method : `${curve.by} ${curve.method}`, peer: curve.by !== "noisette",
      colour: colour(number), points: curve.points.map((point) => [point[0], point[place]]),
    }));
    block.append(element("h3", `By ${told.axis}`), element("p", `CPU seconds and error ${told.about}.`, { class: "hint" }));
    const pair = element("div", undefined, { class: "pair plot" });
    pair.append(plot(series(1), told.axis, "CPU seconds"), plot(series(2), told.axis, "error"));
    block.append(pair, keys(series(1)));
    return block;
  });
  byId("curves").replaceChildren(...made);
}

byId("task").addEventListener("change", () => {
  choose(byId("cell"), unique(rowsOf(byId("task").value).map((row) => row.cell)));
  show();
});
byId("cell").addEventListener("change", show);
choose(byId("task"), unique(data.rows.map((row) => row.task)));
choose(byId("cell"), unique(rowsOf(byId("task").value).map((row) => row.cell)));
show();
curves();
