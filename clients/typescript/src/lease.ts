// A lease, as the work sees it.

import type { Clock } from "./clock.js";
import { CroftError, Invalid, LeaseLost, Unknown } from "./errors.js";
import type { Grant } from "./grant.js";
import type { Keeper } from "./keeper.js";
import { answered, messagesRead } from "./patience.js";
import type { Message, Reply } from "./transport.js";

/** The name of the header that carries a stamp. */
export const header = "Croft-Stamp";

/** What a lease needs of its client. */
export interface Host {
  readonly keeper: Keeper;
  readonly clock: Clock;
  /** How long croft may take for an answer, in seconds. */
  readonly patience: number;
  write(grant: Grant, target: string, data: string | Uint8Array): Promise<void>;
}

/** The right to try a piece of work, for a limited time. */
export class Lease implements AsyncDisposable {
  readonly #grant: Grant;
  readonly #host: Host;
  readonly #counts: boolean;

  /** For Client.acquire. */
  constructor(host: Host, grant: Grant, counts: boolean) {
    this.#host = host;
    this.#grant = grant;
    this.#counts = counts;
  }

  /** The key that the lease is on. */
  get key(): string {
    return this.#grant.key;
  }

  /** The lease's token. Every later grant of the key has a higher one. */
  get token(): number {
    return this.#grant.token;
  }

  /** The stamp that every write under the lease carries. It holds no secret. */
  get stamp(): string {
    return this.#grant.stamp;
  }

  /** The owner, as the record shows it. */
  get owner(): string {
    return this.#grant.owner;
  }

  /** How this term began, such as "first" or "expired". */
  get cause(): string {
    return this.#grant.cause;
  }

  /** The bytes that an earlier holder has saved. Empty if there are none. */
  get checkpoint(): Uint8Array {
    return this.#grant.checkpoint;
  }

  /** A file with the lease, for "croft report @FILE". It holds the secret. */
  get leaseFile(): string {
    return this.#grant.leaseFile;
  }

  /** Fires when the lease is lost, with the LeaseLost as its reason. */
  get signal(): AbortSignal {
    return this.#grant.loss.signal;
  }

  /** Why the lease has ended, as far as it is known without asking. */
  get lost(): LeaseLost | undefined {
    return this.#grant.lost;
  }

  /** The seconds until the local deadline. Zero or less gives no authority. */
  get remaining(): number {
    return this.#grant.remaining(this.#host.clock());
  }

  /** The header that HTTP boundaries (croft proxy, httpfence) read. */
  headers(): Record<string, string> {
    return { [header]: this.stamp };
  }

  /**
   * Returns if the lease is alive, and rejects with LeaseLost if it is over.
   *
   * It first reads the messages that croft has sent meanwhile. It asks croft if
   * the local deadline has passed, which happens after this process stood
   * still. It rejects with Unknown if there is no answer.
   */
  async check(): Promise<void> {
    await messagesRead();
    this.#alive();
    if (this.remaining <= 0) {
      await this.verify();
    }
  }

  /** Asks croft now whether the lease is alive, and returns what remains. */
  async verify(): Promise<number> {
    await this.#tell("verify");
    this.#alive();
    const left = this.remaining;
    if (left <= 0) {
      throw new Unknown("the answer of croft came too late to give authority; ask again");
    }
    return left;
  }

  /** Renews now, with another TTL if one is given. Renewing needs no call. */
  async renew(ttl?: number): Promise<void> {
    await this.#tell("renew", ttl === undefined ? {} : { ttl });
  }

  /** Reports progress, for people to read. With stallAfter it is needed. */
  async report(marker: string): Promise<void> {
    await this.#tell("report", { marker });
  }

  /** Saves a checkpoint of at most 1024 bytes for the next holder. */
  async save(checkpoint: string | Uint8Array): Promise<void> {
    await this.#tell("checkpoint", { checkpoint: Buffer.from(checkpoint as Uint8Array).toString("base64") });
  }

  /**
   * Replaces a guarded file or object, if no newer owner has been there. It
   * rejects with Stale if one has, and with LeaseLost if the store says that
   * the lease is over.
   */
  async write(target: string, data: string | Uint8Array): Promise<void> {
    await this.check();
    try {
      await this.#host.write(this.#grant, target, data);
    } catch (error) {
      if (!(error instanceof CroftError)) {
        await this.check(); // the folder of the lease is gone when croft is
      }
      throw this.#telling(error);
    }
  }

  /** Gives the lease back after success. */
  async release(): Promise<void> {
    await this.#give("release");
  }

  /** Gives the lease back after failure: period and hold do not apply. */
  async fail(): Promise<void> {
    await this.#give("fail");
  }

  /**
   * Gives the lease back at the end of an "await using" block, unless that has
   * been done. It rejects with the loss, unless a method has done so before.
   *
   * JavaScript does not say whether the block has thrown. So a lease with
   * every, once or hold is given back as failed: success must be said, with
   * release. All others are released.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    const grant = this.#grant;
    if (grant.givenBack || (grant.lost !== undefined && grant.told)) {
      return;
    }
    await this.end(!this.#counts);
  }

  /**
   * Gives the lease back, and tells only of its loss. If croft does not answer,
   * the lease lapses by itself.
   *
   * @internal
   */
  async end(well: boolean): Promise<void> {
    try {
      await this.#give(well ? "release" : "fail");
    } catch (error) {
      if (error instanceof LeaseLost) {
        throw error;
      }
      process.emitWarning(
        `the lease on ${JSON.stringify(this.key)} could not be given back and lapses by itself: ${String(error)}`,
        "CroftWarning",
      );
    }
  }

  /** @internal */
  get givenBack(): boolean {
    return this.#grant.givenBack;
  }

  async #tell(what: string, members: Message = {}): Promise<void> {
    this.#alive();
    for (const [name, value] of Object.entries(members)) {
      if (typeof value === "number" && !Number.isFinite(value)) {
        throw new Invalid(`${name} ${value}: it is a finite number`);
      }
    }
    try {
      this.#grant.confirm(await this.#ask(what, members));
    } catch (error) {
      throw this.#telling(error instanceof LeaseLost ? this.#host.keeper.lose(this.#grant, error) : error);
    }
  }

  async #give(what: "release" | "fail"): Promise<void> {
    this.#alive();
    const grant = this.#grant;
    grant.givenBack = true;
    try {
      await this.#ask(what);
    } catch (error) {
      if (error instanceof LeaseLost) {
        this.#host.keeper.lose(grant, error);
      } else {
        throw error;
      }
    } finally {
      this.#host.keeper.remove(grant);
    }
    // Croft answers with released also if the lease was lost just before. It
    // says so in a message that comes first.
    if (grant.lost !== undefined) {
      throw this.#telling(grant.lost);
    }
    grant.lost = this.#returned();
  }

  #ask(what: string, members?: Message): Promise<Reply> {
    return answered(this.#grant.transport.ask(what, this.#grant.name, members), this.#host.patience);
  }

  /** Throws if the lease is known to be over. */
  #alive(): void {
    if (this.#grant.lost !== undefined || this.#grant.givenBack) {
      throw this.#telling(this.#grant.lost ?? this.#returned());
    }
  }

  #returned(): LeaseLost {
    return new LeaseLost(`the lease on ${JSON.stringify(this.key)} has been given back`, {}, "released");
  }

  #telling(error: unknown): unknown {
    this.#grant.told ||= error instanceof LeaseLost;
    return error;
  }
}
