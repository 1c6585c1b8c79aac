// A real croft and a store of its own for each test.

import assert from "node:assert/strict";
import { type ChildProcess, execFile, execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";

import { Client, type ClientOptions, type Lease, LeaseLost } from "../src/index.js";

export const program = process.env["CROFT_BIN"] ?? "croft";

/** Whether the clients of these tests hold their leases at a server. */
export const overServer = process.env["CROFT_TEST_TRANSPORT"] === "server";

/**
 * The options of a test of a row that does not apply over a server: see "Over a
 * server" in conformance.md.
 */
export function byCroftAlone(why: string): { skip: string | false } {
  return { skip: overServer && why };
}

/** The folder of this package. */
export const home = fileURLToPath(new URL("../../", import.meta.url));

/** Bounds every wait for an event that must happen. It measures nothing. */
export const patience = 60_000;

/**
 * For leases that must end while a test waits, but not while it looks: on a
 * busy machine a process can stand still for seconds.
 */
export const ttl = 10;

export const hello = `echo '{"event":"hello","protocol":1,"version":"a test","pid":1}'\n`;

/** Waits until ok gives something true, and returns it. */
export async function until<T>(what: string, ok: () => T | Promise<T>): Promise<NonNullable<T>> {
  for (const end = performance.now() + patience; ; await sleep(10)) {
    const found = await ok();
    if (found) {
      return found;
    }
    assert.ok(performance.now() < end, `waited ${patience} ms for ${what} in vain`);
  }
}

/** The record of a key, as croft show prints it. */
export interface Shown {
  token: number;
  owner: string;
  state: string;
  ended: string;
  progress: string;
  ttl: string;
  deadline: string;
}

/** A folder with a store, and processes that share it. */
export class Station {
  readonly dir = mkdtempSync(join(tmpdir(), "test-croft-"));
  /** The store itself, behind a server or not. */
  readonly records: string;
  readonly server: Server | undefined;
  readonly store: string;
  readonly env: NodeJS.ProcessEnv;
  readonly #last: (() => unknown)[] = [];

  constructor(test: TestContext, records: "store" | "ledger" = "store") {
    this.records = records === "store" ? this.path("store") : `sqlite://${this.path("ledger.db")}`;
    this.server = overServer ? this.serve() : undefined;
    this.store = this.server === undefined ? this.records : `http://${this.server.address}/`;
    const { dir, store } = this;
    this.env = { ...process.env, CROFT_STORE: store, CROFT_BIN: this.noting("program"), TMPDIR: dir };
    test.after(async () => {
      for (const each of this.#last.reverse()) {
        await each();
      }
      await until("the end of all crofts", () => !this.#busy());
      await until("an empty folder", () => this.#removed());
    });
  }

  /** Starts a server before the store. It listens when this returns. */
  serve(address = "127.0.0.1:0", ...flags: string[]): Server {
    const said = this.path(`serve-${++servers}`);
    const args = ["serve", "--json", "--store", this.records, "--listen", address, ...flags];
    const child = spawn(program, args, { cwd: this.dir, stdio: ["ignore", openSync(said, "w"), "inherit"] });
    this.last(() => child.kill("SIGKILL"));
    for (const end = performance.now() + patience; ; block(0.01)) {
      const found = /"listening","address":"([^"]+)"/.exec(readFileSync(said, "utf8"))?.[1];
      if (found !== undefined) {
        return { child, address: found };
      }
      assert.ok(performance.now() < end, "the server does not listen");
    }
  }

  /** Makes NAME.pem and NAME.key, with which NAME proves itself. */
  certificate(name: string, subject: string): void {
    execFileSync("openssl", [
      ...["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"],
      ...["-subj", `/CN=${name}`, "-addext", `subjectAltName=${subject}`],
      ...["-keyout", this.path(`${name}.key`), "-out", this.path(`${name}.pem`)],
    ], { stdio: "ignore" });
  }

  /** Writes the files policy, where ann has this token, and token. */
  policy(text: string, token: string): void {
    const digest = createHash("sha256").update(token).digest("hex");
    writeFileSync(this.path("policy"), `token ann sha256:${digest}\n${text}`, { mode: 0o600 });
    writeFileSync(this.path("token"), token);
  }

  /** The helpers that hold leases at the server, the newest at the end. */
  #helpers(owner?: string): number[] {
    const found: { pid: number; started: number }[] = [];
    for (const pid of readdirSync("/proc").map(Number)) {
      try {
        if (!readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("/src/server.js\0")) {
          continue;
        }
        const env = readFileSync(`/proc/${pid}/environ`, "utf8").split("\0");
        const theirs = env.find((variable) => variable.startsWith("CROFT_OWNER="));
        const is = owner === undefined || theirs === undefined || theirs === `CROFT_OWNER=${owner}`;
        if (is && env.includes(`CROFT_STORE=${this.store}`)) {
          found.push({ pid, started: Number(stat(pid)[19]) });
        }
      } catch {
        // It has ended, or is none.
      }
    }
    // Ids begin again after the highest.
    return found.sort((a, b) => a.started - b.started || a.pid - b.pid).map(({ pid }) => pid);
  }

  /** Whether a croft that has noted its process id, or a helper, still runs. */
  #busy(): boolean {
    if (overServer && this.#helpers().length > 0) {
      return true;
    }
    const notes = readdirSync(this.dir).filter((name) => name.endsWith(".pids"));
    return notes
      .flatMap((name) => this.#noted(name.slice(0, -".pids".length)))
      .some((pid) => {
        try {
          return readFileSync(`/proc/${pid}/environ`, "utf8").includes(this.dir); // not another of this id
        } catch {
          return false;
        }
      });
  }

  /** Removes the folder, unless a killed process is still writing there. */
  #removed(): boolean {
    try {
      rmSync(this.dir, { recursive: true, force: true });
      return true;
    } catch {
      return false;
    }
  }

  /** Runs at the end of the test, before all that was put here earlier. */
  last(work: () => unknown): void {
    this.#last.push(work);
  }

  path(name: string): string {
    return join(this.dir, name);
  }

  /** A client that is closed at the end. */
  client(owner = "worker", options: ClientOptions = {}): Client {
    const client = new Client({ store: this.store, owner, croft: this.noting(owner), ...options });
    this.last(() => client.close());
    return client;
  }

  /** A croft that notes its process ids. */
  noting(owner: string): string {
    return this.script(`croft-of-${owner}`, `echo $$ >>'${this.path(owner)}.pids'\nexec '${program}' "$@"\n`);
  }

  /** The processes that ran for a client, the newest at the end. */
  pids(owner = "worker"): number[] {
    return overServer ? this.#helpers(owner) : this.#noted(owner);
  }

  #noted(owner: string): number[] {
    return readFileSync(`${this.path(owner)}.pids`, "utf8").trim().split("\n").map(Number);
  }

  script(name: string, text: string): string {
    const path = this.path(name);
    writeFileSync(path, `#!/bin/sh\n${text}`);
    chmodSync(path, 0o700);
    return path;
  }

  /** A client of a program that is not croft. */
  fake(text: string): Client {
    const client = new Client({ store: this.store, croft: this.script(`fake-${++fakes}`, text) });
    this.last(() => client.close());
    return client;
  }

  /** Runs croft, which must succeed, and returns what it prints. */
  async croft(...args: string[]): Promise<string> {
    const { stdout } = await promisify(execFile)(program, args, { cwd: this.dir, env: this.env });
    return stdout;
  }

  /** Does the same while the event loop is blocked. */
  croftBlocking(...args: string[]): void {
    execFileSync(program, args, { cwd: this.dir, env: this.env, stdio: ["ignore", "pipe", "pipe"] });
  }

  /** Runs croft, and returns its exit code. */
  exit(...args: string[]): Promise<number> {
    return this.croft(...args).then(
      () => 0,
      (error: { code: number }) => error.code,
    );
  }

  async show(key: string): Promise<Shown> {
    return JSON.parse(await this.croft("show", "--json", key)) as Shown;
  }

  /** An operator takes a key. It returns the stamp of the operator's lease. */
  async takeOver(key: string): Promise<string> {
    const printed = await this.croft("takeover", key, "--note", "a test", "--owner", "operator", "--json");
    return (JSON.parse(printed.trim().split("\n").at(-1) ?? "") as { stamp: string }).stamp;
  }

  /** Waits until the newest term of a key has ended like this. */
  async ended(key: string, how: string): Promise<void> {
    assert.equal(await until("the end of the term", async () => (await this.show(key)).ended), how);
  }

  /** Writes a program that has this package as croft, and returns its URL. */
  module(text: string): string {
    const path = this.path(`program-${++programs}.mjs`);
    writeFileSync(path, `import * as croft from ${JSON.stringify(import.meta.resolve("../src/index.js"))};\n${text}`);
    return pathToFileURL(path).href;
  }

  /**
   * Starts a node that runs a program with this package, in a group of its own.
   */
  node(text: string): Program {
    const child = spawn(process.execPath, [fileURLToPath(this.module(text))], {
      cwd: this.dir,
      env: this.env,
      stdio: ["pipe", "pipe", "inherit"],
      detached: true,
    });
    this.last(() => child.kill("SIGKILL"));
    return new Program(child);
  }
}

let fakes = 0;
let programs = 0;
let servers = 0;

export interface Server {
  readonly child: ChildProcess;
  readonly address: string;
}

/** A running program that is read by lines. */
export class Program {
  #text = "";

  constructor(readonly child: ChildProcess) {
    child.stdout?.setEncoding("utf8").on("data", (text: string) => (this.#text += text));
  }

  get pid(): number {
    return this.child.pid ?? -1;
  }

  /** The next line that it prints. */
  async line(): Promise<string> {
    const end = await until("a line", () => {
      assert.equal(this.child.exitCode ?? 0, 0, "the program has failed");
      return this.#text.indexOf("\n") + 1;
    });
    const line = this.#text.slice(0, end - 1);
    this.#text = this.#text.slice(end);
    return line;
  }

  /** Its exit code. */
  async code(): Promise<number | null> {
    await until("the end", () => this.child.exitCode !== null || this.child.signalCode !== null);
    return this.child.exitCode;
  }
}

/** Waits until the loss of a lease is known without a question. */
export async function lossOf(lease: Lease): Promise<LeaseLost> {
  await until("the loss", () => lease.signal.aborted);
  const lost: unknown = lease.signal.reason;
  assert.ok(lost instanceof LeaseLost);
  assert.equal(lease.lost, lost);
  assert.ok(lease.remaining <= 0);
  await assert.rejects(lease.check(), (error) => error === lost);
  return lost;
}

/** What the system says of a process, from its state on. */
export function stat(pid: number): string[] {
  const text = readFileSync(`/proc/${pid}/stat`, "utf8"); // its name may have anything
  return text.slice(text.lastIndexOf(")") + 2).split(" ");
}

/** Whether a process has ended, although nobody may have waited for it. */
export function ended(pid: number): boolean {
  try {
    return stat(pid)[0] === "Z";
  } catch {
    return true;
  }
}

/** Stops a process, and returns when all of it stands still. */
export async function stop(pid: number): Promise<void> {
  process.kill(pid, "SIGSTOP");
  await until("the stop", () =>
    readdirSync(`/proc/${pid}/task`).every((thread) => {
      const stat = readFileSync(`/proc/${pid}/task/${thread}/stat`, "utf8");
      return "Tt".includes(stat.slice(stat.lastIndexOf(")") + 2)[0] ?? "");
    }),
  );
}

export function proceed(pid: number): void {
  try {
    process.kill(pid, "SIGCONT");
  } catch {
    // It has ended.
  }
}

/** Lets nothing else run in this thread for so many seconds. */
export function block(seconds: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, seconds * 1000);
}
