// The client in node, through a real collector: tests/collector/test_npm.py starts one and says where it is.

import assert from "node:assert/strict";
import test from "node:test";

import { BudgetExceeded, check, Client, learn, periodAt, row } from "../src/noisette.js";

const { NOISETTE_URL: url, NOISETTE_KEY: apiKey, NOISETTE_CODES: codes = "" } = process.env;
const skip = url ? false : "needs a collector: NOISETTE_URL and NOISETTE_KEY";
const values = { minutes: "35", by: "bike" }; // inputs of a form are texts

function memory() {
  const kept = new Map();
  return { getItem: name => kept.get(name) ?? null, setItem: (name, text) => kept.set(name, text) };
}

test("an answer is made once, debited once and sent once", { skip }, async () => {
  const storage = memory(), client = await Client.open(url, { apiKey, epsilon: 2, storage });
  assert.equal(await client.answer("commute", values), true);
  assert.equal(client.left, 0);
  assert.equal(await client.answer("commute", { minutes: 90, by: "car" }), false);
  assert.deepEqual(await client.send(), { sent: 1, refused: 0, waiting: 0 });
  const again = await Client.open(url, { apiKey, epsilon: 2, storage });
  assert.equal(again.report("commute").state, "sent");
  assert.equal(again.made("commute"), 1);
});

test("what is held does not leave", { skip }, async () => {
  const client = await Client.open(url, { apiKey, epsilon: 2, storage: memory() });
  await client.answer("commute", values, { hold: true });
  assert.deepEqual(await client.send(), { sent: 0, refused: 0, waiting: 0, held: 1 });
  assert.ok((await client.body("commute")).includes(client.report("commute").report));
  await client.release("commute");
  assert.deepEqual(await client.send(), { sent: 1, refused: 0, waiting: 0 });
});

test("a budget that is too small is not spent", { skip }, async () => {
  const client = await Client.open(url, { apiKey, epsilon: 1, storage: memory() });
  await assert.rejects(client.answer("commute", values), BudgetExceeded);
  await assert.rejects(client.answer("commute", { minutes: 500, by: "bike" }), /minutes=500/);
  assert.equal(client.left, 1);
});

test("a law of several choices is loaded where it is asked for, and a broken promise is refused", { skip }, async () => {
  const client = await Client.open(url, { apiKey, epsilon: 9, storage: memory() });
  const campaign = await client.campaign("devices");
  await learn(campaign);
  assert.ok(check(campaign, "devices").epsilon <= campaign.epsilon);
  assert.deepEqual(row(campaign, { devices: ["watch", "phone"] }), [[2, 0]]);
  assert.throws(() => check({ ...campaign, epsilon: campaign.epsilon / 2 }, "devices"), /Do not answer it/);
  assert.equal(await client.answer("devices", { devices: ["watch", "phone"] }), true);
  assert.deepEqual(await client.send(), { sent: 1, refused: 0, waiting: 0 });
});

test("what a signature draws is taken by the collector, and one code draws once", { skip }, async () => {
  const [code] = codes.split(" "), storage = memory();
  const client = await Client.open(url, { apiKey, epsilon: 2, storage, code });
  await client.campaign("drinks");
  assert.equal(await client.turn("drinks"), null);
  assert.equal((await client.enrol("drinks")).ok, true);
  assert.equal(await client.turn("drinks"), "once");
  assert.equal(await client.answer("drinks", { drink: "tea" }), true);
  assert.deepEqual(await client.send(), { sent: 1, refused: 0, waiting: 0 });
  assert.ok((await client.body("drinks")).includes("signature"));
  const other = await Client.open(url, { apiKey, epsilon: 2, storage: memory(), code });
  await assert.rejects(other.answer("drinks", { drink: "tea" }), /has not signed.*has had its token/);
  assert.equal(other.left, 2);
});

test("a tracked user answers in her period alone, and is silent at no cost in others", { skip }, async () => {
  const turns = [];
  for (const code of codes.split(" ")) { // 24 of one period: once in 10^7
    const client = await Client.open(url, { apiKey, epsilon: 2, storage: memory(), code });
    await assert.rejects(client.answer("daily", { drink: "" }), /Expected drink/); // in every period alike
    const turn = await client.turn("daily"), made = await client.answer("daily", { drink: "tea" });
    assert.notEqual(turn, null); // and the token was asked for before
    assert.equal(made, turn === periodAt("day"));
    assert.equal(client.left, made ? 0 : 2);
    assert.equal(await client.answer("daily", { drink: "mate" }), false);
    assert.deepEqual(await client.send(), { sent: Number(made), refused: 0, waiting: 0 });
    turns.push(turn);
  }
  assert.equal(new Set(turns).size, 2);
});

test("without a storage it says so", async () => {
  await assert.rejects(Client.open("https://collector.example", { epsilon: 1 }), /storage/);
});

test("periods are those of UTC", () => {
  assert.equal(periodAt("week", new Date("2027-01-01T12:00:00Z")), "2026-W53");
  assert.equal(periodAt("day", new Date("2026-11-17T23:59:59Z")), "2026-11-17");
});
