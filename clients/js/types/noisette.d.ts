/** An answer: a number, a label, a text, several labels, or null where a question may be left out. */
export type Answer = number | string | readonly string[] | null;

/** Something that keeps texts by name, as localStorage does. */
export interface Storage {
  getItem(name: string): string | null;
  setItem(name: string, text: string): void;
}

/** The way to a collector behind a shuffler. */
export interface ShufflerOptions {
  url: string;
  client: string;
  secret: string;
  publicKey: string;
}

export interface ClientOptions {
  /** What this device may spend, over all campaigns. It cannot be changed later. */
  epsilon: number;
  /** The collector's key for devices. */
  apiKey?: string;
  /** The person's enrolment code, for campaigns whose tokens are signed. */
  code?: string;
  /** The name under which this device is kept; "device" if left out. */
  name?: string;
  shuffler?: ShufflerOptions | null;
  /** How often a request is tried; 4 if left out. */
  attempts?: number;
  /** Milliseconds that one attempt may take; 10,000 if left out. */
  timeout?: number;
  /** The collector's path of campaigns. */
  path?: string;
  /** Where budget, secret and queue are kept; localStorage if left out. */
  storage?: Storage;
}

/** A campaign as its collector shows it. */
export interface Campaign {
  readonly version: number;
  readonly id: string;
  readonly title: string;
  readonly epsilon: number;
  readonly period: "once" | "day" | "week" | "month";
  readonly answers: "permanent" | "fresh" | "tracked";
  readonly tokens: "open" | "blind" | "drawn";
  readonly attributes: readonly Readonly<Record<string, unknown>>[];
  readonly [more: string]: unknown;
}

/** The law by which a campaign is answered. No pair of answers exceeds its epsilon, which was computed here. */
export interface Law {
  readonly epsilon: number;
  /** Make a report; `words` and `open`, which draws what is public, are for tests and for tokens that draw. */
  draw(row: readonly unknown[], words?: unknown, open?: (purpose: string) => unknown): unknown;
  weigh(report: unknown): unknown[];
}

/** A report that this device has made. */
export interface Report {
  readonly campaign: string;
  readonly period: string;
  readonly group: string | null;
  readonly state: "held" | "waiting" | "sent" | "refused";
  readonly reason: string;
  /** The report, as JSON. */
  readonly report: string;
}

/** How many reports were sent, were refused, wait, and are held back. */
export interface Sent {
  sent: number;
  refused: number;
  waiting: number;
  held?: number;
}

/** The budget does not allow another answer. */
export class BudgetExceeded extends Error {}

/** One person's device: its noise, its budget and its queue. */
export class Client {
  private constructor();
  /** Make this device, or find the one that was made here before. */
  static open(url: string, options: ClientOptions): Promise<Client>;
  /** What is left of the budget. */
  get left(): number;
  /** Campaign, period and reason of the reports that the collector refused. */
  get refusals(): [campaign: string, period: string, reason: string][];
  /** Fetch a campaign and check its law; while the collector does not answer, as it was last seen. */
  campaign(id: string): Promise<Campaign>;
  /**
   * Answer for the current period and queue the report; true where a new one was made. With `hold` it waits for `release`.
   * Where answers are tracked, only the period of `turn` has one.
   */
  answer(id: string, values: Readonly<Record<string, Answer>>, options?: { group?: string | null; hold?: boolean }): Promise<boolean>;
  /** Have this period's token signed, where tokens are signed; tell whether it is, or null when nobody answers. */
  enrol(id: string): Promise<{ readonly ok: boolean; readonly why?: string; readonly code?: string } | null>;
  /** The period in which this person reports, where a signature draws it; null before her token is signed. */
  turn(id: string): Promise<string | null>;
  /** Let a report leave that was held, that of this period unless another one is given; `send` sends it. */
  release(id: string, period?: string): Promise<void> | void;
  /** The report of this period, or of another one; null where there is none. */
  report(id: string, period?: string): Report | null;
  /** How many reports were made for a campaign, each at the cost of its epsilon. */
  made(id: string): number;
  /** The body in which a report leaves, letter by letter. */
  body(id: string, period?: string): Promise<string>;
  /** Send what waits, trying again with growing pauses. */
  send(): Promise<Sent>;
}

/** Load the laws that most campaigns do without, where this one has one; before `check`. */
export function learn(campaign: Campaign): Promise<void>;
/** Return the law of a campaign, or throw why it must not be answered. */
export function check(campaign: Campaign, id: string, sealed?: boolean): Law;
/** Return answers as the law takes them, or throw which one is wrong. */
export function row(campaign: Campaign, values: Readonly<Record<string, Answer>>): unknown[];
/** The name of the period that a moment falls into, in UTC. */
export function periodAt(kind: Campaign["period"], moment?: Date): string;
