// Check a privacy certificate in a web page or in node, as `verifier/noisette_verify.py` does: with integers of any size,
// rounded to the safe side. It knows kinds of law and no mechanism. Gaussian noise is left to the other program.

const FORMAT = "noisette-certificate", VERSION = "1";
const UNIT = 1n << 53n, FINE = 1n << 61n;
const BITS = 320n, ONE = 1n << BITS; // a number x is held as x 2^320
const DIGITS = 1200, LARGEST = 1000n; // of a number; epsilon
const FIELDS = ["domain", "format", "guarantee", "law", "law_sha256", "sha256", "spec", "spec_sha256", "theorems", "version"];

// Of each kind of law: its fields (from a least whole number on; q: any fraction), and its theorems.
const KINDS = {
  "keep-or-replace": ["size:2 keep:1 other:1", ""],
  hashed: ["maps:1 response:object", "mixture post-processing"],
  subset: ["size:2 length:1 own:1", ""],
  columns: ["order:2 own:1", "sylvester"],
  cyclic: ["order:2 block:1 own:1 other:1", ""],
  "meeting-sets": ["items:2 most:1 length:1 meeting:1", ""],
  "drawn-answers": ["options:1 true:1", "mixture"],
  bits: ["size:2 others:1 turned:1", ""],
  "one-hot": ["size:2 step:q noise:object", "composition distance"],
  "two-point": ["low:q high:q", "rounding"],
  window: ["first:q step:q width:1 moves:1 inside:1", ""],
  "window-over-all": ["positions:1 width:1 inside:0 outputs:text", "post-processing"],
  table: ["levels:list outputs:text rows:list", "mixture"],
  "added-noise": ["origin:q step:q steps:0 noise:object", "distance mixture rounding"],
  laplace: ["rate:q", ""],
  staircase: ["rate:q width:1 first:1 inside:1", ""],
  mixture: ["share:0 parts:list", "mixture"],
  halves: ["dims:1 above:1 tie:1 below:1", "mixture"],
  sampled: ["dims:1 report:1 part:object", "composition mixture"],
  record: ["report:1 parts:list", "composition mixture"],
};

class Refused extends Error {}

const check = (holds, why) => { if (!holds) throw new Refused(`The certificate does not fit: ${why}.`); };
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const up = (top, bottom) => -((-top) / bottom) + (top > 0n && top % bottom !== 0n ? 1n : 0n); // for bottom > 0
const bits = (value) => BigInt(value.toString(16).length) * 4n;
const largest = (values) => values.reduce((one, other) => (one > other ? one : other));

// Numbers

/** Numbers on both sides of exp(x), x >= 0: Taylor's series at x / 2^k, squared k times, rounded outward. */
function expBounds(x) {
  check(x <= LARGEST << BITS, "a budget is too large");
  const halvings = bits((x >> BITS) + 1n) + 8n, start = x >> halvings;
  let low = ONE, high = ONE, termLow = ONE, termHigh = ONE;
  for (let n = 1n; termHigh > 1n; n += 1n) {
    termLow = termLow * start / (n << BITS);
    termHigh = termHigh * (start + 1n) / (n << BITS) + 1n;
    low += termLow, high += termHigh;
  }
  high += 2n;
  for (let left = halvings; left > 0n; left -= 1n) [low, high] = [low * low >> BITS, (high * high >> BITS) + 1n];
  return [low, high];
}

/** A number whose exp is certainly at least top / bottom >= 1. */
function logAbove(top, bottom) {
  check(bottom > 0n && top > 0n, "a chance leaves nothing over");
  const ratio = up(top << BITS, bottom), shift = bits(ratio) > 64n ? bits(ratio) - 64n : 0n;
  const near = Math.log(Number(ratio >> shift)) + (Number(shift) - Number(BITS)) * Math.LN2;
  check(near < 700, "a ratio is too large");
  let guess = BigInt(Math.max(0, Math.round(near * 2 ** 50))) << (BITS - 50n);
  for (let step = 0; step < 4; step += 1) {
    guess += (ratio << BITS) / expBounds(guess)[0] - ONE;
    guess = (guess > 0n ? guess : 0n) + (1n << 30n);
  }
  check(ratio <= expBounds(guess)[0], "a logarithm could not be enclosed");
  return guess;
}

/** The log of the ratio of two weights, the larger by the smaller, rounded up. */
const odds = (one, other) => (one > other ? logAbove(one, other) : logAbove(other, one));

/** A whole number or a fraction in lowest terms, as [top, bottom]. */
function fraction(text) {
  check(typeof text === "string" && text.length <= DIGITS, "a number is no text, or too long");
  check(/^(0|-?[1-9][0-9]*)(\/[1-9][0-9]*)?$/.test(text), `${text.slice(0, 40)} is no whole number or fraction`);
  const [top, bottom] = text.split("/").map(BigInt);
  if (bottom === undefined) return [top, 1n];
  let [one, other] = [top < 0n ? -top : top, bottom];
  while (other) [one, other] = [other, one % other];
  check(one === 1n && bottom > 1n, `${text.slice(0, 40)} is not in lowest terms`);
  return [top, bottom];
}

const below = (one, other) => one[0] * other[1] < other[0] * one[1];

/** The float64 that a fraction is, as a device holds it. */
function float([top, bottom]) {
  check((bottom & (bottom - 1n)) === 0n && bottom < 1n << 1000n && BigInt(Number(top)) === top, "an end is no float64");
  return Number(top) / Number(bottom);
}

// Laws

function taken(raw, what, wanted) {
  const fields = wanted.split(" ").map((one) => one.split(":"));
  const found = isObject(raw) ? Object.keys(raw).filter((name) => name !== "kind").sort().join() : "";
  check(found === fields.map(([name]) => name).sort().join(), `the ${what} has other fields`);
  return fields.map(([name, kind]) => {
    const value = raw[name];
    if (kind === "any") return value;
    if (kind === "object") return check(isObject(value), `${name} is no object`), value;
    if (kind === "list") return check(Array.isArray(value), `${name} is no list`), value;
    if (kind === "text") return check(typeof value === "string", `${name} is no text`), value;
    const number = fraction(value);
    if (kind === "q") return number;
    check(number[1] === 1n && number[0] >= BigInt(kind), `${name} is no whole number from ${kind} on`);
    return number[0];
  });
}

function of(domain, kind, wanted) {
  check(isObject(domain) && domain.kind === kind, `the domain is no ${kind}`);
  return taken(domain, "domain", wanted);
}

const categories = (domain) => of(domain, "categorical", "size:2 labels:any")[0];
const stepsOf = (domain) => of(domain, "lattice", "steps:0")[0];

function interval(domain) {
  const ends = of(domain, "interval", "low:q high:q");
  check(below(...ends), "the domain is empty");
  return ends;
}

function box(domain) {
  const [dims, ...ends] = of(domain, "box", "dims:1 low:any high:any");
  check(dims < 1n << 24n, "the box has too many dimensions");
  const [lows, highs] = ends.map((end) => (Array.isArray(end) ? end : [end]));
  check([lows, highs].every((one) => one.length === 1 || BigInt(one.length) === dims), "the box has other dimensions");
  const length = Math.max(lows.length, highs.length), at = (list, place) => fraction(list[list.length > 1 ? place : 0]);
  for (let place = 0; place < length; place += 1) check(below(at(lows, place), at(highs, place)), "the domain is empty");
  return dims;
}

/** How many steps the values of an interval or a grid lie apart once they are on the lattice. */
function distance(domain, origin, step) {
  if (domain.kind === "grid") {
    const [low, high, own] = of(domain, "grid", "low:q high:q step:q");
    check([0, 1].every((i) => origin[i] === low[i] && step[i] === own[i]) && !below(high, low), "it is another lattice");
    const top = (high[0] * low[1] - low[0] * high[1]) * own[1], bottom = high[1] * low[1] * own[0];
    return (2n * top + bottom) / (2n * bottom);
  }
  const [first, last] = interval(domain).map((end) => (float(end) - float(origin)) / float(step));
  return BigInt(Math.ceil(last)) - BigInt(Math.floor(first));
}

/** What a table of weights gives away between any two levels: of each column the most of one by the least of another. */
function table(levels, rows) {
  check(levels.length === rows.length && rows.length > 0 && rows.every(Array.isArray), "a row has one level");
  const [owners, ...weights] = [levels, ...rows].map((row) => row.map((one) => taken({ a: one }, "table", "a:0")[0]));
  const total = (row) => row.reduce((sum, one) => sum + one, 0n), first = weights[0];
  check(weights.every((row) => row.length === first.length && total(row) === total(first)), "the rows do not have one length and one total");
  const columns = first.map((_, place) => weights.map((row) => row[place])), size = Number(largest(owners)) + 1;
  check(columns.every((column) => column.every((one) => one > 0n) || column.every((one) => one === 0n)), "a zero stands alone");
  check(size <= rows.length && new Set(owners).size === size, "a level has no row");
  const kept = columns.filter(([one]) => one > 0n), least = (values) => -largest(values.map((one) => -one));
  const of = (level, pick) => kept.map((column) => pick(column.filter((_, row) => owners[row] === BigInt(level))));
  const [most, fewest] = [largest, least].map((pick) => Array.from({ length: size }, (_, level) => of(level, pick)));
  return most.map((tops) => fewest.map((bottoms) => {
    const [top, bottom] = tops.map((one, place) => [one, bottoms[place]]).reduce((a, b) => (a[0] * b[1] < b[0] * a[1] ? b : a));
    return logAbove(top, bottom);
  }));
}

/** An upper limit of the log of the ratio of the chances of any report for any two values. */
function loss(law, domain, theorems) {
  check(isObject(law) && isObject(domain) && Object.hasOwn(KINDS, law.kind), `a law of kind ${law?.kind} is not known`);
  const [wanted, cited] = KINDS[law.kind];
  const own = taken(law, `law of kind ${law.kind}`, wanted), inner = (part, its) => loss(part, its, theorems);
  for (const name of cited.split(" ").filter(Boolean)) theorems.add(name);
  if (wanted.startsWith("size:")) check(categories(domain) === own[0], "it is about another number of categories");
  switch (law.kind) {
    case "keep-or-replace": {
      const [size, keep, other] = own;
      check(keep + size * other <= UNIT, "the weights add up to more than 2^53");
      return odds(keep + other, other);
    }
    case "hashed":
      return inner(own[1], { kind: "categorical", labels: null, size: own[1].size });
    case "subset":
      check(own[1] < own[0], "a set leaves nothing over");
      return odds(own[2] * (own[0] - own[1]), (UNIT - own[2]) * own[1]);
    case "columns":
      check((own[0] & (own[0] - 1n)) === 0n && categories(domain) < own[0], "the matrix has too few rows");
      return odds(own[1], UNIT - own[1]);
    case "cyclic": {
      const [order, block, more, other] = own;
      check(block < order && categories(domain) <= order, "there are too few reports");
      check(more * block + other * (order - block) <= UNIT, "the weights add up to more than 2^53");
      return odds(more, other);
    }
    case "meeting-sets": {
      const [items, most, length, meeting] = own, [options, chosen] = of(domain, "selection", "size:1 most:1 labels:any");
      check(most === chosen && most <= 4096n && items === options + most, "the items are not options and blanks");
      let [top, bottom] = [1n, 1n];
      for (let i = 0n; i < most; i += 1n) [top, bottom] = [top * (items - length - i), bottom * (items - i)];
      check(length <= items - most, "no set is without an own item");
      return odds(meeting * top, (UNIT - meeting) * (bottom - top));
    }
    case "drawn-answers":
      check(of(domain, "selection", "size:1 most:1 labels:any")[0] === own[0], "the options are not the domain's");
      return odds(own[1], UNIT - own[1]);
    case "bits":
      check(own[1] < FINE && own[2] < FINE, "a chance leaves nothing over");
      return odds((FINE - own[2]) * (FINE - own[1]), own[2] * own[1]);
    case "one-hot":
      check(own[1][0] === 1n, "0 and 1 are not on the lattice");
      return 2n * inner(own[2], { kind: "lattice", steps: String(own[1][1]) });
    case "two-point": {
      const ends = interval(domain), [low, high] = own.map(float);
      check(below(own[0], ends[0]) && below(ends[1], own[1]), "a report lies inside the domain");
      const scale = 1 / (high - low), [first, last] = ends.map((end) => BigInt(Math.ceil((float(end) - low) * scale * 2 ** 53)));
      return largest([odds(first, last), odds(UNIT - first, UNIT - last)]);
    }
    case "window": {
      const [first, step, width, moves, inside] = own, [low, high] = interval(domain);
      const end = [first[0] * step[1] + step[0] * (width + moves) * first[1], first[1] * step[1]];
      check(step[0] > 0n && !below(low, first) && !below(end, high), "outputs miss the domain");
      return odds(inside * moves, (UNIT - inside) * width);
    }
    case "window-over-all": {
      const [positions, width, inside] = own;
      check(interval(domain) && width <= positions, "the window is wider than all positions");
      return odds(inside * positions + (UNIT - inside) * width, (UNIT - inside) * width);
    }
    case "table":
      check(["interval", "box"].includes(domain.kind), "levels are those of numbers");
      theorems.matrix = table(own[0], own[2]);
      return largest(theorems.matrix.flat());
    case "added-noise": {
      const [origin, step, steps, noise] = own;
      check(step[0] > 0n && steps === distance(domain, origin, step), `values do not lie ${steps} steps apart`);
      return inner(noise, { kind: "lattice", steps: String(steps) });
    }
    case "laplace":
      check(own[0][0] > 0n, "the rate is not positive");
      return up((own[0][0] * stepsOf(domain)) << BITS, own[0][1]);
    case "staircase": {
      const [rate, width, first, inside] = own;
      check(rate[0] > 0n && inside < UNIT && stepsOf(domain) <= width, "values lie farther apart than a stair");
      const least = expBounds((rate[0] << BITS) / rate[1])[0], most = expBounds(up(rate[0] << BITS, rate[1]))[1];
      // 1 - exp(-rate) lies between (least - 1) / least and (most - 1) / most
      const [top, bottom] = [inside * width, (UNIT - inside) * first];
      const steep = [top * least, bottom * (least - ONE)], flat = [bottom * (most - ONE), top * most];
      const logs = [steep, flat].map(([one, other]) => (one > other ? logAbove(one, other) : 0n));
      return largest([up(rate[0] << BITS, rate[1]), ...logs]);
    }
    case "mixture":
      check(own[1].length === 2 && own[0] <= UNIT, "a mixture has two parts, and a share of 2^53");
      return largest(own[1].map((part) => inner(part, domain)));
    case "halves": {
      const [dims, above, tie, less] = own, used = dims % 2n ? [above, less] : [above, tie, less];
      check(dims === box(domain) && largest(used) <= UNIT, "the dimensions are not the domain's");
      return odds(largest(used), -largest(used.map((one) => -one)));
    }
    case "sampled":
      check(own[0] === box(domain) && own[1] <= own[0], "the dimensions are not the domain's");
      return own[1] * inner(own[2], { kind: "interval", low: "-1", high: "1" });
    default: {
      const [report, parts] = own, domains = domain.parts;
      check(Array.isArray(domains) && parts.length === domains.length && report <= BigInt(parts.length), "each part has one law");
      const each = parts.map((part, place) => inner(part, domains[place])).sort((a, b) => (a < b ? 1 : a > b ? -1 : 0));
      return each.slice(0, Number(report)).reduce((sum, one) => sum + one, 0n);
    }
  }
}

// Reading

/** Keys in the order of their code points, as the hash wants them. */
function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isObject(value)) return check(typeof value !== "number", "a number stands outside of quotes"), value;
  const order = (a, b) => { // UTF-16 has another order beyond the first 65,536 characters
    const [one, other] = [[...a], [...b]];
    for (let i = 0; i < Math.min(one.length, other.length); i += 1) {
      if (one[i] !== other[i]) return one[i].codePointAt(0) - other[i].codePointAt(0);
    }
    return one.length - other.length;
  };
  const made = Object.create(null);
  for (const key of Object.keys(value).sort(order)) {
    check(!/^[0-9]+$/.test(key), "a key is a number"); // which objects would put first
    made[key] = sorted(value[key]);
  }
  return made;
}

async function digest(value) {
  const found = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(JSON.stringify(value)));
  return [...new Uint8Array(found)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function untagged(value) {
  if (Array.isArray(value)) return value.map(untagged);
  if (!isObject(value)) return value;
  const keys = Object.keys(value);
  if (keys.length === 1 && ["integer", "number"].includes(keys[0])) return value[keys[0]];
  return Object.fromEntries(keys.map((key) => [key, untagged(value[key])]));
}

async function prove(text) {
  check(typeof text === "string" && text.length < 1 << 24, "the file is too long");
  const told = sorted(JSON.parse(text));
  // a key that occurs twice, or another order, leaves another text than the one that is written for these values
  check([1, 0].some((indent) => JSON.stringify(told, null, indent) === text.trim()), "its text is not the canonical one");
  check(isObject(told) && Object.keys(told).join() === FIELDS.join(), "it has other fields");
  check(told.format === FORMAT && told.version === VERSION, "it is of another format or version");
  const { sha256, ...rest } = told;
  check(told.spec_sha256 === await digest(told.spec), "the spec is not the one that was hashed");
  check(told.law_sha256 === await digest(told.law), "the law is not the one that was hashed");
  check(sha256 === await digest(rest), "it was changed after it was hashed");
  const { spec, domain, guarantee } = told;
  check(isObject(spec) && isObject(domain), "the spec or the domain is no object");
  check(!Object.hasOwn(spec, "domain") || JSON.stringify(untagged(spec.domain)) === JSON.stringify(domain),
    "the domain is not the one of the spec");
  const [epsilon, delta, matrix, ...terms] = taken(guarantee, "guarantee",
    "epsilon:q delta:q matrix:any unit:text model:text relation:text");
  check(terms.join() === "record,local,any-pair", "unit, model or relation are others than the laws are about");
  check(epsilon[0] > 0n && delta[0] >= 0n && delta[0] < delta[1], "the promise is not one for all values");
  const theorems = new Set(), given = loss(told.law, domain, theorems);
  check(given <= (epsilon[0] << BITS) / epsilon[1], "a report is more than exp(epsilon) times as likely under one value");
  if (matrix !== null) {
    const found = theorems.matrix ?? [];
    check(Array.isArray(matrix) && found.length > 0 && matrix.length === found.length &&
      matrix.every((row) => Array.isArray(row) && row.length === found.length), "no levels");
    check(found.every((row, i) => row.every((one, j) => {
      const [top, bottom] = fraction(matrix[i][j]);
      return one * bottom <= top << BITS;
    })), "two levels are told apart more");
  }
  check(JSON.stringify(told.theorems) === JSON.stringify([...theorems].sort()), "the proof rests on other theorems");
  return { proved: true, reason: `epsilon ${guarantee.epsilon}`, theorems: [...theorems].sort() };
}

/**
 * The epsilon of a law for a domain, both as a certificate states them, rounded up to a multiple of 2^-128 and given
 * times 2^128; refuses what is no law for this domain. A web page asks this of the law that it draws by.
 */
export const spent = (law, domain) => up(loss(law, domain, new Set()), 1n << (BITS - 128n));

/** The hash of a law as certificates have it. */
export const lawHash = (law) => digest(sorted(law));

/** Tell whether the text of a certificate proves what it promises, and why not. */
export async function verify(text) {
  try {
    return await prove(text);
  } catch (error) {
    return { proved: false, reason: String(error.message), theorems: [] };
  }
}
