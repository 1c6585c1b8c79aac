// Programs that stand still or end: rows 24, 25 and 28 to 32 of conformance.md.

import assert from "node:assert/strict";
import { test } from "node:test";

import { proceed, Station, stop, ttl, until } from "./support.js";

/** Code that lets nothing else run in its thread for three TTLs. */
const block = `Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ${3 * ttl * 1000});`;

export function standingStill(): void {
  test("24 an event loop that is blocked for three TTLs loses nothing", async (t) => {
    const s = new Station(t);
    const program = s.node(`
      await croft.withLease("jobs/a", { ttl: ${ttl} }, async (lease) => {
        ${block}
        if (lease.remaining > 0) throw new Error("authority from before the block");
        await lease.check();
        if (lease.remaining <= 0 || lease.signal.aborted) throw new Error("lost");
        await lease.report("after the block");
      });`);
    assert.equal(await program.code(), 0);
    assert.equal((await s.show("jobs/a")).ended, "released");
  });

  test("24 after such a block the authority comes back without a question of the work", async (t) => {
    const s = new Station(t);
    const program = s.node(`
      await croft.withLease("jobs/a", { ttl: ${ttl} }, async (lease) => {
        ${block}
        await new Promise((resolve, reject) => {
          const look = setInterval(() => lease.remaining > 0 && resolve(clearInterval(look)), 10);
          lease.signal.onabort = () => reject(lease.signal.reason);
        });
      });`);
    assert.equal(await program.code(), 0);
    assert.equal((await s.show("jobs/a")).ended, "released");
  });

  test("25 a thread that lets no other run takes nothing from the leases of a worker thread", async (t) => {
    const s = new Station(t);
    const worker = s.module(`
      import { parentPort } from "node:worker_threads";
      await croft.withLease("jobs/a", { ttl: ${ttl} }, async (lease) => {
        parentPort.postMessage("held");
        await new Promise((resolve) => parentPort.once("message", resolve));
        await lease.check();
        parentPort.postMessage(lease.signal.aborted ? "lost" : "kept");
      });`);
    const program = s.node(`
      import { Worker } from "node:worker_threads";
      const worker = new Worker(new URL(${JSON.stringify(worker)}));
      const message = () => new Promise((resolve, reject) => worker.once("message", resolve).once("error", reject));
      await message();
      ${block}
      worker.postMessage("enough");
      console.log(await message());`);
    assert.equal(await program.line(), "kept");
    assert.equal(await program.code(), 0);
    assert.equal((await s.show("jobs/a")).ended, "released");
  });

  test("28 a program whose event loop is idle is told of a stopped croft", async (t) => {
    const s = new Station(t);
    const program = s.node(`
      const client = new croft.Client({ croft: ${JSON.stringify(s.noting("worker"))} });
      const lease = await client.acquire("jobs/a", { ttl: ${ttl} });
      lease.signal.onabort = () => {
        console.log(lease.signal.reason.loss);
        process.exit();
      };
      console.log("held");
      setTimeout(() => {}, 1_000_000);`);
    assert.equal(await program.line(), "held");
    const [pid = 0] = s.pids();
    s.last(() => proceed(pid));
    await stop(pid);
    assert.equal(await program.line(), "silent");
  });

  test("29 a parent that was stopped for longer than the TTL still holds what croft renewed", async (t) => {
    const s = new Station(t);
    const program = s.node(`
      const lease = await croft.acquire("jobs/a", { ttl: ${ttl} });
      console.log("held");
      await new Promise((resolve) => process.stdin.once("data", resolve));
      await lease.check();
      console.log(lease.token);
      await lease.release();
      process.exit();`);
    assert.equal(await program.line(), "held");
    const first = await s.show("jobs/a");
    await stop(program.pid);
    await until("the end of the first TTL", () => Date.now() > Date.parse(first.deadline) + 1000);
    proceed(program.pid);
    program.child.stdin?.write("go on\n");
    assert.equal(await program.line(), String(first.token));
    assert.equal(await program.code(), 0);
    assert.equal((await s.show("jobs/a")).ended, "released");
  });

  test("30 a killed parent gives its leases back at once", async (t) => {
    const s = new Station(t);
    const program = s.node(`
      await croft.acquire("jobs/a", { ttl: 3600 });
      await croft.acquire("jobs/b", { ttl: 3600 });
      console.log("held");
      setInterval(() => {}, 1000);`);
    assert.equal(await program.line(), "held");
    program.child.kill("SIGKILL");
    await s.ended("jobs/a", "failed");
    await s.ended("jobs/b", "failed");
  });

  test("31 so does one whose child lives on", async (t) => {
    const s = new Station(t);
    const program = s.node(`
      import { spawn } from "node:child_process";
      await croft.acquire("jobs/a", { ttl: 3600 });
      const child = spawn("sleep", ["1000"], { stdio: "inherit", detached: true });
      console.log(child.pid);`);
    const child = Number(await program.line());
    s.last(() => process.kill(child, "SIGKILL"));
    program.child.kill("SIGKILL");
    await s.ended("jobs/a", "failed");
    process.kill(child, 0); // it lives
  });

  test("32 an interrupt ends no lease of a program that goes on", async (t) => {
    const s = new Station(t);
    const program = s.node(`
      process.on("SIGINT", async () => {
        await lease.verify();
        await lease.release();
        console.log("released");
        process.exit();
      });
      const lease = await croft.acquire("jobs/a", { ttl: 3600 });
      console.log("held");
      setInterval(() => {}, 1000);`);
    assert.equal(await program.line(), "held");
    process.kill(-program.pid, "SIGINT"); // as a terminal does, to the whole group
    assert.equal(await program.line(), "released");
    assert.equal(await program.code(), 0);
    assert.equal((await s.show("jobs/a")).ended, "released");
  });

  test("32 the end of the program gives back what it holds, as failed", async (t) => {
    const s = new Station(t);
    // Nothing but the client is left to do: it keeps no program alive.
    const idle = s.node(`await croft.acquire("jobs/a", { ttl: 3600 });`);
    assert.equal(await idle.code(), 0);
    await s.ended("jobs/a", "failed");
    const exits = s.node(`await croft.acquire("jobs/b", { ttl: 3600 }); process.exit(7);`);
    assert.equal(await exits.code(), 7);
    await s.ended("jobs/b", "failed");
    // A question keeps it alive: this waits until the key is free.
    const holder = await s.client().acquire("jobs/d", { ttl: 3600 });
    const waits = s.node(`console.log("waits"); await croft.withLease("jobs/d", { wait: Infinity }, () => {});`);
    assert.equal(await waits.line(), "waits");
    await holder.release();
    assert.equal(await waits.code(), 0);
    assert.notEqual((await s.show("jobs/d")).token, holder.token);
  });
}
