// What a law of chance gives away: with integers of any size, rounded to the safe side. A device asks this of the law
// that it draws by before it draws; verify.js adds the laws that no web page draws from, and reads certificates.

import { hashed } from "./bytes.js";

export const UNIT = 1n << 53n;
const FINE = 1n << 61n;
export let BITS = 512n, ONE = 1n << BITS; // a number x is held as x 2^512
export const precise = (size) => { BITS = size, ONE = 1n << size; }; // Gaussian noise of large budgets takes more
export const LOCAL = "record,local,any-pair", LARGEST = 4000n; // powers of e
const DIGITS = 1200; // of a number

// Of each kind of law: its fields (from a least whole number on; q: any fraction; p: a positive one), and its theorems.
const KINDS = {
  "keep-or-replace": ["size:2 keep:1 other:1", ""],
  hashed: ["maps:1 response:object", "mixture post-processing"],
  subset: ["size:2 length:1 own:1", ""],
  columns: ["order:2 own:1", "sylvester"],
  cyclic: ["order:2 block:1 own:1 other:1", ""],
  "meeting-sets": ["items:2 most:1 length:1 meeting:1", ""],
  "drawn-answers": ["options:1 true:1", "mixture"],
  bits: ["size:2 others:1 turned:1", ""],
  "two-point": ["low:q high:q", "rounding"],
  window: ["first:q step:p width:1 moves:1 inside:1", ""],
  "added-noise": ["origin:q step:p steps:0 noise:object", "distance mixture rounding"],
  laplace: ["rate:p", ""],
  mixture: ["share:0 parts:list", "mixture"],
  record: ["report:1 parts:list", "composition mixture"],
  table: ["levels:list outputs:text rows:list", "mixture"],
};

class CertificateRefused extends Error {}

export const check = (holds, why) => { if (!holds) throw new CertificateRefused(`The certificate does not fit: ${why}.`); };
export const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
export const up = (top, bottom) => -((-top) / bottom) + (top > 0n && top % bottom !== 0n ? 1n : 0n); // for bottom > 0
export const bits = (value) => BigInt(value.toString(16).length) * 4n;
export const largest = (values) => values.reduce((one, other) => (one > other ? one : other));

// Numbers

export const whole = (list, least) => list.map((size) => taken({ size }, "list", `size:${least}`)[0]);
export const product = (list) => list.reduce((one, other) => one * other, 1n);
export const falling = (list) => list.sort((a, b) => (a < b ? 1 : -1));
export const total = (list) => list.reduce((one, other) => one + other, 0n);

/** Numbers on both sides of exp(x), x >= 0: Taylor's series at x / 2^k, squared k times, rounded outward. */
export function expBounds(x, digits = BITS) {
  check(x <= LARGEST << digits, "a budget is too large");
  const halvings = bits((x >> digits) + 1n) + 8n, start = x >> halvings;
  let low = 1n << digits, high = low, termLow = low, termHigh = low;
  for (let n = 1n; termHigh > 1n; n += 1n) {
    termLow = termLow * start / (n << digits);
    termHigh = termHigh * (start + 1n) / (n << digits) + 1n;
    low += termLow, high += termHigh;
  }
  high += 2n;
  for (let left = halvings; left > 0n; left -= 1n) [low, high] = [low * low >> digits, (high * high >> digits) + 1n];
  return [low, high];
}

/** A number whose exp is certainly at least top / bottom >= 1. */
export function logAbove(top, bottom) {
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
export const odds = (one, other) => (one > other ? logAbove(one, other) : logAbove(other, one));

/** A whole number or a fraction in lowest terms, as [top, bottom]. */
export function fraction(text) {
  check(typeof text === "string" && text.length <= DIGITS, "a number is no text, or too long");
  check(/^(0|-?[1-9][0-9]*)(\/[1-9][0-9]*)?$/.test(text), `${text.slice(0, 40)} is no whole number or fraction`);
  const [top, bottom] = text.split("/").map(BigInt);
  if (bottom === undefined) return [top, 1n];
  let [one, other] = [top < 0n ? -top : top, bottom];
  while (other) [one, other] = [other, one % other];
  check(one === 1n && bottom > 1n, `${text.slice(0, 40)} is not in lowest terms`);
  return [top, bottom];
}

export const steepest = (fractions) => fractions.reduce((one, other) => (below(one, other) ? other : one));
export const below = (one, other) => one[0] * other[1] < other[0] * one[1];

/** The float64 that a fraction is, as a device holds it. */
export function float([top, bottom]) {
  check((bottom & (bottom - 1n)) === 0n && bottom < 1n << 1000n && BigInt(Number(top)) === top, "an end is no float64");
  return Number(top) / Number(bottom);
}

// Laws

export function taken(raw, what, wanted) {
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
    if (kind === "p") return check(number[0] > 0n, `${name} is not positive`), number;
    if (kind === "q") return number;
    check(number[1] === 1n && number[0] >= BigInt(kind), `${name} is no whole number from ${kind} on`);
    return number[0];
  });
}

export function of(domain, kind, wanted) {
  check(isObject(domain) && domain.kind === kind, `the domain is no ${kind}`);
  return taken(domain, "domain", wanted);
}

const categories = (domain) => of(domain, "categorical", "size:2 labels:any")[0];
export const selection = (domain) => of(domain, "selection", "size:1 most:1 labels:any");
export const stepsOf = (domain) => of(domain, "lattice", "steps:0")[0];

/** The ends of a domain, as a device holds them. */
export function floats(...ends) {
  ends.forEach(float);
  check(below(...ends), "the domain is empty");
  return ends;
}

export const interval = (domain) => floats(...of(domain, "interval", "low:q high:q"));

/** What a table of weights gives away; between which levels the verifier of certificates adds. */
function tableLoss(levels, rows, proof) {
  check(levels.length === rows.length && rows.length > 0 && rows.every(Array.isArray), "a row has one level");
  const weights = rows.map((row) => whole(row, 0));
  check(weights.every((row) => row.length === weights[0].length && total(row) === total(weights[0])), "the rows have other totals");
  const columns = weights[0].map((_, place) => weights.map((row) => row[place])), kept = columns.filter((column) => column[0] > 0n);
  check(kept.flat().every((one) => one > 0n) && total(kept.flat()) === total(weights.flat()), "a zero stands alone");
  proof.more.levels?.(whole(levels, 0).map(Number), kept, proof);
  return logAbove(...steepest(kept.map((column) => [largest(column), -largest(column.map((one) => -one))])));
}

/** How many steps the values of an interval or a grid lie apart once they are on the lattice. */
function distance(domain, origin, step) {
  if (domain.kind === "grid") {
    const [low, high, own] = of(domain, "grid", "low:q high:q step:q");
    check([0, 1].every((i) => origin[i] === low[i] && step[i] === own[i]) && floats(low, high, own), "it is another lattice");
    const top = (high[0] * low[1] - low[0] * high[1]) * own[1], bottom = high[1] * low[1] * own[0];
    return (2n * top + bottom) / (2n * bottom);
  }
  const [first, last] = interval(domain).map((end) => (float(end) - float(origin)) / float(step));
  return BigInt(Math.ceil(last)) - BigInt(Math.floor(first));
}

/** Count work, in milliseconds or so, and refuse what would take too long. */
export function work(proof, more) {
  proof.work += more;
  check(proof.work <= 3000, "it has too many parts");
}

/** An upper limit of the log of the ratio of the chances of any report for any two values. */
export function loss(law, domain, proof) {
  const kinds = Object.hasOwn(KINDS, Object(law).kind) ? KINDS : proof.more.kinds;
  check(isObject(law) && isObject(domain) && Object.hasOwn(kinds, law.kind), `a law of kind ${law?.kind} is not known`);
  const [wanted, cited] = kinds[law.kind];
  const own = taken(law, `law of kind ${law.kind}`, wanted);
  work(proof, 1 + Math.floor(Object.values(law).reduce((sum, one) => sum + (Array.isArray(one) ? one.length : 0), 0) / 2));
  const inner = (part, its) => {
    const found = loss(part, its, proof);
    check(proof.delta === null && proof.square === null, "parts with a delta are not added up");
    return found;
  };
  for (const name of cited.split(" ").filter(Boolean)) proof.theorems.add(name);
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
      const [items, most, length, meeting] = own, [options, chosen] = selection(domain);
      check(most === chosen && most <= 4096n && items === options + most, "the items are not options and blanks");
      work(proof, Number(most >> 8n));
      let [top, bottom] = [1n, 1n];
      for (let i = 0n; i < most; i += 1n) [top, bottom] = [top * (items - length - i), bottom * (items - i)];
      check(length <= items - most, "no set is without an own item");
      return odds(meeting * top, (UNIT - meeting) * (bottom - top));
    }
    case "drawn-answers":
      check(selection(domain)[0] === own[0], "the options are not the domain's");
      return odds(own[1], UNIT - own[1]);
    case "bits":
      check(own[1] < FINE && own[2] < FINE, "a chance leaves nothing over");
      return odds((FINE - own[2]) * (FINE - own[1]), own[2] * own[1]);
    case "two-point": {
      const ends = interval(domain), [low, high] = own.map(float);
      check(below(own[0], ends[0]) && below(ends[1], own[1]), "a report lies inside the domain");
      const scale = 1 / (high - low), [first, last] = ends.map((end) => BigInt(Math.ceil((float(end) - low) * scale * 2 ** 53)));
      return largest([odds(first, last), odds(UNIT - first, UNIT - last)]);
    }
    case "window": {
      const [first, step, width, moves, inside] = own, [low, high] = interval(domain);
      const end = [first[0] * step[1] + step[0] * (width + moves) * first[1], first[1] * step[1]];
      check(!below(low, first) && !below(end, high), "outputs miss the domain");
      return odds(inside * moves, (UNIT - inside) * width);
    }
    case "added-noise": {
      const [origin, step, steps, noise] = own;
      check(steps === distance(domain, origin, step), `values do not lie ${steps} steps apart`);
      return loss(noise, { kind: "lattice", steps: String(steps) }, proof);
    }
    case "table":
      (domain.kind === "box" && proof.more.box ? proof.more.box : interval)(domain); // levels are those of numbers
      return tableLoss(own[0], own[2], proof);
    case "laplace":
      return up((own[0][0] * stepsOf(domain)) << BITS, own[0][1]);
    case "mixture":
      check(own[1].length === 2 && own[0] <= UNIT, "a mixture has two parts, and a share of 2^53");
      return largest(own[1].map((part) => inner(part, domain)));
    case "record": {
      const [report, parts] = own, domains = domain.parts;
      check(["record", "attributes"].includes(domain.kind) && Array.isArray(domains) && parts.length === domains.length && report <= BigInt(parts.length), "each part has one law");
      if (proof.more.record) return proof.more.record(parts, domains, report, proof);
      const each = falling(parts.map((part, place) => inner(part, domains[place])));
      return total(each.slice(0, Number(report)));
    }
    default:
      return proof.more.loss(law.kind, own, domain, proof, inner);
  }
}

/** Kinds of law that are loaded where a campaign has one, and what these give away: laws-more.js adds them. */
export const further = { kinds: {} };

/** What is gathered while a law is looked at; `more` has further kinds of law, and what these give away. */
export const started = (more = further) => ({ theorems: new Set(), delta: null, square: null, noise: null, matrix: null, terms: LOCAL, work: 0, more });

/**
 * The epsilon of a law for a domain, both as a certificate states them, rounded up to a multiple of 2^-128 and given
 * times 2^128; refuses what is no law for this domain, or has a delta. A web page asks this of the law that it draws by.
 */
export function spent(law, domain) {
  const proof = started(), found = loss(law, domain, proof);
  check(proof.delta === null && proof.square === null, "the law has a delta");
  return up(found, 1n << (BITS - 128n));
}

/** The hash of a law as certificates have it: keys in order, no spaces. */
export function lawHash(law) {
  const keys = new Set();
  JSON.stringify(law, (key, value) => (keys.add(key), value));
  return hashed(law, [...keys].sort());
}
