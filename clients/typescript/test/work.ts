// Workers: rows 90 to 96 of conformance.md.

import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test, type TestContext } from "node:test";

import { ended, home, overServer, type Program, proceed, stat, Station, stop, ttl, until } from "./support.js";

interface Item {
  state: string;
  attempts: number;
  error: string;
  record: { owner: string; progress: string };
}

/** A ledger, and programs that are workers. */
class Ledger {
  readonly s: Station;

  constructor(t: TestContext) {
    this.s = new Station(t, "ledger");
  }

  async add(payload: string, ...flags: string[]): Promise<string> {
    return (JSON.parse(await this.s.croft("work", "add", "pages", payload, "--json", ...flags)) as { id: string }).id;
  }

  async item(id: string): Promise<Item> {
    return JSON.parse(await this.s.croft("work", "show", id, "--json")) as Item;
  }

  result(id: string): Promise<string> {
    return this.s.croft("work", "show", id, "--raw", "result");
  }

  cancel(id: string): Promise<string> {
    return this.s.croft("work", "cancel", id, "--note", "a test");
  }

  /** Starts a program that is a worker with this body. */
  start(body: string, options = "{ once: true }"): Program {
    return this.s.node(`
      import * as fs from "node:fs";
      import { execFileSync, spawn } from "node:child_process";
      console.log("an import that prints");
      await croft.worker("pages", async (job) => { ${body} }).run(${options});`);
  }

  async run(body: string, options?: string, code = 0): Promise<void> {
    assert.equal(await this.start(body, options).code(), code);
  }

  read(name: string): string {
    return existsSync(this.s.path(name)) ? readFileSync(this.s.path(name), "utf8") : "";
  }

  /** The process that works, once it does. */
  async pid(): Promise<number> {
    return Number(await until("the work", () => this.read("pid")));
  }
}

const noting = `fs.writeFileSync("pid", String(process.pid));`;
/** Lets nothing else run, without the cost of a loop. */
const block = "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);";
const busy = `${noting} ${block}`;

export function work(): void {
  test("90 a worker gets the payload, and what it returns is the result", async (t) => {
    const ledger = new Ledger(t);
    const id = await ledger.add('{"text": "a b"}');
    await ledger.run(`
      console.log("for people");
      execFileSync("echo", ["from a child"], { stdio: "inherit" });
      if (job.queue !== "pages" || job.attempt !== 1 || job.checkpoint.length > 0) throw new Error("wrong job");
      if (!job.stamp.startsWith(\`croft1:\${job.token}:\`)) throw new Error("wrong stamp");
      return { words: job.json().text.split(" ").length, id: job.id };`);
    assert.deepEqual(JSON.parse(await ledger.result(id)), { words: 2, id });
    const ids = [await ledger.add("x"), await ledger.add("y")];
    await ledger.run(`return Buffer.concat([job.payload, Buffer.from("!")]);`, "{ untilEmpty: true, slots: 2 }");
    assert.deepEqual(await Promise.all(ids.map((each) => ledger.result(each))), ["x!", "y!"]);
  });

  test("90 the example of the README", async (t) => {
    const ledger = new Ledger(t);
    const id = await ledger.add('{"text": "a b c"}');
    const readme = readFileSync(join(home, "README.md"), "utf8");
    const example = /```js\n\/\/ worker\.mjs.*\nimport .*\n([^]*?)```/.exec(readme)?.[1];
    assert.ok(example);
    const program = ledger.s.node(example);
    await until("the result", async () => (await ledger.item(id)).state === "done");
    program.child.kill("SIGTERM");
    assert.equal(await program.code(), 0);
    assert.deepEqual(JSON.parse(await ledger.result(id)), { words: 3 });
  });

  const tokens = { skip: !overServer && "it is about a server that asks for a token" };
  test("90 a server that asks for a token", tokens, async (t) => {
    const ledger = new Ledger(t);
    const { s } = ledger;
    s.certificate("server", "IP:127.0.0.1");
    s.policy("ann may acquire, work on pages/\nann may acquire, work on work/reconciler\n", "anns-token");
    const { address } = s.serve("127.0.0.1:0", "--cert", "server.pem", "--key", "server.key", "--policy", "policy");
    const id = await ledger.add("x");
    s.env["CROFT_STORE"] = `https://${address}/?ca=${s.path("server.pem")}&token=@${s.path("token")}`;
    await ledger.run(`
      await job.report("half");
      await job.save("all");
      await job.emit("seen");
      return process.env["CROFT_STORE"];`);
    s.env["CROFT_STORE"] = s.store;
    assert.doesNotMatch(await ledger.result(id), /anns-token/);
    const { state, record } = await ledger.item(id);
    assert.deepEqual([state, record.owner, record.progress], ["done", "ann", "half"]);
    assert.match(await s.croft("work", "effects", "ls", "--json"), /seen/);
  });

  test("91 a worker that throws has failed the attempt, and only a return completes it", async (t) => {
    const ledger = new Ledger(t);
    for (const [body, state, attempts, text] of [
      [`throw new RangeError("mine");`, "waiting", 1, "mine"],
      [`throw new croft.Final("never");`, "dead", 1, "never"],
      [`throw new croft.NotNow("later");`, "waiting", 0, "later"],
      [`job.json();`, "dead", 1, "no JSON"],
      [`process.exit(0);`, "waiting", 1, "before it returned"],
      [`await new Promise(() => {});`, "waiting", 1, "before it returned"],
      [`process.on("exit", () => process.exit(0)); process.exit(0);`, "waiting", 1, "before its work was done"],
      [`if ("CROFT_DONE" in process.env) return; process.kill(process.pid, "SIGKILL");`, "waiting", 1, "killed"],
    ] as const) {
      const id = await ledger.add("not json");
      await ledger.run(body, undefined, 1);
      const item = await ledger.item(id);
      assert.deepEqual([item.state, item.attempts], [state, attempts], body);
      assert.ok(item.error.includes(text), item.error);
      if (state === "waiting") {
        await ledger.cancel(id);
      }
    }
  });

  test("91 a program that ends before run has failed the attempt", async (t) => {
    const ledger = new Ledger(t);
    for (const early of ["process.exit(0);", "work.run = () => {};"]) {
      const id = await ledger.add("x");
      const program = ledger.s.node(`
        const work = croft.worker("pages", () => "done");
        if (process.env.CROFT_ITEM) { ${early} }
        await work.run({ once: true });`);
      assert.equal(await program.code(), 1);
      const item = await ledger.item(id);
      assert.deepEqual([item.state, item.attempts], ["waiting", 1], early);
      assert.match(item.error, /before its work was done/);
      await ledger.cancel(id);
    }
  });

  test("91 an attempt that ended early is tried again", async (t) => {
    const ledger = new Ledger(t);
    const id = await ledger.add("x");
    await ledger.run(`if (job.attempt === 1) process.exit(0); return job.attempt;`, "{ untilEmpty: true }");
    assert.equal(await ledger.result(id), "2");
  });

  test("92 progress is in the ledger, and the next attempt begins with the checkpoint", async (t) => {
    const ledger = new Ledger(t);
    const id = await ledger.add("x");
    await ledger.run(`await job.report("-- page 7"); await job.save("page 7"); throw 1;`, undefined, 1);
    assert.equal((await ledger.item(id)).record.progress, "-- page 7");
    await ledger.run(`return [job.attempt, new TextDecoder().decode(job.checkpoint)];`, "{ untilEmpty: true }");
    assert.deepEqual(JSON.parse(await ledger.result(id)), [2, "page 7"]);
  });

  test("93 effects happen if the attempt completes the item, and only then", async (t) => {
    const ledger = new Ledger(t);
    const id = await ledger.add("x");
    await ledger.run(`await job.emit("counted", { words: 2 }); throw 1;`, undefined, 1);
    assert.equal(await ledger.s.croft("work", "effects", "ls", "--json"), "");
    await ledger.run(
      `await job.emit("counted", { words: 2 }, { to: "elsewhere" });
       await job.emit("raw", Uint8Array.from([255]), { atMostOnce: true });
       await job.write("out.txt", "guarded");
       return job.emit("", "x").catch((error) => error instanceof croft.Invalid && "done");`,
      "{ untilEmpty: true }",
    );
    assert.equal(await ledger.result(id), "done");
    const effects = (await ledger.s.croft("work", "effects", "ls", "--json")).trim().split("\n");
    const sent = effects.map((line) => JSON.parse(line) as { name: string; to: string });
    assert.deepEqual(sent.map(({ name, to }) => `${name} ${to}`).sort(), ["counted elsewhere", "raw raw"]);
    assert.equal(ledger.read("out.txt"), "guarded");
  });

  test("94 a worker that loses its item is killed with all that it has started", async (t) => {
    const ledger = new Ledger(t);
    const id = await ledger.add("x");
    const program = ledger.start(`
      const child = spawn("sleep", ["1000"], { detached: true });
      fs.writeFileSync("child", String(child.pid));
      process.on("SIGTERM", () => {});
      ${busy}`, "{ once: true, ttl: 30 }");
    const pid = await ledger.pid();
    await ledger.cancel(id);
    assert.equal(await program.code(), 12);
    for (const each of [pid, Number(ledger.read("child"))]) {
      await until("its end", () => !existsSync(`/proc/${each}`));
    }
    assert.equal(await ledger.result(id), "");
  });

  test("94 its late requests are refused", async (t) => {
    const ledger = new Ledger(t);
    const id = await ledger.add("x");
    ledger.start(`
      fs.writeFileSync("croft", String(process.ppid));
      ${noting}
      while (!fs.existsSync("go on")) await new Promise((resolve) => setTimeout(resolve, 10));
      await job.report("late").catch((error) => fs.writeFileSync("refused", error.code));
      await new Promise((resolve) => setTimeout(resolve, 1_000_000));`, "{ once: true, ttl: 3600 }");
    const croft = parent(parent(await ledger.pid()));
    ledger.s.last(() => process.kill(croft, "SIGKILL"));
    await stop(croft); // otherwise it kills the work first
    await ledger.cancel(id);
    writeFileSync(ledger.s.path("go on"), "");
    assert.match(await until("the refusal", () => ledger.read("refused")), /stale|not_owned/);
  });

  test("95 a worker that blocks for ever without progress is killed in time", async (t) => {
    const ledger = new Ledger(t);
    const id = await ledger.add("x");
    await ledger.run(block, "{ once: true, ttl: 3, stallAfter: 1 }", 12);
    assert.equal(await ledger.result(id), "");
  });

  test("96 a croft that is killed or stands still takes its workers along", async (t) => {
    for (const end of ["SIGKILL", "SIGSTOP"] as const) {
      const ledger = new Ledger(t);
      await ledger.add("x");
      const program = ledger.start(busy, `{ once: true, ttl: ${ttl} }`);
      const pid = await ledger.pid();
      const croft = parent(parent(pid));
      process.kill(croft, end);
      ledger.s.last(() => proceed(croft));
      await until("the end of the work", () => !existsSync(`/proc/${pid}`));
      proceed(croft);
      await program.code(); // croft needs the ledger to end at once
    }
  });

  test("96 a program that is killed takes its croft and its workers along", async (t) => {
    const ledger = new Ledger(t);
    const id = await ledger.add("x");
    const program = ledger.start(busy, "{ drain: 0.1 }");
    const pid = await ledger.pid();
    const croft = parent(parent(pid));
    program.child.kill("SIGKILL");
    await until("the end of the work", () => ended(pid));
    await until("the end of croft", () => ended(croft));
    const item = await ledger.item(id);
    assert.deepEqual([item.state, item.attempts], ["waiting", 0]);
  });

  test("96 one that drains gives items back", async (t) => {
    const ledger = new Ledger(t);
    const id = await ledger.add("x");
    const waits = "await new Promise((resolve) => setTimeout(resolve, 1_000_000));";
    const program = ledger.start(`${noting} ${waits}`, "{ drain: 0.1 }");
    await ledger.pid();
    program.child.kill("SIGTERM");
    await program.code();
    const item = await ledger.item(id);
    assert.deepEqual([item.state, item.attempts], ["waiting", 0]);
  });
}

/** The parent of a process. */
function parent(pid: number): number {
  return Number(stat(pid)[1]);
}
