// The dashboard: it asks the collector every two seconds and draws what it says. The key stays in this tab.

import { axes, columns, count, errorChart, histogram, html, number, strip, svg } from "./charts.js";
import { verify } from "./verify.js";

const PAUSE = 2000; // milliseconds between questions
const find = selector => document.querySelector(selector);
const PLACE = "noisette:key";
const HALF = 1.959963984540054; // standard errors in ±, half of a 95 % interval
const TABS = ["known", "estimates", "comparison", "errors", "promise"]; // parts of the page, each with an address
const PLOTS = 24; // quantities whose trends are drawn, or one of each question where they are more
const view = { campaign: null, period: "", quantity: 0, tab: "", paused: false, detail: null, round: 0 };

async function ask(path) {
  const answer = await fetch(path, { headers: { Authorization: `Bearer ${sessionStorage.getItem(PLACE)}` } });
  const found = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(found.detail), { status: answer.status });
  return found;
}

function show(element, ...children) {
  element.replaceChildren(...children);
}

const facts = rows => rows.map(([name, value, more = "", kind = ""]) =>
  html("div", kind ? { class: kind } : {}, html("dt", {}, name), html("dd", {}, value, html("small", {}, more))));

// ---- asking ---------------------------------------------------------------------------------------------------------

async function refresh() {
  const round = ++view.round; // an answer to an older question is not drawn
  try {
    const overview = await ask("/dashboard/overview");
    if (round !== view.round) return;
    open(overview);
    if (view.campaign === null) return;
    const query = new URLSearchParams({ enhance: find("#enhance").value, ...(view.period && { period: view.period }) });
    const detail = await ask(`/dashboard/campaigns/${encodeURIComponent(view.campaign)}?${query}`);
    if (round !== view.round) return;
    view.detail = detail;
    if (!(view.quantity in detail.estimates.dimensions)) view.quantity = 0;
    remember();
    draw();
    prove().catch(error => { find("#proof").textContent = `Not verified: ${error.message}`; });
    say(view.paused ? "Updates are paused." : "Live.");
  } catch (error) {
    if (round !== view.round) return;
    if (error.status === 401) lock("This collector does not know this key. Check that you copied all of it; it may also have ended.");
    else if (error.status === 403) lock(`This key may not read results. ${error.message}`);
    else say(`No answer: ${error.message} Trying again.`);
  }
}

/** Prove the certificate of the campaign that is shown, here, once; the collector is not asked whether it is right. */
async function prove() {
  const id = view.campaign, place = find("#proof");
  if (place.dataset.campaign === id) return;
  place.dataset.campaign = id, place.textContent = "", place.className = "";
  const told = (text, kind) => {
    if (view.campaign === id) place.textContent = text, place.className = kind;
  };
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(PLACE)}` };
  const answer = await fetch(`/campaigns/${encodeURIComponent(id)}/certificate`, { headers });
  if (!answer.ok) return told(`Not verified: ${(await answer.json()).detail}`, "hint");
  if (!globalThis.crypto?.subtle) return told("Not verified: browsers compute hashes on https pages only.", "hint");
  const text = await answer.text(), verdict = await verify(text), { guarantee, law_sha256: law } = JSON.parse(text);
  const epsilon = `ε = ${number(Number(guarantee.epsilon.split("/").reduce((top, bottom) => Number(top) / Number(bottom))))}`;
  if (verdict.proved) told(`Verified in your browser: the law by which devices answer keeps ${epsilon}. Law ${law.slice(0, 16)}.`, "good");
  else told(`Refused by your browser: ${verdict.reason}`, "bad");
}

function say(text) { // only when it changes: a screen reader reads it aloud
  if (find("#state").textContent !== text) find("#state").textContent = text;
}

async function loop() {
  for (;;) {
    if (sessionStorage.getItem(PLACE) && !view.paused && !document.hidden) await refresh();
    await new Promise(resolve => setTimeout(resolve, PAUSE));
  }
}

function open({ campaigns, rejected }) {
  for (const place of ["#campaigns", "#content"]) find(place).hidden = false;
  find("#door").hidden = true;
  if (!campaigns.some(one => one.id === view.campaign)) view.campaign = campaigns[0]?.id ?? null;
  const list = find("#campaigns ul");
  if (list.children.length !== campaigns.length) show(list, ...campaigns.map(entry));
  campaigns.forEach((one, at) => {
    const button = list.children[at].firstChild, bar = button.querySelector("progress");
    button.setAttribute("aria-current", String(one.id === view.campaign));
    button.querySelector("span").textContent = `${count(one.users)} of ${count(one.target_users)} users`;
    [bar.max, bar.value] = [one.target_users, one.users];
  });
  find("#refused").hidden = rejected === null;
  const reasons = Object.entries(rejected ?? {}).sort((a, b) => b[1] - a[1]);
  const rows = reasons.map(([name, times]) => html("tr", {}, html("td", {}, name), html("td", {}, count(times))));
  const head = html("tr", {}, html("th", { scope: "col" }, "reason"), html("th", { scope: "col" }, "times"));
  show(find("#refused div"), rows.length ? html("table", {}, html("thead", {}, head), html("tbody", {}, ...rows))
    : html("p", { class: "hint" }, "Nothing."));
}

function entry(one) {
  const button = html("button", { type: "button" }, html("b", {}, one.title), html("span"),
    html("progress", { "aria-label": `Users of ${one.title}` }));
  button.addEventListener("click", () => {
    Object.assign(view, { campaign: one.id, period: "", quantity: 0 });
    refresh().then(() => find("#content").focus({ preventScroll: false }));
  });
  return html("li", {}, button);
}

function lock(message = "") {
  sessionStorage.removeItem(PLACE);
  Object.assign(view, { campaign: null, detail: null, round: view.round + 1 });
  for (const place of ["#campaigns", "#content"]) find(place).hidden = true;
  show(find("#campaigns ul"));
  find("#door").hidden = false;
  find("#wrong").textContent = message;
  find("#key").focus();
}

// ---- drawing --------------------------------------------------------------------------------------------------------

function draw() {
  const { estimates, terms } = view.detail;
  find("#head h2").textContent = terms.title;
  const mechanisms = [...new Set(estimates.attributes.map(one => one.mechanism))].join(", ");
  const { state } = view.detail.life, once = terms.period === "once";
  find("#head .hint").textContent = (state === "open" ? "" : `This survey is ${state}. `) +
    (once ? "Asked once" : `Asked every ${terms.period}, ${terms.answers === "fresh" ? "protected anew each time" : "answered by the same report"}`) + `. Mechanism: ${mechanisms}.`;
  find("#period").parentElement.hidden = once;
  const { users, target_users: target, guarantee } = estimates, share = 100 * users / target;
  show(find("#head dl"), ...facts([
    ["users so far", count(users), `${share.toFixed(share < 10 ? 1 : 0)} % of ${count(target)}`],
    ["privacy of one answer", `ε = ${number(guarantee.epsilon)}`,
      `${guarantee.delta > 0 ? `δ = ${number(guarantee.delta)}, ` : ""}${guarantee.model} model`],
    ...(once ? [] : [["period", estimates.period, `${Object.keys(estimates.periods).length} with reports`]]),
  ]));
  const periods = Object.keys(estimates.periods).reverse().map(name => [name, name]);
  choices("#period", [["", "now"], ...periods], view.period);
  const quantities = estimates.dimensions.map((_, at) => [String(at), titled(at)]);
  choices("#quantity", quantities, String(view.quantity));
  showTab();
  drawKnown();
  drawErrors();
  drawEstimates();
  drawComparison();
  drawPromise();
}

function choices(place, options, chosen) { // made anew only when they change, so that an open list stays open
  const select = find(place), wanted = JSON.stringify(options);
  if (select.dataset.options !== wanted) {
    show(select, ...options.map(([value, text]) => html("option", { value }, text)));
    select.dataset.options = wanted;
  }
  select.value = chosen;
}

const width = element => Math.max(element.clientWidth, 240);

function drawKnown() {
  const { known, estimates, life } = view.detail;
  find("#known .hint").textContent = "± is half of a 95 % interval. Done means " + (life.wanted === null
    ? `as exact as was planned for ${count(estimates.target_users)} users.` : `± ${number(life.wanted)} % of the range of an answer, or better.`) +
    (known.some(one => /^in /.test(one.when)) ? " How long it takes is a 95 % range, if reports keep coming as they did." : "");
  show(find("#known ul"), ...known.map(({ sentence, state, needed, when }) => html("li", { class: state.replace(" ", "-") },
    html("b", {}, state), html("span", {}, sentence),
    html("small", {}, needed ? `${count(needed)} more users${when && `${/^in /.test(when) ? "," : ";"} ${when}`}.` : ""))));
}

async function download(format) {
  const query = new URLSearchParams({ format, enhance: find("#enhance").value, ...(view.period && { period: view.period }) });
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(PLACE)}` };
  const answer = await fetch(`/campaigns/${encodeURIComponent(view.campaign)}/estimates?${query}`, { headers });
  if (!answer.ok) return say(`No file: ${(await answer.json()).detail}`);
  const address = URL.createObjectURL(await answer.blob());
  html("a", { href: address, download: `${view.campaign}.${format}` }).click();
  return setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/** Each campaign, period and quantity has an address; a reload stays there. */
function remember() {
  const told = new URLSearchParams({ ...(view.tab && { tab: view.tab }), ...(view.period && { period: view.period }), ...(view.quantity && { quantity: view.quantity }) });
  const wanted = view.campaign === null ? "" : `#${encodeURIComponent(view.campaign)}${String(told) && `?${told}`}`;
  if (wanted !== location.hash) history.replaceState(null, "", wanted || location.pathname);
}

function recall() {
  const [campaign, query] = location.hash.slice(1).split("?"), told = new URLSearchParams(query);
  if (campaign) Object.assign(view, { campaign: decodeURIComponent(campaign), period: told.get("period") ?? "", quantity: Number(told.get("quantity") ?? 0) });
  view.tab = TABS.includes(told.get("tab")) ? told.get("tab") : "";
  if (told.get("key")) { // of a link to these results; it leaves the address bar
    sessionStorage.setItem(PLACE, told.get("key"));
    remember();
  }
}

/** Show one part of the page, or all. */
function showTab() {
  for (const button of document.querySelectorAll("[data-tab]")) button.setAttribute("aria-pressed", String(button.dataset.tab === view.tab));
  for (const name of TABS) find(`#${name}`).classList.toggle("away", Boolean(view.tab) && view.tab !== name);
}

/** How a question is put on its form: its words, its unit and the ends of its range. */
const attributeOf = place => view.detail.estimates.attributes.find(one => place >= one.first && place < one.first + one.size);
const DERIVED = { rate: " answered", "number of choices": " chosen" }; // what is told beside the answers to a question
/** The questions that something is told of: its own, or those that it follows from. */
const askedOf = one => {
  const suffix = DERIVED[one.kind] ?? "", pair = (view.detail.terms.joint ?? []).find(names => names.join(" × ") === one.name);
  return pair ?? [suffix && one.name.endsWith(suffix) ? one.name.slice(0, -suffix.length) : one.name];
};
const words = name => view.detail.terms.form?.questions?.[name] ?? {};
const wording = one => askedOf(one).map(name => words(name).ask ?? name).join(" × ") + ({ rate: " (answered at all)", "number of choices": " (how many)" }[one.kind] ?? "");
const isShare = one => Boolean(one?.distribution?.labels) || ["category", "choices", "rate"].includes(one?.kind);
const QUANTILES = { median: "50 % are below", "quantile 0.05": "5 % are below", "quantile 0.25": "25 % are below", "quantile 0.75": "75 % are below", "quantile 0.95": "95 % are below" };
/** What a quantity of a question is called; empty where it is the only one. */
const part = (one, name) => {
  const label = name.slice(one.name.length).replace(/^(=|: |\[|\s)+|\]$/g, ""), where = label.match(/^mean where [^=]*=(.*)$/);
  return where ? `mean for ${where[1]}` : QUANTILES[label] ?? label;
};
/** What a quantity is of, in the words of the form. */
const titled = place => {
  const one = attributeOf(place), { name } = view.detail.estimates.dimensions[place];
  if (!one) return name;
  const label = part(one, name), ask = wording(one);
  return label ? `${ask}${/[?？:.!]$/.test(ask) ? "" : ":"} ${label}` : ask;
};
/** How a quantity is written: its unit, that of its ±, and between what ends it can lie. */
function scaleOf(one, name) {
  if (isShare(one)) return { ...axes.share, ends: [0, 1] };
  const label = part(one, name), last = askedOf(one).at(-1), asked = view.detail.terms.attributes.find(other => other.name === last);
  if (one.kind === "number of choices") return { ...axes.number(""), ends: [0, asked?.most ?? asked?.options.length ?? Infinity] };
  if (label === "correlation") return { ...axes.number(""), ends: [-1, 1] };
  if (label === "variance" || label === "covariance") return { ...axes.number(""), ends: label === "variance" ? [0, Infinity] : [-Infinity, Infinity] };
  const ends = asked?.levels ? [asked.levels[0][0], asked.levels.at(-1)[1]] : asked?.range ?? [-Infinity, Infinity];
  if (typeof ends[0] !== "string") return { ...axes.number(words(last).unit ?? ""), ends };
  const axis = ends[0].includes(":") ? axes.time : axes.date;
  return { ...axis, ends: ends.map(axis.of) };
}
const scaleAt = place => scaleOf(attributeOf(place), view.detail.estimates.dimensions[place].name);
const clamped = (value, [least, most]) => (value === null || value === undefined ? null : Math.min(Math.max(value, least), most));
/** A value, moved to the nearer end of its range, with its ±. */
const figure = (value, half, error, scale) => {
  if (value === null) return "–";
  const far = half ?? null;
  return scale.figure(clamped(value, scale.ends), far, far === null ? null : error);
};
const halfOf = row => (row.low === null || row.high === null || row.low === undefined ? null : (row.high - row.low) / 2);

function drawErrors() {
  const { estimates, plan, track } = view.detail, place = view.quantity, row = estimates.dimensions[place];
  const scale = scaleAt(place), name = titled(place), size = scale.far;
  const points = list => list.map(one => [one.users, one.std_errors[place] === null ? null : size * HALF * one.std_errors[place]]);
  const half = error => `± ${number(size * HALF * error, size * error)}${scale.farUnit && ` ${scale.farUnit}`}`;
  const now = row.std_error === null ? null : (halfOf(row) ?? HALF * row.std_error) / HALF; // ± is half of the interval that is shown elsewhere
  const ratio = now / row.predicted_std_error, seen = points(track);
  if (seen.at(-1)?.[0] === estimates.users && now !== null) seen.at(-1)[1] = size * HALF * now;
  find("#errors .hint").textContent = estimates.users && Number.isFinite(ratio) && row.std_error !== null
    ? `${name}: ${half(now)} now, ${half(row.predicted_std_error)} by the plan for as many users ` +
      `(${(100 * ratio).toFixed(0)} %).` +
      (ratio > 1 ? " The plan counts the noise alone; the error that is seen also counts how users differ." : "")
    : `${name}: nothing to estimate from yet. The line is the plan.`;
  const figure = find("#errors figure"), target = estimates.target_users;
  const title = `± of ${name}, half of a 95 % interval, against the number of users: the plan, and what was seen. ` +
    find("#errors .hint").textContent;
  const legend = (name, text) => {
    const drawn = svg("polyline", { class: name, points: "0,5 28,5" });
    return html("li", {}, svg("svg", { viewBox: "0 0 28 10", "aria-hidden": "true" }, drawn), text);
  };
  const legends = [legend("plan", "planned, for the worst distribution of answers"), ...(seen.some(([, error]) => error > 0) ? [legend("seen", "seen so far")] : [])];
  show(figure, errorChart(width(figure), { plan: points(plan), track: seen, target, title, unit: scale.farUnit }),
    html("ul", { class: "legend" }, ...legends));
}

function drawEstimates() {
  const { estimates, terms } = view.detail, place = find(".attributes");
  const lies = estimates.suspicions.failed.map(one => `${one.about}: ${one.test}`);
  find("#estimates .hint").textContent = `Lines are ${Math.round(100 * estimates.level)} % intervals` +
    (estimates.liars ? ` that hold if at most ${number(100 * estimates.liars)} % of the reports are made up` : "") +
    (estimates.enhance === "none" ? "." : `, after ${estimates.enhance}.`) +
    (estimates.withheld ? ` Nothing is shown of fewer than ${count(estimates.least)} reports.` : "") +
    (lies.length ? ` Some reports were made up: no honest users send such (${lies.slice(0, 3).join("; ")}).` : "");
  const asked = name => terms.attributes.find(one => one.name === name);
  show(place, ...estimates.attributes.map(one => attribute(one, estimates, asked(one.name))));
  for (const [at, one] of estimates.attributes.entries()) {
    if (!one.distribution?.edges) continue;
    const box = place.children[at], scale = scaleOf(one, one.name), told = quantiles(one, scale);
    box.append(html("p", { class: "hint" }, `${told} ${one.note.replace(/ Ask with .*$/, "")}`),
      html("figure", {}, histogram(width(box), one.distribution, scale, `Distribution of ${wording(one)}. ${told}`)));
  }
}

const quantiles = (one, scale) => {
  const at = chance => one.quantiles.find(row => row.probability === chance), middle = at(0.5), ends = scale.ends[1] - scale.ends[0];
  const error = middle.low === null ? (Number.isFinite(ends) ? ends / 100 : null) : (middle.high - middle.low) / 4;
  const [low, half, high] = [at(0.25), middle, at(0.75)].map(row => scale.show(row.value, error));
  return `Half are below ${half}, and half are between ${low} and ${high}${scale.unit && ` ${scale.unit}`}.`;
};

function attribute(one, estimates, asked) {
  if (one.kind === "text") return textList(one);
  const own = estimates.dimensions.slice(one.first, one.first + one.size), share = isShare(one), [first] = own.map(row => scaleOf(one, row.name));
  const known = own.every(row => scaleOf(one, row.name).ends.every((end, at) => end === first.ends[at])) && first.ends.every(Number.isFinite);
  const span = share ? [0, Math.ceil(10 * Math.max(0.1, ...own.map(row => Math.min(row.high ?? 0, 1)))) / 10] : known ? first.ends : limits(own);
  const rows = own.flatMap(row => {
    const scale = scaleOf(one, row.name);
    return [html("span", { class: "name" }, part(one, row.name) || (one.kind === "rate" ? "answered" : "mean")), strip({ ...row, value: clamped(row.value, scale.ends) }, span, share),
      html("span", { class: "figure" }, figure(row.value, halfOf(row), row.std_error, scale))];
  });
  const table = crosstab(one, own);
  if (table) return html("div", {}, html("h3", {}, wording(one)), table);
  const ticks = first.ticks(...span).map(tick => {
    const made = html("span", {}, first.tick(tick, span[1] - span[0])), at = (tick - span[0]) / (span[1] - span[0]);
    made.style.left = `${100 * at}%`;
    if (at < 0.1 || at > 0.9) made.className = at < 0.1 ? "start" : "end";
    return made;
  });
  const scale = known || share ? [html("span"), html("span", { class: "ticks", "aria-hidden": "true" }, ...ticks), html("span")] : [];
  const box = html("div", {}, html("h3", {}, wording(one)), html("div", { class: "rows" }, ...rows, ...scale));
  const missing = ["distribution", "quantiles"].includes(asked?.want) && estimates.users ? one.reason ?? "" : ""; // what was asked for
  const more = one.left_out ? `${count(one.left_out)} more are in the export. ` : "";
  if (more || missing) box.append(html("p", { class: "hint" }, more + missing));
  return box;
}

/** The texts that were found, the most frequent first. */
function textList(one) {
  const { rows = [], note = "", users = 0 } = view.detail.texts[one.name] ?? {};
  const span = [0, Math.ceil(10 * Math.max(0.1, ...rows.map(row => Math.min(row.high, 1)))) / 10];
  const lines = rows.flatMap(row => [html("span", { class: "name" }, row.text), strip({ value: row.share, low: row.low, high: row.high }, span, true),
    html("span", { class: "figure" }, figure(row.share, (row.high - row.low) / 2, row.std_error, { ...axes.share, ends: [0, 1] }))]);
  return html("div", {}, html("h3", {}, wording(one)), html("div", { class: "rows" }, ...lines),
    html("p", { class: "hint" }, `${users ? `From the first ${count(users)} reports. ` : ""}${note}`));
}

/** Two choices that were asked together, as a table of shares with ±; null for anything else. */
function crosstab(one, own) {
  const pair = (view.detail.terms.joint ?? []).find(names => names.join(" × ") === one.name);
  const labels = pair?.map(name => view.detail.terms.attributes.find(asked => asked.name === name)).map(asked => asked?.categories ?? asked?.options);
  if (!labels?.every(Boolean) || labels[0].length * labels[1].length !== own.length) return null;
  const cell = row => html("td", {}, figure(row.value, halfOf(row), row.std_error, { ...axes.share, ends: [0, 1] }));
  const head = html("tr", {}, html("th", { scope: "col" }, pair.map(name => words(name).ask ?? name).join(" \\ ")), ...labels[1].map(label => html("th", { scope: "col" }, label)));
  const body = labels[0].map((label, at) => html("tr", {}, html("th", { scope: "row" }, label),
    ...own.slice(at * labels[1].length, (at + 1) * labels[1].length).map(cell)));
  return html("div", { class: "wide", tabindex: "0", role: "region", "aria-label": one.name }, html("table", {}, html("thead", {}, head), html("tbody", {}, ...body)));
}

const limits = own => [Math.min(0, ...own.map(row => row.low ?? 0)), Math.max(...own.map(row => row.high ?? 1))];

function drawComparison() {
  const { estimates } = view.detail, { drift, groups } = estimates, found = [], box = find("#comparison .plots");
  const names = estimates.dimensions.map(row => row.name), places = [...names.keys()];
  const firsts = places.filter(place => attributeOf(place)?.name !== attributeOf(place - 1)?.name); // of each question
  const drawn = new Set([view.quantity, ...firsts, ...places].slice(0, Math.max(PLOTS, firsts.length) + 1));
  const chosen = [view.quantity, ...places.filter(place => drawn.has(place))];
  const chance = value => (value < 1e-4 ? "below 0.0001" : number(value, value));
  const said = (test, same, other) => (test?.adjusted === null || test?.adjusted === undefined ? "" : test.adjusted < 0.05
    ? `${other}: by chance alone such a difference has probability ${chance(test.adjusted)}.`
    : `${same}: by chance alone such a difference has probability ${chance(test.adjusted)}.`);
  for (const place of new Set(chosen)) {
    const name = names[place], scale = scaleAt(place), unit = scale.farUnit === "%" ? "%" : scale.unit;
    const plot = (title, rows, more) => {
      const shown = rows.map(row => ({ ...row, ...Object.fromEntries(["value", "low", "high"].map(key => [key, clamped(row[key], scale.ends)])), error: (row.high - row.low) / 4 }));
      if (!shown.some(row => row.value !== null && row.low !== null)) return;
      const head = `${titled(place)}${/[?？]$/.test(titled(place)) ? "" : ","} ${title}${unit && `, in ${unit}`}`;
      found.push(html("div", {}, html("h3", {}, head), html("figure", {}, columns(Math.min(width(box), box.clientWidth > 700 ? box.clientWidth / 2 - 14 : Infinity), shown, scale, head)), html("p", { class: "hint" }, more)));
    };
    if (drift.periods.length > 1) {
      const row = drift.quantities[place];
      plot("by period", drift.periods.map((label, at) => ({ label, value: row.values[at], low: row.lows[at], high: row.highs[at] })), said(row, "No change is seen", "It has changed"));
    }
    for (const group of groups) {
      const rows = group.values.map(one => {
        const own = (one.dimensions ?? []).find(row => row.name === name);
        return { label: one.value, value: own?.value ?? null, low: own?.low ?? null, high: own?.high ?? null };
      });
      plot(`by ${words(group.name).ask ?? group.name}`, rows, [said(group.tests?.[name], "No difference is seen", "The groups differ"),
        group.private ? "The group is private too: it is estimated." : ""].filter(Boolean).join(" "));
    }
  }
  const open = groups.filter(group => !group.private).map(group => group.name).join(", ");
  find("#comparison .hint").textContent = found.length ? "Lines are 95 % intervals. Probabilities are for all quantities together." +
    (open && ` Users state ${open} openly.`) : groups.length || drift.periods.length > 1 ? "Nothing to compare yet: too few reports."
    : "Nothing to compare: this survey has no groups and is asked once.";
  find("#comparison").hidden = found.length === 0 && view.tab !== "comparison";
  show(box, ...found);
}

function drawPromise() {
  const { audit, budget, terms } = view.detail;
  const words = { holds: "holds", violated: "violated", computing: "computing …", unknown: "not computed" };
  show(find("#promise dl"), ...facts([
    ["one answer costs", `ε = ${number(budget.each)}`,
      budget.answers === "permanent" ? "once, for all periods" : "again in each period"],
    ["spent by a person who answered every time", `ε = ${number(budget.spent)}`,
      `${count(budget.periods)} period${budget.periods === 1 ? "" : "s"} so far`],
    ["exact ε of the mechanism", audit.exact === undefined ? "–" : String(Number(audit.exact.toPrecision(6))),
      `promised ${number(terms.epsilon)}`],
    ["audit", words[audit.verdict], audit.delta > 0 ? `at δ = ${number(audit.delta)}` : "", audit.verdict],
  ]));
  find("#promise .hint").textContent = audit.verdict === "unknown" ? audit.reason
    : "The exact ε is computed from the probabilities of all reports, not taken from a paper's formula.";
}

// ---- controls -------------------------------------------------------------------------------------------------------

find("#door").addEventListener("submit", event => {
  event.preventDefault();
  sessionStorage.setItem(PLACE, find("#key").value.trim());
  find("#key").value = "";
  find("#wrong").textContent = "";
  refresh();
});
find("#lock").addEventListener("click", () => lock());
find("#pause").addEventListener("click", () => {
  view.paused = !view.paused;
  find("#pause").setAttribute("aria-pressed", String(view.paused));
  find("#pause").textContent = view.paused ? "Resume updates" : "Pause updates";
  say(view.paused ? "Updates are paused." : "Live.");
});
find("#period").addEventListener("change", event => { view.period = event.target.value; refresh(); });
find("#enhance").addEventListener("change", refresh);
find("#quantity").addEventListener("change", event => { view.quantity = Number(event.target.value); remember(); draw(); });
for (const button of document.querySelectorAll("[data-tab]")) {
  button.addEventListener("click", () => { view.tab = button.dataset.tab; remember(); draw(); });
}
for (const button of document.querySelectorAll("[data-format]")) {
  button.addEventListener("click", () => download(button.dataset.format));
}
addEventListener("hashchange", () => { recall(); refresh(); });
recall();
addEventListener("resize", () => { if (view.detail) draw(); });
loop();
