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

const say = text => { find("#state").textContent = text; };
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
      say(typeof told === "string" ? told : `${text}: done.`);
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

/** What may be changed of a survey that is open: nothing private depends on it. */
function editor(id, title) {
  const field = (text, name, more = {}) => html("label", {}, text, html("input", { class: "text", name, ...more }));
  const box = html("details", { class: "edit" }, html("summary", {}, "Edit"), field("Title", "title", { maxlength: 200, value: title }),
    field("People you hope for", "users", { type: "number", min: 1, step: 1 }), field("Closes (UTC day)", "closes", { type: "date" }),
    field("Call this address when the target is reached, reports stop, or liars are suspected", "webhook", { type: "url" }));
  const value = name => box.querySelector(`[name="${name}"]`).value.trim();
  const save = () => ask(`/campaigns/${id}`, "PATCH", { ...(value("title") && { title: value("title") }), ...(value("users") && { users: Number(value("users")) }),
    ...(value("closes") && { closes: value("closes") }), ...(value("webhook") && { webhook: value("webhook") }) });
  box.append(html("div", { class: "actions" }, act("Save", title, save)));
  return box;
}

async function list() {
  const { campaigns } = await ask("/campaigns");
  const shown = campaigns.map(({ id, title, state }) => {
    const address = `${location.origin}/c/${id}`, call = word => () => ask(`/campaigns/${id}/${word}`, "POST");
    const copy = async () => {
      if (!navigator.clipboard) throw new Error("Browsers copy on https pages only: select the address instead.");
      await navigator.clipboard.writeText(address);
      return "The link was copied.";
    };
    const view = async () => `Whoever has this link sees these results and changes nothing: ${(await ask(`/campaigns/${id}/links`, "POST", {})).link}`;
    const remove = () => (confirm(`Delete ${title} with all its reports?`) ? ask(`/campaigns/${id}`, "DELETE").then(() => "Deleted.") : null);
    return html("div", { class: "one", "data-id": id }, html("h3", {}, `${title} (${state})`),
      html("a", { href: address }, address), html("img", { src: `/c/${id}/qr.svg`, alt: `The address of ${title} as a QR code` }),
      html("div", { class: "actions" }, act("Copy the link", title, copy), act("Link to the results", title, view),
        state === "open" ? act("Close", title, call("close")) : act("Open again", title, call("reopen")),
        act("Archive", title, call("archive")), act("Delete", title, remove), results(id, title)), editor(id, title));
  });
  find("#campaigns .list").replaceChildren(...(shown.length ? shown : [html("p", { class: "hint" }, "None yet. Write the first one below.")]));
}

// ---- writing --------------------------------------------------------------------------------------------------------

const KINDS = { choice: "One answer of a list", choices: "Several answers of a list", number: "A number", date: "A date", time: "A time of day",
  text: "A short text in people's own words", graded: "A number, some ranges protected more" };
const WANTS = { mean: "its mean", distribution: "its mean and a picture", quantiles: "median, quartiles and tails", variance: "mean and variance" };
const PARTS = { labels: ["choice", "choices"], most: ["choices"], range: ["number", "date", "time"], want: ["number", "date", "time"], unit: ["number", "graded"],
  longest: ["text"], levels: ["graded"], optional: ["choice", "number"] };

const select = (name, entries) => html("select", { class: "text", name }, ...Object.entries(entries).map(([value, text]) => html("option", { value }, text)));

function add() {
  const kind = select("kind", KINDS), field = (text, name, more = {}) => html("label", {}, text, html("input", { class: "text", name, ...more }));
  const parts = {
    labels: html("label", {}, "Answers, one a line", html("textarea", { class: "text", name: "labels", rows: 4 })),
    most: field("How many at most (empty for any number)", "most", { type: "number", min: 1, step: 1 }),
    range: html("div", { class: "pair" }, field("From", "low"), field("To", "high")),
    want: html("label", {}, "What you want to know", select("want", WANTS)),
    unit: field("Unit", "unit", { maxlength: 40 }),
    longest: field("Letters at most", "longest", { type: "number", min: 1, max: 32, value: 24 }),
    levels: html("label", {}, "Ranges, one a line: from, to, budget (a larger one protects less)",
      html("textarea", { class: "text", name: "levels", rows: 3, placeholder: "0, 50, 2\n50, 100, 1" })),
    optional: html("label", {}, html("input", { type: "checkbox", name: "optional" }), " May be left out"),
  };
  const remove = html("button", { type: "button" }, "Remove this question");
  const box = html("section", { class: "question" }, field("Question", "ask", { maxlength: 200 }), html("label", {}, "Kind", kind),
    ...Object.values(parts), html("div", { class: "actions" }, remove));
  const fit = () => {
    for (const [name, part] of Object.entries(parts)) part.hidden = !PARTS[name].includes(kind.value);
    for (const end of parts.range.querySelectorAll("input")) end.type = kind.value;
  };
  kind.addEventListener("change", fit);
  remove.addEventListener("click", () => { box.remove(); offer(); plan(); });
  fit();
  find("#questions").append(box);
  offer();
}

// ---- pairs ----------------------------------------------------------------------------------------------------------

const asked = () => [...document.querySelectorAll(".question")].map(box => box.querySelector('[name="ask"]').value.trim());

function addPair() {
  const side = text => html("label", {}, text, html("select", { class: "text", name: "side" }));
  const remove = html("button", { type: "button" }, "Remove this pair"), box = html("div", { class: "together" },
    html("div", { class: "pair" }, side("One"), side("And another")), html("div", { class: "actions" }, remove));
  remove.addEventListener("click", () => { box.remove(); plan(); });
  find("#joint .pairs").append(box);
  offer();
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

const slug = text => text.normalize("NFKD").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 50);

/** Return the survey as it is written so far. */
function written() {
  const form = find("#write").elements, value = (box, name) => box.querySelector(`[name="${name}"]`).value.trim();
  const boxes = [...document.querySelectorAll(".question")].filter(box => value(box, "ask"));
  const wordings = {}, named = {}, questions = boxes.map((box, at) => {
    const ask = value(box, "ask"), name = slug(ask).slice(0, 40) || `question-${at + 1}`, unit = value(box, "unit");
    named[ask] = name;
    wordings[name] = { ask, ...(unit && { unit }) };
    const kind = value(box, "kind"), lines = value(box, "labels").split("\n").map(one => one.trim()).filter(Boolean);
    const optional = PARTS.optional.includes(kind) && box.querySelector('[name="optional"]').checked ? { optional: true } : {};
    const end = place => (kind === "number" ? Number(value(box, place)) : value(box, place)), want = value(box, "want");
    if (kind === "choice") return { name, categories: lines, ...optional };
    if (kind === "choices") return { name, options: lines, ...(value(box, "most") && { most: Number(value(box, "most")) }) };
    if (kind === "text") return { name, text: Number(value(box, "longest")) };
    if (kind === "graded") return { name, levels: value(box, "levels").split("\n").filter(Boolean).map(line => line.split(/[,;\s]+/).map(Number)) };
    return { name, range: [end("low"), end("high")], ...(want !== "mean" && { want }), ...optional };
  });
  const joint = [...document.querySelectorAll(".together")].map(box => [...box.querySelectorAll("select")].map(list => named[list.value]))
    .filter(pair => pair.every(Boolean));
  const group = form.group.value.trim(), values = form["group-values"].value.split("\n").map(one => one.trim()).filter(Boolean);
  const by = form.by.value.trim(), about = form.about.value.trim(), title = form.title.value.trim();
  return { id: slug(title) || "survey", title: title || "survey", epsilon: Number(form.epsilon.value), users: Number(form.users.value),
    questions, ...(joint.length && { joint }), ...(group && { groups: { [group]: values } }), form: { ...(by && { by }), ...(about && { about }), questions: wordings } };
}

/** The rows of a plan, those of one question and group that are told equally well as one. */
function folded(rows) {
  const found = [];
  for (const row of rows) {
    const last = found.at(-1), same = name => last[name] === row[name];
    if (last && ["question", "group", "std_error", "span", "verdict"].every(same) && row.tells === "shares") last.quantities.push(row.quantity);
    else found.push({ ...row, quantities: [row.quantity] });
  }
  return found;
}

/** The half-width of a 95 % interval in the unit of its answer. */
function half({ question, quantity, std_error: error, tells }, survey) {
  const asked = survey.questions.find(one => one.name === question), [end] = asked?.range ?? [];
  if (tells !== "mean" || quantity === "response rate") return `${number(100 * HALF * error, 100 * error)} %`;
  const [size, unit] = quantity === "variance" || typeof end !== "string" ? [1, quantity === "variance" ? "" : survey.form.questions[question]?.unit ?? ""]
    : end.includes(":") ? [60, "minutes"] : [1, "days"];
  return `${number(HALF * error / size, error / size)} ${unit}`.trim();
}

async function plan() {
  const own = ++round, survey = written(), state = find("#plan p"), place = find("#plan .wide");
  if (!survey.questions.length) return;
  if (!place.children.length) state.textContent = "Planning …";
  try {
    const { rows, verdict, mechanisms, obstacle } = await ask("/plan", "POST", survey);
    if (own !== round) return; // an older question
    const wanted = Number(find("#write").elements.wanted.value) / 100, groups = rows.some(row => row.group !== "all");
    const needed = row => (row.std_error === null ? Infinity : Math.ceil(survey.users * (HALF * row.std_error / row.span / wanted) ** 2));
    const people = row => (Number.isFinite(needed(row)) ? count(needed(row)) : "never");
    const most = Math.max(...rows.map(needed)), wording = name => survey.form.questions[name]?.ask ?? name;
    state.textContent = `${verdict} ` + (Number.isFinite(most) ? `To know every answer to ± ${100 * wanted} % of its range, ask about ${count(most)} people.`
      : `No number of people brings every answer to ± ${100 * wanted} % of its range.`) + (obstacle ? ` It cannot be opened as a page: ${obstacle}` : "");
    const line = (tag, ...texts) => html("tr", {}, ...texts.filter(text => text !== null).map(text => html(tag, tag === "th" ? { scope: "col" } : {}, ...[text].flat())));
    const answer = ({ quantities }) => (quantities.length === 1 ? quantities[0] : `each of ${quantities.length} shares`);
    place.replaceChildren(html("table", {}, html("thead", {}, line("th", "answer", groups ? "group" : null, "±", "people needed", "verdict")),
      html("tbody", {}, ...folded(rows).map(row => line("td", [wording(row.question), html("small", {}, answer(row))], groups ? row.group : null,
        row.std_error === null ? "–" : half(row, survey), people(row), row.verdict)))),
    html("p", { class: "hint" }, `± is half of a 95 % interval, for ${count(survey.users)} people; four times as many halve it. ` +
      `Mechanism: ${[...new Set(Object.values(mechanisms))].join(", ")}.`));
  } catch (error) {
    if (own === round) state.textContent = error.message;
  }
}

find("#write").addEventListener("input", event => {
  if (event.target.name === "ask") offer();
  clearTimeout(waiting);
  waiting = setTimeout(plan, PAUSE);
});
find("#write").addEventListener("submit", async event => {
  event.preventDefault();
  const wrong = find("#write .bad");
  wrong.textContent = "";
  try {
    if (!find("#write").elements.title.value.trim()) throw new Error("Give the survey a title.");
    const { obstacle } = await ask("/plan", "POST", written());
    if (obstacle) throw new Error(obstacle);
    const { id } = await ask("/campaigns", "POST", written());
    find("#write").reset();
    for (const box of ["#questions", "#joint .pairs", "#plan .wide"]) find(box).replaceChildren();
    find("#plan p").textContent = "Write a question first.";
    add();
    await list();
    say(`Opened: ${location.origin}/c/${id}`);
    find("#campaigns").scrollIntoView();
  } catch (error) {
    wrong.textContent = error.message;
  }
});
find("#add").addEventListener("click", add);
find("#pair").addEventListener("click", addPair);
find("#see").addEventListener("click", async () => {
  const wrong = find("#write .bad");
  wrong.textContent = "";
  try {
    sessionStorage.setItem("noisette:preview", JSON.stringify(await ask("/preview", "POST", written())));
    open("/c/-preview"); // a copy of this tab's session goes with it
  } catch (error) {
    wrong.textContent = error.message;
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
  const { keys } = await ask("/keys");
  find("#keys .wide").replaceChildren(html("table", {}, html("tbody", {}, ...keys.map(({ name, role, ends }) => {
    const end = html("button", { type: "button", "aria-label": `End ${name}` }, "End");
    end.addEventListener("click", () => ask(`/keys/${encodeURIComponent(name)}`, "DELETE").then(listKeys).catch(failed));
    return html("tr", {}, html("td", {}, name), html("td", {}, role), html("td", {}, ends ? `until ${ends.slice(0, 10)}` : ""), html("td", {}, end));
  }))));
}

find("#give").addEventListener("click", async () => {
  try {
    const made = await ask("/keys", "POST", { name: find("#key-name").value.trim(), role: find("#key-role").value });
    find("#given").textContent = `The key of ${made.name}, shown once: ${made.key}`;
    await listKeys();
  } catch (error) {
    failed(error);
  }
});

begin();
