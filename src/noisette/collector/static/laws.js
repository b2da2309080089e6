// The laws of the mechanisms: one entry a kind of table, with its draws for several inputs and the epsilon it spends.
// A table is what table() gives in Python, and every draw is the one that Python makes from the same words.

import { discreteLaplace, ULP, Words } from "./random.js";

const rint = x => { // to the nearest integer, halves to the even one
  const floor = Math.floor(x), rest = x - floor;
  return rest < 0.5 ? floor : rest > 0.5 ? floor + 1 : floor % 2 === 0 ? floor : floor + 1;
};
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
const chanceOfHigh = (x, { low, high }) => (x - low) * (1 / (high - low));

const KINDS = {
  "two-point": {
    draw: (words, values, table) => {
      const uniforms = words.uniforms(values.length);
      const bits = values.map((x, at) => (uniforms[at] < chanceOfHigh(x, table) ? 1 : 0));
      return bits.map(bit => bit * (table.high - table.low) + table.low);
    },
    spends: (table, [low, high]) => {
      const [least, most] = [chanceOfHigh(low, table), chanceOfHigh(high, table)];
      return Math.log(Math.max(most / least, (1 - least) / (1 - most)));
    },
  },
  window: {
    draw: (words, values, { map: [a, b], first, step, width, moves, p_window: chance }) => {
      const places = values.map(x => clamp(rint(x * b + a), 0, moves));
      const outside = words.uniforms(values.length).map(uniform => uniform >= chance);
      const others = places.map(place => [words.wide(moves), place]).map(([k, place]) => (k >= place ? k + width : k));
      const inside = places.map(place => words.wide(width) + place);
      return places.map((_, at) => (outside[at] ? others[at] : inside[at]) * step + first);
    },
    spends: ({ width, moves, p_window: chance }) => Math.log((chance / width) / ((1 - chance) / moves)),
  },
  mixture: {
    draw: (words, values, { share, window, pair }) => {
      const two = KINDS["two-point"].draw(words, values, pair), one = KINDS.window.draw(words, values, window);
      return words.uniforms(values.length).map((uniform, at) => (uniform < share ? one[at] - two[at] : 0) + two[at]);
    },
    spends: ({ window, pair }, range) =>
      Math.max(KINDS.window.spends(window), KINDS["two-point"].spends(pair, range)),
  },
  laplace: {
    draw: (words, values, { origin, step, rate }) => {
      const places = values.map(x => (x - origin) / step), below = places.map(Math.floor);
      const ups = words.uniforms(values.length).map((uniform, at) => (uniform < places[at] - below[at] ? 1 : 0));
      const noise = discreteLaplace(words, rate, values.length);
      return below.map((index, at) => (index + ups[at] + noise[at]) * step + origin);
    },
    spends: ({ origin, step, rate }, [low, high]) =>
      rate * (Math.ceil((high - origin) / step) - Math.floor((low - origin) / step)),
  },
  "keep-or-replace": {
    draw: (words, codes, { size, keep, other }) => {
      const end = (keep + size * other) * ULP, uniforms = words.uniforms(codes.length);
      for (let again = [0]; again.length;) {
        again = uniforms.flatMap((uniform, at) => (uniform >= end ? [at] : []));
        for (const at of again) uniforms[at] = words.uniform();
      }
      return codes.map((code, at) => {
        const place = uniforms[at] / (other * ULP);
        return place >= size ? code : Math.floor(place);
      });
    },
    spends: ({ keep, other }) => Math.log1p(keep / other),
  },
  hash: {
    draw: (words, codes, { prime, response }) => {
      const p = BigInt(prime), seeds = codes.map(() => words.below(p * p));
      const buckets = seeds.map((seed, at) =>
        Number(((seed / p) * BigInt(codes[at]) + (seed % p)) % p * BigInt(response.size) / p));
      return KINDS["keep-or-replace"].draw(words, buckets, response).map((bucket, at) => [seeds[at], bucket]);
    },
    spends: ({ response }) => KINDS["keep-or-replace"].spends(response),
  },
  bits: {
    draw: (words, codes, { size, others, turned }) => {
      const off = fill(words, codes.length, BigInt(turned)), rows = fill(words, codes.length * size, BigInt(others));
      return codes.map((code, at) => {
        const row = rows.slice(at * size, (at + 1) * size);
        row[code] = 1 - off[at];
        return row;
      });
    },
    spends: ({ others, turned }) => {
      const [rare, off] = [others, turned].map(weight => Number(weight) * 2 ** -61);
      return Math.log((1 - off) / rare) + Math.log((1 - rare) / off);
    },
  },
  subset: {
    draw: (words, codes, { size, length, own }) => {
      const mine = words.uniforms(codes.length).map(uniform => uniform < own * ULP), found = [];
      const bits = BigInt((size - 1).toString(2).length), mask = (1n << bits) - 1n;
      for (let pending = codes.map((_, at) => at); pending.length;) {
        const drawn = pending.map(() => Array.from({ length: size }, () => words.word() >> 2n));
        pending = pending.filter((at, i) => {
          const ranks = drawn[i].map((key, k) => (key & ~mask) | BigInt(k));
          ranks[codes[at]] = mine[at] ? BigInt(codes[at]) - (1n << 62n) : (1n << 63n) - 1n;
          ranks.sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
          found[at] = ranks.slice(0, length).map(rank => Number(rank & mask)).sort((a, b) => a - b);
          return ranks[length - 1] >> bits === ranks[length] >> bits; // a tie decided: draw again
        });
      }
      return found;
    },
    spends: ({ size, length, own }) => Math.log(own / (2 ** 53 - own)) + Math.log((size - length) / length),
  },
  hadamard: {
    draw: (words, codes, { order, own }) => {
      const columns = words.uniforms(codes.length).map(uniform => Math.floor(uniform * order));
      const wanted = words.uniforms(codes.length).map(uniform => uniform < own * ULP);
      return codes.map((code, at) => {
        const row = code + 1, column = columns[at];
        return even(row & column) === wanted[at] ? column : column ^ (row & -row);
      });
    },
    spends: ({ own }) => Math.log(own / (2 ** 53 - own)),
  },
};

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

/** Return one user's report: `row` holds a number or a category's code for each attribute. */
export function draw(table, row, words = new Words()) {
  if (table.kind !== "record") return KINDS[table.kind].draw(words, row, table)[0];
  const chosen = choose(words, row.length, table.report);
  const rows = chosen.map(at => [at, ...Array(table.width - 1).fill(0)]);
  table.parts.forEach((part, kind) => {
    const own = chosen.flatMap((at, place) => (table.owners[at] === kind ? [place] : []));
    if (own.length === 0) return;
    const sent = KINDS[part.kind].draw(words, own.map(place => row[chosen[place]]), part);
    own.forEach((place, i) => [sent[i]].flat().forEach((number, k) => { rows[place][1 + k] = number; }));
  });
  return rows;
}

/** Return the epsilon that a table spends on these attributes, computed from the table alone. */
export function spends(table, attributes) {
  if (table.kind !== "record") return KINDS[table.kind].spends(table, attributes[0].range);
  const each = attributes.map((one, at) => {
    const part = table.parts[table.owners[at]];
    return KINDS[part.kind].spends(part, one.range);
  });
  return each.sort((a, b) => b - a).slice(0, table.report).reduce((a, b) => a + b);
}

/** Write a report as JSON; a seed is longer than the numbers of JSON.stringify. */
export const encode = report =>
  Array.isArray(report) ? `[${report.map(encode).join(",")}]`
    : typeof report === "bigint" ? report.toString() : JSON.stringify(report);

/** Tell whether these laws are known here. */
export const known = table => (table.parts ?? [table]).every(part => part.kind in KINDS);
