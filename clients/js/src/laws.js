// The laws of the mechanisms: one entry a kind of table, which reads a collector's table, or refuses it, and returns a
// law: the epsilon of its whole numbers, and the draws that are made from these and nothing else. A table is what
// table() gives in Python, and every draw is the one that Python makes from the same words.
//
// A law has `law`, its whole numbers as a certificate states them, of which spent.js computes epsilon; `width`, the
// numbers in a report; `draw`, for several inputs; and `weigh`, ln P(report | x) but for what does not depend on x, in
// float64: it shows a person what her report tells, and nothing rests on it. Laws of choices among many, of several
// choices, of texts, of graded numbers, and of reports in bits, hashes and Hadamard's columns, which no campaign has that
// does not ask for them, are in laws-more.js, which is loaded where a campaign has one.

import { fromText } from "./bytes.js";
import { discreteLaplace, exact, roundUp, Words } from "./random.js";
import { further, odds, spent } from "./spent.js";

const UNIT = 2 ** 53; // weights of what one uniform number decides add up to this
const MOST = 2 ** 20; // categories, and numbers in a report: more would hold up the page
const MOST_OPTIONS = 2 ** 16, LONGEST_TEXT = 32;
const LEAST_RATE = 2 ** -44, FURTHEST = 2 ** 51; // Laplace noise exceeds 2^52 steps once in 10^110 draws, or less often

const rint = x => { // to the nearest integer, halves to the even one
  const floor = Math.floor(x), rest = x - floor;
  return rest < 0.5 ? floor : rest > 0.5 ? floor + 1 : floor % 2 === 0 ? floor : floor + 1;
};
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
const texts = thing => Object.fromEntries(Object.entries(thing).map(([name, value]) => // numbers as a certificate has them
  [name, typeof value === "number" ? exact(real(value, name)) : typeof value === "bigint" ? String(value) : value]));
const written = (kind, thing) => ({ kind, ...texts(thing) });

// ---- reading --------------------------------------------------------------------------------------------------------

/** Return the values of an object that has these fields and no others. */
function fields(thing, ...names) {
  const own = typeof thing === "object" && thing !== null && !Array.isArray(thing) ? Reflect.ownKeys(thing) : [];
  if (own.length !== names.length || !names.every(name => own.includes(name))) {
    throw new Error(`Expected the fields ${names.join(", ")}, got ${own.map(String).join(", ") || "none"}.`);
  }
  return names.map(name => thing[name]);
}

function list(thing, name) {
  if (!Array.isArray(thing) || thing.length === 0) throw new Error(`Expected ${name} to be a list.`);
  return Array.from(thing);
}

function whole(value, name, low, high) {
  if (!Number.isSafeInteger(value) || value < low || value > high) {
    throw new Error(`Expected ${name}=${String(value)} to be a whole number from ${low} to ${high}.`);
  }
  return value;
}

function real(value, name) {
  if (!Number.isFinite(value)) throw new Error(`Expected ${name}=${String(value)} to be a finite number.`);
  return value;
}

function positive(value, name) {
  if (!(real(value, name) > 0)) throw new Error(`Expected ${name}=${value} > 0.`);
  return value;
}

/** Return a chance as the weight it has of 2^53. */
const weight = (chance, name) => whole(real(chance, name) * UNIT, `2^53 ${name}`, 1, UNIT - 1);

export const distinct = (thing, what) => {
  const labels = list(thing, what);
  if (!labels.every(label => typeof label === "string") || new Set(labels).size !== labels.length) {
    throw new Error(`Expected ${what} to be distinct texts.`);
  }
  return labels;
};

/** How a question is answered: a number of a range, a category, some of several options, or a text. */
const DOMAINS = {
  range: ({ name, range }) => {
    const [low, high, more] = list(range, `range of ${name}`).map(end => real(end, `range of ${name}`));
    if (!(low < high) || more !== undefined || high - low === Infinity) {
      throw new Error(`Expected the range of ${name} to be two numbers, the lower first.`);
    }
    return { name, low, high, spec: written("interval", { low, high }) };
  },
  categories: ({ name, categories }) => {
    const size = whole(distinct(categories, `categories of ${name}`).length, "number of categories", 2, MOST);
    return { name, size, spec: written("categorical", { size, labels: null }) };
  },
  options: ({ name, options, most }) => {
    const many = whole(distinct(options, `options of ${name}`).length, "number of options", 1, MOST_OPTIONS);
    whole(most, `most of ${name}`, 1, many);
    return { name, options: many, most, spec: written("selection", { size: many, most, labels: null }) };
  },
  text: ({ name, text, alphabet = null }) => {
    const letters = alphabet === null ? null : [...alphabet], longest = whole(text, `longest text of ${name}`, 1, LONGEST_TEXT);
    const least = letters ? Math.min(...letters.map(letter => fromText(letter).length)) : 1;
    if (letters && (new Set(letters).size !== letters.length || letters.length > 255)) throw new Error(`Expected distinct letters of ${name}.`);
    return { name, longest, letters, places: Math.floor(longest / least), spec: { kind: "texts" } };
  },
};

/** Return what a question may be answered with, of the fields that one kind of it has. */
function readDomain(attribute) {
  const kind = Object.keys(DOMAINS).find(one => Object.hasOwn(Object(attribute), one)) ?? "range";
  const more = { options: ["most"], text: Object.hasOwn(Object(attribute), "alphabet") ? ["alphabet"] : [] }[kind] ?? [];
  const [name] = fields(attribute, "name", kind, ...more);
  if (typeof name !== "string") throw new Error("Expected names to be texts.");
  return DOMAINS[kind](attribute);
}

const ends = ({ name, low, high }) => {
  if (low === undefined) throw new Error(`Expected a law for the answers to ${name}, got one for numbers.`);
  return [low, high];
};
const fitting = (size, { name, size: wanted }) => {
  if (wanted === undefined) throw new Error(`Expected a law for the answers to ${name}, got one for categories.`);
  return whole(size, "size", wanted, wanted);
};

/** The symbols of a text, 0 after its end, or null where it is none of the question's. */
export function symbols({ longest, letters, places }, text) {
  if (typeof text !== "string" || !text || /[\p{Cc}\p{Cs}\u2028-\u202E\u2066-\u2069]/u.test(text)) return null;
  const normal = text.normalize("NFC"), raw = [...fromText(normal)], code = letters ? [...normal].map(one => letters.indexOf(one) + 1) : raw;
  if (raw.length > longest || (letters && code.includes(0))) return null;
  return [...code, ...Array(places - code.length).fill(0)];
}

// ---- the kinds of tables --------------------------------------------------------------------------------------------

const KINDS = {
  "two-point": (table, domain) => {
    const [low, high] = fields(table, "kind", "low", "high").slice(1).map(end => real(end, "report"));
    const span = positive(high - low, "high - low"), scale = positive(1 / span, "1 / (high - low)");
    const ofHigh = x => Math.ceil((x - low) * scale * UNIT); // its weight, which does not fall as x grows
    for (const x of ends(domain)) whole(ofHigh(x), "2^53 times the chance of high", 1, UNIT - 1);
    return {
      law: written("two-point", { low, high }),
      width: 1,
      weigh: ([sent], x) => (sent === low ? Math.log(1 - ofHigh(x) / UNIT)
        : sent === span + low ? Math.log(ofHigh(x) / UNIT) : -Infinity),
      draw: (words, values) =>
        words.units(values.length).map((unit, at) => (unit < ofHigh(values[at]) ? 1 : 0) * span + low),
    };
  },
  window: (table, domain) => {
    const [map, first, step, width, moves, p] =
      fields(table, "kind", "map", "first", "step", "width", "moves", "p_window").slice(1);
    const [a, b, more] = list(map, "map").map(one => real(one, "map")), most = UNIT - 1;
    if (b === undefined || more !== undefined) throw new Error("Expected map to be two numbers.");
    for (const x of ends(domain)) real(x * b + a, "place");
    const inside = weight(p, "p_window"), last = whole(width, "width", 1, most) + whole(moves, "moves", 1, most) - 1;
    real(whole(last, "last report", 1, most) * positive(step, "step") + real(first, "first"), "last report");
    return {
      law: written("window", { first, step, width, moves, inside }),
      width: 1,
      weigh: ([sent], x) => {
        const place = clamp(rint(x * b + a), 0, moves), at = Math.round((sent - first) / step);
        if (at < 0 || at > last || at * step + first !== sent) return -Infinity;
        return at >= place && at < place + width ? Math.log(inside / UNIT / width) : Math.log((1 - inside / UNIT) / moves);
      },
      draw: (words, values) => {
        const places = values.map(x => clamp(rint(x * b + a), 0, moves));
        const outside = words.units(values.length).map(unit => unit >= inside);
        const others = places.map(() => words.wide(moves)).map((k, at) => (k >= places[at] ? k + width : k));
        const own = places.map(place => words.wide(width) + place);
        return places.map((_, at) => (outside[at] ? others[at] : own[at]) * step + first);
      },
    };
  },
  mixture: (table, domain) => { // which part is drawn from does not depend on the input: no more than the dearer part
    const [share, first, second] = fields(table, "kind", "share", "window", "pair").slice(1);
    const window = part(first, domain, ["window"]), pair = part(second, domain, ["two-point"]);
    const often = weight(share, "share");
    return {
      law: written("mixture", { share: often, parts: [window.law, pair.law] }),
      width: 1,
      weigh: (sent, x) =>
        Math.log(often / UNIT * Math.exp(window.weigh(sent, x)) + (1 - often / UNIT) * Math.exp(pair.weigh(sent, x))),
      draw: (words, values) => {
        const two = pair.draw(words, values), one = window.draw(words, values);
        return words.units(values.length).map((unit, at) => (unit < often ? one[at] : two[at]));
      },
    };
  },
  laplace: (table, domain) => {
    const [origin, step, rate] = fields(table, "kind", "origin", "step", "rate").slice(1);
    real(origin, "origin");
    positive(step, "step");
    if (!(real(rate, "rate") >= LEAST_RATE && rate < 1)) throw new Error(`Expected rate=${rate} in [2^-44, 1).`);
    const place = x => (x - origin) / step, [low, high] = ends(domain).map(place); // sums with the noise are exact
    const [last, first] = [Math.ceil(high), Math.floor(low)].map(end => whole(end, "place", -FURTHEST, FURTHEST));
    return {
      law: written("added-noise", { origin, step, steps: last - first, noise: written("laplace", { rate }) }),
      width: 1,
      weigh: ([sent], x) => {
        const at = Math.round((sent - origin) / step), below = Math.floor(place(x)), up = place(x) - below;
        const near = Math.min(Math.abs(at - below), Math.abs(at - below - 1)); // keeps exp away from zero
        const part = (share, index) => share * Math.exp(-rate * (Math.abs(at - index) - near));
        return Math.log(part(1 - up, below) + part(up, below + 1)) - rate * near;
      },
      draw: (words, values) => {
        const places = values.map(place), below = places.map(Math.floor);
        const ups = words.units(values.length).map((unit, at) => (unit < (places[at] - below[at]) * UNIT ? 1 : 0));
        const noise = discreteLaplace(words, rate, values.length);
        return below.map((index, at) => (index + ups[at] + noise[at]) * step + origin);
      },
    };
  },
  "keep-or-replace": (table, domain) => {
    const [size, keep, other] = fields(table, "kind", "size", "keep", "other").slice(1);
    fitting(size, domain);
    for (const one of [keep, other]) whole(one, "weight", 1, UNIT - 1);
    const sum = BigInt(keep) + BigInt(size) * BigInt(other), total = Number(sum);
    if (sum < 1n << 51n || sum > 1n << 53n) throw new Error("Expected weights of 2^53, or nearly.");
    return {
      law: written("keep-or-replace", { size, keep, other }),
      width: 1,
      weigh: ([sent], code) => Math.log(sent === code ? keep + other : other),
      draw: (words, codes) => {
        const units = accepted(words, codes.length, total);
        return codes.map((code, at) => (units[at] / other >= size ? code : Math.floor(units[at] / other)));
      },
    };
  },
  subset: (table, domain) => {
    const [size, length, own] = fields(table, "kind", "size", "length", "own").slice(1);
    whole(length, "length", 1, fitting(size, domain) - 1);
    whole(own, "own", 1, UNIT - 1);
    return {
      law: written("subset", { size, length, own }),
      width: length,
      weigh: (sent, code) =>
        (sent.includes(code) ? Math.log(own) + Math.log(size - length) : Math.log(UNIT - own) + Math.log(length)),
      draw: (words, codes) => subsets(words, codes, words.units(codes.length).map(unit => unit < own), size, length),
    };
  },
};

/** Return uniform subsets of the integers below `size`, with the own one where it is wanted: Floyd's way. */
function subsets(words, items, wanted, size, length) {
  const bits = size * length <= 2 ** 12 ? 16 : 32, unit = 2 ** bits, each = 64 / bits;
  const spare = size * length <= 2 ** 26 ? 0 : 8 + Math.ceil(size * length / 2 ** 31);
  const found = [], past = (number, item) => (number >= item ? number + 1 : number);
  const row = (draws, item, own) => {
    const chosen = new Set(), count = length - (own ? 1 : 0);
    for (let step = 0, next = length; step < count; step++) {
      const bound = size - count + step;
      let product = draws[step] * bound;
      while (product % unit < unit % bound) {
        if (next === draws.length) return null; // none to spare: the row is drawn anew
        product = draws[next++] * bound;
      }
      const value = past(Math.floor(product / unit), item);
      chosen.add(chosen.has(value) ? past(bound - 1, item) : value);
    }
    if (own) chosen.add(item);
    return [...chosen].sort((a, b) => a - b);
  };
  for (let pending = items.map((_, at) => at); pending.length;) {
    const drawn = pending.map(() => Array.from({ length: Math.ceil((length + spare) / each) }, () => words.word())
      .flatMap(word => Array.from({ length: each }, (_, k) => Number((word >> BigInt(bits * k)) & BigInt(unit - 1)))));
    pending.forEach((at, i) => { found[at] = row(drawn[i], items[at], wanted[at]); });
    pending = pending.filter(at => found[at] === null);
  }
  return found;
}

/** Return uniform integers below `total`, which is at most 2^53: those beyond are drawn again. */
function accepted(words, count, total) {
  const units = words.units(count);
  for (let again = [0]; again.length;) {
    again = units.flatMap((unit, at) => (unit >= total ? [at] : []));
    for (const at of again) units[at] = words.unit();
  }
  return units;
}

/** Return the law of a table for one attribute, or say why it is none. */
function part(table, domain, kinds = Object.keys(KINDS)) {
  const kind = Object(table).kind;
  if (!kinds.includes(kind)) throw new Error(`Expected kind=${String(kind)} to be ${kinds.join(", ")}.`);
  return KINDS[kind](table, domain);
}

function choose(words, dims, count) { // a uniform subset, in order
  if (count === dims) return Array.from({ length: dims }, (_, at) => at);
  const draws = () => Array.from({ length: count }, () => Number(words.below(BigInt(dims)))).sort((a, b) => a - b);
  if (count === 1) return draws();
  if (count ** 2 > 2 * dims) {
    const keys = words.uniforms(dims).map((key, at) => [key, at]).sort((a, b) => a[0] - b[0]);
    return keys.slice(0, count).map(([, at]) => at).sort((a, b) => a - b);
  }
  for (;;) {
    const chosen = draws();
    if (chosen.every((at, i) => i === 0 || at > chosen[i - 1])) return chosen;
  }
}

// ---- whole answers --------------------------------------------------------------------------------------------------

/** Return the parts of a record's table, which attribute has which, and how many attributes are reported. */
function readRecord(table, domains) {
  const [report, width, owners, tables] = fields(table, "kind", "report", "width", "owners", "parts").slice(1);
  const parts = list(tables, "parts").map(one => ({ table: one, members: [] }));
  const own = list(owners, "owners").map(one => whole(one, "owner", 0, parts.length - 1));
  whole(own.length, "number of owners", domains.length, domains.length);
  own.forEach((kind, at) => parts[kind].members.push(domains[at]));
  const laws = parts.map(({ table: one, members: [first, ...rest] }) => {
    if (first === undefined) throw new Error("Expected an attribute for every part.");
    if (rest.some(other => ["low", "high", "size"].some(end => other[end] !== first[end]))) {
      throw new Error(`Expected one domain for a part, that of ${first.name}.`);
    }
    return part(one, first);
  });
  const widest = laws.reduce((most, law) => Math.max(most, 1 + law.width), 0);
  whole(width, "width", widest, widest);
  whole(report, "report", 1, Math.min(domains.length, Math.floor(MOST / width)));
  return { laws, owners: own, report, width };
}

/**
 * Return the law of a campaign's table for its attributes, or throw why it is none: `epsilon`, which no pair of answers
 * exceeds; `draw`, which makes one user's report from a number or a category's code for each attribute; and `weigh`,
 * which tells for each attribute that a report is about how the report's chance depends on its value.
 */
export function readLaw(table, attributes) {
  const domains = list(attributes, "attributes").map(readDomain);
  if (new Set(domains.map(({ name }) => name)).size < domains.length) throw new Error("Expected distinct names.");
  if (Object(table).kind !== "record") {
    whole(domains.length, "number of attributes", 1, 1);
    const [domain] = domains, { law, about, buckets, weigh, draw } = part(table, domain);
    return settled(law, domain.spec, {
      weigh: report => [[0, x => weigh([report].flat(), x), { about: about?.([report].flat()), buckets }]],
      draw: (row, words = new Words(), open = words) => draw(words, admitted(row, domains), open)[0],
    });
  }
  const { laws, owners, report, width } = readRecord(table, domains), parts = owners.map(kind => laws[kind].law);
  return settled(written("record", { report, parts }), { kind: "record", parts: domains.map(({ spec }) => spec) }, {
    weigh: rows => rows.map(([at, ...sent]) => [at, x => laws[owners[at]].weigh(sent, x), {}]),
    draw: (row, words = new Words(), open = words) => { // which attributes are reported is public, how they are is not
      const values = admitted(row, domains), chosen = choose(open, values.length, report);
      const rows = chosen.map(at => [at, ...Array(width - 1).fill(0)]);
      laws.forEach((law, kind) => {
        const own = chosen.flatMap((at, place) => (owners[at] === kind ? [place] : []));
        if (own.length === 0) return;
        const sent = law.draw(words, own.map(place => values[chosen[place]]));
        own.forEach((place, i) => [sent[i]].flat().forEach((number, k) => { rows[place][1 + k] = number; }));
      });
      return rows;
    },
  });
}

/** Return a law with its epsilon, which the verifier of certificates computes, and the certificate's words for both. */
export function settled(law, spec, more) {
  const nats = spent(law, spec);
  return Object.freeze({ law, spec, nats, epsilon: roundUp(nats), ...more });
}

/** Return a row of values that the domains have. */
function admitted(row, domains) {
  whole(list(row, "row").length, "number of values", domains.length, domains.length);
  return domains.map((domain, at) => {
    const { name, low, high, size, options, most, places } = domain;
    if (size !== undefined) return whole(row[at], name, 0, size - 1);
    if (options !== undefined) return chosen(row[at], name, options, most);
    if (places !== undefined) {
      if (symbols(domain, row[at]) === null) throw new Error(`Expected another text for ${name}.`);
      return row[at];
    }
    if (!(real(row[at], name) >= low && row[at] <= high)) throw new Error(`Expected ${name} in [${low}, ${high}].`);
    return row[at];
  });
}

/** Return distinct codes of options, no more than may be chosen. */
function chosen(codes, name, options, most) {
  if (!Array.isArray(codes) || codes.length > most || new Set(codes).size !== codes.length) {
    throw new Error(`Expected at most ${most} different options of ${name}.`);
  }
  return codes.map(code => whole(code, name, 0, options - 1));
}

/** Return the epsilon that a table spends on these attributes, rounded up. */
export const spends = (table, attributes) => readLaw(table, attributes).epsilon;

/** Write a report as JSON; a seed is longer than the numbers of JSON.stringify. */
export const encode = report =>
  Array.isArray(report) ? `[${report.map(encode).join(",")}]`
    : typeof report === "bigint" ? report.toString() : JSON.stringify(report);

/** Tell whether these laws are known here. */
export const known = table =>
  [Object(table).sections ?? table].flat().every(section =>
    [Object(section).parts ?? section].flat().every(one => Object.hasOwn(KINDS, String(Object(one).kind))));

/** Take in further kinds of tables: laws-more.js has them. */
export const extend = more =>
  Object.assign(KINDS, more({ accepted, ends, fields, fitting, further, list, MOST, odds, part, real, subsets, symbols, UNIT, whole, written }));
