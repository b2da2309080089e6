// Tokens that the collector signs without seeing them: RSABSSA-SHA384-PSSZERO-Deterministic of RFC 9474, as
// noisette/device/blind.py does it. Hashes and random bytes are WebCrypto's, the large numbers are BigInts.

import { fromHex, joined, toHex } from "./bytes.js";

const BITS = 2048, SIZE = BITS / 8;
const EXPONENT = 65537n;
const DIGEST = 48; // bytes of SHA-384

const digest = async (...parts) => new Uint8Array(await crypto.subtle.digest("SHA-384", joined(...parts)));

const toNumber = bytes => BigInt(`0x${toHex(bytes)}`);
const toBytes = number => fromHex(number.toString(16).padStart(2 * SIZE, "0"));

function power(base, exponent, modulus) {
  let result = 1n;
  for (let left = exponent, square = base; left > 0n; left >>= 1n, square = (square * square) % modulus) {
    if (left & 1n) result = (result * square) % modulus;
  }
  return result;
}

/** The inverse of a number below the modulus, null where it has none. */
function inverted(number, modulus) {
  let [a, b, x, y] = [modulus, number, 0n, 1n];
  while (b > 0n) {
    const times = a / b;
    [a, b, x, y] = [b, a - times * b, y, x - times * y];
  }
  return a === 1n ? (x + modulus) % modulus : null;
}

/** Encode a message by EMSA-PSS with an empty salt (RFC 8017, section 9.1.1), for a modulus of 2048 bits. */
export async function encode(message) {
  const hash = await digest(new Uint8Array(8), await digest(message));
  const block = new Uint8Array(SIZE - DIGEST - 1);
  block[block.length - 1] = 1;
  for (let at = 0, counter = 0; at < block.length; at += DIGEST, counter++) {
    const mask = await digest(hash, Uint8Array.of(0, 0, 0, counter));
    for (let place = at; place < Math.min(at + DIGEST, block.length); place++) block[place] ^= mask[place - at];
  }
  block[0] &= 0x7f; // the encoding has one bit less than the modulus
  return joined(block, hash, Uint8Array.of(0xbc));
}

/** Read a collector's modulus, or refuse it. */
export function readModulus(text) {
  const modulus = /^[0-9a-f]+$/.test(text) ? BigInt(`0x${text}`) : 0n;
  if (modulus.toString(2).length !== BITS || !(modulus & 1n)) {
    throw new Error(`Expected an odd modulus of ${BITS} bits. Do not answer: the collector may mark users.`);
  }
  return modulus;
}

/** A number that blinds, uniform among those that can be taken off again. */
function blinding(modulus) {
  for (;;) {
    const factor = toNumber(crypto.getRandomValues(new Uint8Array(SIZE)));
    if (factor > 1n && factor < modulus && inverted(factor, modulus) !== null) return factor;
  }
}

/** Return a token as the collector may see it, and what takes the blinding off again; both are bytes. */
export async function blind(token, modulus, factor = blinding(modulus)) {
  const message = toNumber(await encode(token));
  const blinded = (message * power(factor, EXPONENT, modulus)) % modulus;
  return { blinded: toBytes(blinded), inverse: toBytes(inverted(factor, modulus)) };
}

/** Take the blinding off a signature, or refuse one that is not of this token. */
export async function finish(token, signed, inverse, modulus) {
  const signature = (toNumber(signed) * toNumber(inverse)) % modulus;
  if (power(signature, EXPONENT, modulus) !== toNumber(await encode(token))) {
    throw new Error("Expected a signature of the blinded token. Do not answer: the collector may mark users.");
  }
  return toBytes(signature);
}
