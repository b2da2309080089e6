"use strict";
// The plan of a survey: standard errors that Python planned at each budget for `users` people, scaled to other numbers.

const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const HALF = 1.959963984540054; // standard errors in half of a 95 % interval
const state = { users: data.users, epsilon: data.epsilon, wanted: data.wanted };

function short(x) {
  if (x === null) return "–";
  return Math.abs(x) >= 1e5 || (x !== 0 && Math.abs(x) < 1e-4) ? x.toExponential(2) : String(Number(x.toPrecision(3)));
}

/** The rows of the plan for a state: half-width, people needed for the wanted one, and whether it is reached. */
function planned({ users, epsilon, wanted }) {
  const errors = data.errors[String(epsilon)] ?? data.errors[data.epsilon];
  return data.rows.map((row, at) => {
    const error = errors[at] === null ? null : errors[at] * Math.sqrt(data.users / users);
    if (error === null) return { ...row, half: null, needed: null, verdict: "nothing is told" };
    const half = HALF * error, aim = row.span * wanted / 100;
    const guess = error > row.signal ? "no better than a guess" : error > row.signal / 2 ? "little better than a guess" : null;
    return { ...row, error, half, needed: Math.ceil(users * (half / aim) ** 2), verdict: guess ?? (half <= aim ? "fine enough" : "coarser than wanted") };
  });
}

/** The rows; shares of one question that are told equally well, and groups of one size, are one row. */
function folded(rows) {
  const found = [];
  for (const row of rows) {
    const last = found.at(-1);
    if (last && row.tells === "shares" && ["question", "group", "half", "verdict"].every(name => last[name] === row[name])) last.quantities.push(row.quantity);
    else found.push({ ...row, quantities: [row.quantity] });
  }
  const merged = [], kind = row => row.group.split("=")[0];
  for (const row of found) {
    const twin = merged.find(one => one.group !== "all" && kind(one) === kind(row) && one.question === row.question && one.half === row.half && one.verdict === row.verdict &&
      one.quantities.join() === row.quantities.join());
    if (twin) twin.groups.push(row.group);
    else merged.push({ ...row, groups: [row.group] });
  }
  return merged;
}

const groups = [...new Set(data.rows.map(row => row.group))];
const quantile = text => (text === "median" ? "50 % are below" : text.replace(/^quantile 0\.(\d\d)$/, (_, part) => `${Number(part)} % are below`));
/** What a row is about: a quantity or several, of everybody, of a group or of each. */
function told({ quantities, groups: own }) {
  const [kind] = own[0].split("="), all = groups.filter(one => one.split("=")[0] === kind).length === own.length && own.length > 1;
  const where = groups.length === 1 ? "" : own[0] === "all" ? ", everybody" : all ? `, each ${kind}` : `, ${own.join(", ")}`;
  return (quantities.length === 1 ? quantile(quantities[0]) : `each of ${quantities.length} shares`) + where;
}

/** A half-width in the unit of its answer: shares in percent, dates in days, times in minutes. */
function written({ half, tells, axis }) {
  if (half === null) return "–";
  if (tells !== "mean") return `${short(100 * half)} %`;
  return axis === "time" ? `${short(half / 60)} min` : `${short(half)}${axis === "date" ? " days" : ""}`;
}

function show() {
  const rows = planned(state), bad = rows.filter(row => row.verdict !== "fine enough"), most = Math.max(...rows.map(row => row.needed ?? Infinity));
  const noise = rows.filter(row => /guess|nothing/.test(row.verdict)), grade = bad.length === 0 ? "yes" : noise.length ? "no" : "almost";
  $("verdict").className = grade;
  $("verdict-tag").className = `tag ${grade}`;
  $("verdict-tag").textContent = { yes: "enough people", almost: "too few people", no: "not worth collecting like this" }[grade];
  $("verdict-title").textContent = bad.length === 0 ? `Every answer comes to ± ${short(state.wanted)} % of its range, or better.`
    : `${bad.length} of ${rows.length} answers are coarser than ± ${short(state.wanted)} % of their range.`;
  $("verdict-words").textContent = Number.isFinite(most) ? `${most.toLocaleString("en")} people would reach it everywhere.` +
    (noise.length ? ` Hardly told apart from a guess: ${[...new Set(noise.map(row => row.question))].join(", ")}.` : "")
    : "No number of people of these groups reaches it everywhere.";
  $("errors").tBodies[0].replaceChildren(...folded(rows).map(row => {
    const made = document.createElement("tr"), cells = [["answer", `${row.question}: ${told(row)}`], ["±", written(row)],
      ["people needed", row.needed === null ? "never" : row.needed.toLocaleString("en")], ["verdict", row.verdict]];
    for (const [label, text] of cells) {
      const cell = made.insertCell();
      cell.dataset.label = label;
      cell.textContent = text;
    }
    return made;
  }));
  const own = data.mechanisms[String(state.epsilon)];
  $("mechanisms").textContent = `Mechanisms: ${Object.entries(own).map(([name, by]) => `${name} by ${by}`).join(", ")}.`;
  $("command").textContent = `${data.command} --users ${state.users} --epsilon ${state.epsilon}`;
}

$("users").value = state.users;
$("wanted").value = state.wanted;
for (const one of data.budgets) $("epsilon").add(new Option(`ε = ${one}: odds move by ${short(Math.exp(one))} at most`, one, one === state.epsilon, one === state.epsilon));
for (const name of ["users", "epsilon", "wanted"]) {
  $(name).addEventListener("input", () => {
    const value = Number($(name).value);
    if (value > 0 && Number.isFinite(value)) {
      state[name] = value;
      show();
    }
  });
}
window.noisette = { data, state, planned };
show();
