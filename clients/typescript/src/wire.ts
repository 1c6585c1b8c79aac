// What a croft server and its clients exchange: docs/server.md.

/** A JSON object. */
export type Body = Readonly<Record<string, unknown>>;

const maxSeconds = 2 * 366 * 86400;
const maxFact = 4096;

/** A request that was not carried out. Code and facts are those of croft. */
export class Problem extends Error {
  readonly facts: Record<string, unknown>;
  /** The outcome is not unknown after all: nothing was changed. */
  fault = false;
  /** The code of the server. */
  theirs: string;

  constructor(
    readonly code: string,
    message: string,
    facts: Body = {},
  ) {
    super(message);
    this.theirs = code;
    this.facts = { ...facts, code, message: message.slice(0, 4096) };
  }

  /**
   * Whether asking again cannot help. A server that is not there may come back.
   */
  get final(): boolean {
    return this.code !== "unknown" || (this.fault && this.theirs !== "unknown");
  }

  get why(): string {
    return String(this.facts["why"] ?? "");
  }

  get remaining(): number {
    return Number(this.facts["remaining"] ?? 0);
  }
}

/** The problem with an answer that no server of croft gives. */
export function cannot(why: string): Problem {
  return new Problem("unknown", `the answer is not that of a croft server (${why}); see whether the URL is right`);
}

/** Reads a JSON object. */
export function parseObject(text: string): Body {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw cannot("it is no JSON");
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw cannot("it is no object");
  }
  return value as Body;
}

const codes = new Map([
  ["held", "held"],
  ["not_owned", "not_owned"],
  ["invalid", "invalid"],
  ["too_large", "invalid"],
]);

/** Reads a refusal. It has times, and croft says what remains. */
export function problemOf(body: Body): Problem {
  const theirs = String(body["code"]);
  const facts: Record<string, unknown> = {};
  for (const name of ["key", "token", "owner", "why", "until"]) {
    const value = body[name];
    if ((typeof value === "string" || typeof value === "number") && String(value).length <= maxFact) {
      facts[name] = value;
    }
  }
  if (theirs === "held") {
    facts["remaining"] = Math.max(0, span(body["now"], body["until"]));
  }
  const p = new Problem(codes.get(theirs) ?? "unknown", String(body["detail"] ?? theirs), facts);
  p.theirs = theirs;
  p.fault = body["fault"] === true || (p.code === "unknown" && theirs !== "unknown" && theirs !== "busy");
  return p;
}

/** What a record says of the time that its holder has. */
export function readRecord(record: Body, now: unknown): { ttl: number; left: number } {
  const ttl = readDuration(record["ttl"]);
  return { ttl, left: Math.min(ttl, span(now, record["deadline"])) };
}

/** The seconds between two times of one answer, never too many. */
function span(first: unknown, second: unknown): number {
  return (moment(second) - moment(first)) / 1000 - 0.001; // times here have milliseconds
}

function moment(text: unknown): number {
  const at = typeof text === "string" && /^\d{4}-\d\d-\d\dT/.test(text) ? Date.parse(text) : NaN;
  if (Number.isNaN(at)) {
    throw cannot("it has no time");
  }
  return at;
}

const units: Record<string, number> = { h: 3600, m: 60, s: 1, ms: 1e-3, us: 1e-6, µs: 1e-6, ns: 1e-9 };

/** Reads a duration as Go prints it, such as 1m30s. */
function readDuration(text: unknown): number {
  if (typeof text !== "string" || !/^([\d.]+(h|ms|m|us|µs|ns|s)){1,6}$/.test(text)) {
    throw cannot("it has no duration");
  }
  let sum = 0;
  for (const [, number, unit = ""] of text.matchAll(/([\d.]+)(h|ms|m|us|µs|ns|s)/g)) {
    sum += Number(number) * (units[unit] ?? NaN);
  }
  if (!(sum <= maxSeconds)) {
    throw cannot("it has no duration");
  }
  return sum;
}

/** Checks a number of seconds. */
export function seconds(name: string, value: unknown): number {
  if (typeof value !== "number" || !(value >= 0 && value <= maxSeconds)) {
    throw new Problem("invalid", `${name}: it is a number of seconds, between 0 and ${maxSeconds}`);
  }
  return value;
}

/** Writes a number of seconds for Go. */
export function duration(name: string, value: unknown): string {
  return `${BigInt(Math.round(seconds(name, value) * 1e9))}ns`;
}

/** The problem that an error is. */
export function problem(error: unknown): Problem {
  return error instanceof Problem ? error : cannot(String(error));
}

export function sleep(seconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
}
