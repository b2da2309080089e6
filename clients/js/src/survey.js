// A survey as one law: what is really asked of a person, and the sections that her report is about, as
// noisette/survey has them. Questions are coded into what the laws take; a section is one law, and of several sections
// a person answers all, or one that is drawn without looking at her answers.

import { distinct, readLaw, settled } from "./laws.js";
import { Words } from "./random.js";

const MOST = 2 ** 31; // of the weights by which a section is drawn

const cells = (name, size) => ({ name, categories: Array.from({ length: size }, (_, at) => String(at)) });
const only = code => [[1, [code]]]; // the code is certain

/** The end of its range that a number is rounded to, 1 for the upper one, so that the average stays what it is. */
const signs = ({ range: [low, high] }, x, code) => {
  const chance = (x - low) / (high - low);
  return [[chance, [code(1)]], [1 - chance, [code(0)]]];
};

const BRANCHES = 4; // of the cells of a number whose quantiles are wanted
const DAY = 86400;

/** A range of dates or of times of day as days since 1970 or seconds since midnight; other numbers stay what they are. */
export function axis({ range }) {
  const kind = typeof range?.[0] !== "string" ? "number" : range[0].includes(":") ? "time" : "date";
  const shown = { number: String, date: x => new Date(x * DAY * 1000).toISOString().slice(0, 10),
    time: x => new Date(Math.min(x, DAY - 1) * 1000).toISOString().slice(11, 19) }[kind];
  return { kind, shown, of: value => (kind === "number" ? value : Date.parse(kind === "date" ? value : `1970-01-01T${value}Z`) / (kind === "date" ? DAY * 1000 : 1000)) };
}

/** A question whose range is one of numbers. */
const counted = question => (question.range ? { ...question, range: question.range.map(axis(question).of),
  whole: question.whole ?? axis(question).kind === "date" } : question);

/** The ends of the cells of a number; those of whole numbers hold as many of them each. */
function edgesOf({ range: [low, high], whole, cells = 64 }) {
  const count = whole ? Math.round(high - low) + 1 : cells;
  let size = BRANCHES;
  while (size < count && size < cells) size *= BRANCHES;
  const step = whole ? Math.ceil(count / size) : (high - low) / size;
  return Array.from({ length: size + 1 }, (_, at) => (!whole && at === size ? high : low + at * step));
}

/** How a number is asked whose quantiles are wanted: through one of several levels of cells. */
function levelled(question) {
  const edges = edgesOf(question), all = edges.length - 1, sizes = [];
  for (let size = BRANCHES; size <= all; size *= BRANCHES) sizes.push(size);
  const cell = x => Math.min(Math.max(edges.findLastIndex(edge => edge <= x), 0), all - 1);
  return { asked: [question.name], plain: false, domains: sizes.map(size => cells(`${size} cells`, size)),
    codes: ([x]) => [[1, sizes.map(size => Math.floor(cell(x) * size / all))]] };
}

/** How a number is asked whose variance is wanted: itself, or its square. */
function spread({ name, range: [low, high] }) {
  const unit = x => Math.min(Math.max((x - low) / ((high - low) / 2) - 1, -1), 1);
  return { asked: [name], plain: false, domains: [{ name: "number", range: [-1, 1] }, { name: "square", range: [0, 1] }],
    codes: ([x]) => [[1, [unit(x), unit(x) ** 2]]] };
}

/** How one question is asked: the values that its law takes, and with which chance an answer becomes which. */
function alone(question) {
  const { name, range, categories, options, text, alphabet, optional, levels, most, want = "mean" } = question;
  const by = (plain, domain, codes) => ({ asked: [name], plain, domains: [domain], codes });
  if (categories) {
    const size = categories.length;
    return by(true, optional ? cells(name, size + 1) : { name, categories }, ([code]) => only(code ?? size));
  }
  if (want === "quantiles") return levelled(question);
  if (want === "variance") return spread(question);
  if (range && optional) return by(true, cells(name, 3), ([x]) => (x === null ? only(2) : signs(question, x, end => end)));
  if (range && question.vector === undefined && question.tensor === undefined) return by(true, { name, range }, ([x]) => only(x));
  // no answer is one more option, which nobody chooses with another one, or a space, which is no text
  const letters = optional && !alphabet?.includes(" ") ? alphabet + " " : alphabet;
  const domain = levels ? { name, range: ends(levels) } : options ? { name, options: optional ? [...options, ""] : options, most }
    : text && { name, text, ...(alphabet && { alphabet: letters }) };
  if (domain) return by(false, domain, ([x]) => only(x ?? (options ? [options.length] : " ")));
  throw new Error(`A web page cannot ask for '${name}'. Answer from Python.`);
}

const ends = levels => [levels[0][0], levels.at(-1)[1]];

/** How two questions are asked as one. */
function pair(first, second) {
  const name = `${first.name} × ${second.name}`, asked = [first.name, second.name];
  if (first.categories && second.categories) {
    const size = second.categories.length, domains = [cells(name, first.categories.length * size)];
    return { asked, plain: true, domains, codes: ([a, b]) => only(a * size + b) };
  }
  if (first.range && second.range) {
    const square = ({ range: [low, high] }, x) => Math.min(((2 * x - low - high) / (high - low)) ** 2, 1);
    const domains = [cells("cell", 4), { name: "first", range: [0, 1] }, { name: "second", range: [0, 1] }];
    const codes = ([a, b]) => signs(first, a, end => end).flatMap(([p, [above]]) => signs(second, b, end => end)
      .map(([q, [right]]) => [p * q, [2 * above + right, square(first, a), square(second, b)]]));
    return { asked, plain: false, domains, codes };
  }
  const [choice, number] = first.range ? [second, first] : [first, second];
  const codes = ([a, b]) => signs(number, b, end => 2 * a + end);
  return { asked: [choice.name, number.name], plain: true, domains: [cells(name, 2 * choice.categories.length)], codes };
}

/** Refuse a question that is of two kinds, or whose labels are not distinct texts: it could be read in two ways. */
function checked(question) {
  const kinds = ["range", "categories", "levels", "options", "text"].filter(kind => Object.hasOwn(Object(question), kind));
  if (kinds.length > 1) throw new Error(`Expected '${question.name}' of one kind, got ${kinds.join(" and ")}.`);
  const labels = question?.categories ?? question?.options;
  if (labels) distinct(labels, `the categories of ${question.name}`);
  return counted(question);
}

/** What is really asked: the questions by themselves, then the pairs. */
function itemsOf({ attributes: given, joint = [] }) {
  const attributes = given.map(checked), find = name => attributes.find(one => one.name === name);
  const together = new Set(joint.flat());
  return [...attributes.filter(one => !together.has(one.name)).map(alone), ...joint.map(([a, b]) => pair(find(a), find(b)))];
}

/** Draw one of several codes by its chance. */
function drawn(codes, words) {
  if (codes.length === 1) return codes[0][1];
  let left = words.uniforms(1)[0];
  return (codes.find(([chance]) => (left -= chance) < 0) ?? codes.at(-1))[1];
}

/**
 * Return the law of a campaign's whole answer, or throw why it has none: `epsilon`, which no pair of answers exceeds;
 * `draw`, which makes a report from a row of numbers and codes, null where there is no answer, and has what is public
 * drawn by `open`, given for what, where a token's signature draws it; and `weigh`, which lists
 * the questions that a report is about, each with ln P(report | their answers) but for a constant.
 */
export function readSurvey(campaign) {
  const { attributes, table } = campaign, items = itemsOf(campaign), plain = items.filter(one => one.plain);
  const sections = [...(plain.length ? [plain] : []), ...items.filter(one => !one.plain).map(one => [one])];
  const several = Object(table).kind === "together", tables = several ? table.sections : [table];
  const draw = several ? table.draw : [];
  if (!Array.isArray(tables) || tables.length !== sections.length) {
    throw new Error(`Expected tables of ${sections.length} sections.`);
  }
  if (!Array.isArray(draw) || (draw.length && draw.length !== sections.length) ||
      !draw.every(one => Number.isSafeInteger(one) && one > 0 && one <= MOST)) {
    throw new Error("Expected draw to have a whole number for each section.");
  }
  const laws = sections.map((own, at) => readLaw(tables[at], own.flatMap(item => item.domains)));
  const report = String(draw.length ? 1 : laws.length), parts = laws.map(one => one.law);
  const [law, spec] = several ? [{ kind: "record", report, parts }, { kind: "record", parts: laws.map(one => one.spec) }] : [parts[0], laws[0].spec];
  const answers = (row, { asked }) => asked.map(name => row[attributes.findIndex(one => one.name === name)]);
  const made = (row, at, words, open) =>
    laws[at].draw(sections[at].flatMap(item => drawn(item.codes(answers(row, item)), words)), words, open(`part${at}`));
  return settled(law, spec, {
    draw: (row, words = new Words(), open = () => words) => {
      if (!several) return made(row, 0, words, open);
      if (!draw.length) return laws.map((_, at) => made(row, at, words, open));
      let ticket = Number(open("section").below(BigInt(draw.reduce((a, b) => a + b))));
      const place = draw.findIndex(weight => (ticket -= weight) < 0);
      return [place, made(row, place, words, open)];
    },
    weigh: report => (!several ? [[0, report]] : draw.length ? [report] : report.map((one, at) => [at, one]))
      .flatMap(([at, sent]) => weighed(sections[at], laws[at].weigh(sent))),
  });
}

/** The items of a section that a report is about, with what it says of their answers. */
function weighed(items, parts) {
  let start = 0;
  return items.flatMap(item => {
    const first = start, own = parts.filter(([at]) => at >= first && at < first + item.domains.length);
    const [, , told] = own[0] ?? [];
    start += item.domains.length;
    const given = codes => own.reduce((sum, [at, weigh]) => sum + weigh(codes[at - first]), 0);
    const weigh = answers => Math.log(item.codes(answers).reduce((sum, [p, codes]) => sum + p * Math.exp(given(codes)), 0));
    return own.length ? [{ asked: item.asked, weigh, ...told }] : [];
  });
}
