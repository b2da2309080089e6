// What a signature draws here is what it draws in Python: tests/collector/vectors.py wrote what Python makes of it.

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import test from "node:test";

import { fromHex } from "../src/bytes.js";
import { drawn, later, sha256 } from "../src/draws.js";
import { encode, extend } from "../src/laws.js";
import more from "../src/laws-more.js";
import { check, periodAt, row } from "../src/noisette.js";
import { Words } from "../src/random.js";

extend(more);
const stored = JSON.parse(readFileSync(new URL("drawn.json", import.meta.url), "utf8"));
const same = (one, other) => { // the same numbers: JSON has 1 and 1.0 for one of them
  const plain = text => JSON.stringify(JSON.parse(text.replace(/(?<![.\d])\d{17,}(?![.\d])/g, '"$&"')));
  return plain(one) === plain(other);
};

function answered({ campaign, values }, { signature, words }) {
  const law = check(campaign, "q"), { open } = drawn(campaign, fromHex(signature));
  let used = 0;
  const word = at => (at < words.length ? BigInt(`0x${words[at]}`) : BigInt.asUintN(64, BigInt(at) * 0x9e3779b97f4a7c15n));
  const report = encode(law.draw(row(campaign, values), new Words(() => word(used++)), open));
  return { report, used };
}

test("a signature and words make the report of Python", () => {
  for (const one of stored) {
    for (const draw of one.draws) {
      const { report, used } = answered(one, draw);
      assert.ok(same(report, draw.report), `${one.campaign.table.kind}: ${report} for ${draw.report}`);
      assert.equal(used, draw.words.length);
    }
  }
});

test("another signature makes other reports, wherever something is drawn", () => {
  for (const one of stored.filter(({ campaign }) => campaign.answers !== "tracked")) {
    const moved = one.draws.filter((draw, at) =>
      !same(answered(one, { ...draw, signature: one.draws[(at + 1) % one.draws.length].signature }).report, draw.report));
    assert.ok(moved.length > 0, one.campaign.table.kind);
  }
});

test("a signature draws the period of Python", () => {
  const told = stored.filter(({ campaign }) => campaign.answers === "tracked");
  assert.equal(told.length, 3);
  for (const { campaign, draws } of told) {
    for (const { signature, period } of draws) assert.equal(periodAt(campaign.period, drawn(campaign, fromHex(signature)).own), period);
    assert.ok(new Set(draws.map(one => one.period)).size > 6);
  }
  assert.equal(drawn(stored[0].campaign, fromHex(stored[0].draws[0].signature)).own, null);
});

test("periods follow each other over the ends of years", () => {
  for (const [kind, first, days] of [["day", "2023-12-25", 1], ["week", "2020-W52", 7]]) {
    const begin = later(kind, first, 0);
    assert.equal(periodAt(kind, begin), first);
    for (let count = 0; count < 800; count++) assert.equal(later(kind, first, count) - begin, 864e5 * days * count);
  }
  assert.equal(periodAt("month", later("month", "2024-11", 14)), "2026-01");
});

test("hashes are those of WebCrypto", () => {
  for (let length = 0; length < 300; length++) {
    const bytes = new Uint8Array(randomBytes(length));
    assert.equal(Buffer.from(sha256(bytes)).toString("hex"), createHash("sha256").update(bytes).digest("hex"));
  }
});

test("terms under which nobody could check what is drawn are refused", () => {
  const { campaign } = stored.at(-1);
  for (const change of [{ tokens: "blind" }, { tokens: "open" }, { period: "once" }, { periods: 1 }, { periods: 2.5 }, { periods: 1e5 },
    { begins: null }, { answers: "permanent" }]) {
    assert.throws(() => check({ ...campaign, ...change }, "q"), /Do not answer it/, JSON.stringify(change));
  }
  assert.ok(check(campaign, "q").epsilon <= 2);
});
