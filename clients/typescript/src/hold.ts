// The transport over a process: croft hold --multi, or server.ts, which speaks
// the same. Both are called croft here.
//
// Neither the process nor its pipes keep this process alive: a program that has
// nothing else to do ends, and croft then gives its leases back. A request
// keeps it alive as long as somebody waits for the answer (patience.ts).

import { type ChildProcess, spawn } from "node:child_process";
import { readdirSync, rmdirSync, rmSync } from "node:fs";
import type { Socket } from "node:net";
import { basename, dirname, isAbsolute, join } from "node:path";

import type { Clock, Instant } from "./clock.js";
import { CroftError, errorOf, Incompatible, Invalid, LeaseLost, NotStarted, Unknown } from "./errors.js";
import { answered } from "./patience.js";
import type { Listener, Message, Reply, Transport } from "./transport.js";

const protocol = 1;
const maxLine = 64 << 10;
const maxQueue = 8 << 20; // bytes that wait for a croft that does not read
const greetingTime = 60;
const closeTime = 15;

/** How croft is started. */
export interface Command {
  readonly program: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
}

/** A request that waits for its reply. */
interface Question {
  readonly what: string;
  readonly sent: Instant;
  resolve(reply: Reply): void;
  reject(error: CroftError): void;
}

/** A running croft hold --multi, or server.ts. */
export class Hold implements Transport {
  readonly #clock: Clock;
  readonly #listener: Listener;
  readonly #child: ChildProcess;
  readonly #questions = new Map<number, Question>();
  readonly #greeted: Promise<void>;
  readonly #exited: Promise<void>;
  #greeting: { resolve(): void; reject(error: CroftError): void } | undefined;
  #count = 0;
  #why = ""; // why it has ended; "" while it lives
  #reason: CroftError | undefined; // croft's own, if it gave one
  #folder = ""; // where croft keeps the files of leases
  #rest: Buffer = Buffer.alloc(0); // the beginning of a line
  #killer: NodeJS.Timeout | undefined; // runs once the input is closed

  /** Starts croft and waits for its greeting. */
  static async start(command: Command, clock: Clock, listener: Listener): Promise<Hold> {
    const hold = new Hold(command, clock, listener);
    try {
      await answered(hold.#greeted, greetingTime);
    } catch (error) {
      hold.#child.kill("SIGKILL");
      throw error;
    }
    return hold;
  }

  private constructor(command: Command, clock: Clock, listener: Listener) {
    this.#clock = clock;
    this.#listener = listener;
    this.#greeted = new Promise((resolve, reject) => (this.#greeting = { resolve, reject }));
    // In a session of its own (detached), an interrupt from the terminal
    // reaches only this process, which may still have something to say.
    this.#child = spawn(command.program, command.args, {
      env: command.env,
      stdio: ["pipe", "pipe", "inherit"],
      detached: true,
      windowsHide: true,
    });
    this.#exited = new Promise((resolve) =>
      this.#child.once("exit", () => {
        clearTimeout(this.#killer);
        resolve();
      }),
    );
    this.#child.on("error", (error) => {
      if (this.#child.pid !== undefined) {
        return; // a signal could not be sent
      }
      const why = `croft cannot be started (${error.message})`;
      this.#reason ??= new NotStarted(`${why}; install it, or name it in the option croft or in CROFT_BIN`);
      this.#end(why);
    });
    const { stdin, stdout } = this.#child;
    stdin?.on("error", () => {}); // croft has ended, and its output tells
    stdout?.on("error", () => {});
    stdout?.on("data", (chunk: Buffer) => this.#read(chunk));
    stdout?.once("close", () =>
      this.#end(this.#rest.length > 0 ? "croft ended in the middle of a message" : "croft has ended"),
    );
    this.#child.unref();
    for (const pipe of [stdin, stdout]) {
      (pipe as Socket | null)?.unref();
    }
  }

  get alive(): boolean {
    return this.#why === "";
  }

  ask(what: string, lease: string, members: Message = {}): Promise<Reply> {
    if (this.#why !== "") {
      return Promise.reject(this.#gone(what));
    }
    const id = ++this.#count;
    const line = `${JSON.stringify({ id, do: what, lease, ...members })}\n`;
    if (Buffer.byteLength(line) > maxLine) {
      return Promise.reject(new Invalid("the request is longer than 64 KiB; nothing was attempted"));
    }
    if ((this.#child.stdin?.writableLength ?? 0) > maxQueue) {
      return Promise.reject(new Unknown("croft does not read its requests"));
    }
    return new Promise((resolve, reject) => {
      // Before the request is sent: see "Authority" in docs/protocol.md.
      this.#questions.set(id, { what, sent: this.#clock(), resolve, reject });
      this.#child.stdin?.write(line);
    });
  }

  hangUp(): void {
    this.#child.stdin?.end();
    if (this.#running) {
      this.#killer ??= setTimeout(() => this.#child.kill("SIGKILL"), closeTime * 1000).unref();
    }
  }

  async close(): Promise<void> {
    this.hangUp();
    if (this.#running) {
      this.#child.ref();
      await this.#exited;
    }
  }

  get #running(): boolean {
    return this.#child.pid !== undefined && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  #read(chunk: Buffer): void {
    this.#rest = this.#rest.length > 0 ? Buffer.concat([this.#rest, chunk]) : chunk;
    let end: number;
    while (this.#why === "" && (end = this.#rest.indexOf("\n")) >= 0) {
      const line = this.#rest.subarray(0, end);
      this.#rest = this.#rest.subarray(end + 1);
      try {
        this.#heard(parse(line));
      } catch (error) {
        // A message that no croft sends, or a greeting in another protocol.
        this.#reason = error instanceof CroftError ? error : undefined;
        this.#end(`croft cannot be understood: ${error instanceof Error ? error.message : String(error)}`);
      }
    }
    if (this.#rest.length >= maxLine) {
      this.#end("croft cannot be understood: a message is longer than 64 KiB");
    }
  }

  #heard(message: Message): void {
    if (this.#greeting !== undefined) {
      checkGreeting(message);
      this.#greeting.resolve();
      this.#greeting = undefined;
      return;
    }
    if (message["event"] === "granted" && this.#folder === "") {
      this.#folder = scratch(message["lease_file"]);
    }
    const id = message["id"];
    if (id === undefined) {
      if (message["event"] === "error") {
        this.#reason = errorOf(message["error"]); // the end of the output follows
      } else {
        this.#listener.heard(message);
      }
      return;
    }
    const question = typeof id === "number" ? this.#questions.get(id) : undefined;
    if (question === undefined) {
      throw new Error("an answer that nobody has asked for");
    }
    this.#questions.delete(id as number);
    if (message["event"] === "error") {
      question.reject(errorOf(message["error"]));
    } else {
      question.resolve({ sent: question.sent, message });
    }
  }

  /** Tells everybody that there will be no more messages. */
  #end(why: string): void {
    if (this.#why !== "") {
      return;
    }
    this.#why = why;
    this.#greeting?.reject(
      this.#reason ?? new NotStarted(`${why} before it said a word; see its message on standard error`),
    );
    for (const question of this.#questions.values()) {
      question.reject(this.#gone(question.what));
    }
    this.#questions.clear();
    this.#listener.ended(this, this.#why);
    this.hangUp();
    if (this.#folder !== "") {
      removeScratch(this.#folder);
    }
  }

  /** The answer to a request when croft is gone. */
  #gone(what: string): CroftError {
    if (what === "acquire") {
      return this.#reason ?? new Unknown(`${this.#why}; the key may have been granted, but is not held`);
    }
    return new LeaseLost(`${this.#why}; its leases are lost, stop their work`, {}, "gone");
  }
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

function parse(line: Buffer): Message {
  const message: unknown = JSON.parse(utf8.decode(line));
  if (typeof message !== "object" || message === null || typeof (message as Message)["event"] !== "string") {
    throw new Error("a line is no message");
  }
  return message as Message;
}

function checkGreeting(hello: Message): void {
  if (hello["event"] !== "hello" || hello["protocol"] !== protocol) {
    throw new Incompatible(
      `croft ${String(hello["version"])} speaks protocol ${String(hello["protocol"])}, and this client protocol ` +
        `${protocol}; install versions that fit`,
    );
  }
}

/** The folder of a lease's file, if croft can have made it for this. */
function scratch(leaseFile: unknown): string {
  if (typeof leaseFile !== "string" || !isAbsolute(leaseFile)) {
    return "";
  }
  const folder = dirname(leaseFile);
  return basename(folder).startsWith("croft-") ? folder : "";
}

/**
 * Removes the secrets that a killed croft has left behind, and the contents of
 * writes that were on their way (write.ts). It removes nothing else.
 */
function removeScratch(folder: string): void {
  try {
    for (const name of readdirSync(folder)) {
      if (/^(lease|write)-[\d-]+$/.test(name)) {
        rmSync(join(folder, name), { force: true });
      }
    }
    rmdirSync(folder);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") {
      process.emitWarning(`the files of ended leases could not be removed: ${String(error)}`, "CroftWarning");
    }
  }
}
