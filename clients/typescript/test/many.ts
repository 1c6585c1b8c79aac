// Many at once: rows 60, 61, 63 and 64 of conformance.md.

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Client } from "../src/index.js";
import { lossOf, proceed, Station, stop } from "./support.js";

export function many(): void {
  test("60 a hundred leases are held by one croft", async (t) => {
    const s = new Station(t);
    const client = s.client();
    const leases = await Promise.all(range(100).map((n) => client.acquire(`many/${n}`, { ttl: 600 })));
    assert.equal(new Set(leases.map((lease) => lease.stamp)).size, 100);
    await Promise.all(leases.map((lease) => lease.verify()));
    assert.equal(s.pids().length, 1);
    await Promise.all(leases.map((lease) => lease.release()));
    assert.equal((await s.show("many/99")).ended, "released");
  });

  test("61 tasks acquire through one client at the same time, and threads each through their own", async (t) => {
    const s = new Station(t);
    const client = s.client();
    let inside = 0;
    await Promise.all(
      range(8).map(() =>
        client.withLease("one", { wait: Infinity, ttl: 600 }, async (lease) => {
          assert.equal(++inside, 1);
          await lease.report("x");
          inside--;
        }),
      ),
    );
    assert.equal(s.pids().length, 1);

    const thread = s.module(`
      await croft.withLease("one", { wait: Infinity, ttl: 600 }, (lease) => lease.report("x"));`);
    const program = s.node(`
      import { Worker } from "node:worker_threads";
      await Promise.all([1, 2, 3].map(() => new Promise((resolve, reject) =>
        new Worker(new URL(${JSON.stringify(thread)})).once("exit", resolve).once("error", reject))));`);
    assert.equal(await program.code(), 0);
    assert.equal((await s.show("one")).ended, "released");
  });

  test("63 cancellation, wherever work awaits, leaves no lease behind", async (t) => {
    const s = new Station(t);
    const client = s.client();
    const other = s.client("other");
    const gone = new Error("gone");
    await assert.rejects(client.acquire("jobs/a", { signal: AbortSignal.abort(gone) }), (error) => error === gone);
    // After more and more turns of the event loop, until it is too late.
    let turns = 0;
    for (let granted = false; !granted; turns += 1 + (turns >> 2)) {
      granted = await cancelled(client, turns, gone);
      const next = await other.acquire("jobs/a", { wait: 60 });
      await next.release();
    }
    assert.ok(turns > 0);
    // While it waits for the key, and while croft does not answer.
    const holder = await other.acquire("jobs/a", { ttl: 3600 });
    const controller = new AbortController();
    const waiting = client.acquire("jobs/a", { wait: Infinity, signal: controller.signal });
    await client.withLease("jobs/b", {}, () => {}); // croft has the request by now
    controller.abort(gone);
    await assert.rejects(waiting, (error) => error === gone);
    await holder.release();
    const pid = s.pids().at(-1) ?? 0;
    s.last(() => proceed(pid));
    await stop(pid);
    const late = new AbortController();
    const unanswered = client.acquire("jobs/a", { ttl: 3600, signal: late.signal });
    setImmediate(() => late.abort(gone));
    await assert.rejects(unanswered, (error) => error === gone);
    proceed(pid);
    await client.withLease("jobs/b", {}, () => {});
    await (await other.acquire("jobs/a", { wait: 60 })).release();
  });

  test("64 a message about an old lease is never taken for one about a new lease of the same key", async (t) => {
    const s = new Station(t);
    const client = s.client();
    for (let n = 0; n < 5; n++) {
      const old = await client.acquire("jobs/a", { ttl: 3600, wait: Infinity });
      s.croftBlocking("revoke", "jobs/a", "--note", "a test");
      // Asked for before anybody has read that the old lease is lost.
      const next = await client.acquire("jobs/a", { ttl: 3600, wait: Infinity });
      assert.ok(next.token > old.token);
      await lossOf(old);
      await next.verify();
      assert.equal(next.signal.aborted, false);
      await next.release();
    }
  });
}

/** Acquires, and cancels after so many turns. It says if that was too late. */
async function cancelled(client: Client, turns: number, reason: Error): Promise<boolean> {
  const controller = new AbortController();
  const asked = client.acquire("jobs/a", { ttl: 3600, signal: controller.signal }).then(
    async (lease) => {
      await lease.release();
      return true;
    },
    (error: unknown) => {
      assert.equal(error, reason);
      return false;
    },
  );
  for (let n = 0; n < turns; n++) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  controller.abort(reason);
  return asked;
}

function range(n: number): number[] {
  return Array.from({ length: n }, (_, i) => i);
}
