// The owner's console. Every action is a call that the command line has too; keys stay in this tab.

import { count, html, number } from "./charts.js";

const find = selector => document.querySelector(selector);
const PLACE = "noisette:operator", READER = "noisette:key"; // the dashboard of this tab reads the second
const PAUSE = 400; // milliseconds after the last letter, before a plan is asked for
const HALF = 1.959963984540054; // standard errors in half of a 95 % interval
let waiting = 0, round = 0;

async function ask(path, method = "GET", body = undefined, key = sessionStorage.getItem(PLACE)) {
  const headers = { Authorization: `Bearer ${key}`, ...(body && { "Content-Type": "application/json" }) };
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  const found = answer.status === 204 ? null : await answer.json();
  if (!answer.ok) throw Object.assign(new Error(found.detail), { status: answer.status });
  return found;
}

const say = (...parts) => { find("#state").replaceChildren(...parts); };
const reason = error => (error.status === 401 ? "This key is not known here, or its link has been used." : error.message);
const failed = error => say(reason(error));

// ---- coming in ------------------------------------------------------------------------------------------------------

async function begin() {
  const once = new URLSearchParams(location.hash.slice(1)).get("key");
  if (once) {
    history.replaceState(null, "", location.pathname); // the key leaves the address bar
    try {
      const keys = await ask("/console/keys", "POST", undefined, once);
      sessionStorage.setItem(PLACE, keys.operator);
      sessionStorage.setItem(READER, keys.analyst);
    } catch (error) {
      find("#door .bad").textContent = reason(error);
    }
  }
  await enter();
}

async function enter() {
  const known = sessionStorage.getItem(PLACE) !== null;
  if (known) {
    try {
      await list();
      await listKeys();
    } catch (error) {
      sessionStorage.removeItem(PLACE);
      find("#door .bad").textContent = reason(error);
    }
  }
  const inside = sessionStorage.getItem(PLACE) !== null;
  find("#inside").hidden = !inside;
  find("#door").hidden = inside;
  if (inside && !find("#questions").children.length) recallDraft();
  if (inside && !find("#questions").children.length) add();
}

// ---- surveys --------------------------------------------------------------------------------------------------------

/** A button that does something to a survey, lists all anew, and says so. */
function act(text, title, work) {
  const button = html("button", { type: "button", "aria-label": `${text}: ${title}` }, text);
  button.addEventListener("click", async () => {
    try {
      const told = await work();
      if (told === null) return;
      await list();
      say(...(typeof told === "string" || Array.isArray(told) ? [told].flat() : [`${text}: done.`]));
    } catch (error) {
      failed(error);
    }
  });
  return button;
}

/** A link to the dashboard; who came in with an operator's key gets an analyst's for a day, since hers opens no results. */
function results(id, title) {
  const link = html("a", { href: `/dashboard#${id}`, class: "results", "aria-label": `Results: ${title}` }, "Results");
  link.addEventListener("click", async event => {
    if (sessionStorage.getItem(READER) !== null) return;
    event.preventDefault();
    try {
      const name = `console-${crypto.getRandomValues(new Uint32Array(1))[0].toString(16)}-analyst`;
      sessionStorage.setItem(READER, (await ask("/keys", "POST", { name, role: "analyst", days: 1 })).key);
      location.assign(link.href);
    } catch (error) {
      failed(error);
    }
  });
  return link;
}

/** What may be changed of a survey that is open: nothing private depends on it. What is emptied is removed. */
function editor({ id, title, users, wanted, closes, webhook }) {
  const last = closes ? new Date(Date.parse(closes) - 1).toISOString().slice(0, 10) : ""; // the day of an end is included
  const given = { title, users, wanted: wanted ?? "", closes: last, webhook: webhook ?? "" };
  const field = (text, name, more = {}) => html("label", {}, text, html("input", { class: "text", name, value: given[name], ...more }));
  const box = html("details", { class: "edit" }, html("summary", {}, "Edit"), field("Title", "title", { maxlength: 200 }),
    field("People you hope for", "users", { type: "number", min: 1, step: 1 }), field("Wanted ±, in % of the range of an answer", "wanted", { type: "number", min: 0.1, max: 100, step: "any" }),
    field("Last day (UTC)", "closes", { type: "date" }),
    field("Webhook: an address to call when the target is reached, reports stop, or liars are suspected", "webhook", { type: "url", placeholder: "https://" }));
  const save = () => {
    const change = {};
    for (const name of ["wanted", "closes", "webhook", "title", "users"]) {
      const value = box.querySelector(`[name="${name}"]`).value.trim();
      if (value === String(given[name])) continue;
      if (value === "" && ["title", "users"].includes(name)) throw new Error(`A survey needs ${name === "title" ? "a title" : "a number of people"}.`);
      change[name] = value === "" ? null : ["users", "wanted"].includes(name) ? Number(value) : value;
    }
    return Object.keys(change).length ? ask(`/campaigns/${id}`, "PATCH", change).then(() => "Saved.") : "Nothing was changed.";
  };
  box.append(html("div", { class: "actions" }, act("Save", title, save)));
  return box;
}

async function list() {
  const { campaigns } = await ask("/campaigns");
  const shown = campaigns.map(one => {
    const { id, title, state } = one, address = `${location.origin}/c/${id}`, call = word => () => ask(`/campaigns/${id}/${word}`, "POST");
    const copy = async () => {
      if (!navigator.clipboard) throw new Error("Browsers copy on https pages only: select the address instead.");
      await navigator.clipboard.writeText(address);
      return "The link was copied.";
    };
    const view = async () => {
      const made = await ask(`/campaigns/${id}/links`, "POST", {});
      await listKeys();
      return ["Whoever has this link sees these results and changes nothing: ", html("a", { href: made.link }, made.link), ` It ends when you end the key ${made.name} below.`];
    };
    const remove = () => (confirm(`Delete ${title} with all its reports?`) ? ask(`/campaigns/${id}`, "DELETE").then(() => "Deleted.") : null);
    const states = state === "open" ? [act("Close", title, call("close"))]
      : [act("Open again", title, call("reopen")), ...(state === "archived" ? [] : [act("Archive", title, call("archive"))]), act("Delete", title, remove)];
    return html("div", { class: "one", "data-id": id }, html("h3", {}, `${title} (${state})`),
      html("a", { href: address }, address), html("img", { src: `/c/${id}/qr.svg`, alt: `The address of ${title} as a QR code` }),
      html("div", { class: "actions" }, act("Copy the link", title, copy), act("Link to the results", title, view), ...states, results(id, title)), editor(one));
  });
  find("#campaigns .list").replaceChildren(...(shown.length ? shown : [html("p", { class: "hint" }, "None yet. Write the first one below.")]));
}

// ---- writing --------------------------------------------------------------------------------------------------------

const KINDS = { choice: "One answer of a list", choices: "Several answers of a list", number: "A number", date: "A date", time: "A time of day",
  text: "A short text in people's own words", graded: "A number, some ranges protected more" };
const WANTS = { mean: "its mean", distribution: "its mean and a picture", quantiles: "median, quartiles and tails", variance: "mean and variance" };
const PARTS = { labels: ["choice", "choices"], most: ["choices"], range: ["number", "date", "time"], want: ["number", "date", "time"], unit: ["number", "graded"],
  longest: ["text"], levels: ["graded"], optional: ["choice", "choices", "number", "date", "time", "text"] };
const DRAFT = "noisette:draft"; // a survey that is being written stays through a reload of this tab

const select = (name, entries) => html("select", { class: "text", name }, ...Object.entries(entries).map(([value, text]) => html("option", { value }, text)));

function add() {
  const kind = select("kind", KINDS), field = (text, name, more = {}) => html("label", {}, text, html("input", { class: "text", name, ...more }));
  const want = select("want", WANTS);
  const parts = {
    labels: html("label", {}, "Answers, one a line", html("textarea", { class: "text", name: "labels", rows: 4 })),
    most: field("How many at most (empty for any number)", "most", { type: "number", min: 1, step: 1 }),
    range: html("div", { class: "pair" }, field("From", "low"), field("To", "high")),
    want: html("label", {}, "What you want to know", want),
    levels: html("label", {}, "Ranges, one a line: from, to, budget (a larger one protects less)",
      html("textarea", { class: "text", name: "levels", rows: 3, placeholder: "0, 50, 2\n50, 100, 1" })),
    unit: field("Unit", "unit", { maxlength: 40 }),
    longest: field("Letters at most", "longest", { type: "number", min: 1, max: 32, value: 24 }),
    optional: html("label", {}, html("input", { type: "checkbox", name: "optional" }), " May be left out"),
  };
  const remove = html("button", { type: "button" }, "Remove");
  const box = html("section", { class: "question" }, html("div", { class: "top" }, html("h3", {}), remove), field("Question", "ask", { maxlength: 200 }), html("label", {}, "Kind", kind),
    ...Object.values(parts));
  const fit = () => {
    const [low, high] = parts.range.querySelectorAll("input");
    for (const [name, part] of Object.entries(parts)) part.hidden = !PARTS[name].includes(kind.value);
    if (!parts.want.hidden && want.value !== "mean") parts.optional.hidden = true; // only a mean is told of those who answered
    for (const end of [low, high]) if (end.type !== kind.value && !parts.range.hidden) end.type = kind.value;
  };
  for (const one of [kind, want]) one.addEventListener("change", fit);
  box.addEventListener("refit", fit);
  remove.addEventListener("click", () => { box.remove(); numberQuestions(); offer(); plan(); keepDraft(); });
  fit();
  find("#questions").append(box);
  numberQuestions();
  offer();
  return box;
}

function numberQuestions() {
  for (const [at, box] of [...document.querySelectorAll(".question")].entries()) {
    box.querySelector("h3").textContent = `Question ${at + 1}`;
    box.querySelector(".top button").setAttribute("aria-label", `Remove question ${at + 1}`);
  }
}

// ---- a draft --------------------------------------------------------------------------------------------------------

const fields = box => Object.fromEntries([...box.querySelectorAll("[name]")].map(one => [one.name, one.type === "checkbox" ? one.checked : one.value]));

function fill(box, values) {
  for (const one of box.querySelectorAll("[name]")) {
    if (one.type === "checkbox") one.checked = Boolean(values[one.name]);
    else one.value = values[one.name] ?? one.value;
    if (one.name === "kind") box.dispatchEvent(new Event("refit")); // before the ends of its range are filled in
  }
  box.dispatchEvent(new Event("refit"));
}

function keepDraft() {
  const own = [...find("#write").elements].filter(one => one.name && !one.closest(".question, .together")).map(one => [one.name, one.value]);
  const pairs = [...document.querySelectorAll(".together")].map(box => [...box.querySelectorAll("select")].map(one => one.value));
  sessionStorage.setItem(DRAFT, JSON.stringify({ own: Object.fromEntries(own), questions: [...document.querySelectorAll(".question")].map(fields), pairs }));
}

function recallDraft() {
  const kept = JSON.parse(sessionStorage.getItem(DRAFT) ?? "null");
  if (!kept) return;
  for (const [name, value] of Object.entries(kept.own)) if (find("#write").elements[name]) find("#write").elements[name].value = value;
  for (const one of kept.questions) fill(add(), one);
  for (const one of kept.pairs) [...addPair().querySelectorAll("select")].forEach((list, at) => { list.value = one[at]; });
  if (kept.own.group) find('[name="group"]').closest("details").open = true;
  if (kept.pairs.length) find("#joint").open = true;
  plan();
}

// ---- pairs ----------------------------------------------------------------------------------------------------------

const asked = () => [...document.querySelectorAll(".question")].map(box => box.querySelector('[name="ask"]').value.trim());

function addPair() {
  const side = text => html("label", {}, text, html("select", { class: "text", name: "side" }));
  const remove = html("button", { type: "button" }, "Remove this pair"), box = html("div", { class: "together" },
    html("div", { class: "pair" }, side("One"), side("And another")), html("div", { class: "actions" }, remove));
  remove.addEventListener("click", () => { box.remove(); plan(); keepDraft(); });
  find("#joint .pairs").append(box);
  offer();
  return box;
}

/** Offer the questions as they are written now; what was chosen stays chosen. */
function offer() {
  const questions = asked();
  for (const list of document.querySelectorAll("#joint select")) {
    const chosen = list.value;
    list.replaceChildren(html("option", { value: "" }, "…"), ...questions.filter(Boolean).map(text => html("option", { value: text }, text)));
    list.value = questions.includes(chosen) ? chosen : "";
  }
}

const slug = text => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 50);

/** Return the survey as it is written so far. */
function written() {
  const form = find("#write").elements, value = (box, name) => box.querySelector(`[name="${name}"]`).value.trim();
  const boxes = [...document.querySelectorAll(".question")].filter(box => value(box, "ask"));
  const wordings = {}, named = {}, questions = boxes.map((box, at) => {
    const ask = value(box, "ask"), plain = slug(ask).slice(0, 40), name = plain && !(plain in wordings) ? plain : `${plain.slice(0, 30) || "question"}-${at + 1}`, unit = value(box, "unit");
    named[ask] = name;
    wordings[name] = { ask, ...(unit && { unit }) };
    const kind = value(box, "kind"), lines = value(box, "labels").split("\n").map(one => one.trim()).filter(Boolean);
    const mayNot = box.querySelector('[name="optional"]'), optional = mayNot.checked && !mayNot.parentElement.hidden ? { optional: true } : {};
    const end = place => (kind === "number" ? Number(value(box, place)) : value(box, place)), want = value(box, "want");
    if (kind === "choice") return { name, categories: lines, ...optional };
    if (kind === "choices") return { name, options: lines, ...(value(box, "most") && { most: Number(value(box, "most")) }), ...optional };
    if (kind === "text") return { name, text: Number(value(box, "longest")), ...optional };
    if (kind === "graded") return { name, levels: value(box, "levels").split("\n").filter(Boolean).map(line => line.split(/[,;\s]+/).map(Number)) };
    return { name, range: [end("low"), end("high")], ...(want !== "mean" && { want }), ...optional };
  });
  const joint = [...document.querySelectorAll(".together")].map(box => [...box.querySelectorAll("select")].map(list => named[list.value]))
    .filter(pair => pair.every(Boolean));
  const group = form.group.value.trim(), values = form["group-values"].value.split("\n").map(one => one.trim()).filter(Boolean);
  const by = form.by.value.trim(), about = form.about.value.trim(), title = form.title.value.trim();
  return { id: slug(title) || "survey", title: title || "survey", epsilon: Number(form.epsilon.value), users: Number(form.users.value),
    wanted: Number(form.wanted.value), questions, ...(joint.length && { joint }), ...(group && { groups: { [group]: values } }), form: { ...(by && { by }), ...(about && { about }), questions: wordings } };
}

/** What a survey still lacks before it can be planned, in a sentence; empty where nothing is missing. */
function lacking() {
  const form = find("#write").elements, group = form.group.value.trim(), lines = text => text.split("\n").map(one => one.trim()).filter(Boolean);
  for (const box of document.querySelectorAll(".question")) {
    const { ask, kind, labels, low, high, levels } = fields(box), who = `“${ask.trim()}”`;
    if (!ask.trim()) continue;
    if (["choice", "choices"].includes(kind)) {
      const each = lines(labels), twice = each.find((one, at) => each.indexOf(one) < at);
      if (each.length < 2) return `${who} needs two answers at least, one a line.`;
      if (twice) return `${who} has the answer “${twice}” twice.`;
    }
    if (["number", "date", "time"].includes(kind)) {
      if (!low || !high) return `${who} needs the smallest and the largest value, From and To.`;
      if (kind === "number" ? Number(low) >= Number(high) : low >= high) return `${who}: To has to be more than From.`;
    }
    if (kind === "graded" && !lines(levels).length) return `${who} needs its ranges, one a line: from, to, budget.`;
    const wrong = kind === "graded" && lines(levels).find(line => { const found = line.split(/[,;\s]+/).map(Number); return found.length !== 3 || !found.every(Number.isFinite); });
    if (wrong) return `${who}: “${wrong}” is not three numbers: from, to, budget.`;
  }
  if (group && lines(form["group-values"].value).length < 2) return `The group “${group}” needs two values at least, one a line.`;
  if (!(Number(form.users.value) >= 1)) return "Say how many people you hope for.";
  if (!(Number(form.wanted.value) > 0)) return "Say which ± you want, in % of the range of an answer.";
  return "";
}

/** The rows of a plan; those of one question that are told equally well, and groups of one size, are one row. */
function folded(rows) {
  const found = [];
  for (const row of rows) {
    const last = found.at(-1), same = name => last[name] === row[name];
    if (last && ["question", "group", "std_error", "span", "verdict"].every(same) && row.tells === "shares") last.quantities.push(row.quantity);
    else found.push({ ...row, quantities: [row.quantity] });
  }
  const merged = [];
  for (const row of found) {
    const group = row.group.split("=")[0], twin = merged.find(one => one.group !== "all" && one.group.split("=")[0] === group && one.question === row.question &&
      one.std_error === row.std_error && one.verdict === row.verdict && one.quantities.join() === row.quantities.join());
    if (twin) twin.groups.push(row.group);
    else merged.push({ ...row, groups: [row.group] });
  }
  return merged;
}

/** The words of a question, of what follows from one, or of two together. */
function wordingOf(name, survey) {
  const ask = own => survey.form.questions[own]?.ask ?? own, pair = name.split(" × ");
  if (pair.length === 2) return pair.map(ask).join(" × ");
  const [, base, more] = name.match(/^(.*) (answered|chosen)$/) ?? [null, name, ""];
  return survey.form.questions[base] && more ? ask(base) : ask(name);
}
const QUANTITIES = { median: "50 % are below", "response rate": "share who answer", "mean number": "how many, on average" };
const quantityOf = text => QUANTITIES[text] ?? text.replace(/^quantile 0\.(\d\d)$/, (_, part) => `${Number(part)} % are below`).replace(/^mean where [^=]*=/, "mean for ");

/** An error of the collector with questions as they are put. */
const inWords = (text, survey) => Object.entries(survey.form.questions).reduce((told, [name, { ask: words }]) => told.replaceAll(`'${name}'`, `“${words}”`), text);

/** The half-width of a 95 % interval in the unit of its answer. */
function half({ question, quantity, std_error: error, tells }, survey) {
  const asked = survey.questions.find(one => one.name === question), [end] = asked?.range ?? [];
  if (tells !== "mean" || quantity === "response rate") return `${number(100 * HALF * error, 100 * error)} %`;
  const [size, unit] = quantity === "variance" || typeof end !== "string" ? [1, quantity === "variance" ? "" : survey.form.questions[question]?.unit ?? ""]
    : end.includes(":") ? [60, "minutes"] : [1, "days"];
  return `${number(HALF * error / size, error / size)} ${unit}`.trim();
}

async function plan() {
  const own = ++round, survey = written(), state = find("#plan p"), place = find("#plan .wide"), missing = lacking();
  if (!survey.questions.length || missing) {
    state.textContent = missing || "Write a question first.";
    return place.replaceChildren();
  }
  if (!place.children.length) state.textContent = "Planning …";
  try {
    const { rows, mechanisms, obstacle } = await ask("/plan", "POST", survey);
    if (own !== round) return null; // an older question
    const wanted = survey.wanted / 100, names = [...new Set(rows.map(row => row.group))], groups = names.length > 1;
    const needed = row => (row.std_error === null ? Infinity : Math.ceil(survey.users * (HALF * row.std_error / row.span / wanted) ** 2));
    const judged = row => (row.std_error === null ? "nothing is told" : row.verdict === "not worth collecting" ? "no better than a guess"
      : row.verdict === "doubtful" ? "little better than a guess" : HALF * row.std_error <= row.span * wanted ? "fine enough" : "coarser than wanted");
    const merged = folded(rows).map(row => ({ ...row, told: judged(row) })), most = Math.max(...rows.map(needed)), goal = `± ${number(survey.wanted)} % of its range`;
    const bad = [...new Set(merged.filter(row => /guess|nothing/.test(row.told)).map(row => `“${wordingOf(row.question, survey)}”`))];
    const coarse = merged.filter(row => row.told !== "fine enough").length;
    state.textContent = (bad.length ? `Not worth collecting like this: the answers to ${bad.join(", ")} will be hardly better than a guess. `
      : coarse ? `Worth collecting, but ${coarse} of ${merged.length} answers will be coarser than you want. ` : `Worth collecting: every answer comes to ${goal}, or better. `) +
      (coarse || bad.length ? Number.isFinite(most) ? `To know every answer to ${goal}, ask about ${count(most)} people, ask less, or protect less.` : `No number of people brings every answer to ${goal}.`
        : `About ${count(most)} people are enough.`) + (obstacle ? ` It cannot be opened as a page: ${inWords(obstacle, survey)}` : "");
    const where = row => (!groups ? "" : row.groups[0] === "all" ? "everybody" : row.groups.length > 1 && row.groups.length === names.filter(one => one.split("=")[0] === row.group.split("=")[0]).length
      ? `each ${row.group.split("=")[0]}` : row.groups.join(", "));
    const what = row => [row.quantities.length === 1 ? quantityOf(row.quantities[0]) : `each of ${row.quantities.length} shares`, where(row)].filter(Boolean).join(", ");
    const cells = row => [[wordingOf(row.question, survey), html("small", {}, what(row))], row.std_error === null ? "–" : `± ${half(row, survey)}`,
      Number.isFinite(needed(row)) ? count(needed(row)) : "never", row.told];
    const line = (tag, texts, kind = "") => html("tr", {}, ...texts.map((text, at) => html(tag, { ...(tag === "th" && { scope: "col" }), ...(kind && at === 3 && { class: kind }) }, ...[text].flat())));
    const grade = text => (/guess|nothing/.test(text) ? "bad" : text.startsWith("coarser") ? "mild" : "good");
    return place.replaceChildren(html("table", {}, html("thead", {}, line("th", ["answer", "±", "people needed", "verdict"])),
      html("tbody", {}, ...merged.map(row => line("td", cells(row), grade(row.told))))),
    html("p", { class: "hint" }, `± is half of a 95 % interval, for ${count(survey.users)} people; four times as many halve it. ` +
      `People needed are those for ± ${number(survey.wanted)} % of the range. Mechanism: ${[...new Set(Object.values(mechanisms))].join(", ")}.`));
  } catch (error) {
    if (own === round) {
      state.textContent = inWords(error.message, survey);
      place.replaceChildren();
    }
    return null;
  }
}

/** Open a survey under an id that nobody has or had; titles without Latin letters are all "survey" at first. */
async function openUnderFreeId(survey) {
  for (let at = 1; ; at++) {
    const id = at === 1 ? survey.id : `${survey.id}-${at}`;
    try {
      return await ask("/campaigns", "POST", { ...survey, id });
    } catch (error) {
      if (at === 200 || !/There (is|was) a campaign/.test(error.message)) throw error;
    }
  }
}

find("#write").addEventListener("input", event => {
  if (event.target.name === "ask") offer();
  keepDraft();
  clearTimeout(waiting);
  waiting = setTimeout(plan, PAUSE);
});
find("#write").addEventListener("submit", async event => {
  event.preventDefault();
  const wrong = find("#write .bad");
  wrong.textContent = "";
  try {
    if (!find("#write").elements.title.value.trim()) throw new Error("Give the survey a title.");
    if (!written().questions.length) throw new Error("Write a question first.");
    if (lacking()) throw new Error(lacking());
    const { obstacle } = await ask("/plan", "POST", written());
    if (obstacle) throw new Error(obstacle);
    const { id } = await openUnderFreeId(written());
    find("#write").reset();
    sessionStorage.removeItem(DRAFT);
    for (const box of document.querySelectorAll("#write details")) box.open = false;
    for (const box of ["#questions", "#joint .pairs", "#plan .wide"]) find(box).replaceChildren();
    find("#plan p").textContent = "Write a question first.";
    add();
    await list();
    say("Opened: ", html("a", { href: `/c/${id}` }, `${location.origin}/c/${id}`));
    find(`[data-id="${id}"]`).scrollIntoView();
  } catch (error) {
    wrong.textContent = inWords(error.message, written());
  }
});
find("#add").addEventListener("click", () => add().querySelector('[name="ask"]').focus());
find("#pair").addEventListener("click", addPair);
find("#see").addEventListener("click", async () => {
  const wrong = find("#write .bad");
  wrong.textContent = "";
  try {
    if (!written().questions.length || lacking()) throw new Error(lacking() || "Write a question first.");
    sessionStorage.setItem("noisette:preview", JSON.stringify(await ask("/preview", "POST", written())));
    open("/c/-preview"); // a copy of this tab's session goes with it
  } catch (error) {
    wrong.textContent = inWords(error.message, written());
  }
});
find("#door").addEventListener("submit", event => {
  event.preventDefault();
  sessionStorage.setItem(PLACE, find("#key").value.trim());
  find("#key").value = find("#door .bad").textContent = "";
  enter();
});

// ---- keys -----------------------------------------------------------------------------------------------------------

async function listKeys() {
  const { keys } = await ask("/keys"), heads = [...["name", "may", "until"].map(text => html("th", { scope: "col" }, text)), html("td")];
  const rows = keys.map(({ name, role, ends }) => {
    const end = html("button", { type: "button", "aria-label": `End ${name}` }, "End");
    end.addEventListener("click", () => ask(`/keys/${encodeURIComponent(name)}`, "DELETE").then(listKeys).then(() => say(`${name} has ended.`)).catch(failed));
    const over = ends && Date.parse(ends) <= Date.now();
    return html("tr", {}, html("td", {}, name), html("td", {}, role.startsWith("viewer/") ? `see ${role.slice(7)}` : role), html("td", {}, ends ? `${ends.slice(0, 10)}${over ? " (over)" : ""}` : "you end it"), html("td", {}, end));
  });
  find("#keys .wide").replaceChildren(html("table", {}, html("thead", {}, html("tr", {}, ...heads)), html("tbody", {}, ...rows)));
}

find("#give").addEventListener("click", async () => {
  const name = find("#key-name").value.trim(), days = find("#key-days").value;
  try {
    if (!/^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(name)) throw new Error("Give the key a name of letters a to z, digits, dots and dashes, e.g. anna.");
    const made = await ask("/keys", "POST", { name, role: find("#key-role").value, ...(days && { days: Number(days) }) });
    find("#given").textContent = `The key of ${made.name}, shown once: ${made.key}`;
    await listKeys();
  } catch (error) {
    find("#given").textContent = reason(error);
  }
});

begin();
