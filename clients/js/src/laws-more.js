// The laws of choices among many, of several choices, of texts, of graded numbers, and of reports in bits, hashes and
// Hadamard's columns: kinds of tables that laws.js takes in where a campaign has one. It gives its own tools to them, so that
// this file needs no other and is loaded alone.

const MOST_LEVELS = 2 ** 10;
const LONGEST = 2 ** 25; // sequence from which a difference set is read
const FINE = 1n << 61n; // weights of bits add up to this
const PRIME = 2 ** 31 - 1; // of the maps of local hashing
const RING = PRIME, DRAWS = 1n << 62n; // points on which options lie, and what decides on one

export default ({ accepted, ends, fields, fitting, further, list, MOST, odds, part, real, subsets, symbols, UNIT, whole, written }) => {
  // What arcs give away: a point on no own arc has least where these share nothing. The verifier knows them by itself.
  further.kinds.arcs = ["ring:2 arc:1 own:1", "mixture"];
  further.loss = (_, [ring, arc, own], { most }) => {
    const covered = BigInt(most) * arc, inside = own * (ring - covered), outside = DRAWS - covered * own;
    if (outside <= 0n || outside > inside) throw new Error("Expected arcs that hold neither too little nor too much.");
    return odds(inside, outside);
  };
  /** Return numbers that rise from one end of a range to the other. */
  const rising = (numbers, low, high) => {
    const found = list(numbers, "edges").map(one => real(one, "edge"));
    if (found[0] !== low || found.at(-1) !== high || found.some((one, at) => at && !(one > found[at - 1]))) {
      throw new Error("Expected edges that rise from one end of the range to the other.");
    }
    return found;
  };
  /** Return the m below `order` at which the sequence of a linear recurrence is 0 in each of its `power` runs. */
  const hyperplane = (order, prime, power, taps) => {
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
  };
  return {
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
        draw: (words, codes, open = words) => {
          const seeds = codes.map(() => open.below(p * p)), own = seeds.map((seed, at) => into(seed, codes[at]));
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
      if (sum < 1n << 51n || sum > 1n << 53n) throw new Error("Expected weights of 2^53, or nearly.");
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
        draw: (words, rows, open = words) => {
          const drawn = rows.map(() => Number(open.below(BigInt(options)))), lies = words.units(rows.length).map(unit => unit >= truth);
          return rows.map((chosen, at) => 2 * drawn[at] + (chosen.includes(drawn[at]) !== lies[at] ? 1 : 0));
        },
      };
    },
    arcs: (table, domain) => { // the map onto the ring is drawn before what was chosen is looked at
      const [ring, arc, own] = fields(table, "kind", "ring", "arc", "own").slice(1), { options, most } = choosing(domain);
      whole(ring, "ring", RING, RING);
      whole(arc, "arc", 1, RING - 1);
      whole(own, "own", 1, UNIT - 1);
      const place = (map, option) =>
        Number(map.reduce((sum, one) => (sum * BigInt(option) + BigInt(one)) % BigInt(RING), 0n));
      const near = (sent, option) => (sent.at(-1) - place(sent.slice(0, -1), option) + RING) % RING < arc;
      const pieces = (map, chosen) => { // arcs in order: their beginning, what they cover before the next, the gap to it
        const starts = chosen.map(option => place(map, option)).sort((a, b) => a - b);
        return starts.map((start, at) => {
          const gap = (starts[at + 1] ?? starts[0] + RING) - start;
          return [start, Math.min(gap, arc), gap];
        });
      };
      const covered = parts => parts.reduce((sum, [, length]) => sum + length, 0);
      const outside = length => Math.log((2 ** 62 - length * own) / (RING - length));
      return {
        law: written("arcs", { ring, arc, own }),
        width: most + 3,
        weigh: (sent, chosen) => { // true and false stand for the selections that the report points at, and for all others
          if (typeof chosen === "boolean" ? chosen : chosen.some(option => near(sent, option))) return Math.log(own);
          return outside(chosen ? covered(pieces(sent.slice(0, -1), chosen)) : most * arc);
        },
        about: sent => ({
          options: Array.from({ length: options }, (_, at) => at).filter(at => near(sent, at)), yes: true, blank: false,
        }),
        draw: (words, rows, open = words) => {
          const maps = rows.map(() => Array.from({ length: most + 2 }, () => Number(open.below(BigInt(RING)))));
          const draws = rows.map(() => words.below(DRAWS)), parts = rows.map((chosen, at) => pieces(maps[at], chosen));
          const left = parts.map(one => Number(words.below(BigInt(RING - covered(one)))));
          return rows.map((_, at) => {
            const inside = draws[at] < BigInt(covered(parts[at])) * BigInt(own);
            let index = inside ? Number(draws[at] / BigInt(own)) : left[at], point = index;
            for (const [start, length, gap] of parts[at]) {
              const room = inside ? length : gap - length;
              if (index >= 0 && index < room) point = (start + (inside ? 0 : length) + index) % RING;
              index -= room;
            }
            return [...maps[at], point];
          });
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
        draw: (words, rows, open = words) => {
          const drawn = rows.map(() => Number(open.below(BigInt(cells))));
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
      if (!(last && places[0] <= low && places[last] >= high) || places.some((one, at) => at && one < places[at - 1]) ||
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
};

/** Return a weight of 2^61, which is written as a text. */
function fine(text, name) {
  const found = typeof text === "string" && /^[1-9][0-9]{0,18}$/.test(text) ? BigInt(text) : 0n;
  if (found < 1n || found >= FINE) throw new Error(`Expected ${name}=${String(text)} to be 1 to 2^61 - 1, as a text.`);
  return found;
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

const choosing = domain => {
  if (domain.options === undefined) throw new Error(`Expected a law for the answers to ${domain.name}, got one for several options.`);
  return domain;
};

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
