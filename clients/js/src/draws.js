// What is drawn for a user follows from the signature of her token, as noisette/survey/draws.py has it: the collector
// draws it again, so neither she nor it can choose. It is loaded where a campaign has such tokens.

import { fromText, joined, toHex } from "./bytes.js";

const PRIMES = [];
for (let number = 2; PRIMES.length < 64; number++) if (PRIMES.every(prime => number % prime)) PRIMES.push(number);
const digits = x => Math.floor((x - Math.floor(x)) * 2 ** 32); // the first 32 bits after the point
const [START, ROUNDS] = [PRIMES.slice(0, 8).map(prime => digits(Math.sqrt(prime))), PRIMES.map(prime => digits(Math.cbrt(prime)))];
const turned = (word, by) => (word >>> by) | (word << (32 - by));

/** SHA-256 of bytes (FIPS 180-4), at once: WebCrypto's has to be waited for, and a draw does not wait. */
export function sha256(bytes) {
  const length = (bytes.length + 72) & ~63, view = new DataView(joined(bytes, Uint8Array.of(0x80), new Uint8Array(length - bytes.length - 1)).buffer);
  view.setUint32(length - 4, 8 * bytes.length);
  const hash = Uint32Array.from(START), words = new Uint32Array(64);
  for (let at = 0; at < length; at += 64) {
    let [a, b, c, d, e, f, g, h] = hash;
    for (let i = 0; i < 64; i++) {
      const [early, late] = [words[(i + 49) & 63], words[(i + 62) & 63]]; // of 15 and of 2 rounds ago
      words[i] = i < 16 ? view.getUint32(at + 4 * i)
        : words[i - 16] + (turned(early, 7) ^ turned(early, 18) ^ (early >>> 3)) + words[i - 7] + (turned(late, 17) ^ turned(late, 19) ^ (late >>> 10));
      const first = h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & f) ^ (~e & g)) + ROUNDS[i] + words[i];
      const second = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((word, i) => { hash[i] += word; });
  }
  const found = new DataView(new ArrayBuffer(32));
  hash.forEach((word, i) => found.setUint32(4 * i, word));
  return new Uint8Array(found.buffer);
}

/** Draws in public: from hashes of a signature, a purpose and a counter. */
export class PublicDraws {
  #start;
  #count = 0;

  constructor(signature, purpose) {
    this.#start = joined(fromText(`noisette draw\n${purpose}\n`), signature);
  }

  #number() {
    const counter = new DataView(new ArrayBuffer(8));
    counter.setBigUint64(0, BigInt(++this.#count));
    return BigInt(`0x${toHex(sha256(joined(this.#start, new Uint8Array(counter.buffer))))}`);
  }

  /** Integer below `high`: of 256 bits a remainder is uniform but for 2^-190. */
  below(high) {
    return this.#number() % high;
  }

  /** Multiples of 2^-53 below 1. */
  uniforms(count) {
    return Array.from({ length: count }, () => Number(this.#number() >> 203n) * 2 ** -53);
  }
}

/** A day of the period that comes so many after one of this name. */
export function later(kind, name, count) {
  if (kind === "month") return new Date(Date.UTC(Number(name.slice(0, 4)), Number(name.slice(5)) - 1 + count));
  if (kind === "day") return new Date(Date.parse(name) + 864e5 * count);
  const fourth = new Date(`${name.slice(0, 4)}-01-04T00:00:00Z`); // which is in the year's first week
  return new Date(fourth.getTime() + 864e5 * (7 * (Number(name.slice(6)) - 1 + count) - (fourth.getUTCDay() + 6) % 7));
}

/** What a signature draws: the only period in which a tracked user reports, null for others, and all that is public. */
export const drawn = ({ answers, period, begins, periods }, signature) => ({
  own: answers === "tracked" ? later(period, begins, Number(new PublicDraws(signature, "period").below(BigInt(periods)))) : null,
  open: purpose => new PublicDraws(signature, purpose),
});
