// The terms of a lease, and the message that asks for them.

import { Invalid } from "./errors.js";
import type { Message } from "./transport.js";

/** How a lease is to be held. All times are in seconds. */
export interface LeaseOptions {
  /** How long others wait if this machine dies. Default: a minute. */
  ttl?: number;
  /** How long to wait for a held key, or Infinity. Default: one try. */
  wait?: number;
  /** The work is done once per period of this length. */
  every?: number;
  /** The work is done once for all. */
  once?: boolean;
  /**
   * After success the key stays taken until this long after it was acquired.
   */
  hold?: number;
  /** The lease is lost if report or save are not called for so long. */
  stallAfter?: number;
  /** The lease is lost after this long, whatever happens. */
  maxHold?: number;
  /** Asks for a token above this one, after a Collision. */
  above?: number;
  /** Files and URLs that are to refuse older owners before the work begins. */
  guards?: readonly string[];
  /** Gives the acquire up. A lease that is granted does not listen to it. */
  signal?: AbortSignal;
}

/** The members of the message acquire. */
export interface Terms {
  readonly members: Message;
  /** How long croft may wait for the key, in seconds. */
  readonly wait: number;
  /** Whether success has consequences, so that nobody may guess it. */
  readonly counts: boolean;
}

/**
 * Makes the members of the message acquire. Croft judges their values. Here
 * only those are refused that JSON would change on their way.
 */
export function termsOf(key: string, options: LeaseOptions): Terms {
  if (typeof key !== "string" || /\p{Surrogate}/u.test(key)) {
    throw new Invalid("the key is not a text in well-formed Unicode");
  }
  const wait = options.wait ?? 0;
  const members: Record<string, unknown> = {
    key,
    ttl: options.ttl,
    wait: wait === Infinity ? "forever" : wait,
    every: options.every,
    once: options.once === true ? true : undefined,
    hold: options.hold,
    stall_after: options.stallAfter,
    max_hold: options.maxHold,
    above: options.above,
    guards: options.guards,
  };
  for (const [name, value] of Object.entries(members)) {
    if (typeof value === "number" && !Number.isFinite(value)) {
      throw new Invalid(`${name} ${value}: it is a finite number`);
    }
  }
  return { members, wait, counts: options.every !== undefined || options.once === true || options.hold !== undefined };
}
