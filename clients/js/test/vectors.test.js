// The same words make the same bits in Python and here: tests/collector/vectors.py wrote what Python makes of them.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import test from "node:test";

import more from "../src/laws-more.js";
import { extend, readLaw } from "../src/laws.js";
import { Words } from "../src/random.js";

extend(more);
const stored = JSON.parse(readFileSync(new URL("vectors.json", import.meta.url), "utf8"));
const MASK = (1n << 64n) - 1n;

/** Words of splitmix64, and how many were used. */
function mixed(seed) {
  const words = { used: 0 };
  let state = seed;
  words.next = () => {
    words.used += 1;
    state = (state + 0x9e3779b97f4a7c15n) & MASK;
    let word = ((state ^ (state >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
    word = ((word ^ (word >> 27n)) * 0x94d049bb133111ebn) & MASK;
    return word ^ (word >> 31n);
  };
  return words;
}

/** A report as a text that only the same bits give. */
function bits(report) {
  if (Array.isArray(report)) return `[${report.map(bits).join(",")}]`;
  if (typeof report === "bigint" && report > 2n ** 53n) return String(report);
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, Number(report) + 0);
  return view.getBigUint64(0).toString(16).padStart(16, "0");
}

function digest({ table, attributes, rows, draws }, place, block, shift = 0) {
  const law = readLaw(table, attributes), lines = [];
  for (let draw = 0; draw < draws; draw += 1) {
    const words = mixed((BigInt(place) << 32n) + (BigInt(block) << 16n) + BigInt(draw + shift));
    lines.push(`${bits(law.draw(rows[draw % rows.length], new Words(words.next)))} ${words.used}\n`);
  }
  return createHash("sha256").update(lines.join("")).digest("hex").slice(0, 32);
}

test("10,000 vectors have the bits of Python", () => {
  let count = 0;
  stored.forEach((law, place) => law.digests.forEach((wanted, block) => {
    assert.equal(digest(law, place, block), wanted, `${law.mechanism}, number ${place}, block ${block}`);
    count += law.draws;
  }));
  assert.ok(count >= 10_000, `${count} vectors`);
});

test("other words give other digests, for every mechanism", () => {
  const moved = stored.filter((law, place) => digest(law, place, 0, 1000) !== law.digests[0]).map(law => law.mechanism);
  assert.deepEqual(new Set(moved), new Set(stored.map(law => law.mechanism)));
});
