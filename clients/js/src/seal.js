// Reports sealed for the collector, which a shuffler takes without reading them: HPKE in base mode (RFC 9180) with
// X25519, HKDF-SHA256 and AES-256-GCM, in the frames and signed posts of noisette/shuffler. All of it is WebCrypto's.

import { fromBase64, fromHex, fromText, hmac, joined, randomHex, sha256, toHex } from "./bytes.js";

const VERSION = 2; // of frames, and of what a seal is bound to
const KEM = Uint8Array.of(0x00, 0x20), SUITE = Uint8Array.of(...KEM, 0x00, 0x01, 0x00, 0x02);
const PATH = "/posts";
const NAMES = 2560, NUMBER = 32; // bytes of a report for its names, and for each number

const text = (...parts) => joined(...parts.map(part => (typeof part === "string" ? fromText(part) : part)));
const whole = (...numbers) => new Uint8Array(numbers.flatMap(one => [one >>> 24, one >>> 16, one >>> 8, one]));

const extract = (suite, salt, label, key) => hmac(salt, text("HPKE-v1", suite, label, key));

async function expand(suite, secret, label, info, length) { // at most the 32 bytes of one hash
  const told = text(whole(length).slice(2), "HPKE-v1", suite, label, info, Uint8Array.of(1));
  return (await hmac(secret, told)).slice(0, length);
}

/** Seal a payload for a public key, under a label without which it does not open. */
export async function seal(payload, label, publicKey, pair = null) {
  const own = pair ?? await crypto.subtle.generateKey("X25519", false, ["deriveBits"]);
  const theirs = await crypto.subtle.importKey("raw", publicKey, "X25519", false, []);
  const sent = new Uint8Array(await crypto.subtle.exportKey("raw", own.publicKey));
  const agreed = await crypto.subtle.deriveBits({ name: "X25519", public: theirs }, own.privateKey, 256);
  const none = new Uint8Array(32), kem = text("KEM", KEM), suite = text("HPKE", SUITE);
  const first = await extract(kem, none, "eae_prk", new Uint8Array(agreed));
  const shared = await expand(kem, first, "shared_secret", joined(sent, publicKey), 32);
  const hashes = await Promise.all([extract(suite, none, "psk_id_hash", ""), extract(suite, none, "info_hash", label)]);
  const context = joined(Uint8Array.of(0), ...hashes), secret = await extract(suite, shared, "secret", "");
  const raw = await expand(suite, secret, "key", context, 32);
  const iv = await expand(suite, secret, "base_nonce", context, 12);
  const key = await crypto.subtle.importKey("raw", raw, "AES-GCM", false, ["encrypt"]);
  return joined(sent, new Uint8Array(await crypto.subtle.encrypt({ name: "AES-GCM", iv }, key, payload)));
}

/** What a report is bound to: its campaign and period, which are a round of one block. */
export function label(campaign, period) {
  const name = fromText(`${campaign}/${period}`);
  return text("noisette-shuffler", Uint8Array.of(VERSION, name.length), whole(0, 1, 0), name);
}

/** Return a report as bytes of the one length that all reports of its campaign have, by how many numbers they hold. */
export function pad(report, body) {
  const numbers = [JSON.parse(report)].flat(Infinity).length, size = NAMES + NUMBER * numbers, bytes = fromText(body);
  if (bytes.length > size) throw new Error(`Expected a report of at most ${size} bytes, got ${bytes.length}.`);
  return joined(bytes, new Uint8Array(size - bytes.length).fill(0x20));
}

/** Return the frame of one sealed packet. */
export function frame(campaign, period, sealed) {
  const name = fromText(`${campaign}/${period}`);
  return text("NZSH", Uint8Array.of(VERSION, name.length), whole(0, 1, sealed.length, 1), name, whole(0), sealed);
}

/** Return the headers of a signed post that is to be mixed with those of at least `minimum` users. */
export async function sign(secret, client, post, body, minimum = 0) {
  const raw = fromHex(secret), use = name => hmac(raw, fromText(`noisette-shuffler ${name}`));
  const [key, mark] = await Promise.all([use("signing"), use("mark")]);
  const told = ["noisette-shuffler-2", PATH, client, post, minimum, toHex(await sha256(body))].join("\n");
  const signature = toHex(await hmac(key, fromText(told)));
  const named = { "Noisette-Client": client, "Noisette-Post": post, "Noisette-Mark": toHex(mark) };
  return { ...named, "Noisette-Minimum": String(minimum), "Noisette-Signature": signature };
}

/**
 * The way through a shuffler: its URL, the user's name and secret there, and the collector's public key. Have the key
 * from elsewhere than the collector: one that showed each user another key could tell them apart.
 */
export class Shuffler {
  #url;
  #client;
  #secret;
  #key;

  constructor({ url, client, secret, publicKey }) {
    if (!/^[A-Za-z0-9._-]{1,64}$/.test(client)) throw new Error(`Expected client='${client}' to be a name.`);
    if (!/^[0-9a-f]{64}$/.test(secret)) throw new Error("Expected the shuffler's secret to be 64 hexadecimal digits.");
    if (!/^[A-Za-z0-9+/]{43}=$/.test(publicKey)) throw new Error("Expected the collector's public key of 44 letters.");
    [this.#url, this.#client, this.#secret] = [url.replace(/\/$/, "") + PATH, client, secret];
    this.#key = fromBase64(publicKey);
  }

  /** Return a shuffler's way, or say that this browser cannot go it. */
  static async open(options) {
    const made = new Shuffler(options);
    try {
      await seal(new Uint8Array(1), new Uint8Array(1), made.#key);
    } catch (error) {
      throw new Error(`This browser cannot seal for this key (${error.name}). Use one that knows X25519.`);
    }
    return made;
  }

  /** Seal a report and return how to post it; the same post may be tried again. */
  async post(campaign, period, report, body, minimum = 0) {
    const sealed = await seal(pad(report, body), label(campaign, period), this.#key);
    const content = frame(campaign, period, sealed);
    const signed = await sign(this.#secret, this.#client, randomHex(16), content, minimum);
    const headers = { ...signed, "Content-Type": "application/vnd.noisette.packets" };
    return { url: this.#url, method: "POST", headers, body: content };
  }
}
