// The laws of the mechanisms: one entry a kind of table, which reads a collector's table, or refuses it, and returns a
// law: the epsilon of its whole numbers, and the draws that are made from these and nothing else. A table is what
// table() gives in Python, and every draw is the one that Python makes from the same words.
//
// A law has `law`, its whole numbers as a certificate states them, of which verify.js computes epsilon; `width`, the
// numbers in a report; `draw`, for several inputs; and `weigh`, ln P(report | x) but for what does not depend on x, in
// float64: it shows a person what her report tells, and nothing rests on it.

import { discreteLaplace, exact, roundUp, Words } from "./random.js";
import { spent } from "./verify.js";

const UNIT = 2 ** 53; // weights of what one uniform number decides add up to this
const FINE = 1n << 61n; // and those of bits to this
const MOST = 2 ** 20; // categories, and numbers in a report: more would hold up the page
const LONGEST = 2 ** 25; // sequence from which a difference set is read
const MOST_OPTIONS = 2 ** 16, LONGEST_TEXT = 32, MOST_LEVELS = 2 ** 10;
const PRIME = 2 ** 31 - 1; // of the maps of local hashing
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

/** Return a weight of 2^61, which is written as a text. */
function fine(text, name) {
  const found = typeof text === "string" && /^[1-9][0-9]{0,18}$/.test(text) ? BigInt(text) : 0n;
  if (found < 1n || found >= FINE) throw new Error(`Expected ${name}=${String(text)} to be 1 to 2^61 - 1, as a text.`);
  return found;
}

const names = (thing, what) => {
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
      throw new Error(`Expected the range of ${name} to be two numbers, the lower one first.`);
    }
    return { name, low, high, spec: written("interval", { low, high }) };
  },
  categories: ({ name, categories }) => {
    const size = whole(names(categories, `categories of ${name}`).length, "number of categories", 2, MOST);
    return { name, size, spec: written("categorical", { size, labels: null }) };
  },
  options: ({ name, options, most }) => {
    const many = whole(names(options, `options of ${name}`).length, "number of options", 1, MOST_OPTIONS);
    whole(most, `most of ${name}`, 1, many);
    return { name, options: many, most, spec: written("selection", { size: many, most, labels: null }) };
  },
  text: ({ name, text, alphabet = null }) => {
    const letters = alphabet === null ? null : [...alphabet], longest = whole(text, `longest text of ${name}`, 1, LONGEST_TEXT);
    const least = letters ? Math.min(...letters.map(letter => bytes(letter).length)) : 1;
    if (letters && (new Set(letters).size !== letters.length || letters.length > 255)) throw new Error(`Expected distinct letters of ${name}.`);
    return { name, longest, letters, places: Math.floor(longest / least), spec: { kind: "texts" } };
  },
};

/** Return what a question may be answered with, of the fields that one kind of it has. */
function readDomain(attribute) {
  const kind = Object.keys(DOMAINS).find(one => Object.hasOwn(Object(attribute), one)) ?? "range";
  const more = { options: ["most"], text: Object.hasOwn(Object(attribute), "alphabet") ? ["alphabet"] : [] }[kind] ?? [];
  const [name] = fields(attribute, "name", kind, ...more);
  if (typeof name !== "string") throw new Error("Expected the name of an attribute to be a text.");
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
const bytes = text => new TextEncoder().encode(text);

/** The symbols of a text, 0 after its end, or null where it is none of the question's. */
export function symbols({ longest, letters, places }, text) {
  if (typeof text !== "string" || text === "" || /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}]/u.test(text)) return null;
  const normal = text.normalize("NFC"), code = letters ? [...normal].map(one => letters.indexOf(one) + 1) : [...bytes(normal)];
  if (bytes(normal).length > longest || (letters && code.includes(0))) return null;
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
    if (sum < 1n << 51n || sum > 1n << 53n) throw new Error("Expected the weights to add up to 2^53, or nearly.");
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
  hash: (table, domain) => { // the map is drawn before the category is looked at
    const [prime, response] = fields(table, "kind", "prime", "response").slice(1);
    fitting(domain.size, domain);
    const buckets = whole(Object(response).size, "buckets", 2, MOST), p = BigInt(whole(prime, "prime", PRIME, PRIME));
    const bucket = part(response, { name: domain.name, size: buckets }, ["keep-or-replace"]);
    const into = (seed, code) => Number(((seed / p) * BigInt(code) + (seed % p)) % p * BigInt(buckets) / p);
    return {
      law: written("hashed", { maps: p * p, response: bucket.law }),
      width: 2,
      weigh: ([seed, sent], code) => bucket.weigh([sent], into(BigInt(seed), code)),
      draw: (words, codes) => {
        const seeds = codes.map(() => words.below(p * p)), own = seeds.map((seed, at) => into(seed, codes[at]));
        return bucket.draw(words, own).map((sent, at) => [seeds[at], sent]);
      },
    };
  },
  bits: (table, domain) => {
    const [size, others, turned] = fields(table, "kind", "size", "others", "turned").slice(1);
    const rare = fine(others, "others"), off = fine(turned, "turned");
    return {
      law: written("bits", { size, others: rare, turned: off }),
      width: fitting(size, domain),
      weigh: (sent, code) => {
        const [own, rest] = [off, FINE - rare].map(zero => (sent[code] ? FINE - zero : zero)); // of this bit at 0, or 1
        return Math.log(Number(own) / Number(rest));
      },
      draw: (words, codes) => {
        const turns = fill(words, codes.length, off), rows = fill(words, codes.length * size, rare);
        return codes.map((code, at) => {
          const row = rows.slice(at * size, (at + 1) * size);
          row[code] = 1 - turns[at];
          return row;
        });
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
  hadamard: (table, domain) => {
    const [order, own] = fields(table, "kind", "order", "own").slice(1);
    const wanted = 2 ** fitting(domain.size, domain).toString(2).length; // the first power of two above the categories
    whole(order, "order", wanted, wanted);
    whole(own, "own", 1, UNIT - 1);
    return {
      law: written("columns", { order, own }),
      width: 1,
      weigh: ([column], code) => Math.log(even((code + 1) & column) ? own : UNIT - own),
      draw: (words, codes) => {
        const columns = words.uniforms(codes.length).map(uniform => Math.floor(uniform * order));
        const positive = words.units(codes.length).map(unit => unit < own);
        return codes.map((code, at) => {
          const row = code + 1, column = columns[at];
          return even(row & column) === positive[at] ? column : column ^ (row & -row);
        });
      },
    };
  },
  cyclic: (table, domain) => { // what is added to the category is drawn before it is looked at, from whatever set
    const [order, prime, power, taps, own, other] =
      fields(table, "kind", "order", "prime", "power", "taps", "own", "other").slice(1);
    whole(order, "order", fitting(domain.size, domain), LONGEST / whole(power, "power", 1, 24));
    const members = hyperplane(order, whole(prime, "prime", 2, MOST), power, list(taps, "taps"));
    const more = whole(own, "own", 2, UNIT - 1) - whole(other, "other", 1, own - 1);
    const sum = BigInt(more) * BigInt(members.length) + BigInt(other) * BigInt(order), total = Number(sum);
    if (sum < 1n << 51n || sum > 1n << 53n) throw new Error("Expected the weights to add up to 2^53, or nearly.");
    const first = more * members.length;
    return {
      law: written("cyclic", { order, block: members.length, own, other }),
      width: 1,
      weigh: ([sent], code) => Math.log(members.includes((sent + code) % order) ? own : other),
      draw: (words, codes) => accepted(words, codes.length, total).map((unit, at) => {
        const noise = unit < first ? members[Math.floor(unit / more)] : Math.floor((unit - first) / other);
        return noise < codes[at] ? noise - codes[at] + order : noise - codes[at];
      }),
    };
  },
  "drawn-answers": (table, domain) => { // the option is drawn before what was chosen is looked at
    const [options, truth] = fields(table, "kind", "options", "true").slice(1);
    whole(options, "options", choosing(domain).options, domain.options);
    whole(truth, "true", 1, UNIT - 1);
    return {
      law: written("drawn-answers", { options, true: truth }),
      width: 1,
      // true and false stand for the selections that the report points at, and for all others
      weigh: ([sent], chosen) => Math.log((typeof chosen === "boolean" ? chosen : chosen.includes(sent >> 1) === (sent % 2 === 1))
        ? truth : UNIT - truth),
      about: ([sent]) => ({ options: [sent >> 1], yes: sent % 2 === 1, blank: false }),
      draw: (words, rows) => {
        const drawn = rows.map(() => Number(words.below(BigInt(options)))), lies = words.units(rows.length).map(unit => unit >= truth);
        return rows.map((chosen, at) => 2 * drawn[at] + (chosen.includes(drawn[at]) !== lies[at] ? 1 : 0));
      },
    };
  },
  "meeting-sets": (table, domain) => {
    const [items, most, length, meeting] = fields(table, "kind", "items", "most", "length", "meeting").slice(1);
    whole(most, "most", choosing(domain).most, domain.most);
    whole(items, "items", domain.options + most, domain.options + most);
    whole(length, "length", 1, items - most);
    whole(meeting, "meeting", 1, UNIT - 1);
    // what was chosen, filled up with blanks: place j that holds no option holds blank j
    const filled = chosen => Array.from({ length: most }, (_, at) => chosen[at] ?? domain.options + at).sort((a, b) => a - b);
    const meets = (sent, own) => sent.some(item => own.includes(item));
    const drawn = (words, own) => {
      if (words.unit() >= meeting) { // one of the other items, which are counted past the own ones, the least first
        return own.reduce((row, item) => row.map(one => (one >= item ? one + 1 : one)),
          subsets(words, [items - most], [false], items - most + 1, length)[0]);
      }
      for (;;) { // a set with several own items would be drawn from each of them: it is taken once in so many
        const [row] = subsets(words, [own[Number(words.below(BigInt(most)))]], [true], items, length);
        const common = own.filter(item => row.includes(item)).length;
        if (words.below(BigInt(common)) === 0n) return row;
      }
    };
    return {
      law: written("meeting-sets", { items, most, length, meeting }),
      width: length,
      weigh: (sent, chosen) => {
        let apart = 1; // the share of all sets that meet no own item
        for (let at = 0; at < most; at++) apart *= (items - length - at) / (items - at);
        return (typeof chosen === "boolean" ? chosen : meets(sent, filled(chosen))) ? Math.log(meeting / (1 - apart)) : Math.log((UNIT - meeting) / apart);
      },
      about: sent => ({ options: sent.filter(item => item < domain.options), yes: true, blank: sent.some(item => item >= domain.options) }),
      draw: (words, rows) => rows.map(chosen => drawn(words, filled(chosen))),
    };
  },
  prefixes: (table, domain) => { // group and map are drawn before the text is looked at
    const [seeds, lengths, response] = fields(table, "kind", "seeds", "lengths", "response").slice(1);
    if (domain.places === undefined) throw new Error(`Expected a law for the answers to ${domain.name}, got one for texts.`);
    const groups = list(lengths, "lengths").map(length => whole(length, "length", 1, domain.places));
    const buckets = whole(Object(response).size, "buckets", 2, MOST), cells = groups.length * whole(seeds, "seeds", 1, 2 ** 16);
    whole(cells * buckets, "number of reports", 1, 2 ** 31);
    const bucket = part(response, { name: domain.name, size: buckets }, ["keep-or-replace"]);
    const own = (cell, code) => code.slice(0, groups[Math.floor(cell / seeds)])
      .reduce((sum, symbol, place) => sum + mixed(cell % seeds, place, symbol) % buckets, 0) % buckets;
    return {
      law: written("hashed", { maps: cells, response: bucket.law }),
      width: 1,
      // true and false stand for the texts that the report points at, and for all others
      weigh: ([sent], text) => bucket.weigh([0], (text === true || (text !== false &&
        own(Math.floor(sent / buckets), symbols(domain, text)) === sent % buckets)) ? 0 : 1),
      buckets,
      draw: (words, rows) => {
        const drawn = rows.map(() => Number(words.below(BigInt(cells))));
        return bucket.draw(words, rows.map((text, at) => own(drawn[at], symbols(domain, text)))).map((sent, at) => sent + drawn[at] * buckets);
      },
    };
  },
  levels: (table, domain) => { // a level that is kept or replaced, and a sign at the chance that the reported level has
    const [cuts, weights, pairs] = fields(table, "kind", "edges", "weights", "pairs").slice(1), [low, high] = ends(domain);
    const edges = rising(cuts, low, high), size = whole(edges.length - 1, "levels", 1, MOST_LEVELS);
    const keeps = list(weights, "weights").map(pair => list(pair, "weights").map(one => whole(one, "weight", 0, UNIT)));
    const signs = list(pairs, "pairs").map(pair => list(pair, "pair").map(one => real(one, "pair")));
    if (keeps.length !== size || signs.length !== size || keeps.some(([keep, other]) => keep + size * other !== UNIT || other < 1) ||
        [...keeps, ...signs].some(pair => pair.length !== 2) || signs.some(([a, b]) => !(a < b && b - a < Infinity))) {
      throw new Error("Expected weights and signs for each level.");
    }
    const level = x => edges.slice(1, -1).filter(edge => x >= edge).length;
    const ofHigh = (x, at) => Math.ceil((x - signs[at][0]) * (1 / (signs[at][1] - signs[at][0])) * UNIT);
    const chance = (own, at) => keeps[own][1] + (own === at ? keeps[own][0] : 0);
    const rows = edges.slice(0, -1).flatMap((edge, own) => [edge, own === size - 1 ? high : before(edges[own + 1])]
      .map(x => signs.flatMap((_, at) => {
        const up = BigInt(whole(ofHigh(x, at), "2^53 times the chance of a sign", 1, UNIT - 1)), all = BigInt(chance(own, at));
        return [String(all * (BigInt(UNIT) - up)), String(all * up)];
      })));
    const owners = signs.flatMap((_, own) => [String(own), String(own)]);
    return {
      law: { kind: "table", levels: owners, outputs: `pairs of a level from 0 to ${size - 1} and a sign, -1 or 1`, rows },
      width: 2,
      weigh: ([at, sign], x) => Math.log(chance(level(x), at)) + Math.log(sign > 0 ? ofHigh(x, at) / UNIT : 1 - ofHigh(x, at) / UNIT),
      draw: (words, values) => {
        const drawn = words.units(values.length).map((unit, i) => {
          const own = level(values[i]), other = unit / keeps[own][1];
          return other < size ? Math.floor(other) : own;
        });
        return words.units(values.length).map((unit, i) => [drawn[i], unit < ofHigh(values[i], drawn[i]) ? 1 : -1]);
      },
    };
  },
  rows: (table, domain) => { // the value is moved to one of the points around it, and that point's row is drawn from
    const [points, levels, rows, outputs, named] = fields(table, "kind", "points", "levels", "rows", "outputs", "named").slice(1);
    const [low, high] = ends(domain), places = list(points, "points").map(one => real(one, "point")), last = places.length - 1;
    const sums = list(rows, "rows").map(row => {
      let sum = 0;
      return list(row, "row").map(one => (sum += whole(one, "weight", 1, UNIT)));
    });
    if (places[0] !== low || places[last] !== high || places.some((one, at) => at && one < places[at - 1]) ||
        list(levels, "levels").length !== last + 1 || sums.length !== last + 1 ||
        sums.some(row => row.length !== outputs.length || row.at(-1) !== UNIT)) {
      throw new Error("Expected a row of weights for each point of the range.");
    }
    list(outputs, "outputs").forEach(one => real(one, "output"));
    const around = x => {
      const at = places.findLastIndex(one => one <= x), next = Math.min(at + 1, last), width = places[next] - places[at];
      return [at, next, width > 0 ? (x - places[at]) / width : 0];
    };
    return {
      law: { kind: "table", levels: levels.map(String), outputs: String(named), rows: rows.map(row => row.map(String)) },
      width: 1,
      weigh: ([sent], x) => {
        const at = outputs.indexOf(sent), [below, above, share] = around(x);
        return Math.log((1 - share) * rows[below][at] + share * rows[above][at]);
      },
      draw: (words, values) => {
        const own = words.uniforms(values.length).map((uniform, i) => {
          const [at, next, share] = around(values[i]);
          return uniform < share ? next : at;
        });
        const tickets = own.map(() => words.wide(UNIT));
        return own.map((row, i) => outputs[sums[row].findIndex(sum => tickets[i] < sum)]);
      },
    };
  },
};

const choosing = domain => {
  if (domain.options === undefined) throw new Error(`Expected a law for the answers to ${domain.name}, got one for several options.`);
  return domain;
};

/** Return numbers that rise from one end of a range to the other. */
function rising(numbers, low, high) {
  const found = list(numbers, "edges").map(one => real(one, "edge"));
  if (found[0] !== low || found.at(-1) !== high || found.some((one, at) => at && !(one > found[at - 1]))) {
    throw new Error("Expected edges that rise from one end of the range to the other.");
  }
  return found;
}

/** The float64 just below a number. */
function before(x) {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, x === 0 ? -Number.MIN_VALUE : x);
  if (x !== 0) view.setBigInt64(0, view.getBigInt64(0) + (x > 0 ? -1n : 1n));
  return view.getFloat64(0);
}

/** The number of a symbol at a place under a public map: two rounds of xor, shift and product. */
function mixed(seed, place, symbol) {
  let key = ((seed << 13) | (place << 8) | symbol) >>> 0;
  key ^= key >>> 16;
  key = Math.imul(key, 0x7feb352d);
  key ^= key >>> 15;
  key = Math.imul(key, 0x846ca68b);
  return (key ^ (key >>> 16)) >>> 0;
}

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

/** Return the m below `order` at which the sequence of a linear recurrence is 0 in each of its `power` runs. */
function hyperplane(order, prime, power, taps) {
  whole(taps.length, "number of taps", 2, 64);
  for (const tap of taps) whole(tap, "tap", 0, prime - 1);
  const degree = taps.length, field = prime ** power;
  let points = 0;
  for (let dim = 0; dim < degree / power; dim++) points = points * field + 1;
  if (degree % power || points !== order) throw new Error(`Expected order=${order} to be that of a geometry.`);
  const sequence = new Float64Array(degree + power * order);
  const used = taps.flatMap((tap, at) => (tap ? [at] : []));
  sequence[degree - 1] = 1;
  for (let at = degree; at < sequence.length; at++) {
    let sum = 0;
    for (const back of used) sum += taps[back] * sequence[at - degree + back];
    sequence[at] = sum % prime;
  }
  const found = [];
  for (let at = 0; at < order; at++) {
    let zeros = 0;
    while (zeros < power && sequence[at + zeros * order] === 0) zeros++;
    if (zeros === power) found.push(at);
  }
  if (found.length * field + 1 !== order) throw new Error("Expected the taps of a primitive polynomial.");
  return found;
}

/** Return the law of a table for one attribute, or say why it is none. */
function part(table, domain, kinds = Object.keys(KINDS)) {
  const kind = Object(table).kind;
  if (!kinds.includes(kind)) throw new Error(`Expected kind=${String(kind)} to be ${kinds.join(", ")}.`);
  return KINDS[kind](table, domain);
}

const even = bits => {
  let odd = 0;
  for (let rest = bits; rest; rest >>>= 1) odd ^= rest & 1;
  return odd === 0;
};

const tables = new Map();

function patterns(weight) { // which of 256 patterns of eight bits a short draw decides on, and the edges of the rest
  if (tables.has(weight)) return tables.get(weight);
  const off = (1n << 61n) - weight, decided = [], sums = [];
  let running = 0n;
  for (let pattern = 0; pattern < 256; pattern++) {
    const bits = Array.from({ length: 8 }, (_, at) => (pattern >> (7 - at)) & 1);
    const ones = BigInt(bits.reduce((a, b) => a + b)), chance = weight ** ones * off ** (8n - ones);
    for (let owned = chance >> 472n; owned > 0n; owned--) decided.push(bits);
    sums.push([(running += chance & ((1n << 472n) - 1n)), bits]);
  }
  tables.set(weight, { decided, sums });
  return tables.get(weight);
}

function fill(words, count, weight) { // independent bits, each on with chance weight / 2^61
  const whole = Math.floor(count / 8), found = eights(words, whole, weight).flat();
  return count % 8 ? found.concat(eights(words, 1, weight)[0].slice(0, count % 8)) : found;
}

function eights(words, count, weight) {
  const { decided, sums } = patterns(weight), shorts = [], late = [];
  for (let at = 0; at < count; at += 4) {
    const word = words.word();
    for (let k = 0; k < 4; k++) shorts.push(Number((word >> BigInt(16 * k)) & 0xffffn));
  }
  const found = shorts.slice(0, count).map((short, at) => {
    if (short >= decided.length) late.push(at);
    return decided[short];
  });
  const draws = late.map(() => words.below(BigInt(65536 - decided.length) << 48n));
  late.forEach((at, i) => {
    const index = sums.findIndex(([sum]) => sum >> 424n >= draws[i]);
    if (sums[index][0] >> 424n !== draws[i]) {
      found[at] = sums[index][1];
    } else {
      const place = (draws[i] << 424n) | words.bits(424); // one in 2^40: the next bits decide
      found[at] = sums.find(([sum]) => sum > place)[1];
    }
  });
  return found;
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
      throw new Error(`Expected attributes of one part to have one domain, that of ${first.name}.`);
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
      draw: (row, words = new Words()) => draw(words, admitted(row, domains))[0],
    });
  }
  const { laws, owners, report, width } = readRecord(table, domains), parts = owners.map(kind => laws[kind].law);
  return settled(written("record", { report, parts }), { parts: domains.map(({ spec }) => spec) }, {
    weigh: rows => rows.map(([at, ...sent]) => [at, x => laws[owners[at]].weigh(sent, x), {}]),
    draw: (row, words = new Words()) => {
      const values = admitted(row, domains), chosen = choose(words, values.length, report);
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
