// Loss: rows 20 to 23, 26 to 28 and 33 to 35 of conformance.md.

import assert from "node:assert/strict";
import { renameSync, rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { systemClock } from "../src/clock.js";
import { Client, type Lease, LeaseLost } from "../src/index.js";
import { block, lossOf, patience, proceed, Station, stop, ttl, until } from "./support.js";

export function loss(): void {
  test("20 a takeover is loss at once, and names the present owner", async (t) => {
    const s = new Station(t);
    const lease = await s.client().acquire("jobs/a", { ttl: 3600 });
    await s.takeOver("jobs/a");
    const lost = await lossOf(lease);
    assert.deepEqual([lost.loss, lost.owner], ["taken_over", "operator"]);
    for (const use of [() => lease.release(), () => lease.report("x"), () => lease.write(s.path("out"), "x")]) {
      await assert.rejects(use, (error) => error === lost);
    }
  });

  test("20 the end of a block or of work that ended well tells of the loss", async (t) => {
    const s = new Station(t);
    const client = s.client();
    const lose = async (lease: Lease) => {
      await s.takeOver(lease.key);
      await until("the loss", () => lease.signal.aborted);
    };
    await assert.rejects(async () => {
      await using lease = await client.acquire("jobs/a", { ttl: 3600 });
      await lose(lease);
    }, LeaseLost);
    await assert.rejects(async () => {
      await using lease = await client.acquire("jobs/b", { ttl: 3600 });
      await lose(lease);
      await lease.check(); // tells of it, so the end of the block need not
    }, LeaseLost);
    await assert.rejects(client.withLease("jobs/c", { ttl: 3600 }, lose), LeaseLost);
    const mine = new RangeError("mine");
    await assert.rejects(
      client.withLease("jobs/d", { ttl: 3600 }, async (lease) => {
        await lose(lease);
        throw mine;
      }),
      (error) => error === mine,
    );
  });

  test("20 a loss just before the release is told by the release", async (t) => {
    const s = new Station(t);
    const client = s.client();
    for (let n = 0; n < 20; n++) {
      const lease = await client.acquire(`jobs/${n}`, { ttl: 3600 });
      s.croftBlocking("takeover", lease.key, "--note", "a test");
      await assert.rejects(lease.release(), LeaseLost);
    }
  });

  test("21 a store that goes away is loss before the store's deadline", async (t) => {
    const s = new Station(t);
    const lease = await s.client().acquire("jobs/a", { ttl });
    const away = s.path("away");
    renameSync(s.records, away);
    writeFileSync(s.records, "no directory");
    let believed = 0; // the local deadline, by the wall clock
    while (!lease.signal.aborted) {
      believed = Math.max(believed, Date.now() / 1000 + lease.remaining);
      await sleep(10);
    }
    const lost = await lossOf(lease);
    assert.ok(["unreachable", "expired"].includes(lost.loss), lost.loss);
    rmSync(s.records);
    renameSync(away, s.records);
    const stored = Date.parse((await s.show("jobs/a")).deadline) / 1000;
    assert.ok(believed < stored, `${believed} ${stored}`);
  });

  test("22 work that reports nothing loses the lease in time", async (t) => {
    const s = new Station(t);
    assert.equal((await soonLost(s.client().acquire("jobs/a", { ttl, stallAfter: 1 }))).loss, "stalled");
  });

  test("23 a lease ends after its longest time", async (t) => {
    const s = new Station(t);
    assert.equal((await soonLost(s.client().acquire("jobs/a", { ttl: 3600, maxHold: 1 }))).loss, "held_too_long");
  });

  test("26 a takeover while the event loop is blocked is found at the next question", async (t) => {
    const s = new Station(t);
    const lease = await s.client().acquire("jobs/a", { ttl: 3600 });
    s.croftBlocking("takeover", "jobs/a", "--note", "a test");
    // A check reads what has arrived, also if the work never lets the loop do
    // so.
    await assert.rejects(
      async () => {
        for (const end = performance.now() + patience; performance.now() < end; ) {
          await lease.check();
        }
      },
      (error) => error instanceof LeaseLost && error.loss === "taken_over",
    );
  });

  test("27 a killed croft is loss at once, and the next acquire starts another", async (t) => {
    const s = new Station(t);
    const client = s.client();
    const leases = await Promise.all([1, 2, 3].map((n) => client.acquire(`jobs/${n}`, { ttl: 3600 })));
    const [pid = 0] = s.pids();
    const asked = leases[0]?.verify();
    process.kill(pid, "SIGKILL");
    await asked?.catch((error: unknown) => assert.ok(error instanceof LeaseLost));
    for (const lease of leases) {
      assert.equal((await lossOf(lease)).loss, "gone");
    }
    await client.acquire("jobs/other");
    assert.notEqual(s.pids().at(-1), pid);
  });

  test("28 a stopped croft is loss by the local deadline, and nothing late revives the lease", async (t) => {
    const s = new Station(t);
    const client = s.client();
    const lease = await client.acquire("jobs/a", { ttl });
    const long = await client.acquire("jobs/long", { ttl: 3600 });
    const [pid = 0] = s.pids();
    s.last(() => proceed(pid));
    await stop(pid);
    const late = lease.verify().catch((error: unknown) => error);
    assert.equal((await lossOf(lease)).loss, "silent");
    await s.client("other").acquire("jobs/a", { wait: 3600 });
    await client.acquire("jobs/new"); // by another croft
    assert.notEqual(s.pids().at(-1), pid);
    proceed(pid);
    assert.ok((await late) instanceof LeaseLost);
    await long.verify(); // the first croft answers again
    await assert.rejects(lease.check(), LeaseLost);
    assert.equal(lease.remaining, 0);
  });

  test("33 a wall clock that jumps ahead costs a question, and one that jumps back gives no time", async (t) => {
    const s = new Station(t);
    let ahead = 0;
    const clock = () => {
      const now = systemClock();
      return { monotonic: now.monotonic, wall: now.wall + ahead };
    };
    const client = new Client({ store: s.store, croft: s.noting("worker") }, clock);
    s.last(() => client.close());
    const lease = await client.acquire("jobs/a", { ttl: 600 });
    ahead = 3600;
    assert.ok(lease.remaining <= 0);
    await lease.check();
    assert.ok(lease.remaining > 0);
    ahead = -3600;
    assert.ok(lease.remaining < 600);
    await lease.check();
    // Croft has a while to answer: here it is busy for three looks of the
    // keeper.
    const [pid = 0] = s.pids();
    s.last(() => proceed(pid));
    await stop(pid);
    ahead = 7200;
    assert.ok(lease.remaining <= 0);
    await sleep(3000);
    proceed(pid);
    await until("the answer to the keeper", () => lease.remaining > 0);
    assert.equal(lease.lost, undefined);
  });

  test("34 a late reply gives no more time than a prompt one", async (t) => {
    const s = new Station(t);
    const lease = await s.client().acquire("jobs/a", { ttl: 600 });
    for (const late of [() => block(2), () => stopped(s.pids()[0] ?? 0)]) {
      const asked = lease.verify();
      await late();
      await asked;
      // Croft's own deadline lies a tenth of the TTL before the store's.
      const deadline = Date.now() / 1000 + lease.remaining;
      const stored = Date.parse((await s.show("jobs/a")).deadline) / 1000;
      assert.ok(deadline <= stored - 60 + 0.1, `${deadline} ${stored}`);
    }
  });

  test("35 work is cancelled by the signal, and the caller gets the loss", async (t) => {
    const s = new Station(t);
    const client = s.client();
    await assert.rejects(
      client.withLease("jobs/a", { ttl: 3600 }, async (lease) => {
        await s.takeOver("jobs/a");
        await sleep(1_000_000, undefined, { signal: lease.signal });
      }),
      (error) => error instanceof LeaseLost && error.loss === "taken_over",
    );
    // An abort that has nothing to do with the lease stays what it is.
    const own = new AbortController();
    await assert.rejects(
      client.withLease("jobs/b", { ttl: 3600 }, async () => {
        own.abort();
        await sleep(1_000_000, undefined, { signal: own.signal });
      }),
      { name: "AbortError" },
    );
    assert.equal((await s.show("jobs/b")).ended, "failed");
  });
}

async function stopped(pid: number): Promise<void> {
  await stop(pid);
  block(2);
  proceed(pid);
}

/** The loss of a lease that may be lost before the acquire returns. */
async function soonLost(acquire: Promise<Lease>): Promise<LeaseLost> {
  const lost: unknown = await acquire.then(lossOf, (error: unknown) => error);
  assert.ok(lost instanceof LeaseLost);
  return lost;
}
