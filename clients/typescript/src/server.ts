// Holds leases at a croft server for its parent process.
//
// This program speaks the protocol of croft hold --multi (docs/protocol.md),
// and uses the HTTP API of croft serve (docs/server.md). A Client with the URL
// of a server starts it in place of croft. So renewal lives in another process
// here, too: a blocked event loop or a long garbage collection cannot starve
// it.
//
// Its own event loop waits for no call. So it answers verify at once, and
// notices a deadline while a call hangs. Calls about one lease go out one after
// the other. Renewals do not wait for those: all that are due go in one batch.
//
// A lease has a secret, which is made here and leaves only for the server. An
// unknown outcome is asked again with the same secret.

import { randomBytes } from "node:crypto";
import { hostname, userInfo } from "node:os";

import { Asker } from "./asker.js";
import { Caller } from "./call.js";
import { type Instant, systemClock, until } from "./clock.js";
import { clock, Lease, never, type Request } from "./held.js";
import { type Body, cannot, duration, problem, Problem, problemOf, seconds, sleep } from "./wire.js";

const protocol = 1;
const maxLine = 64 << 10;
const maxOutput = 8 << 20; // bytes that wait for a parent that does not read
const maxLeases = 1000;
const maxJobs = 64; // requests about one lease that wait for the server
const endTime = 20; // seconds, for giving everything back

const members: Record<string, readonly string[]> = {
  acquire: ["key", "ttl", "wait", "every", "once", "hold", "stall_after", "max_hold", "above", "guards"],
  verify: [],
  renew: ["ttl"],
  report: ["marker"],
  checkpoint: ["checkpoint"],
  release: [],
  fail: [],
};
const done: Record<string, string> = {
  verify: "verified",
  renew: "renewed",
  report: "reported",
  checkpoint: "saved",
};

/** Everything about the leases of one parent. */
class Process {
  readonly #timeout: number;
  readonly #leases = new Map<string, Lease>();
  readonly #parent = process.ppid;
  #asker: Asker | undefined;
  #timer: NodeJS.Timeout | undefined;
  #exit: number | undefined; // the exit code, once the end has begun
  #hears = false;
  /** later has acquires that come after others. */
  #later: { lease: Lease; take: () => void }[] = [];
  #tidying = 0; // releases of keys that may have been granted
  #rest: Buffer = Buffer.alloc(0);

  constructor(timeout: number) {
    this.#timeout = timeout;
  }

  run(): void {
    for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
      process.on(signal, () => this.#end(130));
    }
    process.stdout.on("error", () => this.#end(1));
    this.#say("hello", 0, "", { protocol, version: "for Node", pid: process.pid });
    try {
      const caller = new Caller(process.env["CROFT_STORE"] ?? "", this.#timeout);
      this.#asker = new Asker(caller, this.#timeout, () => this.#leases.size);
    } catch (error) {
      this.#say("error", 0, "", { error: problem(error).facts });
      this.#end(2);
      return;
    }
    process.stdin.on("data", (chunk: Buffer) => this.#read(chunk));
    process.stdin.on("error", () => this.#end(0));
    process.stdin.on("end", () => {
      if (this.#rest.length > 0) {
        this.#torn("it ended in the middle of a line");
      }
      this.#end(0);
    });
    this.#look();
  }

  // What happens.

  #read(chunk: Buffer): void {
    this.#rest = Buffer.concat([this.#rest, chunk]);
    let end: number;
    while (this.#exit === undefined && (end = this.#rest.indexOf("\n")) >= 0) {
      const line = this.#rest.subarray(0, end);
      this.#rest = this.#rest.subarray(end + 1);
      this.#line(line);
    }
    if (this.#rest.length >= maxLine) {
      this.#torn("a line is longer than 64 KiB");
    }
  }

  #torn(why: string): void {
    if (this.#exit === undefined) {
      this.#say("error", 0, "", { error: new Problem("invalid", `invalid input: ${why}`).facts });
      this.#end(2);
    }
  }

  #line(text: Buffer): void {
    let message: Record<string, unknown>;
    try {
      message = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(text)) as Record<string, unknown>;
      if (typeof message !== "object" || message === null || Array.isArray(message)) {
        throw new Error("a line is no JSON object");
      }
    } catch (error) {
      this.#torn(String(error));
      return;
    }
    const { id: number, lease, do: act, ...rest } = message;
    const id = Number.isSafeInteger(number) && (number as number) > 0 ? (number as number) : 0;
    const name = String(lease ?? "");
    const what = String(act ?? "");
    try {
      const known = Object.hasOwn(members, what) ? members[what] : undefined;
      if (id === 0 || known === undefined || Buffer.byteLength(name) > 512) {
        throw new Problem("invalid", "a request has an id from 1 on, an act, and the name of a lease");
      }
      const other = Object.keys(rest).find((member) => !known.includes(member));
      if (other !== undefined) {
        throw new Problem("invalid", `member ${other.slice(0, 40)}: ${what} has none of this name`);
      }
      const request = { what, id, members: rest };
      if (what === "acquire") {
        this.#acquire(name, request);
      } else {
        this.#pass(name, request);
      }
    } catch (error) {
      this.#fail(id, name, problem(error));
    }
  }

  #acquire(name: string, request: Request): void {
    const m = request.members;
    const key = m["key"];
    if (name === "" || this.#leases.has(name) || this.#leases.size === maxLeases) {
      throw new Problem("invalid", `lease: it needs a name that is used once, and there are at most ${maxLeases}`);
    }
    if (typeof key !== "string" || key === "" || /\p{Surrogate}/u.test(key)) {
      throw new Problem("invalid", "key: acquire needs it, as a text in well-formed Unicode");
    }
    if (Array.isArray(m["guards"]) && m["guards"].length > 0) {
      throw new Problem("invalid", 'guards: only the program croft can raise a fence; use transport: "croft"');
    }
    if (m["once"] === true && m["every"] !== undefined) {
      throw new Problem("invalid", "every and once do not go together");
    }
    const body: Record<string, unknown> = { owner: owner(), instance, ttl: duration("ttl", m["ttl"] ?? 60) };
    for (const [mine, theirs] of [
      ["every", "every"],
      ["hold", "hold_for"],
    ] as const) {
      if (m[mine] !== undefined) {
        body[theirs] = duration(mine, m[mine]);
      }
    }
    if (m["once"] === true) {
      body["every"] = `${200 * 365 * 24}h`;
    }
    if (m["above"] !== undefined) {
      body["above"] = m["above"];
    }
    const lease = new Lease(name, key, request);
    lease.stallAfter = seconds("stall_after", m["stall_after"] ?? 0) || Infinity;
    lease.maxHold = seconds("max_hold", m["max_hold"] ?? 0) || Infinity;
    const wait = m["wait"] === "forever" ? Infinity : seconds("wait", m["wait"] ?? 0);
    // An acquire that was given up may still be granted, and a release be under
    // way. A new acquire of the key comes after them.
    const first = [...this.#leases.values()].some((each) => each.key === key && (each.abandoned || each.ending));
    this.#leases.set(name, lease);
    lease.busy = true;
    if (!this.#hears) {
      this.#hears = true;
      void this.#hear();
    }
    const take = () => {
      this.#asking.take(lease, { ...body, secret: lease.secret }, wait).then(
        (took) => this.#took(lease, took.sent, took.body),
        (error) => this.#refusedAcquire(lease, problem(error)),
      );
    };
    if (first) {
      this.#later.push({ lease, take });
    } else {
      take();
    }
  }

  #took(lease: Lease, sent: Instant, record: Body): void {
    lease.busy = false;
    try {
      lease.confirm(sent, record, record["now"]);
      for (const name of ["stamp", "owner", "cause", "deadline"]) {
        if (typeof record[name] !== "string") {
          throw cannot(`it has no ${name}`);
        }
      }
      if (!Number.isSafeInteger(record["token"]) || (record["token"] as number) < 1) {
        throw cannot("it has no token");
      }
    } catch (error) {
      this.#refusedAcquire(lease, problem(error));
      return;
    }
    const now = systemClock().monotonic;
    lease.held = true;
    lease.token = record["token"] as number;
    lease.renewed(sent);
    lease.progress = now;
    lease.holdEnd = now + lease.maxHold;
    const { stamp, owner, cause, deadline } = record;
    this.#say("granted", lease.acquire.id, lease.name, {
      ...{ key: lease.key, token: lease.token, stamp, owner, cause, deadline, lease_file: "" },
      ...{ checkpoint: record["checkpoint"] ?? "", ttl: lease.ttl, remaining: this.#left(lease) },
    });
    if (lease.abandoned && !lease.ending) {
      this.#giveBack(lease); // the end has begun meanwhile
    }
    this.#next(lease);
    this.#look();
  }

  #refusedAcquire(lease: Lease, p: Problem): void {
    lease.busy = false;
    if (lease.unsure) {
      this.#tidying++;
      this.#asking.release(lease, true)
        .catch(() => {})
        .finally(() => {
          this.#tidying--;
          this.#look();
        });
    }
    this.#fail(lease.acquire.id, lease.name, p);
    this.#forget(lease, true);
  }

  #pass(name: string, request: Request): void {
    const lease = this.#leases.get(name);
    const { what, members: m } = request;
    const ends = what === "release" || what === "fail";
    if (lease === undefined || lease.ending) {
      throw new Problem("not_owned", "this process holds no lease of this name, or no longer");
    }
    if (lease.lost !== undefined && !ends) {
      throw lease.lost;
    }
    if (what === "verify") {
      if (!lease.held) {
        throw new Problem("not_owned", "the key has not been granted yet");
      }
      this.#alive(request, lease);
      return;
    }
    if (lease.jobs.length >= maxJobs && !ends) {
      throw new Problem("invalid", `${maxJobs} requests about this lease wait for the server; wait for answers`);
    }
    let asked = request;
    if (what === "renew" && m["ttl"] !== undefined) {
      asked = { ...request, members: { ttl: duration("ttl", m["ttl"]) } };
      if (asked.members["ttl"] === "0ns") {
        throw new Problem("invalid", "ttl: leave it out to keep the present one");
      }
    }
    const marker = m["marker"];
    if (what === "report" && !(typeof marker === "string" && marker !== "" && Buffer.byteLength(marker) <= 1024)) {
      throw new Problem("invalid", "marker: report needs it, as a text of 1 to 1024 bytes");
    }
    if (what === "checkpoint" && typeof m["checkpoint"] !== "string") {
      throw new Problem("invalid", "checkpoint: it is a text in base64");
    }
    lease.jobs.push(asked);
    if (ends) {
      lease.ending = true;
      lease.abandoned = !lease.held;
    }
    this.#next(lease);
  }

  /** Begins the next call about a lease. */
  #next(lease: Lease): void {
    if (lease.busy || !lease.held) {
      return;
    }
    const request = lease.jobs.shift();
    if (request === undefined) {
      return;
    }
    lease.busy = true;
    this.#asking.ask(lease, request).then(
      ({ sent, body }) => this.#asked(lease, request, sent, body),
      (error) => this.#asked(lease, request, never, problem(error)),
    );
  }

  #asked(
    lease: Lease,
    request: Request,
    sent: Instant,
    result: Body | Problem,
  ): void {
    lease.busy = false;
    let refused = result instanceof Problem ? result : undefined;
    if (request.what === "release" || request.what === "fail") {
      if (refused !== undefined) {
        this.#fail(request.id, lease.name, refused);
      } else {
        this.#say("released", request.id, lease.name, { key: lease.key, token: lease.token });
      }
      this.#forget(lease);
      return;
    }
    if (refused === undefined && lease.lost === undefined) {
      try {
        const record = result as Body;
        lease.confirm(sent, record, record["now"]);
        if (request.what === "renew") {
          lease.renewed(sent);
        } else {
          this.#progressed(lease);
        }
        this.#alive(request, lease);
      } catch (error) {
        refused = problem(error);
      }
    }
    if (refused?.code === "not_owned" && lease.lost === undefined) {
      this.#fail(request.id, lease.name, refused);
      this.#refused(lease, refused);
      return;
    }
    const why = lease.lost ?? refused;
    if (why !== undefined) {
      this.#fail(request.id, lease.name, why);
    }
    this.#next(lease);
    this.#look();
  }

  #progressed(lease: Lease): void {
    lease.progress = clock();
    if (lease.renewAt === Infinity) {
      lease.renewAt = lease.progress; // it was withheld
    }
  }

  // Renewals.

  /** Looks at all leases, and plans the next look. */
  #look(): void {
    clearTimeout(this.#timer);
    if (process.ppid !== this.#parent) {
      this.#end(0); // a child of the parent may have inherited our input
    }
    if (this.#exit !== undefined && this.#leases.size === 0 && this.#tidying === 0) {
      leave(this.#exit);
      return;
    }
    const now = systemClock();
    const due: Lease[] = [];
    let next = 1;
    for (const lease of [...this.#leases.values()]) {
      if (!lease.held) {
        continue;
      }
      const left = until(lease.deadline, now);
      const stalled = now.monotonic - lease.progress >= lease.stallAfter;
      if (lease.lost !== undefined) {
        if (left <= 0 && !lease.ending) {
          this.#forget(lease);
        }
        continue;
      }
      if (now.monotonic >= lease.holdEnd && left > 0) {
        this.#lose(lease, "held_too_long", "held for as long as it may");
        continue;
      }
      if (left <= 0) {
        const loss = stalled ? "stalled" : lease.failed ? "unreachable" : "expired";
        this.#lose(lease, loss, stalled ? "no progress was reported" : "the server did not confirm it in time");
        continue;
      }
      if (now.monotonic >= lease.renewAt) {
        if (stalled) {
          lease.renewAt = Infinity; // until there is progress
        } else {
          due.push(lease);
          lease.failed = true; // until it is confirmed
          lease.renewAt = now.monotonic + Math.max(0.1, lease.ttl / 6); // if there is no answer
        }
      }
      next = Math.min(next, left, lease.holdEnd - now.monotonic, lease.renewAt - now.monotonic);
    }
    if (due.length > 0) {
      void this.#renew(due);
    }
    this.#timer = setTimeout(() => this.#look(), Math.max(1, 1000 * next));
  }

  async #renew(leases: Lease[]): Promise<void> {
    const requests = leases.map(({ key, secret }) => ({ verb: "renew", key, secret }));
    let sent = never;
    let answers: unknown[] = [];
    try {
      const answer = await this.#asking.caller.call("/v1/apply", { requests });
      sent = answer.sent;
      if (Array.isArray(answer.body["answers"])) {
        answers = answer.body["answers"] as unknown[];
      }
    } catch {
      // None of them is confirmed.
    }
    leases.forEach((lease, i) => {
      if (!lease.held || lease.lost !== undefined) {
        return;
      }
      try {
        const answer = (answers[i] ?? {}) as Record<string, unknown>;
        if (answer["error"] !== undefined) {
          throw problemOf(answer["error"] as Body);
        }
        lease.confirm(sent, (answer["record"] ?? {}) as Body, answer["now"]);
        lease.renewed(sent);
      } catch (error) {
        const p = problem(error);
        if (p.code === "not_owned") {
          if (!lease.ending) {
            this.#refused(lease, p);
          }
          return;
        }
        lease.renewAt = Math.min(lease.renewAt, clock() + lease.pause);
        lease.pause = Math.min(1, 2 * lease.pause);
      }
    });
    this.#look();
  }

  /** Hears of operators' acts. They are only hints. */
  async #hear(): Promise<void> {
    for (let pause = 1; ; ) {
      const began = clock();
      try {
        await this.#asking.caller.acts((key) => this.#doubt(key));
      } catch (error) {
        if (problem(error).theirs === "unsupported") {
          return; // the store tells nobody
        }
      }
      pause = clock() - began > 30 ? 1 : Math.min(30, 2 * pause);
      await sleep(pause);
    }
  }

  /** Renews out of turn: the key may have been given to another. */
  #doubt(key: string | undefined): void {
    const now = clock();
    for (const lease of this.#leases.values()) {
      if (lease.held && lease.lost === undefined && (key === undefined || key === lease.key)) {
        lease.renewAt = Math.min(lease.renewAt, Math.max(now, lease.doubted + 1));
        if (key !== undefined) {
          lease.doubted = lease.renewAt;
        }
      }
    }
    this.#look();
  }

  // How leases end.

  #refused(lease: Lease, p: Problem): void {
    let loss = ["taken_over", "released", "expired"].includes(p.why) ? p.why : "superseded";
    if (p.why === "unknown" && p.facts["key"] === undefined) {
      loss = "expired"; // as far as the store knows, nobody else was granted the key
    }
    lease.deadline = never;
    this.#lose(lease, loss, p.message, String(p.facts["owner"] ?? ""));
  }

  #lose(lease: Lease, loss: string, why: string, owner = ""): void {
    const message = `the lease on ${JSON.stringify(lease.key)} is lost (${loss}): ${why}; stop this work`;
    const facts = { key: lease.key, token: lease.token, loss, owner };
    lease.lost = new Problem("not_owned", message, facts);
    this.#say("lost", 0, lease.name, { ...facts, message });
    // If the deadline is to come, the store still keeps the key: the parent
    // stops its work, and then gives the lease back.
    if (until(lease.deadline, systemClock()) <= 0 && !lease.ending) {
      this.#forget(lease);
    }
  }

  /** Takes a lease out of the table, and answers what was not served. */
  #forget(lease: Lease, free = false): void {
    this.#leases.delete(lease.name);
    for (const left of lease.jobs.splice(0)) {
      if (free && (left.what === "release" || left.what === "fail")) {
        this.#say("released", left.id, lease.name); // nothing is held, as it should be
      } else {
        this.#fail(left.id, lease.name, lease.lost ?? new Problem("not_owned", "this lease is over"));
      }
    }
    for (let i: number; (i = this.#later.findIndex((each) => each.lease.key === lease.key)) >= 0; ) {
      const [next] = this.#later.splice(i, 1);
      if (next?.lease.abandoned) {
        const p = new Problem("cancelled", "the acquire was given up before the key was granted");
        this.#refusedAcquire(next.lease, p);
      } else {
        next?.take();
      }
    }
    if (this.#exit !== undefined) {
      setImmediate(() => this.#look());
    }
  }

  /** Begins the end: it gives all leases back as failed. */
  #end(code: number): void {
    if (this.#exit !== undefined) {
      return;
    }
    this.#exit = code;
    setTimeout(() => leave(code), endTime * 1000);
    for (const lease of [...this.#leases.values()]) {
      if (lease.held && !lease.ending) {
        this.#giveBack(lease);
      } else if (!lease.held) {
        lease.abandoned = true;
      }
    }
    setImmediate(() => this.#look());
  }

  #giveBack(lease: Lease): void {
    lease.ending = true;
    lease.jobs.push({ what: "fail", id: 0, members: {} });
    this.#next(lease);
  }

  get #asking(): Asker {
    return this.#asker as Asker; // there is one before there are requests
  }

  // The output.

  #say(event: string, id: number, lease: string, members: Body = {}): void {
    const about = { event, ...(id > 0 ? { id } : {}), ...(lease !== "" ? { lease } : {}) };
    process.stdout.write(`${JSON.stringify({ ...about, ...members })}\n`);
    if (process.stdout.writableLength > maxOutput) {
      this.#end(1);
    }
  }

  #fail(id: number, lease: string, p: Problem): void {
    this.#say("error", id, lease, { error: p.facts });
  }

  #alive(request: Request, lease: Lease): void {
    const { token, ttl } = lease;
    this.#say(done[request.what] as string, request.id, lease.name, { token, ttl, remaining: this.#left(lease) });
  }

  #left(lease: Lease): number {
    return Math.floor(until(lease.deadline, systemClock()) * 1e6) / 1e6;
  }
}

/** Ends this process, once the output is written. */
function leave(code: number): void {
  setTimeout(() => process.exit(code), 1000).unref();
  process.stdout.write("", () => process.exit(code));
}

/** The owner in records, as croft names it. */
function owner(): string {
  return process.env["CROFT_OWNER"] || `${user()}@${hostname() || "localhost"}`;
}

function user(): string {
  try {
    return userInfo().username;
  } catch {
    return "somebody"; // whom the password database does not know
  }
}

const instance = `${process.pid}-${randomBytes(4).toString("hex")}@${hostname() || "localhost"}`;

new Process(Number(process.argv[2])).run();
