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
const failed = error => say(error.status === 401 ? "This key is not known here, or its link has been used." : error.message);

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
      failed(error);
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
      failed(error);
    }
  }
  const inside = sessionStorage.getItem(PLACE) !== null;
  find("#inside").hidden = !inside;
  find("#door").hidden = inside;
  if (inside && !find("#questions").children.length) add();
}

// ---- surveys --------------------------------------------------------------------------------------------------------

async function list() {
  const { campaigns } = await ask("/campaigns");
  const shown = campaigns.map(({ id, title, state }) => {
    const address = `${location.origin}/c/${id}`, act = (text, work) => {
      const button = html("button", { type: "button", "aria-label": `${text}: ${title}` }, text);
      button.addEventListener("click", async () => {
        try {
          await work();
          await list();
          say(`${text}: done.`);
        } catch (error) {
          failed(error);
        }
      });
      return button;
    };
    const call = word => () => ask(`/campaigns/${id}/${word}`, "POST");
    const edit = () => {
      const name = prompt("Title", title), users = prompt("People you hope for", "");
      return ask(`/campaigns/${id}`, "PATCH", { ...(name && { title: name }), ...(users && { users: Number(users) }) });
    };
    const remove = () => (confirm(`Delete ${title} with all its reports?`) ? ask(`/campaigns/${id}`, "DELETE") : null);
    return html("div", { class: "one", "data-id": id }, html("h3", {}, `${title} (${state})`),
      html("a", { href: address }, address), html("img", { src: `/c/${id}/qr.svg`, alt: `The address of ${title} as a QR code` }),
      html("div", { class: "actions" }, act("Edit", edit), state === "open" ? act("Close", call("close")) : act("Open again", call("reopen")),
        act("Archive", call("archive")), act("Delete", remove)), html("a", { href: `/dashboard#${id}` }, "Results"));
  });
  find("#campaigns .list").replaceChildren(...(shown.length ? shown : [html("p", { class: "hint" }, "None yet. Write the first one below.")]));
}

// ---- writing --------------------------------------------------------------------------------------------------------

function add() {
  const kind = html("select", { class: "text", name: "kind" }, ...[["choice", "One of several answers"], ["number", "A number"]]
    .map(([value, text]) => html("option", { value }, text)));
  const field = (text, name, more = {}) => html("label", {}, text, html("input", { class: "text", name, ...more }));
  const labels = html("label", {}, "Answers, one a line", html("textarea", { class: "text", name: "labels", rows: 4 }));
  const range = html("div", { class: "pair", hidden: "" }, field("From", "low", { type: "number", step: "any" }),
    field("To", "high", { type: "number", step: "any" }), field("Unit", "unit", { maxlength: 40 }));
  const optional = html("label", {}, html("input", { type: "checkbox", name: "optional" }), " May be left out");
  const remove = html("button", { type: "button" }, "Remove this question");
  const box = html("section", { class: "question" }, field("Question", "ask", { maxlength: 200 }), html("label", {}, "Kind", kind), labels, range, optional,
    html("div", { class: "actions" }, remove));
  kind.addEventListener("change", () => { [labels.hidden, range.hidden] = [kind.value === "number", kind.value !== "number"]; });
  remove.addEventListener("click", () => { box.remove(); plan(); });
  find("#questions").append(box);
}

const slug = text => text.normalize("NFKD").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 50);

/** Return the survey as it is written so far. */
function written() {
  const form = find("#write").elements, value = (box, name) => box.querySelector(`[name="${name}"]`).value.trim();
  const boxes = [...document.querySelectorAll(".question")].filter(box => value(box, "ask"));
  const wordings = {}, questions = boxes.map((box, at) => {
    const ask = value(box, "ask"), name = slug(ask).slice(0, 40) || `question-${at + 1}`, unit = value(box, "unit");
    wordings[name] = { ask, ...(unit && { unit }) };
    const optional = box.querySelector('[name="optional"]').checked ? { optional: true } : {};
    if (value(box, "kind") === "number") return { name, range: [Number(value(box, "low")), Number(value(box, "high"))], ...optional };
    return { name, categories: value(box, "labels").split("\n").map(one => one.trim()).filter(Boolean), ...optional };
  });
  const by = form.by.value.trim(), about = form.about.value.trim(), title = form.title.value.trim();
  return { id: slug(title) || "survey", title: title || "survey", epsilon: Number(form.epsilon.value), users: Number(form.users.value),
    questions, form: { ...(by && { by }), ...(about && { about }), questions: wordings } };
}

async function plan() {
  const own = ++round, survey = written(), state = find("#plan p"), place = find("#plan .wide");
  if (!survey.questions.length) return;
  try {
    const { rows, verdict, mechanisms } = await ask("/plan", "POST", survey);
    if (own !== round) return; // an older question
    const wanted = Number(find("#write").elements.wanted.value) / 100, span = name => {
      const range = survey.questions.find(one => one.name === name)?.range;
      return range ? range[1] - range[0] : 1;
    };
    const worst = Math.max(...rows.map(row => HALF * row.std_error / span(row.question)));
    state.textContent = `${verdict} For ± ${100 * wanted} % everywhere ask about ${count(Math.ceil(survey.users * (worst / wanted) ** 2))} people.`;
    const cells = (tag, ...texts) => html("tr", {}, ...texts.map(text => html(tag, tag === "th" ? { scope: "col" } : {}, text)));
    place.replaceChildren(html("table", {}, html("thead", {}, cells("th", "question", "answer", "±", "verdict")),
      html("tbody", {}, ...rows.map(row => cells("td", row.question, row.quantity, number(HALF * row.std_error, row.std_error), row.verdict)))),
    html("p", { class: "hint" }, `± is half of a 95 % interval, for ${count(survey.users)} people; four times as many halve it. Mechanism: ${JSON.stringify(mechanisms).replace(/["{}[\]]/g, " ")}`));
  } catch (error) {
    if (own === round) state.textContent = error.message;
  }
}

find("#write").addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(plan, PAUSE);
});
find("#write").addEventListener("submit", async event => {
  event.preventDefault();
  const wrong = find("#write .bad");
  wrong.textContent = "";
  try {
    if (!find("#write").elements.title.value.trim()) throw new Error("Give the survey a title.");
    const { id } = await ask("/campaigns", "POST", written());
    find("#write").reset();
    find("#questions").replaceChildren();
    add();
    await list();
    say(`Opened: ${location.origin}/c/${id}`);
    find("#campaigns").scrollIntoView();
  } catch (error) {
    wrong.textContent = error.message;
  }
});
find("#add").addEventListener("click", add);
find("#door").addEventListener("submit", event => {
  event.preventDefault();
  sessionStorage.setItem(PLACE, find("#key").value.trim());
  find("#key").value = "";
  enter();
});

// ---- keys -----------------------------------------------------------------------------------------------------------

async function listKeys() {
  const { keys } = await ask("/keys");
  find("#keys .wide").replaceChildren(html("table", {}, html("tbody", {}, ...keys.map(({ name, role, ends }) => {
    const end = html("button", { type: "button", "aria-label": `End ${name}` }, "End");
    end.addEventListener("click", () => ask(`/keys/${encodeURIComponent(name)}`, "DELETE").then(listKeys).catch(failed));
    return html("tr", {}, html("td", {}, name), html("td", {}, role), html("td", {}, ends ?? ""), html("td", {}, end));
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
