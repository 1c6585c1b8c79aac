// The state of a lease: what croft has said of it, and when that was asked.

import { type Instant, plus, until } from "./clock.js";
import type { LeaseLost } from "./errors.js";
import type { Message, Reply, Transport } from "./transport.js";

/** The state of one lease, from the moment before its acquire is sent. */
export class Grant {
  token = 0;
  stamp = "";
  owner = "";
  cause = "";
  leaseFile = "";
  checkpoint: Uint8Array = new Uint8Array();
  ttl = 0;

  /** Fires when the lease is lost. */
  readonly loss = new AbortController();
  /** Why the lease has ended, if it is known. */
  lost: LeaseLost | undefined;
  /** Set once the caller has been given the loss as an error. */
  told = false;
  /** Set once the caller has given the lease back, whatever came of it. */
  givenBack = false;
  /** How long the open question may stay open, on the keeper's own clock. */
  patientUntil: number | undefined;

  #confirmed:
    | { readonly sent: Instant; readonly remaining: number; readonly deadline: Instant }
    | undefined;

  constructor(
    readonly transport: Transport,
    readonly name: string,
    readonly key: string,
  ) {}

  granted(message: Message): void {
    this.token = Number(message["token"]);
    this.stamp = String(message["stamp"]);
    this.owner = String(message["owner"]);
    this.cause = String(message["cause"]);
    this.leaseFile = String(message["lease_file"]);
    this.checkpoint = Uint8Array.from(Buffer.from(String(message["checkpoint"] ?? ""), "base64"));
  }

  /** Counts the deadline from the moment before the question was sent. */
  confirm(reply: Reply): void {
    const remaining = Number(reply.message["remaining"]);
    if (!Number.isFinite(remaining)) {
      return; // it gives no authority
    }
    if (this.#confirmed === undefined || reply.sent.monotonic >= this.#confirmed.sent.monotonic) {
      this.ttl = Number(reply.message["ttl"]);
      this.#confirmed = { sent: reply.sent, remaining, deadline: plus(reply.sent, remaining) };
    }
  }

  /** Whether croft has confirmed the lease after it was granted. */
  get confirmed(): boolean {
    return this.#confirmed !== undefined;
  }

  /** The seconds until the local deadline. Zero or less gives no authority. */
  remaining(now: Instant): number {
    if (this.#confirmed === undefined || this.lost !== undefined || this.givenBack) {
      return 0;
    }
    return until(this.#confirmed.deadline, now);
  }

  /** Whether half of what remained at the last answer has passed. */
  due(now: Instant): boolean {
    return this.#confirmed !== undefined && this.remaining(now) <= this.#confirmed.remaining / 2;
  }
}
