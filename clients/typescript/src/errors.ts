// The errors of this package. Each is a CroftError.

/** Details of an error, with the names that croft prints under --json. */
export type Facts = Readonly<Record<string, unknown>>;

/** The base of all errors of this package. */
export class CroftError extends Error {
  /** The code that croft prints under --json, such as "held". */
  readonly code: string = "unknown";
  /**
   * Details: which there are depends on the error. Durations are in seconds.
   */
  readonly facts: Facts;

  constructor(message: string, facts: Facts = {}, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.facts = facts;
  }
}

/** The input is wrong. Nothing was attempted. */
export class Invalid extends CroftError {
  override readonly code = "invalid";
}

/** It is not your turn: another has the key, or its work is done. */
export class Held extends CroftError {
  override readonly code = "held";

  /** The owner of the key. */
  get owner(): string {
    return text(this.facts["owner"]);
  }

  /** Why the key cannot be had: "held", "reserved", "hold" or "period". */
  get why(): string {
    return text(this.facts["why"]) || "held";
  }

  /** The seconds for which that lasts if nothing else happens. */
  get remaining(): number {
    return Number(this.facts["remaining"] ?? 0);
  }
}

/** The lease has ended: stop its work. */
export class LeaseLost extends CroftError {
  override readonly code = "not_owned";
  /**
   * Why it has ended: "superseded", "expired", "taken_over", "released",
   * "unreachable", "stalled" or "held_too_long". It is "gone" if the process of
   * croft has ended, and "silent" if that process did not answer until the
   * local deadline.
   */
  readonly loss: string;

  constructor(message: string, facts: Facts = {}, loss = "") {
    super(message, facts);
    this.loss = loss || text(facts["loss"]) || text(facts["why"]) || "unknown";
  }

  /** The present owner of the key, if the store has told. */
  get owner(): string {
    return text(this.facts["owner"]);
  }
}

/** No answer came: it may or may not have happened. It gives no authority. */
export class Unknown extends CroftError {
  override readonly code = "unknown";
}

/** Croft cannot be started, or ended before it said a word. */
export class NotStarted extends CroftError {
  override readonly code = "not_started";
}

/** The installed croft speaks another protocol. Install one that fits. */
export class Incompatible extends CroftError {
  override readonly code = "incompatible";
}

/** A guarded resource refuses the write. Nothing was changed. */
export class Refused extends CroftError {
  override readonly code: string = "refused";
}

/** The resource has admitted a newer owner: stop this work. */
export class Stale extends Refused {
  override readonly code = "stale";
}

/** The resource belongs to another key. */
export class WrongKey extends Refused {
  override readonly code = "wrong_key";
}

/** The resource has seen this token from another grant. Acquire with above. */
export class Collision extends Refused {
  override readonly code = "collision";
}

/** A late or repeated numbered write of the same grant. */
export class Repeated extends Refused {
  override readonly code = "repeated";
}

const byCode: Record<string, new (message: string, facts: Facts) => CroftError> = {
  invalid: Invalid,
  held: Held,
  not_owned: LeaseLost,
  unknown: Unknown,
  stale: Stale,
  wrong_key: WrongKey,
  collision: Collision,
  repeated: Repeated,
};

/** Makes the error of an error object, as croft prints it. */
export function errorOf(object: unknown): CroftError {
  const facts: Facts = typeof object === "object" && object !== null ? { ...object } : {};
  const code = text(facts["code"]);
  const kind = Object.hasOwn(byCode, code) ? byCode[code] : undefined;
  return new (kind ?? Unknown)(text(facts["message"]) || "croft gave no reason", facts);
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}
