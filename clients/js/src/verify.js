// Check a privacy certificate in a web page or in node, as `verifier/noisette_verify.py` does: with integers of any size,
// rounded to the safe side. It knows kinds of law and no mechanism.

import { fromText, sha256 as digest, toHex } from "./bytes.js";
import { below, BITS, bits, check, expBounds, falling, floats, fraction, interval, isObject, largest, LARGEST, LOCAL, logAbove, loss, odds, of, ONE,
  precise, product, selection, started, steepest, stepsOf, taken, total, UNIT, up, whole, work } from "./spent.js";

export { lawHash, spent } from "./spent.js";

const FORMAT = "noisette-certificate", VERSION = "1";
const PI = 3141592653589793238462643383279502884197169399375105820974944592307816406286208998628034825342117067n; // cut off
const TENS = 10n ** 99n;
const CENTRAL = "example,central,add-remove", TABLE = "record,central,add-remove";
const MOST = 1000n, SUMMED = 1n << 10n; // epsilon; sigma that is summed
const FIELDS = ["domain", "format", "guarantee", "law", "law_sha256", "sha256", "spec", "spec_sha256", "theorems", "version"];

// The kinds of law that no web page draws from.
const KINDS = {
  arcs: ["ring:2 arc:1 own:1", "mixture"],
  "one-hot": ["size:2 step:p noise:object", "composition distance"],
  "window-over-all": ["positions:1 width:1 inside:0 outputs:text", "post-processing"],
  staircase: ["rate:p width:1 first:1 inside:1", ""],
  levels: ["lows:list highs:list rates:list", "distance"],
  halves: ["dims:1 above:1 tie:1 below:1", "mixture"],
  sampled: ["dims:1 report:1 part:object", "composition mixture"],
  gaussian: ["sigma:p", ""],
  coordinates: ["dims:1 report:1 part:object", "composition encoding"],
  "sphere-cap": ["dims:2 gamma:q preferred:p", "encoding post-processing"],
  "normal-cap": ["dims:2 gamma:q preferred:p", "encoding post-processing"],
  normal: ["sigma:p", "gaussian post-processing"],
  ranges: ["many:list width:list sigma:list", "encoding gaussian post-processing"],
  sketch: ["projections:1 ridge:p", "leverage post-processing"],
  queries: ["step:p noise:object rows:list", "gaussian gaussian-composition post-processing smoothing sums"],
  entries: ["unit:text steps:1 many:list keep:list noise:object", "composition distance"],
  rounds: ["times:1 part:object", "composition gaussian-composition"],
  steps: ["times:1 sampling:p noise:p order:2", "renyi"],
};

// Numbers

/** Numbers on both sides of exp(-x), x between two numbers from 0 on. */
function fallBounds(low, high, digits = BITS) {
  const one = 1n << digits, most = LARGEST << digits;
  const least = high > most ? 0n : one * one / expBounds(high, digits)[1];
  return [least, one * one / expBounds(low > most ? most : low, digits)[0] + 1n];
}

const ceil = (top, bottom) => -floor(-top, bottom);
const floor = (top, bottom) => (top >= 0n ? top / bottom : -((-top + bottom - 1n) / bottom)); // for bottom > 0
const larger = (one, other) => (one > other ? one : other);
const fixed = ([top, bottom]) => [floor(top << BITS, bottom), ceil(top << BITS, bottom)]; // on both sides
const times = (one, other) => [one[0] * other[0], one[1] * other[1]]; // of fractions
const minus = (one, other) => [one[0] * other[1] - other[0] * one[1], one[1] * other[1]];

/** The whole root of a number, rounded down. */
function root(value) {
  if (value < 2n) return value;
  let guess = 1n << (bits(value) / 2n + 1n);
  for (;;) {
    const next = (guess + value / guess) >> 1n;
    if (next >= guess) return guess;
    guess = next;
  }
}

/** A number above the root of a fraction. */
const rootAbove = ([top, bottom]) => root(ceil(top << (2n * BITS), bottom)) + 1n;
const rootTwoPi = (digits) => [root((2n * PI << (2n * digits)) / TENS), root((2n * (PI + 1n) << (2n * digits)) / TENS) + 1n];

/** The same far out, by phi(x) / x (1 - 1/x^2 + 3/x^4 - ...), which every two sums that follow each other enclose. */
function farTail(x) {
  let sum = ONE, term = ONE;
  for (let n = 1n; n <= 64n; n += 1n) {
    term = floor((1n - 2n * n) * term * ONE * ONE, x * x);
    sum += term;
  }
  const off = (term < 0n ? -term : term) + 200n, half = x * x >> 1n, fall = fallBounds(half >> BITS, (half >> BITS) + 1n);
  const roots = rootTwoPi(BITS);
  return [larger(0n, (sum - off) * fall[0] * ONE / (x * roots[1])), (sum + off) * fall[1] * ONE / (x * roots[0]) + 1n];
}

/** Numbers on both sides of Q(x) = P(N(0, 1) > x) for x between two numbers from 0 on. */
function normalTail([from, to]) {
  if (from > 16n << BITS) return [farTail(to)[0], farTail(from)[1]];
  const square = Number((to * to) >> (2n * BITS));
  check(square < 1700, "a tail is too far out");
  const more = BigInt(2 * (square + 2)), digits = BITS + more, one = 1n << digits, roots = rootTwoPi(digits);
  const side = (x, upward) => { // 1/2 - phi(x) sum of x^(2n+1) / (2n+1)!!, from below or from above
    const start = x << more, up = upward ? 0n : 1n; // a sum from above gives a tail from below
    let term = start, total = start;
    for (let n = 1n; term > 2n * up || n < BigInt(2 * square + 4); n += 1n) {
      term = (term * start >> digits) * start / ((2n * n + 1n) << digits) + 2n * up;
      total += term + up;
    }
    total += up * (2n * term + 2n); // the rest is below twice the last term
    const half = start * start >> (digits + 1n), fall = fallBounds(half, half + 1n, digits);
    const product = upward ? total * fall[0] / roots[1] : total * fall[1] / roots[0] + 1n;
    return (one >> 1n) - product;
  };
  return [larger(0n, side(to, false) >> more), (side(from, true) >> more) + 1n];
}

/** Numbers on both sides of the sum of exp(-k^2 / (2 sigma^2)) over the integers k >= first >= 1. */
function gaussianSum(sigma, first) {
  const square = times(sigma, sigma), over = (top) => fixed([top * square[1], 2n * square[0]]);
  return [0n, 1n].map((up) => {
    let [term, ratio, change] = [first * first, 2n * first + 1n, 2n].map((top) => fallBounds(...over(top))[Number(up)]);
    let sum = 0n;
    while (term >> 64n) {
      sum += term;
      term = (term * ratio >> BITS) + up, ratio = (ratio * change >> BITS) + up;
    }
    return sum + (up ? term * ONE / (ONE - ratio) + 1n : 0n); // terms fall at least as fast as a geometric series
  });
}

/** At least the delta of discrete Gaussian noise between values so many steps apart. */
function gaussianDelta(sigma, steps, epsilon) {
  const [a, b] = times(sigma, sigma), first = ceil(2n * epsilon[0] * a - steps * steps * epsilon[1] * b, 2n * epsilon[1] * b * steps);
  const all = gaussianSum(sigma, 1n).map((end) => ONE + 2n * end);
  const growth = expBounds(fixed(epsilon)[0])[0], far = larger(0n, gaussianSum(sigma, first + steps)[0]), less = growth * far >> BITS;
  if (first >= 1n) return ceil((gaussianSum(sigma, first)[1] - less) * ONE, all[0]);
  return ONE - floor((larger(0n, gaussianSum(sigma, 1n - first)[0]) + less) * ONE, all[1]);
}

/** About P(noise >= first) of noise whose mass falls as exp(-rate |k|), times 2^digits. */
function laplaceTail([top, bottom], digits, first) {
  const one = 1n << digits;
  if (first < 1n) return one - laplaceTail([top, bottom], digits, 1n - first);
  const [far, near] = [first, 1n].map((n) => (top * n << digits) / bottom).map((x) => fallBounds(x, x, digits)[0]);
  return far * one / (one + near);
}

/** At least the delta of Laplace noises of two rates between values so many steps apart. */
function levelsDelta(own, other, steps, epsilon) {
  const digits = BITS + 2n * ceil(...epsilon), scale = (value) => [value, 1n << digits], one = 1n << digits;
  const [near, far] = [own, other].map((rate) => (first) => laplaceTail(rate, digits, first));
  const zeros = [near, far].map((tail) => one - 2n * tail(1n)), up = zeros[0] >= zeros[1];
  const log = [up ? logAbove(...zeros) : -logAbove(zeros[1], zeros[0]), ONE]; // of the ratio of both chances of no noise
  const height = minus(log, epsilon), reach = times(other, [-steps, 1n]), high = minus(height, reach), slope = minus(other, own);
  // log own(k) - log other(k - steps) - epsilon is straight up to 0, to steps and on: between roots it has one sign
  const lines = [[high, slope], [high, minus(other, times(own, [-1n, 1n]))], [minus(height, times(other, [steps, 1n])), times(slope, [-1n, 1n])]];
  const roots = lines.filter(([, [top]]) => top !== 0n).map(([[a, b], [c, d]]) => (c > 0n ? floor(a * d, b * c) : floor(-a * d, -b * c)) + 1n);
  const growth = expBounds(fixed(epsilon)[0] << (digits - BITS), digits)[0];
  const left = falling(roots).reverse().map((cut) => near(cut) - (growth * far(cut - steps) >> digits));
  const falls = [one - growth, ...left].map((value, place) => larger(0n, value - (left[place] ?? 0n)));
  return ceil(...times(scale(total(falls)), [ONE, 1n])) + (ONE >> 300n); // for roots and tails, which are off by less
}

/** At least the delta of real Gaussian noise whose mean moves by at most the root of a square. */
function normalDelta(square, epsilon) {
  const mu = rootAbove([square, ONE]), slack = ONE >> 80n; // for what smoothing leaves of up to 2^31 numbers
  const [low, high] = fixed(epsilon).map((end) => larger(end - slack, 0n));
  const first = floor(low * ONE, mu) - mu / 2n - 1n, second = ceil(high * ONE, mu - 2n) + mu / 2n + 1n;
  const near = first >= 0n ? normalTail([first, first + 1n])[1] : ONE - normalTail([-first - 1n, -first])[0];
  return ((near - (expBounds(low)[0] * normalTail([second - 1n, second])[0] >> BITS) + 1n) * (ONE + slack) >> BITS) + 1n;
}

/** At least the delta of steps whose noise is so many clipping norms, on examples that are there with a chance. */
function stepsDelta(count, sampling, noise, order, epsilon) {
  const rest = minus([1n, 1n], sampling);
  let total = 0n, ways = 1n;
  for (let k = 0n; k <= order; k += 1n) {
    const growth = expBounds(fixed([k * (k - 1n) * noise[1] ** 2n, 2n * noise[0] ** 2n])[1])[1];
    const top = ways * rest[0] ** (order - k) * sampling[0] ** k, bottom = rest[1] ** (order - k) * sampling[1] ** k;
    total += ceil(top * growth, bottom);
    ways = ways * (order - k) / (k + 1n);
  }
  const log = count * logAbove(total, ONE) - floor((order - 1n) * epsilon[0] << BITS, epsilon[1]);
  const growth = log >= 0n ? expBounds(log)[1] : fallBounds(-log, -log)[1];
  return ceil(growth * (order - 1n) ** order, order ** order * (order - 1n));
}

/** 1 + r(1) + r(1) r(2) + ..., of ratios [top, bottom], each term cut off. */
function series(ratio) {
  let sum = 0n, term = ONE;
  for (let n = 1n; term > 0n; n += 1n) {
    const [top, bottom] = ratio(n);
    sum += term, term = term * top / bottom;
  }
  return sum;
}

/** P(a sum of so many squares <= x) and P(> x) as fractions, to 2^-150 of each. */
function squares(degrees, [top, bottom]) {
  const off = top - degrees * bottom, reach = (degrees << 12n) + (1n << 24n);
  check(top << 99n > bottom && off * off <= reach * bottom * bottom, "sums of squares so far out are unknown");
  // terms (x/2)^k / Gamma(k + 1), k = degrees/2 + n, in units of the first: n >= 0 make P(<= x), the others P(> x)
  const x = (top << BITS) / bottom, most = series((n) => [x, (degrees + 2n * n) << BITS]);
  const over = series((n) => [(degrees > 2n * n - 1n ? degrees - 2n * n + 2n : 0n) << BITS, x]) - ONE;
  const across = rootAbove([top, bottom]), one = degrees % 2n ? 2n * normalTail([across - 1n, across])[0] : 0n; // P(one square > x)
  const all = ONE * (most + over);
  return [[(ONE - one) * most, all], [one * (most + over) + (ONE - one) * over, all]];
}

/** At least the delta of so many Gaussian sums of rows, one of which has this leverage. */
function sketchDelta(degrees, leverage, epsilon) {
  const less = minus([1n, 1n], leverage), log = [degrees * logAbove(less[1], less[0]), 2n * ONE], growth = expBounds(fixed(epsilon)[0])[0];
  const place = ([top, bottom]) => [2n * less[0] * top * leverage[1], less[1] * bottom * leverage[0]]; // where the ratio is growth
  const wider = ([top, bottom]) => [top * less[1], bottom * less[0]];
  const excess = (own, other) => ceil(own[0] << BITS, own[1]) - floor(growth * other[0], other[1]);
  const more = place(minus(log, [-epsilon[0], epsilon[1]])), fewer = place(minus(log, epsilon));
  const found = excess(squares(degrees, more)[1], squares(degrees, wider(more))[1]);
  const other = fewer[0] > 0n ? excess(squares(degrees, wider(fewer))[0], squares(degrees, fewer)[0]) : 0n;
  return larger(found, other) + (ONE >> 140n);
}

/** A number below the chance that one coordinate of a random point of a sphere is at least gamma, as a fraction. */
function sphereTail(dims, gamma) {
  const short = minus([1n, 1n], gamma), square = minus([1n, 1n], times(gamma, gamma));
  let low = fixed(short)[0], whole = 2n * ONE, power = ONE, n = 0n;
  if (dims % 2n === 0n) { // from m = -1/2 on, not from 0: pi, and arccos(gamma) = 2 arcsin(x), x^2 = (1 - gamma) / 2
    const x = root((short[0] << (2n * BITS)) / (2n * short[1]));
    low = 0n, whole = (PI + 1n) * ONE / TENS + 1n, power = rootAbove([square[1], square[0]]);
    for (let term = x; term; ) {
      low += 2n * term, n += 1n;
      term = (term * x * x >> (2n * BITS)) * (2n * n - 1n) ** 2n / (2n * n * (2n * n + 1n));
    }
  }
  const step = fixed(gamma)[1], ratio = fixed(square)[1];
  for (let twice = 1n + dims % 2n; twice < dims - 2n; twice += 2n) {
    power = (power * ratio >> BITS) + 1n;
    low = floor(twice * low - (step * power >> BITS) - 1n, twice + 1n), whole = twice * whole / (twice + 1n) + 1n;
  }
  return [low, whole];
}

// Laws

/** The dimensions of vectors, and of the sphere of their directions. */
function sphere(domain) {
  const open = domain.kind === "sphere", [dims] = of(domain, open ? "sphere" : "l2-ball", "dims:1 radius:p");
  return [dims, open ? dims : dims + 1n];
}

/** The square of the deviations by which two values move noise on every entry, rounding included. */
function moved(domain, sigma) {
  const ball = domain.kind === "tensor-ball";
  const [sizes, ...ends] = of(domain, ball ? "tensor-ball" : "tensor", ball ? "dims:list radius:p mode:any" : "dims:list low:q high:q");
  check(!ball || ends[1] === null, "only the length of whole tensors is known here");
  const [low, high] = ball ? [[-ends[0][0], ends[0][1]], ends[0]] : ends;
  ball || floats(low, high);
  const across = rootAbove([product(whole(sizes, 1)), 1n]), width = minus(high, low), wide = larger(-fixed(low)[0], fixed(high)[1]);
  const far = ball ? fixed(width)[1] : ceil(width[0] * across, width[1]), longest = ball ? fixed(high)[1] : (wide * across >> BITS) + 1n;
  const distance = ceil((far + (longest >> 49n) + 1n) * sigma[1], sigma[0]) + (across >> 36n) + 1n;
  return (distance * distance >> BITS) + 1n;
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

/** What one law gives away by itself, and leaves nothing of it noted. */
function apart(law, domain, proof) {
  const pure = loss(law, domain, proof), { square, delta, noise, many = 0n } = proof;
  Object.assign(proof, { square: null, delta: null, noise: null, matrix: null, many: 0n });
  return { pure, square, delta, noise, many };
}

/** What so many of independent answers give away, or one so often. */
function answers(parts, most, proof) {
  const often = parts.length === 1 ? most : 1n, sum = (list) => often * total(falling(list).slice(0, Number(most)));
  const noisy = parts.filter((part) => part.square !== null || part.delta !== null), pure = sum(parts.map((part) => part.pure));
  if (often * BigInt(noisy.length) < 2n) {
    for (const { square, delta, noise, many } of noisy) Object.assign(proof, { square, delta, noise, many });
    return pure;
  }
  const squares = noisy.map(({ square, noise }) => square ?? (noise && smoothed(...noise)));
  check(squares.every((square) => square), "answers with such a delta are not added up");
  [proof.square, proof.many] = [sum(squares), sum(noisy.map((part) => part.many))];
  check(proof.many < 1n << 31n, "the noise is on too many numbers to be taken for real noise");
  for (const name of ["gaussian", "gaussian-composition", ...(proof.many ? ["smoothing"] : [])]) proof.theorems.add(name);
  return pure;
}

/** What a table of weights gives away between values of every two levels. */
function tableLevels(owners, columns, proof) {
  const size = Math.max(...owners) + 1, levels = [...Array(Math.min(size, 64)).keys()];
  check(new Set(owners).size === size && size <= 64, "a row has one of 64 levels");
  work(proof, size ** 2 * (1 + Math.floor(columns.length / 512)));
  const ends = levels.map((level) => columns.map((column) => {
    const own = column.filter((_, row) => owners[row] === level);
    return [largest(own), -largest(own.map((one) => -one))];
  }));
  const gap = (one, other) => logAbove(...steepest(one.map(([most], place) => [most, other[place][1]])));
  const within = (most) => ([top, bottom]) => top >= 0n && most <= (top << BITS) / bottom;
  proof.matrix = ends.map((one) => ends.map((other) => within(gap(one, other))));
}

/** What so many of the parts of a record give away. */
function record(parts, domains, report, proof) {
  return answers(parts.map((part, place) => apart(part, domains[place], proof)), report, proof);
}

/** The square of the deviations by which real noise moves that discrete noise is taken for, null where it is too narrow. */
function smoothed([a, b], steps) {
  const room = a * a - 4n * b * b;
  return a > 2n * b ? ceil((steps * b) ** 2n << BITS, room) : null;
}

/** What a law of these kinds gives away. */
function others(kind, own, domain, proof, inner) {
  const repeated = (times, part, its) => answers([apart(part, its, proof)], times, proof);
  switch (kind) {
    case "arcs": { // a point on no own arc has least where these share nothing
      const [ring, arc, mine] = own, covered = selection(domain)[1] * arc, all = 1n << 62n;
      check(covered < ring && covered * mine < all && all <= mine * ring, "the arcs hold too little or too much");
      return odds(mine * (ring - covered), all - covered * mine);
    }
    case "one-hot":
      check(own[1][0] === 1n, "0 and 1 are not on the lattice");
      return 2n * inner(own[2], { kind: "lattice", steps: String(own[1][1]) });
    case "window-over-all": {
      const [positions, width, inside] = own;
      check(interval(domain) && width <= positions, "the window is wider than all positions");
      return odds(inside * positions + (UNIT - inside) * width, (UNIT - inside) * width);
    }
    case "levels": {
      const [lows, highs] = own.slice(0, 2).map((list) => whole(list, 0)), rates = own[2].map(fraction), most = stepsOf(domain);
      work(proof, rates.length ** 2);
      check(rates.length > 0 && lows.length === rates.length && highs.length === rates.length, "a level has two ends and a rate");
      check(rates.every(([top, bottom]) => top << 99n > bottom) && highs.at(-1) === most, "noise is too wide, or the end is another");
      check(lows.every((low, place) => low <= highs[place] && low <= (place ? highs[place - 1] : 0n)), "levels leave values out");
      const far = (i, j) => larger(highs[i] - lows[j], highs[j] - lows[i]);
      const deltas = rates.map((one, i) => rates.map((other, j) => (epsilon) => levelsDelta(one, other, far(i, j), epsilon)));
      proof.delta = (epsilon) => largest(deltas.flat().map((delta) => delta(epsilon)));
      proof.matrix = deltas.map((row) => row.map((delta) => (at, allowed) => at[0] >= 0n && delta(at) <= (allowed[0] << BITS) / allowed[1]));
      return 0n;
    }
    case "gaussian": {
      const steps = stepsOf(domain);
      proof.many = 1n;
      if (below([SUMMED, 1n], own[0])) { // wide noise is taken for real noise
        proof.square = smoothed(own[0], steps) || null;
        for (const name of ["gaussian", "smoothing"]) proof.theorems.add(name);
        return 0n;
      }
      proof.noise = [own[0], steps];
      proof.delta = (epsilon) => gaussianDelta(own[0], steps, epsilon);
      return 0n;
    }
    case "coordinates":
      check(own[0] === sphere(domain)[0] && own[1] <= own[0], "the dimensions are not the domain's");
      return repeated(own[1], own[2], { kind: "interval", low: "-1", high: "1" });
    case "sphere-cap":
    case "normal-cap": {
      const [dims, gamma, preferred] = own, most = kind === "sphere-cap" ? [1n, 1n] : [40n, 1n];
      work(proof, Number(dims >> 9n));
      check(dims <= sphere(domain)[1] && gamma[0] >= 0n && below(gamma, most) && below(preferred, [1n, 1n]), "it is no cap");
      const mass = kind === "sphere-cap" ? sphereTail(dims, gamma) : [normalTail(fixed(gamma))[0], ONE];
      check(mass[0] > 0n, "the cap is empty");
      const rest = times(minus([1n, 1n], preferred), mass), other = rest[0] * preferred[1];
      return logAbove(other + preferred[0] * rest[1], other);
    }
    case "ranges": { // rounding as in `moved`
      const many = whole(own[0], 1), [far, sigma] = own.slice(1).map((list) => list.map(fraction));
      check(many.length < 9 && many.length === far.length && many.length === sigma.length && total(many) === sphere(domain)[0], "it has other dimensions");
      check([...far, ...sigma].every((one) => one[0] > 0n), "a width or a deviation is not positive");
      proof.square = total(many.map((count, place) => {
        const apart = fixed(times(far[place], [sigma[place][1], sigma[place][0]]))[1];
        const most = apart + (apart >> 49n) + (ONE >> 36n) + 1n;
        return count * ((most * most >> BITS) + 1n);
      }));
      return 0n;
    }
    case "normal":
      proof.square = moved(domain, own[0]);
      return 0n;
    case "sketch": {
      const [projections, ridge] = own, [sizes, radius, mode] = of(domain, "tensor-ball", "dims:list radius:p mode:any");
      check(whole(sizes, 1).length === 2 && mode === "0" && projections <= 1n << 24n, "it is no table of bounded rows");
      const square = times(radius, radius), most = square[0] * ridge[1]; // of the leverage B^2 / (B^2 + ridge)
      [proof.terms, proof.unlike, proof.finer] = [TABLE, true, projections < 1n << 10n]; // few have tails that take more digits
      proof.delta = (epsilon) => sketchDelta(projections, [most, most + ridge[0] * square[1]], epsilon);
      return 0n;
    }
    case "queries": { // float64 and rounding move a sum by a step at most
      const [step, noise, rows] = own, [sizes, ...ends] = of(domain, "tensor", "dims:list low:q high:q"), dims = whole(sizes, 1);
      const [low, high] = floats(...ends), wide = larger(-fixed(low)[0], fixed(high)[1]);
      check(rows.every(Array.isArray), "a row is no list");
      work(proof, Math.floor(rows.length * rows[0].length / 128));
      const sums = rows.map((row) => row.map((entry) => fixed(fraction(entry)))), cells = Number(product(dims));
      check(sums.every((row) => row.length === cells), "it is about other cells");
      check(rows.flat().every((entry) => (fraction(entry)[1] & (fraction(entry)[1] - 1n)) === 0n), "an entry is no binary fraction");
      const size = ([from, to]) => larger(-from, to), reach = largest(sums.map((row) => total(row.map(size))));
      const far = (total(dims) + 2n * BigInt(dims.length)) * reach * wide;
      check(far * step[1] <= step[0] << (2n * BITS + 52n), "float64 may miss a sum by more than half a step");
      const squares = sums[0].map((_, place) => total(sums.map((row) => size(row[place]) ** 2n)));
      const across = root(largest(squares)) + 1n + 2n * ceil(rootAbove([BigInt(rows.length), 1n]) * step[0], step[1]);
      const one = apart(noise, { kind: "lattice", steps: "1" }, proof), square = one.square ?? (one.noise && smoothed(...one.noise));
      check(square, "the noise is not Gaussian, or too narrow");
      proof.square = ceil(square * across * across * step[1] ** 2n, step[0] ** 2n << (2n * BITS));
      [proof.many, proof.terms, proof.unlike] = [BigInt(rows.length), TABLE, true];
      return 0n;
    }
    case "rounds":
      return repeated(own[0], own[1], domain);
    case "entries": {
      const [unit, steps, , , noise] = own, many = whole(own[2], 1), keep = whole(own[3], 0), most = largest(keep);
      const [sizes, ...ends] = of(domain, "tensor", "dims:list low:q high:q"), entries = product(whole(sizes, 1));
      check(floats(...ends) && total(many) === entries && many.length === keep.length && most < UNIT, "it is about other entries");
      check(["element", "record"].includes(unit), "the unit is not known");
      const found = repeated(unit === "record" ? entries : 1n, noise, { kind: "lattice", steps: String(steps) });
      proof.terms = [unit, ...LOCAL.split(",").slice(1)].join();
      proof.unlike ||= unit !== "record";
      check(noise.kind === "laplace" || most === 0n, "such noise does not hide what is kept");
      if (most === 0n) return found;
      const fall = fallBounds(...fixed(fraction(noise.rate)))[1]; // P(no noise) is (1 - fall) / (1 + fall)
      const each = keep.map((one) => {
        const bottom = (UNIT - one) * (ONE - fall);
        return one ? logAbove(bottom + one * (ONE + fall), bottom) : 0n;
      });
      return found + (unit === "element" ? largest(each) : total(each.map((one, place) => one * many[place])));
    }
    case "steps": {
      const [count, sampling, noise, order] = own;
      check(Object.keys(domain).join() === "kind" && domain.kind === "examples", "it is no run of steps");
      check(!below([1n, 1n], sampling) && order <= 256n, "it is no run of steps");
      [proof.terms, proof.unlike] = [CENTRAL, true];
      proof.delta = (epsilon) => stepsDelta(count, sampling, noise, order, epsilon);
      return 0n;
    }
    case "staircase": {
      const [rate, width, first, inside] = own;
      check(inside < UNIT && stepsOf(domain) <= width, "values lie farther apart than a stair");
      const least = expBounds((rate[0] << BITS) / rate[1])[0], most = expBounds(up(rate[0] << BITS, rate[1]))[1];
      // 1 - exp(-rate) lies between (least - 1) / least and (most - 1) / most
      const [top, bottom] = [inside * width, (UNIT - inside) * first];
      const steep = [top * least, bottom * (least - ONE)], flat = [bottom * (most - ONE), top * most];
      const logs = [steep, flat].map(([one, other]) => (one > other ? logAbove(one, other) : 0n));
      return largest([up(rate[0] << BITS, rate[1]), ...logs]);
    }
    case "halves": {
      const [dims, above, tie, less] = own, used = dims % 2n ? [above, less] : [above, tie, less];
      check(dims === box(domain) && largest(used) <= UNIT, "the dimensions are not the domain's");
      return odds(largest(used), -largest(used.map((one) => -one)));
    }
    case "sampled":
      check(own[0] === box(domain) && own[1] <= own[0], "the dimensions are not the domain's");
      return repeated(own[1], own[2], { kind: "interval", low: "-1", high: "1" });
    default:
      throw new Error(`There is no law of kind ${kind}. Use a newer verifier.`);
  }
}

// Reading

/** Refuse a domain that names other categories or parts than the law is about. */
function named(law, domain) {
  const count = (names, size) => check(names === null || (Array.isArray(names) && BigInt(names.length) === size), "it has other names");
  if (law.kind === "rounds") named(law.part, domain);
  else if (law.kind === "mixture") law.parts.forEach((part) => named(part, domain));
  else if (law.kind === "record") {
    const [parts, names = null] = of(domain, domain.kind, domain.kind === "record" ? "parts:list" : "parts:list names:any");
    count(names, BigInt(parts.length));
    parts.forEach((part, place) => named(law.parts[place], part));
  } else if (law.kind !== "hashed" && ["categorical", "selection"].includes(domain.kind)) count(domain.labels, fraction(domain.size)[0]);
}

/** The one text of a value. Keys are in the order of their code points: objects put numbers first, and UTF-16 has another order. */
function written(value, indent = "", line = "\n") {
  check(typeof value !== "number", "a number stands outside of quotes");
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const list = Array.isArray(value), [start, end] = list ? "[]" : "{}", next = line + indent;
  const parts = list ? value.map((one) => written(one, indent, next))
    : Object.keys(value).sort(order).map((key) => `${JSON.stringify(key)}:${indent}${written(value[key], indent, next)}`);
  return start + (indent && parts.length ? next + parts.join(`,${next}`) + line : parts.join()) + end;
}

function order(a, b) {
  const [one, other] = [[...a], [...b]];
  for (let i = 0; i < Math.min(one.length, other.length); i += 1) {
    if (one[i] !== other[i]) return one[i].codePointAt(0) - other[i].codePointAt(0);
  }
  return one.length - other.length;
}

const hash = async (value) => toHex(await digest(fromText(written(value))));

function untagged(value) {
  if (Array.isArray(value)) return value.map(untagged);
  if (!isObject(value)) return value;
  const keys = Object.keys(value);
  if (keys.length === 1 && ["integer", "number"].includes(keys[0])) return value[keys[0]];
  return Object.fromEntries(keys.map((key) => [key, untagged(value[key])]));
}

/** The domain that a spec is about, a survey's by its mechanisms: its own, that between its edges, or of its parts. */
function described(spec) {
  const built = Object.hasOwn(spec, "spec") ? spec.spec : spec, whole = ["domain", "edges"].some((name) => Object.hasOwn(built, name));
  const own = untagged(whole ? [built] : built.parts)
    .map((one) => one.domain ?? { high: one.edges.at(-1), kind: "interval", low: one.edges[0] });
  return own.length > 1 ? { kind: "record", parts: own } : own[0];
}

/** A fraction as a number to be read: the digits that a float64 has. */
const decimal = ([top, bottom]) => {
  const half = 32n + larger(bits(bottom) - bits(top), 0n) / 2n, scale = 2 ** Number(half); // of two steps, none too large
  return Number((top << (2n * half)) / bottom) / scale / scale;
};

async function prove(text) {
  check(typeof text === "string" && text.length <= 1 << 22, "the file is too long");
  const told = JSON.parse(text, (key, value) => (isObject(value) ? Object.assign(Object.create(null), value) : value));
  // a key that occurs twice, or another order, leaves another text than the one that is written for these values
  check(["", " "].some((indent) => written(told, indent) === text.trim()), "its text is not the canonical one");
  check(isObject(told) && Object.keys(told).sort(order).join() === FIELDS.join(), "it has other fields");
  check(told.format === FORMAT && told.version === VERSION, "it is of another format or version");
  const { sha256, ...rest } = told;
  check(told.spec_sha256 === await hash(told.spec), "the spec is not the one that was hashed");
  check(told.law_sha256 === await hash(told.law), "the law is not the one that was hashed");
  check(sha256 === await hash(rest), "it was changed after it was hashed");
  const { spec, domain, guarantee } = told;
  check(isObject(spec) && isObject(domain), "the spec or the domain is no object");
  check(JSON.stringify(described(spec)) === JSON.stringify(domain), "the spec has another domain");
  check(!Object.hasOwn(Object(guarantee), "kind"), "the guarantee has other fields");
  const [epsilon, delta, matrix, ...terms] = taken(guarantee, "guarantee",
    "epsilon:q delta:q matrix:any unit:text model:text relation:text");
  check(epsilon[0] > 0n && delta[0] >= 0n && delta[0] < delta[1], "the promise says nothing");
  check(!below([MOST, 1n], epsilon), `this program proves no epsilon above ${MOST}; noisette-verify does`);
  let proof, given, small;
  for (const size of [512n, 4096n]) { // the second time with more digits, where the noise seems to tell too much
    try {
      precise(size);
      [proof, small] = [started({ kinds: KINDS, loss: others, box, levels: tableLevels, record }), true];
      given = loss(told.law, domain, proof);
      const chance = proof.delta ?? (proof.square && ((at) => normalDelta(proof.square, at)));
      const left = [(epsilon[0] << BITS) - given * epsilon[1], epsilon[1] << BITS]; // of epsilon
      if (chance === null || left[0] < 0n) break;
      small = delta[0] > 0n && chance(left) <= (delta[0] << BITS) / delta[1];
      if (small || (proof.square === null && !proof.finer) || delta[0] === 0n) break;
    } finally {
      precise(512n);
    }
  }
  named(told.law, domain);
  let outer = told.law;
  while (outer.kind === "rounds") outer = outer.part;
  check(!proof.unlike || ["entries", "queries", "sketch", "steps"].includes(outer.kind), "a part of it is about another unit or model"); // than all
  check(terms.join() === proof.terms, "unit, model or relation are others than the law is about");
  check(small, "the noise tells more than is promised");
  check(given <= (epsilon[0] << BITS) / epsilon[1], "a report is more than exp(epsilon) times as likely under one value");
  if (matrix !== null) {
    const graded = ["table", "levels"].includes((told.law.kind === "added-noise" ? told.law.noise : told.law).kind);
    const known = graded ? proof.matrix : [], size = known.length;
    check(Array.isArray(matrix) && matrix.length === size && size > 0, "the law has other levels");
    matrix.forEach((row, i) => {
      check(Array.isArray(row) && row.length === size, "the law has other levels");
      row.forEach((promised, j) => {
        check(known[i][j](fraction(promised), delta), "two levels are told apart more");
      });
    });
  }
  const theorems = [...proof.theorems].sort();
  check(JSON.stringify(told.theorems) === JSON.stringify(theorems), "the proof rests on other theorems");
  const [most, chance] = [epsilon, delta].map(decimal), budget = `epsilon ${most}${delta[0] ? `, delta ${chance}` : ""}`;
  const either = terms[1] === "central" ? `one person's ${terms[0]} is there or not` : "two values a person may hold";
  const reason = `${budget}: whatever ${either}, no report is more than exp(epsilon) times as likely under one as under the other` +
    (delta[0] ? `, but for a chance of ${chance}.` : ".");
  return { proved: true, reason, theorems };
}

/** Tell whether the text of a certificate proves what it promises, and why not. */
export async function verify(text) {
  try {
    return await prove(text);
  } catch (error) {
    return { proved: false, reason: String(error.message), theorems: [] };
  }
}
