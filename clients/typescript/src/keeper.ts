// The keeper asks croft about each lease when half of its time has passed, and
// so moves the local deadline. It notes how leases end.
//
// While there are leases, a timer lets the keeper look at them: at least once a
// second, and twenty times in the shortest TTL. The timer does not keep this
// process alive. A lease is lost if its deadline has passed and a question
// about it has been open for a while in which this process was awake. A program
// may have stood still: its event loop was blocked, it was stopped, or the
// machine slept. So it asks croft once more before it gives a lease up.

import type { Clock, Instant } from "./clock.js";
import { LeaseLost } from "./errors.js";
import type { Grant } from "./grant.js";
import type { Listener, Message, Transport } from "./transport.js";

const longestPatience = 5; // seconds for the answer to a question
const longestSleep = 1;
const shortestSleep = 0.02;

export class Keeper implements Listener {
  readonly #clock: Clock;
  readonly #silent: (transport: Transport) => void;
  readonly #grants = new Map<string, Grant>();
  #timer: NodeJS.Timeout | undefined;
  #looked: Instant; // when it looked last
  #sleep = 0; // how long it wanted to sleep then
  #awake = 0; // a clock that stands still when this process does

  /** silent hears which transport did not answer until a deadline. */
  constructor(clock: Clock, silent: (transport: Transport) => void) {
    this.#clock = clock;
    this.#silent = silent;
    this.#looked = clock();
  }

  /**
   * Adds a lease, before its acquire is sent: a loss may follow the answer at
   * once.
   */
  add(grant: Grant): void {
    this.#grants.set(grant.name, grant);
    if (this.#timer === undefined) {
      this.#looked = this.#clock();
      this.#plan();
    }
  }

  remove(grant: Grant): void {
    this.#grants.delete(grant.name);
  }

  /** Whether there are leases of a transport. */
  uses(transport: Transport): boolean {
    return [...this.#grants.values()].some((grant) => grant.transport === transport);
  }

  heard(message: Message): void {
    const grant = this.#grants.get(String(message["lease"]));
    if (grant !== undefined && message["event"] === "lost") {
      this.lose(grant, new LeaseLost(String(message["message"]), message));
    }
  }

  ended(transport: Transport, why: string): void {
    for (const grant of [...this.#grants.values()]) {
      if (grant.transport === transport) {
        const message = `${why}; the lease on ${quoted(grant)} is lost with it, stop this work`;
        this.lose(grant, new LeaseLost(message, {}, "gone"));
      }
    }
  }

  /** Notes that a lease is lost. The first reason stays, and is returned. */
  lose(grant: Grant, lost: LeaseLost): LeaseLost {
    this.remove(grant);
    if (grant.lost === undefined) {
      grant.lost = lost;
      grant.loss.abort(lost);
    }
    return grant.lost;
  }

  #plan(): void {
    let sleep = longestSleep;
    for (const grant of this.#grants.values()) {
      if (grant.confirmed) {
        sleep = Math.max(shortestSleep, Math.min(sleep, grant.ttl / 20));
      }
    }
    this.#sleep = sleep;
    // After a pause all timers are late. The answers that have arrived in it
    // are read first: an immediate comes after them.
    this.#timer = setTimeout(() => setImmediate(() => this.#look()), sleep * 1000).unref();
  }

  #look(): void {
    const now = this.#clock();
    this.#awake += Math.max(0, Math.min(now.monotonic - this.#looked.monotonic, this.#sleep));
    this.#looked = now;
    for (const grant of [...this.#grants.values()]) {
      if (!grant.confirmed || grant.givenBack) {
        continue;
      }
      if (grant.patientUntil === undefined) {
        if (grant.due(now)) {
          this.#ask(grant, now);
        }
      } else if (grant.remaining(now) <= 0 && this.#awake >= grant.patientUntil) {
        this.#giveUp(grant);
      }
    }
    this.#timer = undefined;
    if (this.#grants.size > 0) {
      this.#plan();
    }
  }

  #ask(grant: Grant, now: Instant): void {
    const patience = grant.remaining(now) <= 0 ? longestPatience : Math.min(longestPatience, grant.ttl / 4);
    grant.patientUntil = this.#awake + patience;
    grant.transport.ask("verify", grant.name).then(
      (reply) => {
        grant.confirm(reply);
        grant.patientUntil = undefined;
      },
      (error) => {
        if (error instanceof LeaseLost) {
          this.lose(grant, error);
        }
      },
    );
  }

  #giveUp(grant: Grant): void {
    this.lose(
      grant,
      new LeaseLost(
        `croft did not answer until the deadline of ${quoted(grant)}: it is stopped or starved; stop this work`,
        {},
        "silent",
      ),
    );
    grant.transport.ask("fail", grant.name).catch(() => {}); // for when it wakes up
    this.#silent(grant.transport);
  }
}

function quoted(grant: Grant): string {
  return JSON.stringify(grant.key);
}
