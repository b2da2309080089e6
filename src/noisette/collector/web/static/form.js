// The page of a campaign: a person answers, sees the very report that would leave, and lets it leave or not. Noise,
// budget and queue are those of noisette.js; her answers are kept nowhere.

import english from "./words-en.js";
import { check, Client, periodAt, row } from "./noisette.js";
import { encode, extend } from "./laws.js";
import more from "./laws-more.js";
import { axis } from "./survey.js";
import { lawHash } from "./spent.js";

extend(more); // a form asks for whatever a survey has

const LANGUAGES = ["en", "de", "fr", "es", "zh"];
const LIST = 8; // labels that are shown as buttons; more are a list
const RETRY = 15000; // milliseconds between attempts to send what waits
const id = decodeURIComponent(location.pathname.split("/")[2] ?? "");
const code = new URLSearchParams(location.hash.slice(1)).get("code");
const PREVIEW = id === "-preview" ? JSON.parse(sessionStorage.getItem("noisette:preview") ?? "null") : null;
const view = { words: {}, language: "en", campaign: null, law: null, client: null, values: null, group: null,
  period: undefined }; // of the report that is shown, the current one before there is one
const find = selector => document.querySelector(selector);

function html(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== false) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const t = (key, values = {}) =>
  (view.words[key] ?? english[key]).replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
const number = (value, digits = 6) => new Intl.NumberFormat(view.language, { maximumSignificantDigits: digits }).format(value);
const upward = value => { // rounded up to three digits, so that what is printed is a bound too
  const unit = 10 ** (Math.floor(Math.log10(value)) - 2);
  return number(Math.ceil(value / unit - 1e-9) * unit);
};
const factor = epsilon => (epsilon > 30 ? "10¹³" : upward(Math.exp(epsilon)));
const percent = epsilon => number(Math.ceil(1000 / (1 + Math.exp(-epsilon))) / 10);
const days = (...spans) => new Intl.NumberFormat(view.language, { style: "unit", unit: "day", unitDisplay: "long" })
  .format(Math.ceil(spans.reduce((sum, one) => sum + parseInt(one), 0) / 86400)); // of what the collector tells in seconds
/** A period as people write it here. */
const dated = async (kind, name) => {
  const { later } = await import("./draws.js"); // where one was drawn it is there
  const style = kind === "month" ? { year: "numeric", month: "long" } : { dateStyle: "long" };
  return new Intl.DateTimeFormat(view.language, { ...style, timeZone: "UTC" }).formatRange(later(kind, name, 0), later(kind, name, 1) - 1);
};
/** A value on the axis of a question as people write it here: a number, a date, or a time, whose seconds are left out where there are none. */
const placed = (question, x) => {
  const { kind, shown } = axis(question), clock = time => shown(time).replace(/:00$/, "");
  if (kind === "date") return new Intl.DateTimeFormat(view.language, { dateStyle: "medium", timeZone: "UTC" }).format(x * 86400000);
  return kind === "number" ? number(x) : x < 0 ? `−${clock(-x)}` : x < 86400 ? clock(x) : `24:00${x > 86400 ? ` + ${clock(x - 86400)}` : ""}`; // noise goes beyond a day
};

// ---- language -------------------------------------------------------------------------------------------------------

async function speak(language) {
  view.language = language;
  view.words = language === "en" ? english : (await import(`./words-${language}.js`)).default;
  document.documentElement.lang = language;
  find("#language").value = language;
  find("#language").setAttribute("aria-label", t("language"));
  find("#foot").textContent = t("foot");
}

/** What this browser keeps under a name; null where it keeps nothing at all. */
function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function preferred() {
  const asked = [new URLSearchParams(location.search).get("lang"), stored("noisette-language"), ...navigator.languages];
  return asked.map(one => one?.slice(0, 2).toLowerCase()).find(one => LANGUAGES.includes(one)) ?? "en";
}

// ---- what is promised -----------------------------------------------------------------------------------------------

function head() {
  const { campaign } = view, by = campaign.form?.by;
  document.title = find("#title").textContent = campaign.title;
  find("#by").textContent = [by ? t("asked_by", { by }) : t("asked_by_host", { host: location.host }), campaign.form?.about]
    .filter(Boolean).join(" ");
}

function promise() {
  const { campaign, law, client } = view, { period, periods, answers, table, attributes, public_group: group } = campaign;
  const part = (title, ...texts) => html("li", {}, html("b", {}, t(title)), ...texts.filter(Boolean).join(" "));
  const report = table.report ?? 1, some = (table.kind === "record" && report < attributes.length) || table.draw?.length > 0;
  const made = client.made(id), next = made + (mine() ? 0 : 1);
  const again = period === "once" ? t("once") : answers === "tracked" ? t("tracked", { periods: number(periods), period: t(period) }) : answers === "permanent" ? t("permanent", { period: t(period) })
    : t("fresh", { period: t(period), next: number(Math.max(next, 2)), factor: factor(law.epsilon * Math.max(next, 2)) });
  const odds = { factor: factor(law.epsilon), percent: percent(law.epsilon) }, { keep, late } = campaign.life ?? {};
  return html("section", { id: "promise" }, html("h2", {}, t("promise")), html("ul", { class: "promise" },
    part("leaves", some ? t("leaves_one", { report: number(report), count: number(attributes.length) }) : t("leaves_all"),
      campaign.tokens === "drawn" && t("draws"), group && t("open_group", { group: group.name })),
    part("sure", t("odds", odds), t("checked")),
    part("long", again, keep ? t("kept", { keep: days(keep, late) }) : t("kept_open"), t("seen"))));
}

// ---- the questions --------------------------------------------------------------------------------------------------

const wording = name => view.campaign.form?.questions?.[name] ?? {};
const span = question => (question.range ?? [question.levels[0][0], question.levels.at(-1)[1]]).map(axis(question).of);

function options(name, labels, optional) {
  const entries = [...labels.map(label => [label, label]), ...(optional ? [["", t("no_answer")]] : [])];
  if (labels.length > LIST) {
    const blank = html("option", { value: "", disabled: !optional, selected: "" }, optional ? t("no_answer") : t("choose"));
    const values = labels.map((label, at) => html("option", { value: String(at) }, label));
    return html("select", { class: "text", name }, blank, ...values);
  }
  return html("div", { class: "options" }, ...entries.map(([value, text], at) =>
    html("label", {}, html("input", { type: "radio", name, value: value === "" ? "" : String(at) }), html("span", {}, text))));
}

/** A box for each option, of which some may be ticked, or the last one for no answer. */
function boxes(name, labels, optional) {
  const entries = [...labels.map((label, at) => [String(at), label]), ...(optional ? [["", t("no_answer")]] : [])];
  const fields = entries.map(([value]) => html("input", { type: "checkbox", name, value }));
  for (const one of fields) {
    one.addEventListener("change", () => {
      if (one.checked) for (const other of fields) if ((other.value === "") !== (one.value === "")) other.checked = false;
    });
  }
  return html("div", { class: "options" }, ...entries.map(([, text], at) => html("label", {}, fields[at], html("span", {}, text))));
}

/** A field for a number, a date or a time of day; numbers have a slider too. */
function numberField(question, place, ask, unit, step) {
  const { kind, shown } = axis(question), [low, high] = span(question), limits = { min: low, max: high };
  const described = { id: place, name: place, "aria-describedby": `${place}-hint ${place}-wrong`, "aria-label": ask };
  if (kind !== "number") {
    const ends = { min: shown(low), max: shown(high), ...(kind === "time" && { step: low % 60 || high % 60 ? "1" : "60" }) };
    return html("div", { class: "number" }, html("input", { type: kind, class: "text", ...described, ...ends }));
  }
  const entry = html("input", { type: "number", ...described, ...limits, step: step ?? "any", inputmode: "decimal" });
  const middle = low + (high - low) / 2, fine = step ?? (Number.isInteger(low) && high - low >= 10 ? 1 : (high - low) / 100);
  const slider = html("input", { type: "range", ...limits, step: fine, value: middle, "aria-label": t("slider", { name: ask }) });
  slider.addEventListener("input", () => { entry.value = slider.value; });
  entry.addEventListener("input", () => { if (entry.value !== "") slider.value = entry.value; });
  return html("div", { class: "number" }, entry, ...(unit ? [html("span", {}, unit)] : []), slider);
}

function asked(question, at) {
  const { name, categories, options: several, most, text, optional, levels, whole } = question, place = `q${at}`;
  const { ask = name, unit, step = whole ? 1 : undefined } = wording(name);
  const hints = [], wrong = html("p", { class: "bad", id: `${place}-wrong`, role: "alert" });
  let field;
  if (categories) {
    field = options(place, categories, optional);
  } else if (several) {
    field = boxes(place, several, optional);
    hints.push(most < several.length ? t("some_of", { most: number(most) }) : t("any_of"));
  } else if (text) {
    field = html("input", { type: "text", class: "text", id: place, name: place, maxlength: text, autocapitalize: "off",
      "aria-describedby": `${place}-hint ${place}-wrong`, "aria-label": ask });
    hints.push(t("text", { longest: number(text) }));
  } else {
    const given = unit && axis(question).kind === "number" ? ` ${unit}` : "", [low, high] = span(question).map(end => placed(question, end) + given);
    hints.push(t("range", { low, high }));
    field = numberField(question, place, ask, unit, step);
  }
  if (levels) hints.push(t("graded"));
  if (optional) hints.push(t("optional"));
  const hint = html("p", { class: "hint", id: `${place}-hint` }, hints.join(" "));
  return html("section", { "data-question": name }, html("fieldset", { "aria-describedby": `${place}-wrong` },
    html("legend", {}, ask), field, ...(hints.length ? [hint] : []), wrong));
}

function questions() {
  const { campaign } = view, { attributes, public_group: group, tokens } = campaign, parts = attributes.map(asked);
  const box = (title, field, hint, place) => html("section", {}, html("fieldset", {}, html("legend", {}, title), field,
    ...(hint ? [html("p", { class: "hint" }, hint)] : []), html("p", { class: "bad", id: `${place}-wrong`, role: "alert" })));
  if (group) parts.push(box(t("group", { group: group.name }), options("group", group.values, false), "", "group"));
  const form = html("form", { novalidate: "", autocomplete: "off" }, html("h2", { class: "asked" }, t("answer")), ...parts,
    html("div", { class: "actions" }, html("button", { class: "main" }, t("make"))),
    html("p", { class: "hint" }, t("make_hint")));
  form.addEventListener("submit", event => {
    event.preventDefault();
    make(form);
  });
  show(promise(), form);
}

/** Ask her, or first for her code where a token's signature draws what is asked of her; tell her if it is another period's turn. */
async function ask() {
  const { campaign, client } = view, { period } = campaign;
  if (PREVIEW || campaign.tokens !== "drawn") return questions();
  const turn = await client.turn(id), now = periodAt(period);
  if (turn === null) return admission();
  if (turn === now) return questions();
  const [title, text] = turn > now ? ["turn_later", "turn_back"] : ["turn_past", "turn_over"];
  show(html("section", { class: turn > now ? "wait" : "good", id: "turn", role: "status" },
    html("h2", {}, t(title)), html("p", {}, t(text, { when: await dated(period, turn) }))), promise());
}

const codeField = () =>
  html("input", { class: "text", id: "code", autocomplete: "off", autocapitalize: "off", spellcheck: "false", value: known() ?? "" });

/** Keep the code that she gave, and open her device with it; false where she gave none. */
async function identified(entry, wrong) {
  if (!entry.value.trim()) {
    wrong.textContent = t("need_code");
    entry.focus();
    return false;
  }
  localStorage.setItem(`noisette-code:${id}`, entry.value.trim());
  await connect();
  return true;
}

/** Ask for the code, and have the token signed before anything is answered: what is sent then does not depend on it. */
function admission() {
  const entry = codeField(), wrong = html("p", { class: "bad", role: "alert", id: "code-wrong" }), go = html("button", { class: "main" }, t("go_on"));
  const form = html("form", { novalidate: "", autocomplete: "off", id: "admission" }, html("section", {},
    html("label", { class: "asked", for: "code" }, t("code")), entry, html("p", { class: "hint" }, t("admission")), wrong,
    html("div", { class: "actions" }, go)));
  form.addEventListener("submit", async event => {
    event.preventDefault();
    wrong.textContent = "";
    go.disabled = true;
    try {
      if (await identified(entry, wrong)) {
        const told = await view.client.enrol(id);
        if (told?.ok) return await ask();
        wrong.textContent = told === null ? t("unreachable") : told.code === "unknown-code" ? t("bad_code") : told.code === "token-issued" ? t("used")
          : told.code in OVER ? t(OVER[told.code]) : t("odd", { code: told.code });
      }
    } catch (error) {
      return stop(error);
    }
    go.disabled = false;
    return entry.focus();
  });
  show(promise(), form);
}

/** Return the answers of the form by name, and where something is missing. */
function read(form) {
  const { campaign } = view, values = {}, wrong = [];
  const chosen = (place, labels) => {
    const at = new FormData(form).get(place);
    return at === null || at === "" ? null : labels[Number(at)];
  };
  const ticked = (at, labels) => (at.includes("") ? null : at.map(one => labels[Number(one)]));
  campaign.attributes.forEach((question, at) => {
    const { name, categories, options: several, text, optional } = question, place = `q${at}`;
    const given = new FormData(form), value = () => form.elements[place].value.trim() || null;
    const answer = categories ? chosen(place, categories) : several ? ticked(given.getAll(place), several) : value();
    const picked = categories && given.get(place) !== null;
    if (answer === null && optional && (picked || !categories || categories.length > LIST)) {
      values[name] = null;
      return;
    }
    values[name] = answer;
    try {
      row({ attributes: [{ ...question, optional: false }] }, { [name]: answer });
      if (!categories && !several && form.elements[place].validity.badInput) throw new Error();
    } catch {
      const [low, high] = categories || several || text ? [] : span(question).map(end => placed(question, end)); // the hint has the unit
      wrong.push([place, several ? t("need_fewer", { most: number(question.most) }) : text ? t("need_text", { longest: number(text) })
        : categories ? t("need_choice") : t("need_number", { low, high })]);
    }
  });
  const group = campaign.public_group ? chosen("group", campaign.public_group.values) : null;
  if (campaign.public_group && group === null) wrong.push(["group", t("need_choice")]);
  return { values, group, wrong };
}

async function make(form) {
  const { values, group, wrong } = read(form);
  for (const one of form.querySelectorAll(".bad")) one.textContent = "";
  for (const one of form.querySelectorAll("[aria-invalid]")) one.removeAttribute("aria-invalid");
  for (const [place, text] of wrong) {
    form.querySelector(`#${place}-wrong`).textContent = text;
    const field = form.querySelector(`[name="${place}"]`);
    if (!["radio", "checkbox"].includes(field.type)) field.setAttribute("aria-invalid", "true");
  }
  if (wrong.length) {
    form.querySelector(`[name="${wrong[0][0]}"]`).focus();
    return;
  }
  [view.values, view.group] = [values, group];
  try {
    await view.client.answer(id, values, { group, hold: true });
    await (mine() ? draw() : ask()); // none where a period has ended meanwhile
  } catch (error) {
    stop(error);
  }
}

// ---- the report -----------------------------------------------------------------------------------------------------

const parse = text => JSON.parse(text.replace(/(?<![.\d])\d{16,}(?![.\d])/g, '"$&"')); // seeds are longer than a number

const shown = (name, answer) => (answer === null ? t("no_answer")
  : typeof answer === "number" || (wording(name).unit && !Number.isNaN(Number(answer))) ? `${number(Number(answer))} ${wording(name).unit ?? ""}`.trim() : String(answer));

const listed = (labels, codes) => (codes.length ? new Intl.ListFormat(view.language).format(codes.map(code => labels[code] ?? t("no_answer"))) : t("none_of"));

/** An answer as a person reads it, from what the laws take. */
function label(question, value) {
  const { name, categories, options: several } = question;
  if (value === null) return t("no_answer");
  if (several) return listed(several, value);
  return axis(question).kind === "number" ? shown(name, categories ? categories[value] : value) : placed(question, value);
}

/** The answers that one might have given, for one question: labels, or points of the range with one's own. */
function alternatives(question, own) {
  const { categories, options: several, text, optional } = question, none = optional ? [null] : [];
  if (categories) return [...categories.map((_, at) => at), ...none];
  if (several || text) return [true, false];
  const [low, high] = span(question), points = [0, 1, 2, 3, 4].map(k => low + (high - low) * k / 4);
  return [...new Set([...points, ...(typeof own === "number" ? [own] : [])])].sort((a, b) => a - b).concat(none);
}

/** What the answers have in common that a report of several choices or of a text points at, and those of all others. */
function sorts({ options: several, most }, { about, buckets }) {
  if (!several) return [t("pointed", { buckets: number(buckets) }), t("other_texts")];
  const labels = listed(several, about.options), fewer = about.blank ? t("fewer_than", { most: number(most) }) : "";
  const any = about.options.length || !fewer ? t("with_any", { labels }) : "", none = t("with_none", { labels });
  if (!about.yes) return [none, any];
  return [[any, fewer].filter(Boolean).join(` ${t("or")} `), t("all_others")];
}

/** What a report says of one question, and a bar for each answer that one might have given. */
function evidence(part, name, own) {
  const { asked: names, weigh } = part, { campaign } = view, all = names.map(one => campaign.attributes.find(other => other.name === one));
  const place = names.indexOf(name), question = all[place], mine = own?.[campaign.attributes.indexOf(question)];
  const rest = all.map((one, at) => (at === place ? null : alternatives(one, undefined)));
  const combined = value => rest.reduce((rows, other) => // the others as they fit the report best
    rows.flatMap(sofar => (other ?? [value]).map(one => [...sofar, one])), [[]]).reduce((most, one) => Math.max(most, weigh(one)), -Infinity);
  const found = alternatives(question, mine).map(value => ({ value, weight: combined(value) }));
  const most = Math.max(...found.map(one => one.weight)), sorted = typeof found[0].value === "boolean" && sorts(question, part);
  const told = value => (sorted ? sorted[value ? 0 : 1] : label(question, value));
  const off = sorted && mine !== undefined ? found.map(one => Math.abs(one.weight - combined(mine))) : [];
  const isOwn = ({ value }, at) => (sorted ? off[at] === Math.min(...off) : value === mine);
  const bars = found.map((one, at) => {
    const share = Math.exp(one.weight - most), bar = html("i", {}), yours = isOwn(one, at);
    bar.style.width = `${100 * share}%`;
    return html("li", yours ? { class: "own" } : {}, html("span", {}, told(one.value) + (yours ? ` (${t("yours")})` : "")),
      html("div", {}, bar), html("em", {}, number(share, 2)));
  });
  const likeliest = found.filter(one => one.weight > most - 1e-9).map(one => told(one.value));
  return { bars: html("ul", { class: "weights" }, ...bars), likeliest };
}

function says(question, parts, sent, own) {
  const part = parts.find(one => one.asked.includes(question.name));
  if (!part) return { text: t("not_drawn"), none: true, bars: null };
  const { bars, likeliest } = evidence(part, question.name, own);
  const single = part.asked.length === 1 && question.range && !question.optional && (question.want ?? "mean") in { mean: 1, distribution: 1 } &&
    typeof sent === "number";
  return { text: single ? label(question, sent) : likeliest.join(", "), none: false, bars };
}

/** The one number that a report says of a question that is asked as it is, if it is one: those share the first law. */
function raw(report, question) {
  const { table, attributes } = view.campaign, several = table.kind === "together", own = several ? table.sections[0] : table;
  const first = !several ? report : !table.draw.length ? report[0] : report[0] === 0 ? report[1] : undefined;
  const plain = attributes.filter(one => one.categories || (one.range && !["quantiles", "variance"].includes(one.want)));
  if (own.kind !== "record" || plain.length === 1) return plain[0] === question && typeof first === "number" ? first : undefined;
  const found = first?.find(([at]) => plain[at] === question);
  return found?.length === 2 ? found[1] : undefined;
}

async function draw() {
  const { client, campaign, law, values } = view, made = mine(), report = parse(made.report);
  view.period = made.period;
  const own = values && row(campaign, values), parts = law.weigh(report);
  const plain = !campaign.joint?.length;
  const told = campaign.attributes.map(question => ({ question, ...says(question, parts, plain ? raw(report, question) : undefined, own) }));
  const pairs = told.map(({ question, text, none }, at) => html("tr", {}, html("th", { scope: "row" }, wording(question.name).ask ?? question.name),
    ...(values ? [html("td", {}, label(question, own[at]))] : []), html("td", { class: none ? "none" : "sent" }, text)));
  const body = await client.body(id, made.period), { group } = JSON.parse(body); // it goes as it is
  if (group !== undefined) {
    const cells = [...(values ? [html("td", {}, group)] : []), html("td", { class: "sent" }, group)];
    pairs.push(html("tr", {}, html("th", { scope: "row" }, t("group", { group: campaign.public_group.name })), ...cells));
  }
  const title = key => html("th", { scope: "col" }, t(key)), columns = ["question", ...(values ? ["answered"] : []), "sent"];
  const table = html("table", { class: "said" }, html("thead", {}, html("tr", {}, ...columns.map(title))), html("tbody", {}, ...pairs));
  const bars = told.filter(one => one.bars).flatMap(({ question, bars: one }) =>
    [html("h3", {}, wording(question.name).ask ?? question.name), one]);
  const proof = html("p", { class: "hint" }, t("law", { hash: await lawHash(law.law) }), " ",
    html("a", { href: `/c/${encodeURIComponent(id)}/certificate` }, t("certificate")));
  const how = html("details", { id: "how" }, html("summary", {}, t("how")), html("p", {}, t("how_text", { factor: factor(law.epsilon) })), ...bars, proof);
  const letters = html("details", { id: "body" }, html("summary", {}, t("body")),
    html("pre", { tabindex: "0", "aria-label": t("body") }, body),
    ...(campaign.tokens === "blind" ? [html("p", { class: "hint" }, t("body_token"))] : []));
  const card = (...more) => html("section", { id: "report" }, html("h2", {}, t("report")),
    ...(made.state === "held" ? [html("p", { class: "hint" }, t("report_hint"))] : []),
    table, ...(values ? [] : [html("p", { class: "hint" }, t("hidden"))]), how, letters, ...more);
  if (made.state !== "held") {
    show(outcome(made), card());
    return;
  }
  const wrong = html("p", { class: "bad", role: "alert", id: "code-wrong" }, made.code === "unknown-code" ? t("bad_code") : "");
  const entry = codeField();
  const asks = campaign.tokens === "blind" ? [html("label", { class: "asked", for: "code" }, t("code")), entry,
    html("p", { class: "hint" }, t("code_hint")), wrong] : [];
  const send = html("button", { class: "main", type: "button" }, t("send")), back = html("button", { type: "button" }, t("keep_back"));
  const said = html("p", { role: "status" });
  send.addEventListener("click", async () => {
    if (PREVIEW) {
      said.textContent = t("preview");
      return;
    }
    if (asks.length && !await identified(entry, wrong)) return;
    send.disabled = true;
    said.textContent = t("sending");
    await view.client.release(id, made.period);
    await deliver();
  });
  back.addEventListener("click", () => { said.textContent = t("kept_back"); });
  show(card(...asks, html("div", { class: "actions" }, send, back), said));
}

const OVER = { "campaign-closed": "closed", "too-late": "late", overflow: "full" }; // why a sound report is refused

function outcome({ state, period, code: why }) {
  const told = { sent: view.sent ? ["good", t("thanks"), t("close")] : ["good", period === "once" || view.campaign.answers === "tracked" ? t("before")
    : t("before_period", { period: t(view.campaign.period) }), t("counts_once")],
  waiting: why ? ["wait", t("not_taken"), t("not_taken_hint", { code: why })] : ["wait", t("waiting"), ""],
  refused: why === "already-answered" || why === "token-issued"
    ? ["wait", why === "token-issued" ? t("used") : t("before"), t("counts_once")]
    : ["wrong", t("refused"), why in OVER ? t(OVER[why]) : t("odd", { code: why })] }[state];
  return html("section", { class: told[0], id: "outcome", role: "status" }, html("h2", {}, told[1]), html("p", {}, told[2]));
}

async function deliver() {
  const before = mine().state;
  try {
    await view.client.send();
  } catch (error) {
    return stop(error);
  }
  if (before === "waiting" && mine().state === "sent") view.sent = true;
  return draw();
}

/** Try again, now and then and when the network is back, while a report waits. */
function watch() {
  const again = () => { if (mine()?.state === "waiting") deliver(); };
  addEventListener("online", again);
  setInterval(again, RETRY);
}

// ---- beginning ------------------------------------------------------------------------------------------------------

function show(...children) {
  find("#main").replaceChildren(...children);
  find("#main").focus({ preventScroll: true });
  scrollTo(0, 0);
}

/** Why a survey is not answered, by what the error says: those that say all, those that a program's reader may want more of, and what hinders this page. */
const FINAL = [[/such campaign/, "no_such"], [/was never seen/, "unreachable"], [/^closed$/, "closed"], [/^not_yet$/, "not_yet"]];
const UNSAFE = [[/promises|no law/, "unsafe"], [/something else|has a budget/, "changed"], [/another key/, "marked"]];
const HINDERED = [[/over https/, "https"], [/[Ss]torage/, "storage"], [/left, campaign/, "spent"], [/Reload/, "reload"], [/shuffler|Python/, "program"]];

function stop(error) {
  const text = `${error.name === "SecurityError" ? "Storage: " : ""}${error.message}`, why = list => list.find(([found]) => found.test(text))?.[1];
  const final = why(FINAL), unsafe = why(UNSAFE), hindered = why(HINDERED), own = final ?? unsafe;
  const more = final ? [] : [!unsafe && hindered ? html("p", {}, t(hindered)) : html("p", { class: "hint", lang: "en" }, text)];
  show(html("section", { class: "wrong", role: "alert", id: "stopped" }, html("h2", {}, t(own ?? "cannot")), ...more));
}

const mine = () => view.client?.report(id, view.period) ?? null;
const known = () => code ?? stored(`noisette-code:${id}`);

/** The device of this browser for this campaign, whose budget is what the campaign asks for. */
async function connect() {
  const { epsilon, answers, period } = view.campaign;
  const limit = answers !== "fresh" || period === "once" ? epsilon : Math.min(9000, epsilon * 4096);
  view.client = await Client.open(location.origin, { path: "c", name: `c:${id}`, epsilon: limit, code: known() ?? "", attempts: 2 });
}

/** A device that keeps nothing and sends nothing: an owner looks at a form before it is opened. */
function rehearsal() {
  const kept = { made: null };
  return { made: () => 0, report: () => kept.made, release: () => null, send: async () => null,
    answer: async (_, values, { group }) => { kept.made = { state: "held", period: "once", group, report: encode(view.law.draw(row(view.campaign, values))) }; },
    body: async () => `{${kept.made.group === null ? "" : `"group":${JSON.stringify(kept.made.group)},`}"report":${kept.made.report}}` };
}

/** Return the campaign as the collector shows it, or as it was last seen here. */
async function fetched() {
  try {
    const answer = await fetch(`/c/${encodeURIComponent(id)}/table`, { credentials: "omit" });
    if (answer.ok) return await answer.json();
    if (answer.status < 500) throw Object.assign(new Error((await answer.json()).detail), { final: true });
  } catch (error) {
    if (error.final) throw error;
  }
  const kept = JSON.parse(stored(`noisette:c:${id}`) ?? "null")?.campaigns?.[id];
  if (!kept) throw new Error("The collector does not answer, and this survey was never seen.");
  return kept;
}

async function begin(language = preferred()) {
  await speak(language);
  if (PREVIEW) {
    try {
      view.campaign = PREVIEW;
      head();
      view.law = check(PREVIEW, PREVIEW.id);
      view.client = rehearsal();
      return questions();
    } catch (error) {
      return stop(error);
    }
  }
  find("#main").replaceChildren(html("p", { role: "status" }, t("loading")));
  try {
    view.campaign = await fetched();
    head();
    view.law = check(view.campaign, id, Boolean(view.campaign.sealed));
    if (view.campaign.sealed) throw new Error("It is answered through a shuffler.");
    await connect();
    await view.client.campaign(id); // refuses a question that has changed
    const { state = "open", opens, closes } = view.campaign.life ?? {}, now = new Date().toISOString();
    if (view.campaign.answers === "tracked") view.period = await view.client.turn(id) ?? undefined; // hers, also when it is over
    if (mine()) await deliver();
    else if (state !== "open" || (closes && now >= closes)) throw new Error("closed");
    else if (opens && now < opens) throw new Error("not_yet");
    else await ask();
    watch();
    navigator.serviceWorker?.register("/c/worker.js").catch(() => null);
  } catch (error) {
    stop(error);
  }
}

find("#language").addEventListener("change", async event => {
  if (view.client) localStorage.setItem("noisette-language", event.target.value); // which needs a storage too
  await speak(event.target.value);
  if (!view.client) return begin(event.target.value);
  head();
  if (mine()) return draw();
  const given = find("form") ? [...new FormData(find("form"))] : [];
  await ask();
  for (const [name, value] of given) {
    const box = find(`:is([type=checkbox], [type=radio])[name="${name}"][value="${value}"]`);
    if (box) box.checked = true;
    else find("form").elements[name].value = value;
  }
  return find("#language").focus();
});

begin();
