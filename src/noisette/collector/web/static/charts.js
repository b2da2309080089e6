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

function evenly(low, high) { // ticks of a plain axis: four to six multiples of 1, 2, 2.5 or 5 times a power of ten
  if (!(high > low)) return [low];
  const rough = (high - low) / 5, power = 10 ** exponent(rough), slack = 1e-9 * (high - low);
  const step = [1, 2, 2.5, 5, 10].find(one => one * power >= rough * (1 - 1e-9)) * power, ticks = [];
  for (let k = Math.ceil((low - slack) / step); k * step <= high + slack; k++) ticks.push(Number((k * step).toPrecision(12)));
  return ticks;
}

function quarters(low, high) { // the ends and quarters of a range where they are short to write
  const found = [0, 1, 2, 3, 4].map(k => low + (high - low) * k / 4);
  return found.every(one => Number(one.toPrecision(3)) === one) ? found : evenly(low, high);
}

const DAY = 86400000;
const iso = days => new Date(Math.round(days) * DAY).toISOString().slice(0, 10);
const clock = seconds => [Math.floor(Math.round(seconds / 60) / 60), Math.round(seconds / 60) % 60].map(one => String(one).padStart(2, "0")).join(":");

function years(low, high) { // ticks of an axis of days: first days of years where they are many, else days
  const ends = [low, high].map(day => new Date(day * DAY).getUTCFullYear()), step = [1, 2, 5, 10, 20, 50, 100].find(one => (ends[1] - ends[0]) / one <= 5) ?? 200;
  if (ends[1] - ends[0] < 4) return evenly(low, high).map(Math.round);
  const found = [];
  for (let year = Math.ceil(ends[0] / step) * step; year <= ends[1]; year += step) found.push(Date.UTC(year, 0, 1) / DAY);
  return found.filter(day => day >= low && day <= high);
}

function hours(low, high) { // ticks of an axis of seconds: full hours, or minutes
  const step = 60 * ([1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360].find(one => (high - low) / (60 * one) <= 5) ?? 720), found = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) found.push(k * step);
  return found;
}

/** How values are written, and their ±, by what they are: a share, a number with its unit, a date, a time of day. */
const axis = (unit, far, farUnit, show, more = {}) => ({ unit, far, farUnit, show, ticks: evenly, tick: value => show(value),
  figure: (value, half, error) => show(value, error) + (farUnit === "%" ? " %" : "") + (half === null ? "" : ` ± ${number(far * half, far * error)}`) + (farUnit && farUnit !== "%" ? ` ${farUnit}` : ""), ...more });
export const axes = {
  share: axis("", 100, "%", (value, error = null) => number(100 * value, error === null ? null : 100 * error), { tick: value => `${number(100 * value)} %` }),
  number: unit => axis(unit, 1, unit, (value, error = null) => number(value, error), { ticks: quarters }),
  date: axis("", 1, "days", iso, { of: text => Date.parse(text) / DAY, ticks: years, tick: (day, span) => (span > 4 * 365 ? iso(day).slice(0, 4) : iso(day)) }),
  time: axis("", 1 / 60, "min", clock, { of: text => text.split(":").reduce((sum, one) => 60 * sum + Number(one), 0) * (text.split(":").length < 3 ? 60 : 1), ticks: hours }),
};

const line = (points, name) => svg("polyline", { class: name, points: points.map(at => at.join(",")).join(" ") });

/** Draw errors against users, both logarithmic: the plan, what was seen, and the target. */
export function errorChart(width, { plan, track, target, title, unit }) {
  const height = 270, left = 60, right = 64, top = 26, bottom = 40;
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
    svg("text", { x: 0, y: 12 }, `±${unit && `, ${unit}`}`),
    svg("text", { x: x(target) - 5, y: top + 10, "text-anchor": "end" }, `target ${short(target)}`),
    svg("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, "users who have answered"),
    line(plan.map(([n, error]) => [x(n), y(error)]), "plan"));
  const seen = track.filter(([, error]) => error > 0).map(([n, error]) => [x(n), y(error)]);
  if (seen.length) {
    const [cx, cy] = seen.at(-1);
    const [, last] = track.filter(([, error]) => error > 0).at(-1);
    made.append(line(seen, "seen"), svg("circle", { class: "dot", cx, cy, r: 5 }),
      svg("text", { x: cx + 9, y: cy + 4, class: "value" }, `± ${number(last, last)}`));
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
export function histogram(width, { edges, probabilities, low, high }, scale, title) {
  const height = 176, left = 44, top = 16, bottom = 22, span = edges.at(-1) - edges[0];
  const x = value => left + (width - left) * (value - edges[0]) / span;
  const most = Math.max(...(high ?? probabilities), 1e-9), tallest = probabilities.indexOf(Math.max(...probabilities));
  const y = value => top + (height - top - bottom) * (1 - Math.max(value, 0) / most);
  const made = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": title });
  for (const tick of evenly(0, most)) {
    made.append(svg("line", { class: "grid", x1: left, x2: width, y1: y(tick), y2: y(tick) }),
      svg("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, `${number(100 * tick)} %`));
  }
  probabilities.forEach((share, at) => {
    const [from, to] = [x(edges[at]), x(edges[at + 1])], middle = (from + to) / 2;
    const box = { x: from + 0.5, y: y(share), width: Math.max(to - from - 1, 0.5), height: y(0) - y(share) };
    made.append(svg("rect", { class: "bar", ...box }, svg("title", {}, `${scale.show(edges[at], span / 100)} to ${scale.show(edges[at + 1], span / 100)}: ${number(100 * share, 1)} %`)));
    if (low) made.append(svg("line", { class: "band", x1: middle, x2: middle, y1: y(low[at]), y2: y(high[at]) }));
  });
  const peak = (x(edges[tallest]) + x(edges[tallest + 1])) / 2, above = low ? high[tallest] : probabilities[tallest];
  made.append(svg("line", { class: "axis", x1: left, x2: width, y1: y(0), y2: y(0) }),
    svg("text", { class: "value", x: Math.min(Math.max(peak, left + 18), width - 18), y: y(above) - 4, "text-anchor": "middle" }, `${number(100 * probabilities[tallest], 1)} %`));
  for (const tick of scale.ticks(edges[0], edges.at(-1))) {
    const anchor = x(tick) > width - 16 ? "end" : x(tick) < left + 8 ? "start" : "middle";
    made.append(svg("text", { x: x(tick), y: height - 5, "text-anchor": anchor }, scale.tick(tick, span)));
  }
  return made;
}

/** Estimates with their intervals, one above each label: periods or groups. */
export function columns(width, rows, scale, title) {
  const height = 200, bottom = 34, top = 22;
  const known = rows.filter(row => row.value !== null && row.low !== null);
  const [low, high] = [Math.min(...known.map(row => row.low)), Math.max(...known.map(row => row.high))];
  const y = value => top + (height - top - bottom) * (high === low ? 0.5 : 1 - (value - low) / (high - low));
  const ticks = (high === low ? [low] : scale.ticks(low, high)).map(tick => [tick, scale.tick(tick, high - low)]);
  const left = 14 + 7 * Math.max(...ticks.map(([, text]) => text.length), 3);
  const step = (width - left) / rows.length, each = Math.ceil(74 / step);
  const between = row => `${scale.show(row.value, row.error)} (${scale.show(row.low, row.error)} to ${scale.show(row.high, row.error)})`;
  const told = known.map(row => `${row.label} ${between(row)}`).join(", ");
  const made = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `${title}: ${told}` });
  for (const [value, text] of ticks) {
    made.append(svg("line", { class: "grid", x1: left, x2: width, y1: y(value), y2: y(value) }),
      svg("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, text));
  }
  rows.forEach((row, at) => {
    const x = left + step * (at + 0.5), shown = known.includes(row) ? scale.show(row.value, row.error) : "";
    if (shown) {
      made.append(svg("line", { class: "band", x1: x, x2: x, y1: y(row.low), y2: y(row.high) }),
        svg("circle", { class: "mark", cx: x, cy: y(row.value), r: 5 }, svg("title", {}, `${row.label}: ${between(row)}`)));
      if (step > 24 + 8 * shown.length) made.append(svg("text", { class: "value", x: x + 9, y: y(row.value) + 4 }, shown));
      else if (step > 8 * shown.length) made.append(svg("text", { class: "value", x, y: y(row.high) - 6, "text-anchor": "middle" }, shown));
    }
    if (at % each === 0) {
      const most = Math.max(6, Math.floor(step * each / 7.5)), label = row.label.length > most ? `${row.label.slice(0, most - 1)}…` : row.label;
      made.append(svg("text", { x, y: height - 12, "text-anchor": "middle" }, label));
    }
  });
  return made;
}
