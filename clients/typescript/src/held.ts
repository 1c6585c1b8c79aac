// A lease at a server, as the helper for it (server.ts) keeps it.

import { randomBytes } from "node:crypto";

import { type Instant, plus, systemClock, until } from "./clock.js";
import { type Body, cannot, type Problem, readRecord } from "./wire.js";

/** An instant that has passed. */
export const never: Instant = { monotonic: -Infinity, wall: -Infinity };

/** The seconds of the monotonic clock. */
export function clock(): number {
  return systemClock().monotonic;
}

/** A message of the parent, or of nobody if its id is 0. */
export interface Request {
  readonly what: string;
  readonly id: number;
  readonly members: Body;
}

/** A lease, or an acquire that is under way. */
export class Lease {
  readonly secret = randomBytes(16).toString("hex");
  readonly path: string;
  readonly jobs: Request[] = [];
  busy = false; // a call about it is under way
  abandoned = false; // the parent has given the acquire up
  unsure = false; // the key may have been granted
  held = false;
  ending = false;
  lost: Problem | undefined;
  token = 0;
  ttl = 0;
  deadline = never;
  renewAt = Infinity;
  pause = 0.1; // before a renewal is sent again
  doubted = -Infinity;
  failed = false; // the last renewal is not confirmed
  progress = 0;
  holdEnd = Infinity;
  stallAfter = Infinity;
  maxHold = Infinity;

  constructor(
    readonly name: string,
    readonly key: string,
    readonly acquire: Request,
  ) {
    this.path = `/v1/leases/${encodeURIComponent(key)}`;
  }

  /**
   * Moves the local deadline. It lies a tenth of the TTL before the store's,
   * and is counted from the moment before the request was sent.
   */
  confirm(sent: Instant, record: Body, now: unknown): void {
    if (record["key"] !== this.key || (this.token > 0 && record["token"] !== this.token)) {
      throw cannot("it is about another lease");
    }
    const { ttl, left } = readRecord(record, now);
    const deadline = plus(sent, left - ttl / 10);
    if (deadline.monotonic > this.deadline.monotonic) {
      this.deadline = deadline;
      this.ttl = ttl;
    }
  }

  renewed(sent: Instant): void {
    this.failed = false;
    this.pause = 0.1;
    const now = systemClock();
    const half = Math.max(0.05, until(this.deadline, now) / 2);
    this.renewAt = Math.min(sent.monotonic + this.ttl / 3, now.monotonic + half);
  }
}
