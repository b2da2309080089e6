export interface Verdict {
  /** Whether the certificate proves what it promises. */
  proved: boolean;
  /** Why not, or what is proved. */
  reason: string;
  /** The theorems that the proof rests on. */
  theorems: string[];
}

/** Check the text of a privacy certificate with whole numbers alone; it never throws. */
export function verify(text: string): Promise<Verdict>;
/** The hash of a law, as certificates have it. */
export function lawHash(law: object): Promise<string>;
/** The epsilon of a law for a domain, rounded up to a multiple of 2^-128, times 2^128. */
export function spent(law: object, domain: object): bigint;
