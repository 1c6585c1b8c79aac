// Workers: functions that work on the items of a queue.
//
// Worker.run starts "croft work run", which claims items, keeps them alive, and
// runs this very program again for each. In that run, Worker.run calls the
// function once and ends. So croft has the whole supervision: if the function
// stalls or its item is lost, croft kills the process and all that it has
// started. If croft dies or stands still, its warden does.

import { spawn } from "node:child_process";
import { readFileSync, writeFileSync, writeSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { CroftError } from "./errors.js";
import { header } from "./lease.js";
import { run } from "./write.js";

const variable = "CROFT_WORKER"; // has the queue, in the run for an item
const confirmation = "CROFT_DONE"; // names the file that takes the token once the function has returned
const output = 3; // the file descriptor that takes the result then
const finalCode = 65; // exit codes that croft work run understands
const notNowCode = 75;

// Standard output is the result for croft. Here it is for people, from the
// first import on: all that the program and its children print goes to standard
// error.
const shell = ["/bin/sh", "-c", `export ${variable}="$0"; exec "$@" ${output}>&1 1>&2`];

/** Thrown by a worker: trying again would not help. The item is dead. */
export class Final extends Error {}

/** Thrown by a worker: the item is given back. The attempt does not count. */
export class NotNow extends Error {}

/** What a worker gives: bytes, a text, nothing, or else JSON. */
export type Result = unknown;

/** How a queue is worked on. All times are in seconds. */
export interface WorkOptions {
  /** How many items are worked on at once, each in a process of its own. */
  slots?: number;
  /** How long an item is kept if this machine dies. */
  ttl?: number;
  /** Kill a process that calls neither report nor save for so long. */
  stallAfter?: number;
  /** How long processes may go on after TERM. */
  drain?: number;
  /** The time between TERM and KILL when the drain is over. */
  grace?: number;
  /** End when the queue holds nothing that waits or runs. */
  untilEmpty?: boolean;
  /** Work on one item, then end. */
  once?: boolean;
  /** The ledger's URL. Default: CROFT_STORE. */
  store?: string;
  /** The program. Default: CROFT_BIN, else croft. */
  croft?: string;
}

/** An attempt at an item, as the worker's function sees it. */
export class Job {
  readonly id = need("CROFT_ITEM");
  readonly queue = need("CROFT_QUEUE");
  readonly key = need("CROFT_KEY");
  readonly attempt = Number(need("CROFT_ATTEMPT"));
  readonly limit = Number(need("CROFT_LIMIT"));
  readonly generation = Number(need("CROFT_GENERATION"));
  readonly token = Number(need("CROFT_TOKEN"));
  /** The stamp that every write under the item carries. It holds no secret. */
  readonly stamp = need("CROFT_STAMP");
  /** What the attempt before has saved. Empty if there was nothing. */
  readonly checkpoint: Uint8Array;

  /** @internal */
  constructor(
    /** What was added to the queue. */
    readonly payload: Uint8Array,
  ) {
    const file = process.env["CROFT_CHECKPOINT"] ?? "";
    this.checkpoint = file === "" ? new Uint8Array() : Uint8Array.from(readFileSync(file));
  }

  /** The payload as JSON. The item is dead if it is none. */
  json(): unknown {
    try {
      return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(this.payload));
    } catch (error) {
      throw new Final(`the payload is no JSON: ${String(error)}`);
    }
  }

  /** The header that HTTP boundaries (croft proxy, httpfence) read. */
  headers(): Record<string, string> {
    return { [header]: this.stamp };
  }

  /** Reports progress, for people to read. With stallAfter it is needed. */
  async report(marker: string): Promise<void> {
    await this.#croft(["work", "report", "--json", "--", marker]);
  }

  /** Saves at most 1 MiB for the next attempt. It is progress, too. */
  async save(checkpoint: string | Uint8Array): Promise<void> {
    await this.#croft(["work", "checkpoint", "--json"], checkpoint);
  }

  /**
   * Adds an effect, which happens if this attempt completes the item. Give one
   * thing the same name in every attempt: a receiver can then tell repetitions.
   */
  async emit(name: string, body?: Result, options: { to?: string; atMostOnce?: boolean } = {}): Promise<void> {
    const flags = ["work", "emit", "--json"];
    if (options.to !== undefined) {
      flags.push(`--to=${options.to}`);
    }
    if (options.atMostOnce === true) {
      flags.push("--at-most-once");
    }
    await this.#croft(flags, encoded(body), ["--", name]);
  }

  /** Replaces a guarded file or object, if no newer owner has been there. */
  async write(target: string, data: string | Uint8Array): Promise<void> {
    await this.#croft(["write", "--json"], data, [target.startsWith("-") ? `./${target}` : target]);
  }

  /**
   * Runs croft. The content goes through a file: if this process is killed,
   * croft must not take the half that a pipe holds for all of it.
   */
  async #croft(flags: string[], content?: string | Uint8Array, args: string[] = []): Promise<void> {
    const env = { ...process.env, CROFT_CONFIRM: "" };
    const command = { program: process.env["CROFT_BIN"] || "croft", args: [], env };
    if (content === undefined) {
      await run(command, flags, this.stamp);
      return;
    }
    const folder = await mkdtemp(join(tmpdir(), "croft-job-"));
    try {
      const from = join(folder, "content");
      await writeFile(from, content, { mode: 0o600, flag: "wx" });
      await run(command, [...flags, "--from", from, ...args], this.stamp);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }
}

/** A function that works on the items of a queue: see worker. */
export class Worker {
  constructor(
    readonly queue: string,
    /** The function, for tests of it. */
    readonly work: (job: Job) => Result | Promise<Result>,
  ) {}

  /**
   * Works on the queue until it is interrupted. It does not return: this
   * process ends with the exit code of croft work run.
   */
  run(options: WorkOptions = {}): Promise<never> {
    return process.env["CROFT_ITEM"] && process.env[variable] ? this.#attempt() : this.#supervise(options);
  }

  async #supervise(options: WorkOptions): Promise<never> {
    // An exit with code 0 alone completes nothing: the event loop may have run
    // dry, or this program may end before it gets here. And if this process is
    // killed, croft reads the end of its input.
    const flags = [`--slots=${options.slots ?? 1}`, "--require-done", "--until-eof"];
    for (const [name, seconds] of [
      ["ttl", options.ttl],
      ["stall-after", options.stallAfter],
      ["drain", options.drain],
      ["grace", options.grace],
    ] as const) {
      if (seconds !== undefined) {
        flags.push(`--${name}=${seconds}s`);
      }
    }
    if (options.untilEmpty === true) {
      flags.push("--until-empty");
    }
    if (options.once === true) {
      flags.push("--once");
    }
    const program = options.croft ?? (process.env["CROFT_BIN"] || "croft");
    const again = [process.execPath, ...process.execArgv, ...process.argv.slice(1)];
    const store = options.store === undefined ? {} : { CROFT_STORE: options.store };
    // In a session of its own, so that an interrupt from the terminal reaches
    // it once: from here.
    const child = spawn(program, ["work", "run", ...flags, this.queue, "--", ...shell, this.queue, ...again], {
      env: { ...process.env, CROFT_BIN: program, ...store },
      stdio: ["pipe", "inherit", "inherit"],
      detached: true,
    });
    child.stdin?.on("error", () => {}); // its end tells
    for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
      process.on(signal, () => child.kill(signal));
    }
    return new Promise((_, reject) => {
      child.once("error", (error) => reject(new CroftError(`croft cannot be started: ${error.message}`)));
      child.once("exit", (code) => process.exit(code ?? 1));
    });
  }

  /** Works on one item, and ends the process with what croft understands. */
  async #attempt(): Promise<never> {
    const queue = process.env[variable];
    const done = process.env[confirmation] ?? "";
    // Another program that this one starts is no worker, and confirms nothing.
    delete process.env[variable];
    delete process.env[confirmation];
    let code: number | undefined;
    // A result comes from a return alone, not from an exit in the midst of
    // work.
    process.on("exit", () => {
      if (code === undefined) {
        console.error("the worker ended this process before it returned");
      }
      process.exitCode = code ?? 1;
    });
    try {
      if (queue !== this.queue) {
        const started = `this program has been started to work on ${JSON.stringify(queue)}`;
        throw new Error(`${started}, and its first worker is on ${JSON.stringify(this.queue)}; run that one`);
      }
      const job = new Job(Uint8Array.from(readFileSync(0)));
      const result = encoded(await this.work(job));
      for (let rest = Buffer.from(result as Uint8Array); rest.length > 0; ) {
        rest = rest.subarray(writeSync(output, rest));
      }
      writeFileSync(done, String(job.token));
      code = 0;
    } catch (error) {
      console.error(error instanceof Final || error instanceof NotNow ? error.message : error);
      code = error instanceof Final ? finalCode : error instanceof NotNow ? notNowCode : 1;
    }
    process.exit(code);
  }
}

/**
 * Makes a function a worker on a queue.
 *
 *     const pages = croft.worker("pages", async (job) => {
 *       const { text } = job.json() as { text: string };
 *       return { words: text.split(" ").length };
 *     });
 *     await pages.run();
 *
 * If it throws, the item is tried again later, unless it throws Final or
 * NotNow.
 */
export function worker(queue: string, work: (job: Job) => Result | Promise<Result>): Worker {
  return new Worker(queue, work);
}

function encoded(value: Result): string | Uint8Array {
  if (value === undefined || value === null) {
    return "";
  }
  return typeof value === "string" || value instanceof Uint8Array ? value : JSON.stringify(value);
}

function need(name: string): string {
  const value = process.env[name];
  if (value === undefined || value === "") {
    throw new Error(`${name} is missing: this runs inside croft work run`);
  }
  return value;
}
