// Bytes, and the texts that stand for them.

export const toHex = bytes => Array.from(bytes, byte => byte.toString(16).padStart(2, "0")).join("");
export const fromHex = text => Uint8Array.from(text.match(/../g) ?? [], pair => parseInt(pair, 16));
export const toBase64 = bytes => btoa(String.fromCharCode(...bytes));
export const fromBase64 = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
export const fromText = text => new TextEncoder().encode(text);
export const randomHex = count => toHex(crypto.getRandomValues(new Uint8Array(count)));

/** Return parts one after the other. */
export function joined(...parts) {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

export const sha256 = async bytes => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
export const hashed = async (...values) => toHex(await sha256(fromText(JSON.stringify(...values)))); // as JSON

/** HMAC-SHA256 of bytes under a key that has at least one. */
export async function hmac(key, bytes) {
  const own = await crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", own, bytes));
}
