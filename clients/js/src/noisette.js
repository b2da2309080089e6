// A device in a web page: it answers campaigns privately, keeps its own budget and its own queue, and needs nothing
// but the browser. Its reports are those of Python's Client.
//
//   import { Client } from "noisette";
//   const client = await Client.open("https://collector.example", { apiKey: "...", epsilon: 2 });
//   await client.answer("commute", { minutes: 35, by: "bike" });
//   await client.send();

import { fromBase64, fromHex, fromText, hashed, hmac, randomHex, toBase64, toHex } from "./bytes.js";
import { encode, extend, known, symbols } from "./laws.js";
import { lawHash } from "./spent.js";
import { axis, readSurvey } from "./survey.js";

const VERSION = 1;
const UNITS = 1e12; // a budget is counted in whole 1e-12 of epsilon
const LATER = new Set([408, 429]);
// what an operator or time can mend: a key that is being changed, a campaign that is away, a clock that is ahead
const MENDABLE = new Set([401, 403, 404, 425]), MENDABLE_REASONS = new Set(["wrong-period", "post-reused", "copied"]);
const FIRST_PAUSE = 200, LONGEST_PAUSE = 30000; // milliseconds

const CHOICES = {
  period: ["once", "day", "week", "month"],
  answers: ["permanent", "fresh", "tracked"],
  tokens: ["open", "blind", "drawn"],
};
// what a collector never changes under one id: who was asked otherwise before is told, and answers nothing
const TERMS = ["attributes", "joint", "epsilon", "public_group", "form", "begins", "periods", ...Object.keys(CHOICES)];

const texts = list => Array.isArray(list) && list.every(one => typeof one === "string");
const terms = campaign => JSON.stringify(TERMS.map(name => campaign[name] ?? null));
/** Where the token is kept by which a campaign is answered in a period: a tracked user has one for all. */
const signing = ({ answers, begins }, period) => (answers === "tracked" ? begins : period);

/**
 * Return the law by which a campaign is answered. Refuse a campaign that this device cannot answer, whose table is no
 * law for its attributes, or whose law spends more than the campaign says.
 */
export function check(campaign, id, sealed = false) {
  if (campaign?.version !== VERSION) throw new Error(`Expected a campaign of version ${VERSION}. Reload the page.`);
  if (campaign.id !== id) throw new Error(`Expected campaign '${id}', the collector sent '${campaign.id}'.`);
  if (campaign.table === null || !known(campaign.table)) {
    throw new Error(`A web page cannot answer with mechanism '${campaign.spec?.mechanism}'. ` +
      "Choose another for this campaign, e.g. hybrid or grr, or answer from Python.");
  }
  for (const [name, allowed] of Object.entries(CHOICES)) {
    if (!allowed.includes(campaign[name])) {
      throw new Error(`A web page knows no ${name} '${campaign[name]}', which campaign '${id}' has. Reload the page.`);
    }
  }
  const { answers, tokens, period, begins, periods } = campaign, drawn = tokens === "drawn";
  if (answers === "tracked" ? !(drawn && period !== "once" && typeof begins === "string" && periods > 1 && periods <= 1e4 && periods % 1 === 0)
    : drawn && answers !== "fresh" && period !== "once") {
    throw new Error(`Campaign '${id}' draws what nobody could check. Do not answer it.`);
  }
  const group = campaign.public_group ?? null;
  if (group !== null && !texts(group.values)) throw new Error("Expected the values of the public group to be texts.");
  if (Boolean(campaign.sealed) !== sealed) {
    throw new Error(campaign.sealed
      ? `Campaign '${id}' takes reports from its shuffler alone: open the client with { shuffler: { ... } }.`
      : `Campaign '${id}' has no shuffler in front of it: open the client without one.`);
  }
  const law = lawOf(campaign);
  if (!(Number.isFinite(campaign.epsilon) && law.epsilon <= campaign.epsilon)) {
    throw new Error(`Campaign '${id}' promises epsilon=${campaign.epsilon}, but its mechanism spends ${law.epsilon}. ` +
      "Do not answer it.");
  }
  return law;
}

/** Load the laws that most campaigns do without, where this one has one. */
export const learn = async campaign => { if (!known(campaign?.table)) extend((await import("./laws-more.js")).default); };

function lawOf(campaign) {
  const { id } = campaign;
  try {
    return readSurvey(campaign);
  } catch (error) {
    throw new Error(`Campaign '${id}' has a table that is no law: ${error.message} Do not answer it.`);
  }
}

// inputs of a form are texts: "30" is 30
const numeral = value => typeof value === "string" && /^\s*[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?\s*$/i.test(value);

const written = (longest, alphabet) => {
  const letters = alphabet ? [...alphabet] : null, least = letters ? Math.min(...letters.map(one => fromText(one).length)) : 1;
  return { longest, letters, places: Math.floor(longest / least) };
};

/** Return values as the laws take them: numbers, codes of categories, and null where an optional answer is left out. */
export function row(campaign, values) {
  const names = campaign.attributes.map(one => one.name), given = Object.keys(values);
  const lacking = campaign.attributes.some(({ name, optional }) => !optional && !Object.hasOwn(values, name));
  if (lacking || !given.every(name => names.includes(name))) {
    throw new Error(`Expected a value for each of ${names.join(", ")}, got ${given.join(", ") || "none"}.`);
  }
  return campaign.attributes.map(question => {
    const { name, range, levels, categories, options, most, text, alphabet, optional, whole = false } = question;
    const answer = values[name] ?? null;
    if (answer === null && optional) return null;
    if (options) {
      const chosen = typeof answer === "string" ? answer.split(";").map(one => one.trim()).filter(Boolean) : answer;
      const codes = Array.isArray(chosen) ? chosen.map(one => options.indexOf(one)) : [-1];
      if (codes.includes(-1) || codes.length > most || new Set(codes).size !== codes.length) {
        throw new Error(`Expected ${name}=${answer} to be at most ${most} of ${options.join(", ")}.`);
      }
      return codes;
    }
    if (text) {
      const given = String(answer ?? "").trim();
      if (symbols(written(text, alphabet), given) === null) {
        throw new Error(`Expected ${name} to be a text of 1 to ${text} bytes${alphabet ? ` of '${alphabet}'` : ""}.`);
      }
      return given;
    }
    if (categories) {
      const code = categories.indexOf(answer);
      if (code < 0) throw new Error(`Expected ${name}='${answer}' to be one of ${categories.join(", ")}.`);
      return code;
    }
    const { kind, of } = axis(question), [low, high] = (range ?? [levels[0][0], levels.at(-1)[1]]).map(of);
    const number = kind !== "number" ? of(answer) : numeral(answer) ? Number(answer) : answer;
    if (typeof number !== "number" || !(number >= low && number <= high)) {
      throw new Error(`Expected ${name}=${answer} to be a number in [${low}, ${high}].`);
    }
    if ((whole || kind === "date") && !Number.isInteger(number)) {
      throw new Error(`Expected ${name}=${answer} to be a whole number.`);
    }
    return number;
  });
}

/** Return the name of the period that a moment falls into, in UTC. */
export function periodAt(kind, moment = new Date()) {
  if (kind === "once") return "once";
  const day = moment.toISOString().slice(0, 10);
  if (kind === "day") return day;
  if (kind === "month") return day.slice(0, 7);
  const date = new Date(`${day}T00:00:00Z`); // a week belongs to the year of its Thursday
  date.setUTCDate(date.getUTCDate() + 3 - ((date.getUTCDay() + 6) % 7));
  const week = 1 + Math.floor((date - Date.UTC(date.getUTCFullYear(), 0, 1)) / 6048e5);
  return `${date.getUTCFullYear()}-W${String(week).padStart(2, "0")}`;
}

// ---- the device -----------------------------------------------------------------------------------------------------

const sleep = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));

/** The budget does not allow another answer. */
export class BudgetExceeded extends Error {}

/**
 * One user's device. Its budget, secret, answers and queue are one entry of the page's localStorage, written at once,
 * so that no report exists without its debit. In one period a campaign gets one report, whatever is answered later;
 * permanent answers are made once and sent again in every
 * period, and a tracked user reports in the one period that the signature of her token draws. Whoever clears the storage makes a new device. `code`
 * is the user's enrolment code, for campaigns whose tokens are signed: one for each code and period, unseen. `shuffler`
 * is the way to a collector behind one: { url, client, secret, publicKey }. Without an `apiKey` it is a campaign's own
 * page, which asks under `path`. Where there is no localStorage, `storage` is something with its getItem and setItem.
 */
export class Client {
  #url;
  #key;
  #place;
  #code;
  #attempts;
  #timeout;
  #shuffler;
  #path;
  #storage;

  static async open(url, options) {
    const { apiKey = "", epsilon, code = "", name = "device", shuffler = null } = options;
    const { attempts = 4, timeout = 10000, path = "campaigns", storage = globalThis.localStorage } = options;
    if (!globalThis.crypto?.subtle) throw new Error("This page has no WebCrypto. Serve it over https, or from this machine.");
    if (!storage) throw new Error("There is no localStorage here: open the client with { storage: ... }.");
    const client = new Client();
    client.#storage = storage;
    [client.#url, client.#key, client.#place] = [url.replace(/\/$/, ""), apiKey, `noisette:${name}`];
    [client.#code, client.#attempts, client.#timeout, client.#path] = [code, attempts, timeout, path];
    client.#shuffler = shuffler && await (await import("./seal.js")).Shuffler.open(shuffler);
    const limit = Math.floor(epsilon * UNITS); // sums of whole numbers up to 2^53 are exact
    if (!(limit > 0 && limit < 2 ** 53)) throw new Error(`Expected epsilon=${epsilon} > 0, and below 9007.`);
    await client.#change(state => {
      if (state.limit !== undefined && state.limit !== limit) {
        throw new Error(`This device has a budget of epsilon=${state.limit / UNITS}, not ${epsilon}. Open it with its own.`);
      }
      state.limit = limit;
    });
    return client;
  }

  /** What is left of the budget. */
  get left() {
    const state = this.#read();
    return (state.limit - state.spent) / UNITS;
  }

  /** Fetch a campaign; while the collector does not answer, return it as it was last seen. */
  async campaign(id) {
    return (await this.#look(id)).campaign;
  }

  /** Fetch a campaign and read its law. */
  async #look(id) {
    let answer = null;
    try {
      answer = await this.#ask(this.#request(id, "table"));
    } catch (error) {
      if (!(error instanceof TypeError || error.name === "TimeoutError")) throw error;
    }
    if (answer === null || answer.status >= 500) {
      const seen = this.#read().campaigns[id];
      if (seen === undefined) throw new Error(`The collector does not answer, and campaign '${id}' was never seen. Try again later.`);
      return { campaign: seen, law: await this.#check(seen, id) };
    }
    if (!answer.ok) throw new Error(`The collector does not show campaign '${id}': ${(await refusal(answer)).why}`);
    const campaign = await answer.json(), law = await this.#check(campaign, id);
    await this.#change(state => {
      // a value outside the range is not reported: a collector that could try one range after the other would learn
      // from the silence where the value is not
      if (Object.hasOwn(state.campaigns, id) && terms(state.campaigns[id]) !== terms(campaign)) {
        throw new Error(`Campaign '${id}' asks something else than before. Do not answer it: a collector that has to ` +
          "change a question gives it another id.");
      }
      state.campaigns[id] = campaign;
    });
    return { campaign, law };
  }

  async #check(campaign, id) {
    await learn(campaign);
    const law = check(campaign, id, this.#shuffler !== null), hash = campaign.guarantee?.law_sha256; // older collectors state none
    if (hash && hash !== await lawHash(law.law)) throw new Error(`Campaign '${id}' has another law. Reload the page.`);
    return { ...law, hash };
  }

  /**
   * Answer for the current period and queue the report; tell whether a new one was made. A group is sent openly. With
   * `hold` the report waits until `release`: nothing leaves before.
   */
  async answer(id, values, { group = null, hold = false } = {}) {
    const { campaign, law } = await this.#look(id), period = periodAt(campaign.period), drawn = campaign.tokens === "drawn";
    if (campaign.tokens !== "open" && !this.#code && !hold) {
      throw new Error(`Campaign '${id}' admits users by enrolment code: open the client with { code: "..." }.`);
    }
    const groups = campaign.public_group?.values ?? [null]; // sent in the clear, where the campaign asks for it
    if (!groups.includes(group)) throw new Error(`Expected group='${group}' to be ${groups.join(", ") || "left out"}.`);
    const asked = await hashed([id, campaign.table]);
    const question = campaign.answers === "fresh" ? `${asked}/${period}` : asked;
    const admitted = drawn ? await this.#admit(id, period) : null; // before the answer is looked at, whatever it is
    if (drawn && !admitted?.ok) {
      throw new Error("The collector has not signed the token that draws for this user: " +
        `${admitted?.why ?? "it does not answer."} Try again later.`);
    }
    const inputs = row(campaign, values), found = drawn ? await this.#drawn(id, period) : null;
    if (found?.own && periodAt(campaign.period, found.own) !== period) return false; // silence costs nothing
    return this.#change(state => {
      if (state.queue.some(one => one.campaign === id && one.period === period)) return false;
      const fresh = !(question in state.answers);
      if (fresh) {
        const cost = Math.ceil(campaign.epsilon * UNITS);
        if (state.spent + cost > state.limit) {
          throw new BudgetExceeded(`This device has epsilon=${(state.limit - state.spent) / UNITS} left, campaign ` +
            `'${id}' costs ${campaign.epsilon}. Nothing was made or sent.`);
        }
        state.spent += cost;
        state.answers[question] = encode(law.draw(inputs, undefined, found?.open));
        state.laws[question] = law.hash;
      }
      state.queue.push({ campaign: id, period, question, group, key: randomHex(16),
        state: hold ? "held" : "waiting", asked: hold, reason: "" });
      return fresh;
    });
  }

  /** Have the token signed that this period's report needs; tell whether it is, and if not why, or null when nobody answers. */
  async enrol(id) {
    return this.#admit(id, periodAt((await this.#look(id)).campaign.period));
  }

  /** The period in which this user reports: another one than now where one is drawn for her; null before a token is signed that draws it. */
  async turn(id) {
    const { period } = this.#read().campaigns[id], found = await this.#drawn(id, periodAt(period));
    return found && periodAt(period, found.own ?? undefined);
  }

  async #drawn(id, period) {
    const { campaigns, tokens } = this.#read(), { signature } = tokens[`${id}\n${signing(campaigns[id], period)}`] ?? {};
    return signature ? (await import("./draws.js")).drawn(campaigns[id], fromBase64(signature)) : null;
  }

  #now(id) {
    return periodAt(this.#read().campaigns[id]?.period ?? "once");
  }

  /** Let the report of this period, or of another one, leave, which was held; `send` sends it. */
  release(id, period = this.#now(id)) {
    return this.#change(state => {
      for (const one of state.queue) {
        if (one.campaign === id && one.period === period && one.state === "held") one.state = "waiting";
      }
    });
  }

  /** The report of a period: held, waiting, sent or refused and why, with its text; null where there is none. */
  report(id, period = this.#now(id)) {
    const state = this.#read();
    const own = state.queue.find(one => one.campaign === id && one.period === period);
    return own ? { ...own, report: state.answers[own.question] } : null;
  }

  /** How many reports were made for a campaign, each at the cost of its epsilon. */
  made(id) {
    const state = this.#read();
    return new Set(state.queue.flatMap(one => (one.campaign === id ? [one.question] : []))).size;
  }

  /** The body in which a report leaves; a token that is yet to be signed is left out. */
  async body(id, period) {
    const own = this.report(id, period), { campaigns, tokens } = this.#read(), signed = tokens[`${id}\n${signing(campaigns[id], own.period)}`];
    if (campaigns[id].tokens === "open") return this.#body(own, (await this.#named(id, own.period)).by);
    return this.#body(own, signed?.signature ? { token: signed.token, signature: signed.signature } : {});
  }

  #body({ period, key, question, group }, by) {
    const law = this.#read().laws[question];
    const head = JSON.stringify({ version: VERSION, key, period, law, ...by, ...(group !== null && { group }) });
    return `${head.slice(0, -1)},"report":${this.#read().answers[question]}}`;
  }

  /** Send what waits, trying again with growing pauses; return how many were sent, refused, and still wait. */
  async send() {
    for (const one of this.#read().queue.filter(entry => entry.state === "waiting")) {
      const answer = await this.#post(one);
      if (answer === null) break;
      await this.#change(state => {
        const own = state.queue.find(entry => entry.key === one.key);
        const typo = own.asked && answer.code === "unknown-code"; // a person may type her code again
        const told = answer.ok ? "sent" : typo ? "held" : answer.mendable ? "waiting" : "refused";
        Object.assign(own, { state: told, reason: answer.why, code: answer.code });
      });
    }
    const counts = { sent: 0, refused: 0, waiting: 0, held: 0 };
    for (const { state } of this.#read().queue) counts[state] += 1;
    const { held, ...told } = counts;
    return held ? counts : told;
  }

  /** Campaign, period and reason of the reports that the collector refused. */
  get refusals() {
    return this.#read().queue.flatMap(one => (one.state === "refused" ? [[one.campaign, one.period, one.reason]] : []));
  }

  /** Send one report; tell whether it was taken, and if not why, or null when nobody answers. */
  async #post(one) {
    const { campaign, period } = one;
    const signed = this.#read().campaigns[campaign].tokens !== "open";
    const admitted = await (signed ? this.#admit(campaign, period) : this.#named(campaign, period));
    if (!admitted?.ok) return admitted;
    const body = this.#body(one, admitted.by), report = this.#read().answers[one.question];
    if (this.#shuffler === null) return this.#insist(this.#request(campaign, "reports", body));
    const told = await this.#insist(await this.#shuffler.post(campaign, period, report, body, this.#company(campaign)));
    // one that has come before is there from an attempt whose answer was lost
    return told?.code === "already-sent" ? { ok: true, why: "" } : told;
  }

  /** Among how many users a campaign states that reports are mixed. */
  #company(campaign) {
    return this.#read().campaigns[campaign].minimum ?? 0;
  }

  /** The open token of a period, which follows from the device's secret. */
  async #named(campaign, period) {
    const token = await hmac(fromHex(this.#read().secret), fromText(`${campaign}\n${period}`));
    return { ok: true, by: { token: toHex(token) } };
  }

  /** The signed token of a period: made once, and shown blinded until the collector has signed it. */
  async #admit(campaign, given) {
    const { blind, finish, readModulus } = await import("./blind.js");
    const period = signing(this.#read().campaigns[campaign], given), place = `${campaign}\n${period}`, kept = this.#read().tokens[place];
    if (kept?.signature) return { ok: true, by: { token: kept.token, signature: kept.signature } };
    const shown = await this.#insist(this.#request(campaign, `tokens/${encodeURIComponent(period)}`));
    if (!shown?.ok) return shown;
    const { modulus: text } = await shown.answer.json(), modulus = readModulus(text);
    const token = crypto.getRandomValues(new Uint8Array(32)), { blinded, inverse } = await blind(token, modulus);
    const made = { token: toHex(token), modulus: text, blinded: toBase64(blinded), inverse: toBase64(inverse) };
    const own = await this.#change(state => state.tokens[place] ??= made); // the first one stands
    if (own.modulus !== text) {
      throw new Error("The collector shows another key than before. Do not answer: it may mark users.");
    }
    const asked = JSON.stringify({ code: this.#code, period, blinded: own.blinded });
    const signed = await this.#insist(this.#request(campaign, "tokens", asked));
    if (!signed?.ok) return signed;
    const raw = fromBase64((await signed.answer.json()).signed);
    const signature = toBase64(await finish(fromHex(own.token), raw, fromBase64(own.inverse), modulus));
    await this.#change(state => { state.tokens[place].signature = signature; });
    return { ok: true, by: { token: own.token, signature } };
  }

  /** Ask with growing pauses until there is a decision; null when all attempts failed. */
  async #insist(request) {
    for (let attempt = 0; attempt < this.#attempts; attempt++) {
      if (attempt) await sleep(Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (attempt - 1)) * (0.5 + Math.random() / 2));
      try {
        const answer = await this.#ask(request);
        if (answer.status < 500 && !LATER.has(answer.status)) {
          return answer.ok ? { ok: true, why: "", answer } : { ok: false, ...await refusal(answer) };
        }
      } catch (error) {
        if (!(error instanceof TypeError || error.name === "TimeoutError")) throw error;
      }
    }
    return null;
  }

  /** What to ask the collector about a campaign. */
  #request(campaign, path, body) {
    const headers = {
      ...(this.#key && { Authorization: `Bearer ${this.#key}` }), ...(body && { "Content-Type": "application/json" }),
    };
    const url = `${this.#url}/${this.#path}/${encodeURIComponent(campaign)}/${path}`;
    return { url, method: body ? "POST" : "GET", headers, body };
  }

  #ask({ url, ...request }) {
    return fetch(url, { ...request, signal: AbortSignal.timeout(this.#timeout), credentials: "omit" });
  }

  #read() {
    const stored = this.#storage.getItem(this.#place);
    const fresh = { secret: randomHex(32), spent: 0, campaigns: {}, answers: {}, laws: {}, tokens: {}, queue: [] };
    const state = stored ? { ...fresh, ...JSON.parse(stored) } : fresh;
    for (const name of ["campaigns", "answers", "laws", "tokens"]) { // without a prototype: an id may be '__proto__'
      state[name] = Object.assign(Object.create(null), state[name]);
    }
    return state;
  }

  /** Change the state, alone among all tabs of this page, and write it before anything else happens. */
  #change(work) {
    const change = () => {
      const state = this.#read(), result = work(state);
      this.#storage.setItem(this.#place, JSON.stringify(state));
      return result;
    };
    return globalThis.navigator?.locks ? navigator.locks.request(this.#place, change) : change();
  }
}

/** Why an answer is a refusal, in a sentence and in one word. */
async function refusal(answer) {
  const mendable = MENDABLE.has(answer.status);
  try {
    const { detail, reason } = await answer.json();
    return { why: String(detail), code: reason, mendable: (mendable && reason !== "unknown-code") || MENDABLE_REASONS.has(reason) };
  } catch {
    return { why: `status ${answer.status}`, code: "", mendable };
  }
}
