// A client: a process of croft, and the leases that it holds.

import { fileURLToPath } from "node:url";

import { type Clock, systemClock } from "./clock.js";
import { Held, Invalid, LeaseLost } from "./errors.js";
import { Grant } from "./grant.js";
import { type Command, Hold } from "./hold.js";
import { Keeper } from "./keeper.js";
import { type Host, Lease } from "./lease.js";
import { type LeaseOptions, type Terms, termsOf } from "./options.js";
import { answered } from "./patience.js";
import type { Transport } from "./transport.js";
import { write } from "./write.js";

/** Where leases are, and who holds them. */
export interface ClientOptions {
  /** The store's directory or URL. By default croft finds it. */
  store?: string;
  /**
   * The owner in records and refusals. Default: CROFT_OWNER, else user@host.
   */
  owner?: string;
  /** The program. Default: CROFT_BIN, else croft. */
  croft?: string;
  /** How long the store may take for one answer, in seconds. Default: 5. */
  timeout?: number;
  /**
   * The process that holds the leases: "croft", or "server" for a store that is
   * a croft server, at https://... or http://...: a helper in Node, without
   * croft. By default the store's URL decides.
   */
  transport?: "croft" | "server";
}

/** Holds leases in one store, through one process beside this one. */
export class Client implements AsyncDisposable {
  readonly #command: Command;
  readonly #holder: Command;
  readonly #host: Host;
  readonly #holds = new Set<Transport>(); // every one that may still run
  #transport: Transport | undefined; // the one for new leases
  #starting: Promise<Transport> | undefined;
  #names = 0;

  /** The clock is for tests. */
  constructor(options: ClientOptions = {}, clock: Clock = systemClock) {
    const timeout = options.timeout ?? 5;
    if (!(timeout > 0 && timeout <= 3600)) {
      throw new Invalid(`timeout ${timeout}: it is a number of seconds, above 0 and at most 3600`);
    }
    const env = { ...process.env };
    if (options.store !== undefined) {
      env["CROFT_STORE"] = options.store;
    }
    if (options.owner !== undefined) {
      env["CROFT_OWNER"] = options.owner;
    }
    this.#command = {
      program: options.croft ?? (process.env["CROFT_BIN"] || "croft"),
      args: ["--timeout", `${Math.ceil(timeout * 1000)}ms`],
      env,
    };
    const isServer = /^https?:\/\//.test(env["CROFT_STORE"] ?? "");
    const transport = options.transport ?? (isServer ? "server" : "croft");
    if ((transport !== "server" && transport !== "croft") || (transport === "server" && !isServer)) {
      throw new Invalid('transport: it is "croft", or "server" for a store at https://... or http://...');
    }
    const hold = { ...this.#command, args: [...this.#command.args, "hold", "--multi"] };
    this.#holder = transport === "server" ? helper(env, timeout) : hold;
    this.#host = {
      keeper: new Keeper(clock, (transport) => this.#abandon(transport)),
      clock,
      patience: 4 * timeout + 5, // croft itself gives up after three times the timeout
      write: (grant, target, data) => write(this.#command, grant, target, data),
    };
  }

  /**
   * Acquires the lease on a key. The caller gives it back, or lets "await
   * using" do so. It rejects with Held if it is not this caller's turn, and
   * with the reason of options.signal if that fires first.
   */
  async acquire(key: string, options: LeaseOptions = {}): Promise<Lease> {
    const { signal } = options;
    const terms = termsOf(key, options);
    signal?.throwIfAborted();
    const transport = await answered(this.#connect(), Infinity, signal);
    const grant = new Grant(transport, String(++this.#names), key);
    try {
      await this.#obtain(grant, terms, signal);
    } catch (error) {
      this.#host.keeper.remove(grant);
      if (!(error instanceof Held) && !(error instanceof Invalid)) {
        transport.ask("fail", grant.name).catch(() => {}); // it may be granted all the same
      }
      throw error instanceof LeaseLost ? this.#host.keeper.lose(grant, error) : error;
    }
    return new Lease(this.#host, grant, terms.counts);
  }

  /**
   * Holds the lease on a key while work runs. It gives the lease back as
   * success if work returns, and as failure if work throws.
   *
   * If the lease is lost, lease.signal fires. When work has ended, withLease
   * rejects with the LeaseLost, also if work returned: its result may not
   * count.
   */
  async withLease<T>(key: string, options: LeaseOptions, work: (lease: Lease) => T | Promise<T>): Promise<T> {
    const lease = await this.acquire(key, options);
    let result: T;
    try {
      result = await work(lease);
    } catch (error) {
      await finish(lease, false).catch(() => {}); // the error of the work comes out
      throw lease.signal.aborted && isAbort(error) ? lease.signal.reason : error;
    }
    await finish(lease, true);
    return result;
  }

  /**
   * Makes a function that holds the lease on a key during each call. Work gets
   * the lease before its own arguments. The key may be a function of them.
   */
  guarded<A extends unknown[], T>(
    key: string | ((...args: A) => string),
    options: LeaseOptions,
    work: (lease: Lease, ...args: A) => T | Promise<T>,
  ): (...args: A) => Promise<T> {
    return (...args) =>
      this.withLease(typeof key === "string" ? key : key(...args), options, (lease) => work(lease, ...args));
  }

  /** Gives all leases back as failed. The client can be used again. */
  async close(): Promise<void> {
    await this.#starting?.catch(() => {});
    this.#transport = undefined;
    const holds = [...this.#holds];
    this.#holds.clear();
    await Promise.all(holds.map((hold) => hold.close()));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #obtain(grant: Grant, terms: Terms, signal: AbortSignal | undefined): Promise<void> {
    const { keeper, patience } = this.#host;
    keeper.add(grant);
    const granted = await answered(
      grant.transport.ask("acquire", grant.name, terms.members),
      patience + terms.wait,
      signal,
    );
    grant.granted(granted.message);
    // The acquire may have waited for long: its moment gives no authority.
    grant.confirm(await answered(grant.transport.ask("verify", grant.name), patience, signal));
    if (grant.lost !== undefined) {
      throw grant.lost;
    }
  }

  /** Returns the running process, and starts one if there is none. */
  #connect(): Promise<Transport> {
    if (this.#transport?.alive) {
      return Promise.resolve(this.#transport);
    }
    this.#starting ??= Hold.start(this.#holder, this.#host.clock, this.#host.keeper)
      .then((hold) => {
        for (const each of this.#holds) {
          if (!each.alive) {
            this.#holds.delete(each);
          }
        }
        this.#holds.add(hold);
        return (this.#transport = hold);
      })
      .finally(() => (this.#starting = undefined));
    return this.#starting;
  }

  /** Leaves a process that does not answer. The next acquire starts another. */
  #abandon(transport: Transport): void {
    if (this.#transport === transport) {
      this.#transport = undefined;
    }
    if (!this.#host.keeper.uses(transport)) {
      transport.hangUp();
    }
  }
}

/** Gives a lease back, unless the work has done so. It rejects with a loss. */
async function finish(lease: Lease, well: boolean): Promise<void> {
  if (!lease.givenBack) {
    await lease.end(well);
  } else if (lease.signal.aborted) {
    throw lease.signal.reason;
  }
}

/** Whether an error only says that lease.signal has fired. */
function isAbort(error: unknown): boolean {
  return error instanceof LeaseLost || (error instanceof Error && error.name === "AbortError");
}

// The command that holds leases at a server: this Node, without its options.
function helper(env: NodeJS.ProcessEnv, timeout: number): Command {
  const path = fileURLToPath(new URL("./server.js", import.meta.url));
  return {
    program: process.execPath,
    args: [path, String(timeout)],
    env: { ...env, NODE_OPTIONS: "", ELECTRON_RUN_AS_NODE: "1" },
  };
}
