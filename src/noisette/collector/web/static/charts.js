// Small charts in SVG. Text is set as text, never as mark-up; every chart has a sentence for those who do not see it.

const SPACE = "http://www.w3.org/2000/svg";

export const svg = (name, attributes = {}, ...children) => {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

export const html = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

const exponent = value => Math.floor(Math.log10(Math.abs(value)));

/** Write a number with two digits of its error, or with four digits where there is none. */
export function number(value, error = null) {
  if (value === null || !Number.isFinite(value)) return "–";
  const places = error > 0 && Number.isFinite(error) ? 1 - exponent(error) : value === 0 ? 0 : 3 - exponent(value);
  if (places > 9) return value.toExponential(2);
  const shown = Math.min(Math.max(places, 0), 9);
  return value.toLocaleString("en", { minimumFractionDigits: error > 0 ? shown : 0, maximumFractionDigits: shown });
}

export const count = value => value.toLocaleString("en");
const short = value => value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });

function powers(low, high) { // ticks of a logarithmic axis: powers of ten, or 1, 2, 5 where these are few
  const ticks = [];
  const many = Math.log10(high / low) < 2;
  for (let e = exponent(low); e <= exponent(high) + 1; e++) {
    ticks.push(...(many ? [1, 2, 5] : [1]).map(step => step * 10 ** e));
  }
  return ticks.filter(tick => tick >= low && tick <= high);
}

function evenly(low, high) { // ticks of a plain axis: three to six multiples of 1, 2 or 5 times a power of ten
  const rough = (high - low) / 4, power = 10 ** exponent(rough);
  const step = [1, 2, 5, 10].find(one => one * power >= rough) * power, ticks = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) ticks.push(Number((k * step).toPrecision(12)));
  return ticks;
}

const line = (points, name) => svg("polyline", { class: name, points: points.map(at => at.join(",")).join(" ") });

/** Draw errors against users, both logarithmic: the plan, what was seen, and the target. */
export function errorChart(width, { plan, track, target, title }) {
  const height = 260, left = 52, right = 14, top = 12, bottom = 40;
  const points = [...plan, ...track].filter(([, error]) => error > 0);
  const ends = at => [Math.min(...points.map(one => one[at])), Math.max(...points.map(one => one[at]))];
  const [users, errors] = [ends(0), ends(1)];
  const scale = ([low, high], from, to) => value =>
    from + (to - from) * (Math.log(value / low) / (Math.log(high / low) || 1));
  const x = scale(users, left, width - right), y = scale(errors, height - bottom, top);
  const made = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": title });
  for (const tick of powers(...errors)) {
    made.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
      svg("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, number(tick)));
  }
  for (const tick of powers(...users).filter((_, at, all) => all.length < 8 || at % 2 === 0)) {
    made.append(svg("line", { class: "grid", x1: x(tick), x2: x(tick), y1: top, y2: height - bottom }),
      svg("text", { x: x(tick), y: height - bottom + 18, "text-anchor": "middle" }, short(tick)));
  }
  made.append(svg("line", { class: "goal", x1: x(target), x2: x(target), y1: top, y2: height - bottom }),
    svg("text", { x: x(target) - 5, y: top + 10, "text-anchor": "end" }, "target"),
    svg("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, "users who have answered"),
    line(plan.map(([n, error]) => [x(n), y(error)]), "plan"));
  const seen = track.filter(([, error]) => error > 0).map(([n, error]) => [x(n), y(error)]);
  if (seen.length) {
    const [cx, cy] = seen.at(-1);
    made.append(line(seen, "seen"), svg("circle", { class: "dot", cx, cy, r: 5 }));
  }
  return made;
}

/** One estimate on a line from low to high: a bar where it is a share, a mark, and its interval. */
export function strip({ value, low, high }, [from, to], share) {
  const at = point => 100 * Math.min(Math.max((point - from) / (to - from), 0), 1);
  const made = svg("svg", { viewBox: "0 0 100 18", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "track", x: 0, y: 7, width: 100, height: 4 }));
  if (value === null) return made;
  if (share) made.append(svg("rect", { class: "bar", x: at(0), y: 3, width: at(value) - at(0), height: 12 }));
  made.append(svg("rect", { class: "mark", x: at(low), y: 8, width: Math.max(at(high) - at(low), 0.3), height: 2 }),
    svg("rect", { class: "mark", x: Math.min(Math.max(at(value) - 0.4, 0), 99.2), y: 3, width: 0.8, height: 12 }));
  return made;
}

/** A histogram with the interval of every bar. */
export function histogram(width, { edges, probabilities, low, high }, title) {
  const height = 150, bottom = 22, span = edges.at(-1) - edges[0];
  const x = value => width * (value - edges[0]) / span;
  const most = Math.max(...(high ?? probabilities), 1e-9);
  const y = value => (height - bottom) * (1 - Math.max(value, 0) / most);
  const made = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": title });
  probabilities.forEach((share, at) => {
    const [from, to] = [x(edges[at]), x(edges[at + 1])], middle = (from + to) / 2;
    const box = { x: from + 0.5, y: y(share), width: Math.max(to - from - 1, 0.5), height: y(0) - y(share) };
    made.append(svg("rect", { class: "bar", ...box }));
    if (low) made.append(svg("line", { class: "band", x1: middle, x2: middle, y1: y(low[at]), y2: y(high[at]) }));
  });
  made.append(svg("line", { class: "axis", x1: 0, x2: width, y1: y(0), y2: y(0) }));
  for (const [place, anchor] of [[0, "start"], [0.5, "middle"], [1, "end"]]) {
    const at = { x: width * place, y: height - 5, "text-anchor": anchor };
    made.append(svg("text", at, number(edges[0] + span * place)));
  }
  return made;
}

/** Write an estimate and its interval. */
export const between = ({ value, low, high }) => {
  const [middle, from, to] = [value, low, high].map(one => number(one, (high - low) / 4));
  return value === null || low === null ? "–" : `${middle} (${from} to ${to})`;
};

/** Estimates with their intervals, one above each label: periods or groups. */
export function columns(width, rows, title) {
  const height = 190, left = 56, bottom = 34, top = 10;
  const known = rows.filter(row => row.value !== null && row.low !== null);
  const [low, high] = [Math.min(...known.map(row => row.low)), Math.max(...known.map(row => row.high))];
  const y = value => top + (height - top - bottom) * (1 - (value - low) / (high - low || 1));
  const step = (width - left) / rows.length, each = Math.ceil(74 / step);
  const made = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": title });
  for (const value of evenly(low, high)) {
    made.append(svg("line", { class: "grid", x1: left, x2: width, y1: y(value), y2: y(value) }),
      svg("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, number(value)));
  }
  rows.forEach((row, at) => {
    const x = left + step * (at + 0.5);
    if (known.includes(row)) {
      const title = svg("title", {}, `${row.label}: ${between(row)}`);
      made.append(svg("line", { class: "band", x1: x, x2: x, y1: y(row.low), y2: y(row.high) }),
        svg("circle", { class: "mark", cx: x, cy: y(row.value), r: 5 }, title));
      if (step > 90) made.append(svg("text", { x: x + 9, y: y(row.value) + 4 }, number(row.value, (row.high - row.low) / 4)));
    }
    if (at % each === 0) {
      const label = row.label.length > 14 ? `${row.label.slice(0, 13)}…` : row.label;
      made.append(svg("text", { x, y: height - 12, "text-anchor": "middle" }, label));
    }
  });
  return made;
}
