// Random words, and exact draws from them: as numpy and noisette/_random.py make them, word by word.

const ULP = 2 ** -53;
const PRECISION = 128n; // bits after the point of a log
const MARGIN = 2 ** -49; // Math.log, exp and tanh err by less, relatively; what lies nearer is settled exactly

/** Draws from 64-bit words as numpy's Generator does; the words are the browser's cryptographic ones by default. */
export class Words {
  #source;
  #half = null;

  constructor(source = cryptographic()) {
    this.#source = source;
  }

  word() {
    return this.#source();
  }

  /** Uniform integer below 2^53. */
  unit() {
    return Number(this.word() >> 11n);
  }

  units(count) {
    return Array.from({ length: count }, () => this.unit());
  }

  /** Uniform multiples of 2^-53 below 1. */
  uniforms(count) {
    return this.units(count).map(unit => unit * ULP);
  }

  #word32() {
    if (this.#half !== null) {
      const held = this.#half;
      this.#half = null;
      return held;
    }
    const word = this.word();
    this.#half = word >> 32n;
    return word & 0xffffffffn;
  }

  /** Uniform integer below `high`, exactly: Lemire's way, on 32 or 64 bits. */
  below(high) {
    if (high === 1n) return 0n;
    const bits = high > 2n ** 32n ? 64n : 32n;
    const draw = () => (bits === 64n ? this.word() : this.#word32()) * high;
    const mask = (1n << bits) - 1n, reject = (1n << bits) % high;
    let product = draw();
    while ((product & mask) < reject) product = draw();
    return product >> bits;
  }

  /** As `below` for numbers, from one 64-bit word nearly always. */
  wide(high) {
    const bound = BigInt(high), shift = BigInt(Math.max(0, 56 - bound.toString(2).length));
    return Number(this.below(bound << shift) >> shift);
  }

  /** So many random bits, a multiple of 8, as one integer. */
  bits(count) {
    let found = 0n;
    for (let at = 0; at < count; at += 32) found |= this.#word32() << BigInt(at);
    return found & ((1n << BigInt(count)) - 1n);
  }
}

function cryptographic() {
  const pool = new BigUint64Array(64);
  let left = 0;
  return () => {
    if (left === 0) left = crypto.getRandomValues(pool).length;
    const word = pool[--left];
    pool[left] = 0n;
    return word;
  };
}

// Exact decisions, for where float64 is in doubt.

const fraction = rate => { // a float64 as [numerator, bits of the denominator]
  let bits = 0;
  while (!Number.isInteger(rate)) [rate, bits] = [rate * 2, bits + 1];
  return [BigInt(rate), BigInt(bits)];
};

/** A float64 as the text of a whole number, or of a fraction in lowest terms. */
export const exact = number => {
  const [top, bits] = fraction(number);
  return bits ? `${top}/${1n << bits}` : String(top);
};

const length = number => number.toString(2).length;

const atanh = (top, bottom, precision) => { // of 0 <= top / bottom <= 1/3, times 2^precision
  const square = ((top * top) << precision) / (bottom * bottom);
  let sum = 0n;
  for (let power = (top << precision) / bottom, k = 1n; power > 0n; k += 2n) {
    sum += power / k;
    power = (power * square) >> precision;
  }
  return sum;
};

/** Return the least float64 that is no less than a number, which is given times 2^128. */
export function roundUp(number) {
  const cut = BigInt(Math.max(0, length(number) - 53));
  return Number(-(-number >> cut)) * 2 ** Number(cut - PRECISION);
}

const minusLog = (digits, count, precision) => { // -ln(digits / 2^count), times 2^precision
  const bits = BigInt(length(digits)), one = 1n << bits;
  return 2n * (atanh(one - digits, one + digits, precision) + (count - bits) * atanh(1n, 3n, precision));
};

const expMinus = (times, rate, precision) => { // exp(-times rate), times 2^precision, for an exponent below 1
  const [top, bits] = fraction(rate), x = (times * top << precision) >> bits;
  let sum = 0n, sign = 1n;
  for (let term = 1n << precision, k = 1n; term > 0n; k += 1n) {
    sum += sign * term;
    sign = -sign;
    term = (term * x >> precision) / k;
  }
  return sum;
};

/** A real number uniform on [0, 1): its first 53 bits, and as many more as a decision needs. */
class RandomBits {
  constructor(words, uniform) {
    [this.words, this.digits, this.count] = [words, BigInt(uniform * 2 ** 53), 53n];
  }

  extend() {
    this.digits = (this.digits << 64n) | this.words.word();
    this.count += 64n;
  }

  /** Tell whether the number is below what `threshold` gives, times 2^precision. */
  below(threshold) {
    for (;;) {
      const precision = this.count + 128n, edge = threshold(precision), error = 1n << 64n;
      if ((this.digits + 1n) << 128n <= edge - error) return true;
      if (this.digits << 128n >= edge + error) return false;
      this.extend();
    }
  }

  /** Return floor(-ln U / rate). */
  geometric(rate) {
    const [top, bits] = fraction(rate);
    for (;;) {
      if (this.digits > 0n) {
        const precision = this.count + 192n, error = 1n << 64n;
        const [low, high] = [this.digits + 1n, this.digits].map(end => minusLog(end, this.count, precision));
        const floors = [low - error, high + error].map(log => (log << bits) / top >> precision);
        if (floors[0] === floors[1]) return Number(floors[0]);
      }
      this.extend();
    }
  }
}

const tanhHalf = rate => precision => { // tanh(rate / 2), times 2^precision
  const one = 1n << precision, a = expMinus(1n, rate, precision);
  return ((one - a) << precision) / (one + a);
};
const near = (uniform, edge) => uniform < edge + MARGIN && uniform > edge - MARGIN;

function geometric(words, rate, count) {
  if (rate < 2 ** -26) return splitGeometric(words, rate, count);
  const uniforms = words.uniforms(count), scale = -1 / rate, unsure = [];
  const found = uniforms.map((uniform, at) => {
    const log = Math.log(uniform) * scale, error = log * MARGIN;
    const [low, high] = [Math.floor(log - (ULP / rate / uniform + error)), Math.floor(log + error)];
    if (low !== high) unsure.push(at);
    return low;
  });
  for (const at of unsure) found[at] = new RandomBits(words, uniforms[at]).geometric(rate);
  return found;
}

function splitGeometric(words, rate, count) { // high and low bits apart, which are independent
  let bits = 0;
  while (2 ** (bits + 1) <= 2 ** -24 / rate) bits += 1;
  const found = geometric(words, rate * 2 ** bits, count).map(high => high * 2 ** bits);
  for (let pending = found.map((_, at) => at); pending.length;) {
    const low = pending.map(() => words.wide(2 ** bits));
    const uniforms = words.uniforms(pending.length);
    const kept = low.map((k, i) => {
      const chance = Math.exp(-(k * rate)), exact = precision => expMinus(BigInt(k), rate, precision);
      return near(uniforms[i], chance) ? new RandomBits(words, uniforms[i]).below(exact) : uniforms[i] < chance;
    });
    pending.forEach((at, i) => { if (kept[i]) found[at] += low[i]; });
    pending = pending.filter((_, i) => !kept[i]);
  }
  return found;
}

/** Draw integers k with probability proportional to exp(-rate |k|), for rates below 1. */
export function discreteLaplace(words, rate, count) {
  const sizes = geometric(words, rate, count), zero = Math.tanh(rate / 2), half = (1 + zero) / 2;
  const uniforms = words.uniforms(count);
  return uniforms.map((uniform, at) => {
    let sign = uniform < zero ? 0 : uniform < half ? 1 : -1;
    if (near(uniform, zero) || near(uniform, half)) {
      const bits = new RandomBits(words, uniform), exact = tanhHalf(rate);
      const middle = precision => ((1n << precision) + exact(precision)) >> 1n;
      sign = bits.below(exact) ? 0 : bits.below(middle) ? 1 : -1;
    }
    return sign * (sizes[at] + 1);
  });
}
