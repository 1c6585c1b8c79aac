// The calls about a lease at a server. Each asks again if it must.

import type { Answer, Caller } from "./call.js";
import { clock, type Lease, type Request } from "./held.js";
import { type Body, duration, problem, Problem, sleep } from "./wire.js";

// One call waits so long for a key, in seconds. Then the parent may have given
// up.
const turn = 5;

/** Asks the server about leases. */
export class Asker {
  readonly #timeout: number;
  readonly #leases: () => number;

  /** leases tells how many share the server. */
  constructor(
    readonly caller: Caller,
    timeout: number,
    leases: () => number,
  ) {
    this.#timeout = timeout;
    this.#leases = leases;
  }

  /**
   * Takes a key. An answer that comes after a wait gives little authority, so
   * the server is asked once more then.
   */
  async take(lease: Lease, body: Body, wait: number): Promise<Answer> {
    const end = clock() + wait;
    let now = 0; // how long the server may wait
    let broken = Infinity; // since when it does not answer
    let pause = 0.1;
    for (;;) {
      const began = clock();
      let nap: number;
      try {
        const more = now > 0 ? { wait: duration("wait", now) } : {};
        const answer = await this.caller.call(`${lease.path}/acquire`, { ...body, ...more }, now);
        lease.unsure = true;
        return now > 0 ? await this.caller.call(`${lease.path}/renew`, { secret: lease.secret }) : answer;
      } catch (error) {
        const p = problem(error);
        const here = clock();
        if (p.code === "held") {
          lease.unsure = false;
          broken = Infinity;
          pause = 0.1;
          const waits = p.why === "held" || p.why === "reserved";
          if (here >= end || !(waits || p.remaining <= end - here)) {
            throw p;
          }
          const early = now > 0 && here - began < now / 2;
          nap = early ? 0.2 : waits ? 0 : Math.min(1, p.remaining);
          now = waits ? Math.min(turn, end - here) : 0;
        } else if (!p.final && !(p.fault && wait === 0 && broken === Infinity)) {
          lease.unsure ||= !p.fault;
          broken = Math.min(broken, began);
          if (here - broken > 3 * this.#timeout) {
            throw p;
          }
          nap = pause;
          pause = Math.min(1, 2 * pause);
        } else {
          throw p;
        }
      }
      if (lease.abandoned) {
        throw new Problem("cancelled", "the acquire was given up before the key was granted");
      }
      await sleep(nap);
    }
  }

  ask(lease: Lease, request: Request): Promise<Answer> {
    const { what, members: m } = request;
    if (what === "release" || what === "fail") {
      // The success of a lease that is lost does not count.
      return this.release(lease, what === "fail" || lease.lost !== undefined);
    }
    const body = what === "report" ? { progress: m["marker"] } : m;
    return this.#insist(lease, what, { secret: lease.secret, ...body }, 3 * this.#timeout);
  }

  release(lease: Lease, failed: boolean): Promise<Answer> {
    return this.#insist(lease, "release", { secret: lease.secret, failed }, 2 + 0.05 * this.#leases());
  }

  /** Asks again, with the same secret, while the outcome is unknown. */
  async #insist(lease: Lease, verb: string, body: Body, limit: number): Promise<Answer> {
    const end = clock() + limit;
    for (let pause = 0.1; ; pause = Math.min(1, 2 * pause)) {
      try {
        return await this.caller.call(`${lease.path}/${verb}`, body);
      } catch (error) {
        const p = problem(error);
        const over = lease.lost !== undefined && verb !== "release";
        if (p.final || clock() + pause > end || over) {
          throw p;
        }
      }
      await sleep(pause);
    }
  }
}
