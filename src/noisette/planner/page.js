// The page: controls, words, table and charts around the planner.

const data = JSON.parse(document.getElementById("data").textContent);
const planner = makePlanner(data);
const $ = id => document.getElementById(id);
const range = data.domain.high - data.domain.low;
const COLOURS = ["#b5532a", "#2f6f8f", "#7a5ba6", "#3d8b57", "#c08a1e", "#a8456b", "#5a7d9a", "#8c6d46", "#4f8f8b", "#946b2d", "#6d78b8", "#8f8f3a"];
const colour = Object.fromEntries(data.laws.map((law, i) => [law.name, COLOURS[i % COLOURS.length]]));
const limits = {
  users: [1, 1e12], dims: data.limits.dims, epsilon: data.limits.epsilon, target: [Math.min(range * 1e-6, data.start.target), Math.max(range, data.start.target)],
};
const state = {
  ...data.start, mechanisms: data.laws.map(law => law.name),
};

// ± is half of a 95 % interval; a biased estimate errs by less than 1.96 times its root mean square as often
const HALF = 1.959963984540054;
const AS_GOOD = 1.005; // errors that differ by less are the same to a reader
const radius = mse => HALF * Math.sqrt(mse);
const goal = () => (state.target / HALF) ** 2; // the mean squared error that is wanted

// ---- numbers in words ----

function short(x) {
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e5 || size < 1e-4) return x.toExponential(2).replace("e+", "e");
  return String(Number(x.toPrecision(3)));
}
function whole(x) { return x >= 1e15 ? x.toExponential(2).replace("e+", "e") : Math.round(x).toLocaleString("en"); }
function about(x) { // people, to three digits
  if (x < 1000) return whole(Math.ceil(x));
  const unit = 10 ** (Math.floor(Math.log10(x)) - 2);
  return whole(Math.ceil(x / unit * (1 - 1e-12)) * unit);
}
function compact(x) {
  for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (x >= size) return `${Number((x / size).toPrecision(3))}${letter}`;
  return String(Number(x.toPrecision(3)));
}
function escaped(text) { return String(text).replace(/[&<>"]/g, c => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]); }

// ---- results ----

function show() {
  const made = planner.plan(state);
  showVerdict(made);
  showErrors(made);
  showBreaks(made);
  showUsers(made);
  showEpsilon(made);
  showCommand();
  $("mechanisms").querySelectorAll("input").forEach(box => { box.checked = state.mechanisms.includes(box.value); });
}

function reportWords(found) {
  if (state.dims === 1) return "one number";
  if (found.report === null || found.report === state.dims) return "all";
  return `${whole(found.report)} of ${whole(state.dims)}`;
}

function showVerdict(made) {
  const best = made.best, facts = $("facts");
  facts.replaceChildren();
  if (!best) {
    $("verdict").className = "no";
    $("verdict-tag").className = "tag no";
    $("verdict-tag").textContent = "nothing to compare";
    $("verdict-aim").textContent = $("summary").textContent = "";
    $("verdict-title").textContent = "Choose at least one mechanism";
    $("verdict-words").textContent = "";
    $("guarantee").textContent = "";
    return;
  }
  const said = planner.verdict(state, made);
  const half = radius(best.mse), fine = half <= state.target;
  const grade = said.words === "not worth collecting" ? "no" : fine && said.words === "worth collecting" ? "yes" : "almost";
  $("verdict").className = $("summary").className = grade;
  $("verdict-tag").className = `tag ${grade}`;
  $("verdict-tag").textContent = grade === "almost" && !fine ? "not enough for what you want" : said.words;
  $("verdict-aim").className = `tag ${fine ? "yes" : "almost"}`;
  $("verdict-aim").textContent = fine ? "fine enough" : "coarser than wanted";
  $("verdict-title").textContent = {
    "worth collecting": `You would know each mean to ± ${short(half)}.`,
    doubtful: `Little more than a guess: ± ${short(half)}.`,
    "not worth collecting": "You would collect noise.",
  }[said.words];
  $("verdict-words").textContent = verdictWords(said, made);
  const headline = $("verdict-tag").textContent;
  $("summary").innerHTML = `<b>${headline[0].toUpperCase()}${headline.slice(1)}</b> · ${escaped(best.mechanism)} ± ${short(half)}`;
  const least = people(made.candidates);
  const entries = [
    ["best mechanism", best.mechanism],
    ["error of a mean", `± ${short(half)}`],
    ["reports about each number", compact(best.reports)],
    [`people for ± ${short(state.target)}`, least === null ? "no number" : about(least)],
  ];
  for (const [term, value] of entries) {
    const box = document.createElement("div");
    box.innerHTML = `<dt>${escaped(term)}</dt><dd>${escaped(value)}</dd>`;
    facts.append(box);
  }
  const [unit, model, relation] = best.law.guarantee;
  const numbers = state.dims === 1 ? "her number" : `all ${whole(state.dims)} of her numbers together`;
  const meaning = { record: `a person: ${numbers}`, element: "one number of a person; the others are not counted" }[unit] || unit;
  $("guarantee").innerHTML = `<b>Guarantee:</b> ε = ${short(state.epsilon)}, unit ${escaped(unit)} (${meaning}), `
    + `model ${escaped(model)} (noise is added before anything leaves her device), relation ${escaped(relation)} `
    + "(whatever she holds, against whatever else she might hold). One collection; asking again adds up.";
}

function verdictWords(said, made) {
  const best = made.best, often = state.population === "worst" ? "at most" : "typically";
  const half = radius(best.mse), sure = state.population === "worst" ? "known at least to" : "typically known to";
  const words = [`With ${best.mechanism} a mean is ${sure} ± ${short(half)}, half of a 95 % interval.`];
  words.push(`Without asking anybody you could guess the middle of the range, and a value is ${often} ${short(said.signal)} away from it.`);
  if (half > state.target) {
    const ways = said.words === "worth collecting" ? "For that, ask" : "Ask";
    words.push(`You want ± ${short(state.target)}. ${ways} more people, ask each for fewer numbers, narrow the range or spend more budget${said.words === "not worth collecting" ? "; or do not ask" : ""}.`);
  } else words.push(`That is within the ± ${short(state.target)} you want.`);
  if (!best.unbiased) {
    words.push(`Beware: ${best.mechanism} pulls every mean toward the middle; its error is only as good as what is said of the true values.`);
    if (made.unbiased) words.push(`The best without bias is ${made.unbiased.mechanism}, ± ${short(radius(made.unbiased.mse))}.`);
  }
  return words.join(" ");
}

function people(candidates) {
  const found = candidates.map(c => planner.needed(c, goal())).filter(n => n !== null);
  return found.length ? Math.min(...found) : null;
}

function showErrors(made) {
  const body = $("errors").tBodies[0], least = made.best ? radius(made.best.mse) : 1, shown = [];
  body.replaceChildren();
  $("errors-hint").textContent = (state.population === "worst"
    ? "The largest error over all true values. " : "For true values as you described them. ") + `Best first. ± is half of a 95 % interval. People needed for ± ${short(state.target)}.`;
  for (const found of made.candidates) {
    const root = radius(found.mse), enough = planner.needed(found, goal()), row = document.createElement("tr");
    const badge = (found === made.best ? '<span class="badge">best</span>' : "") + (found.unbiased ? "" : '<span class="badge biased">biased</span>');
    if (found === made.best) row.className = "best";
    row.dataset.mechanism = found.mechanism;
    const twin = shown.find(other => root / other.root < AS_GOOD && other.unbiased === found.unbiased);
    if (twin) row.dataset.twin = twin.name;
    else shown.push({ name: found.mechanism, root, unbiased: found.unbiased });
    row.innerHTML = `<td><span class="name"><span class="swatch" style="background:${colour[found.mechanism]}"></span>${escaped(found.mechanism)} ${badge}</span></td>`
      + `<td data-label="reports">${reportWords(found)}</td>`
      + `<td data-label="error">${short(root)}<span class="bar" style="width:${Math.min(100, 25 * root / least)}%"></span></td>`
      + `<td data-label="std">${short(found.std)}</td><td data-label="bias">${short(found.bias)}</td>`
      + `<td data-label="MSE">${short(found.mse)}</td><td data-label="people needed">${enough === null ? "never" : about(enough)}</td>`;
    body.append(row);
  }
  fold(body);
  const more = data.others.length ? [`Not on this page: ${data.others.join(", ")}; noisette plan compares them where they apply.`] : [];
  $("absent").textContent = [...made.absent.map(absence), ...more].join(" ");
}

/** Put mechanisms away whose error is that of one above, but for half a per cent. */
function fold(body) {
  const alike = [...body.rows].filter(row => row.dataset.twin), box = $("fold");
  for (const row of alike) row.hidden = !state.unfolded;
  box.hidden = !alike.length;
  box.textContent = state.unfolded ? "Hide those that are as good" : `${alike.length} more as good as one above: ${alike.map(row => row.dataset.mechanism).join(", ")}`;
  box.setAttribute("aria-expanded", String(Boolean(state.unfolded)));
}

function absence(law) {
  if (law.dims === null && state.report !== null && state.epsilon / state.report < law.panels[0].low)
    return `${law.name} is missing: ε / ${whole(state.report)} is less than a report can be planned with.`;
  return law.dims === null
    ? `${law.name} is missing: at this budget its first use takes seconds, and the page has no figures for it.`
    : `${law.name} is missing: it takes whole vectors, and this page was made for ${whole(law.dims)} numbers. Run noisette plan --dims ${state.dims}.`;
}

function showBreaks(made) {
  const points = made.breakEven.filter(p => p.population >= 1 && p.population < 1e12).sort((a, b) => a.population - b.population);
  $("pairs").hidden = !points.length;
  $("pairs-list").innerHTML = points.map(p => `<li>Below ${about(p.population)} people ${escaped(p.a)}, above ${escaped(p.b)}.</li>`).join("");
  const first = made.best ? planner.winners(made.candidates, points) : [];
  $("break-words").textContent = !points.length
    ? "Nowhere: of these mechanisms the better one is better for every number of people."
    : "A mechanism with little noise and some bias is better for few people, one without bias for many.";
  $("breaks").innerHTML = first.map((w, i) => {
    const to = i + 1 < first.length ? about(first[i + 1].from) : null;
    const span = i === 0 ? (to ? `up to <b>${to}</b> people` : "any number of people") : to ? `from <b>${about(w.from)}</b> to <b>${to}</b>` : `from <b>${about(w.from)}</b> people on`;
    return `<li style="border-color:${colour[w.mechanism]}"><b>${escaped(w.mechanism)}</b>: ${span}</li>`;
  }).join("");
}

// ---- charts ----

function spaced(low, high, count) {
  return Array.from({ length: count }, (_, i) => low * (high / low) ** (i / (count - 1)));
}

function series(made, points, change) {
  const laws = data.laws.filter(law => state.mechanisms.includes(law.name));
  return laws.map(law => ({
    name: law.name,
    best: made.best !== null && law.name === made.best.mechanism,
    values: points.map(x => { const c = planner.candidate(law, { ...state, ...change(x) }); return c ? radius(c.mse) : null; }),
  }));
}

function showUsers(made) {
  const points = spaced(Math.min(10, state.users), Math.max(1e8, state.users), 61);
  const least = people(made.candidates);
  $("users-words").textContent = "Four times as many people halve an error without bias. "
    + (least === null ? `No number of people reaches ± ${short(state.target)}.` : `${about(least)} people reach ± ${short(state.target)}.`);
  draw($("users-chart"), {
    points, lines: series(made, points, x => ({ users: x })), now: state.users, nowText: `${compact(state.users)} people`,
    label: "people", unit: compact,
  });
}

function budgetNeeded() {
  const error = epsilon => { const b = planner.plan({ ...state, epsilon }).best; return b ? radius(b.mse) : Infinity; };
  let [low, high] = limits.epsilon;
  if (error(high) > state.target) return null;
  if (error(low) <= state.target) return low;
  while (high / low > 1 + 1e-6) { const middle = Math.sqrt(low * high); if (error(middle) <= state.target) high = middle; else low = middle; }
  return high;
}

function showEpsilon(made) {
  const points = spaced(...limits.epsilon, 61), least = made.best ? budgetNeeded() : null;
  $("epsilon-words").textContent = "A larger budget means less noise and less privacy. "
    + (least === null ? `No budget up to ${short(limits.epsilon[1])} reaches ± ${short(state.target)} with these people.`
      : `ε = ${short(Math.ceil(least * 1000) / 1000)} reaches ± ${short(state.target)} with these people.`);
  draw($("epsilon-chart"), {
    points, lines: series(made, points, x => ({ epsilon: x })), now: state.epsilon, nowText: `ε = ${short(state.epsilon)}`,
    label: "budget ε", unit: short,
  });
}

function ticks(low, high, steps) {
  const found = [];
  for (let k = Math.floor(Math.log10(low)); k <= Math.ceil(Math.log10(high)); k++)
    for (const step of steps) { const x = Number(`${step}e${k}`); if (x >= low * 0.999 && x <= high * 1.001) found.push(x); }
  return found;
}

function draw(place, { points, lines, now, nowText, label, unit }) {
  const width = Math.max(280, place.clientWidth), narrow = width < 560, height = narrow ? 260 : 320;
  const left = 54, right = width - (narrow ? 16 : 140), top = 26, bottom = height - 40;
  const values = lines.flatMap(line => line.values).filter(v => v !== null && v > 0);
  if (!values.length) { place.replaceChildren(); return; }
  const best = Math.min(...values), ceiling = Math.min(Math.max(...values), best * 1e6, Math.max(range * 10, best * 100));
  const floor = Math.min(best, state.target) * 0.8, roof = Math.max(ceiling, state.target) * 1.25;
  const first = points[0], last = points[points.length - 1];
  const x = v => left + (right - left) * Math.log(v / first) / Math.log(last / first);
  const y = v => bottom - (bottom - top) * Math.log(v / floor) / Math.log(roof / floor);
  const inside = v => Math.min(Math.max(y(v), top - 4), bottom + 4);
  const decades = Math.log10(last / first), across = ticks(first, last, decades < 4 ? [1, 2, 5] : [1]);
  const up = ticks(floor, roof, Math.log10(roof / floor) < 2.5 ? [1, 2, 5] : [1]);
  const every = Math.ceil(across.length / (narrow ? 5 : 10)), rise = Math.ceil(up.length / 8);
  const parts = [];
  across.forEach((v, i) => {
    parts.push(`<line class="grid" x1="${x(v)}" x2="${x(v)}" y1="${top}" y2="${bottom}"/>`);
    if (i % every === 0) parts.push(`<text x="${x(v)}" y="${bottom + 18}" text-anchor="middle">${unit(v)}</text>`);
  });
  up.forEach((v, i) => {
    if (i % rise) return;
    parts.push(`<line class="grid" x1="${left}" x2="${right}" y1="${y(v)}" y2="${y(v)}"/>`);
    parts.push(`<text x="${left - 8}" y="${y(v) + 4}" text-anchor="end">${short(v)}</text>`);
  });
  parts.push(`<line class="axis" x1="${left}" x2="${right}" y1="${bottom}" y2="${bottom}"/>`);
  parts.push(`<text x="${(left + right) / 2}" y="${height - 4}" text-anchor="middle">${label}</text>`);
  parts.push(`<text x="${left}" y="${top - 12}" text-anchor="start">± of a mean</text>`);
  const clip = `${place.id}-clip`;
  parts.push(`<clipPath id="${clip}"><rect x="${left}" y="${top - 4}" width="${right - left}" height="${bottom - top + 8}"/></clipPath>`);
  parts.push(`<line class="target" x1="${left}" x2="${right}" y1="${y(state.target)}" y2="${y(state.target)}"/>`);
  parts.push(`<text class="target-text" x="${left + 6}" y="${y(state.target) - 6}">wanted: ± ${short(state.target)}</text>`);
  const ordered = [...lines].sort((a, b) => a.best - b.best), ends = [];
  for (const line of ordered) {
    let path = "", open = false, end = null;
    line.values.forEach((v, i) => {
      if (v === null || v <= 0) { open = false; return; }
      path += `${open ? "L" : "M"}${x(points[i]).toFixed(1)} ${y(v).toFixed(1)}`;
      open = true; end = v;
    });
    if (end === null) continue;
    parts.push(`<path class="line${line.best ? " best" : ""}" clip-path="url(#${clip})" stroke="${colour[line.name]}" d="${path}"/>`);
    ends.push({ name: line.name, best: line.best, y: inside(end) });
  }
  if (now >= first && now <= last) {
    parts.push(`<line class="now" x1="${x(now)}" x2="${x(now)}" y1="${top}" y2="${bottom}"/>`);
    const anchor = x(now) > (left + right) / 2 ? "end" : "start";
    parts.push(`<text x="${x(now) + (anchor === "end" ? -6 : 6)}" y="${top + 10}" text-anchor="${anchor}" style="fill:var(--ink)">${nowText}</text>`);
  }
  if (!narrow) {
    ends.sort((a, b) => a.y - b.y);
    ends.forEach((end, i) => { if (i) end.y = Math.max(end.y, ends[i - 1].y + 15); });
    for (let i = ends.length - 1; i >= 0; i--) ends[i].y = Math.min(ends[i].y, i === ends.length - 1 ? bottom + 4 : ends[i + 1].y - 15);
    for (const end of ends) parts.push(`<line x1="${right + 6}" x2="${right + 16}" y1="${end.y}" y2="${end.y}" stroke="${colour[end.name]}" stroke-width="${end.best ? 4 : 2.5}"/>`
      + `<text class="end${end.best ? " best" : ""}" x="${right + 21}" y="${end.y + 4}">${end.name}</text>`);
  }
  const told = lines.filter(line => line.best).map(line => line.name)[0];
  place.innerHTML = `<svg viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="± of a mean against ${label}, both logarithmic. Best here: ${escaped(told)}.">${parts.join("")}</svg>`;
}

// ---- the command line ----

function showCommand() {
  const parts = ["noisette plan", `--users ${state.users}`];
  if (state.dims > 1) parts.push(`--dims ${state.dims}`);
  if (state.dims > 1 && state.report !== null) parts.push(`--report ${state.report}`);
  parts.push(`--epsilon ${state.epsilon}`);
  if (data.domain.low !== -1 || data.domain.high !== 1) parts.push(`--range ${data.domain.low},${data.domain.high}`);
  if (state.mechanisms.length < data.laws.length) state.mechanisms.forEach(name => parts.push(`--mechanism ${name}`));
  const known = data.populations.find(p => p.name === state.population);
  if (state.population === "own") parts.push(known.option); else if (state.population !== "worst") parts.push(`--distribution ${known.name}`);
  parts.push(`--target-mse ${Number(goal().toPrecision(6))}`);
  $("command").textContent = parts.join(" ");
}

// ---- controls ----

function rounded(x, digits) { return Number(x.toPrecision(digits)); }

function bind(name, { read, write, fromSlider, bounds, shown = String }) {
  const box = $(name), slider = $(`${name}-slider`);
  const accept = value => {
    const [low, high] = bounds();
    const fine = Number.isFinite(value) && value >= low && value <= high && (box.step !== "1" || Number.isInteger(value));
    box.setAttribute("aria-invalid", String(!fine));
    box.setCustomValidity(fine ? "" : `Expected ${box.step === "1" ? "a whole number" : "a number"} from ${short(low)} to ${short(high)}.`);
    if (fine) write(value); else box.reportValidity();
    return fine;
  };
  const sync = source => {
    const value = read();
    if (source !== box) { box.value = shown(value); box.setAttribute("aria-invalid", "false"); box.setCustomValidity(""); }
    if (source !== slider) slider.value = String(Math.log10(value));
    slider.setAttribute("aria-valuetext", `${box.value}`);
  };
  box.addEventListener("change", () => { if (accept(box.valueAsNumber)) refresh(box); });
  slider.addEventListener("input", () => {
    const [low, high] = bounds();
    write(Math.min(Math.max(fromSlider(10 ** slider.valueAsNumber), low), high));
    refresh(slider);
  });
  return sync;
}

const syncs = [
  bind("users", { read: () => state.users, write: v => { state.users = v; }, fromSlider: v => Math.round(rounded(v, 2)), bounds: () => limits.users }),
  bind("dims", {
    read: () => state.dims,
    write: v => { state.dims = v; if (state.report !== null) state.report = Math.min(state.report, v); },
    fromSlider: v => Math.round(rounded(v, 2)), bounds: () => limits.dims,
  }),
  bind("epsilon", { read: () => state.epsilon, write: v => { state.epsilon = v; }, fromSlider: v => rounded(v, 2), bounds: () => limits.epsilon }),
  bind("report", {
    read: () => (state.report === null ? shownReport() : state.report), write: v => { state.report = v; },
    fromSlider: v => Math.round(v), bounds: () => [1, state.dims],
  }),
  bind("target", {
    read: () => state.target, write: v => { state.target = v; }, fromSlider: v => rounded(v, 2), bounds: () => limits.target,
    shown: v => String(Number(v.toPrecision(6))), // 1.96 times a root has more digits than there is room for
  }),
];

function shownReport() {
  const best = planner.plan(state).best;
  return best ? (best.report === null ? state.dims : best.report) : 1;
}

function refresh(source) {
  $("report-slider").max = String(Math.max(Math.log10(state.dims), 0.001));
  const auto = state.report === null;
  $("report-auto").checked = auto;
  $("report").disabled = $("report-slider").disabled = auto || state.dims === 1;
  $("report-field").hidden = state.dims === 1;
  syncs.forEach(sync => sync(source));
  const known = data.populations.find(p => p.name === state.population);
  $("population-hint").textContent = known.hint;
  show();
}

function start() {
  const set = (id, low, high) => { $(id).min = String(low); $(id).max = String(high); };
  set("dims-slider", 0, Math.log10(limits.dims[1]));
  set("epsilon-slider", Math.log10(limits.epsilon[0]), Math.log10(limits.epsilon[1]));
  set("target-slider", Math.log10(range * 1e-4), Math.log10(range / 2));
  set("users-slider", 1, Math.max(8, Math.log10(state.users)));
  $("target-unit").textContent = `of a mean, values from ${short(data.domain.low)} to ${short(data.domain.high)}`;
  $("population").innerHTML = data.populations.map(p => `<option value="${p.name}">${escaped(p.label)}</option>`).join("");
  $("population").value = state.population;
  $("population").addEventListener("change", () => { state.population = $("population").value; refresh($("population")); });
  $("report-auto").addEventListener("change", () => {
    state.report = $("report-auto").checked ? null : shownReport();
    refresh($("report-auto"));
  });
  $("mechanisms").innerHTML = data.laws.map(law =>
    `<label class="check"><input type="checkbox" value="${law.name}"><span class="swatch" style="background:${colour[law.name]}"></span>${law.name}</label>`).join("");
  $("fold").addEventListener("click", () => { state.unfolded = !state.unfolded; fold($("errors").tBodies[0]); });
  $("mechanisms").addEventListener("change", event => {
    const chosen = new Set(state.mechanisms);
    if (event.target.checked) chosen.add(event.target.value); else chosen.delete(event.target.value);
    state.mechanisms = data.laws.map(law => law.name).filter(name => chosen.has(name));
    refresh(event.target);
  });
  const rough = data.laws.filter(law => law.error > 1e-9).map(law => law.name);
  $("accuracy").textContent = "Python fitted the variance and the bias of one report by polynomials in the log of its budget; the rest is arithmetic. "
    + "The page agrees with noisette.prediction.plan to nine digits"
    + (rough.length ? `, but for mechanisms that are rougher themselves or take long to build: ${rough.join(", ")}.` : ".");
  $("precision").innerHTML = data.laws.map(law => `<li>${law.name}: ${law.error.toExponential(0)}</li>`).join("");
  addEventListener("resize", () => { const made = planner.plan(state); showUsers(made); showEpsilon(made); });
  refresh(null);
}

window.noisette = { data, planner, state, refresh };
start();
