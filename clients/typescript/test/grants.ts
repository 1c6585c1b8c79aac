// Grants: rows 01 to 13 of conformance.md.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";

import { Client, Held, Invalid, type Lease, LeaseLost, Unknown } from "../src/index.js";
import { byCroftAlone, Station } from "./support.js";

const apart = byCroftAlone("only croft can raise a fence");

export function grants(): void {
  test("01 an acquire gives key, token, stamp, owner and authority", async (t) => {
    const s = new Station(t);
    const lease = await s.client().acquire("jobs/a", { ttl: 60 });
    const record = await s.show("jobs/a");
    assert.deepEqual([record.owner, record.token, record.state], ["worker", lease.token, "held"]);
    assert.deepEqual([lease.key, lease.owner, lease.cause], ["jobs/a", "worker", "first"]);
    assert.match(lease.stamp, new RegExp(`^croft1:${lease.token}:`));
    assert.ok(lease.remaining > 0 && lease.remaining < 60, String(lease.remaining));
    const left = await lease.verify();
    assert.ok(left > 0 && left < 60, String(left));
    await lease.check();
    assert.equal(lease.lost, undefined);
    assert.equal(lease.signal.aborted, false);
  });

  test("02 a key that another holds is Held, with its owner and the time left", async (t) => {
    const s = new Station(t);
    await s.client().acquire("jobs/a", { ttl: 60 });
    await assert.rejects(s.client("other").acquire("jobs/a"), (error) => {
      assert.ok(error instanceof Held);
      assert.deepEqual([error.owner, error.why], ["worker", "held"]);
      assert.ok(error.remaining > 0 && error.remaining <= 60, String(error.remaining));
      return true;
    });
  });

  test("03 an acquire that waits gets the key when its holder gives it back", async (t) => {
    const s = new Station(t);
    const first = await s.client().acquire("jobs/a", { ttl: 3600 });
    const other = s.client("other");
    await other.acquire("jobs/b"); // it runs
    const waiting = other.acquire("jobs/a", { wait: 3600 });
    await first.report("still here");
    await first.release();
    const second = await waiting;
    assert.equal(second.cause, "released");
    assert.ok(second.token > first.token);
  });

  test("04 an acquire whose wait runs out is Held", async (t) => {
    const s = new Station(t);
    await s.client().acquire("jobs/a", { ttl: 3600 });
    await assert.rejects(s.client("other").acquire("jobs/a", { wait: 0.1 }), Held);
  });

  test("05 the token rises with every grant of a key", async (t) => {
    const s = new Station(t);
    const client = s.client();
    let newest = 0;
    for (let n = 0; n < 3; n++) {
      const lease = await client.acquire("jobs/a");
      assert.ok(lease.token > newest);
      newest = lease.token;
      await lease.release();
    }
  });

  test("06 bad input is Invalid, and nothing was attempted", async (t) => {
    const s = new Station(t);
    const client = s.client();
    for (const [key, options] of [
      ["a//b", {}],
      ["", {}],
      ["a\ud800", {}],
      ["a".repeat(70_000), {}],
      ["a", { ttl: 0 }],
      ["a", { ttl: NaN }],
      ["a", { ttl: Infinity }],
      ["a", { wait: -1 }],
      ["a", { maxHold: NaN }],
      ["a", { every: 60, once: true }],
      ["a", { above: -1 }],
    ] as const) {
      await assert.rejects(client.acquire(key, options), Invalid, JSON.stringify([key.slice(0, 9), options]));
    }
    const lease = await client.acquire("jobs/a");
    for (const wrong of [
      () => lease.report(""),
      () => lease.save("x".repeat(1025)),
      () => lease.renew(0),
      () => lease.renew(NaN),
    ]) {
      await assert.rejects(wrong, Invalid);
    }
    await lease.check();
    assert.equal((await s.show("a")).token, 0);
    assert.throws(() => new Client({ timeout: 0 }), Invalid);
  });

  test("07 work that ends well releases: a period counts", async (t) => {
    const s = new Station(t);
    const client = s.client();
    assert.equal(await client.withLease("jobs/a", { every: 86400 }, () => "done"), "done");
    assert.equal((await s.show("jobs/a")).ended, "released");
    await assert.rejects(
      client.acquire("jobs/a", { every: 86400 }),
      (error) => error instanceof Held && error.why === "period",
    );
  });

  test("07 the end of an await using block releases, but success that counts must be said", async (t) => {
    const s = new Station(t);
    const client = s.client();
    {
      await using lease = await client.acquire("jobs/a");
      await lease.report("x");
    }
    assert.equal((await s.show("jobs/a")).ended, "released");
    {
      await using _ = await client.acquire("jobs/b", { every: 86400 });
    }
    assert.equal((await s.show("jobs/b")).ended, "failed");
    {
      await using lease = await client.acquire("jobs/b", { every: 86400 });
      await lease.release();
    }
    assert.equal((await s.show("jobs/b")).ended, "released");
  });

  test("08 work that fails gives the lease back as failed, and its own error comes out", async (t) => {
    const s = new Station(t);
    const client = s.client();
    const mine = new RangeError("mine");
    const work = () => {
      throw mine;
    };
    await assert.rejects(client.withLease("jobs/a", { every: 86400 }, work), (error) => error === mine);
    assert.equal((await s.show("jobs/a")).ended, "failed");
    await client.withLease("jobs/a", { every: 86400 }, () => {});
  });

  test("09 a lease that was given back is of no use any more", async (t) => {
    const s = new Station(t);
    const client = s.client();
    const out = s.path("out");
    for (const give of ["release", "fail"] as const) {
      const lease = await client.acquire("jobs/a");
      const given = lease[give]();
      const uses = [
        () => lease.check(),
        () => lease.verify(),
        () => lease.release(),
        () => lease.report("x"),
        () => lease.write(out, "x"),
      ];
      for (const use of uses) {
        await assert.rejects(use, (error) => error instanceof LeaseLost && error.loss === "released");
      }
      await given;
      for (const use of uses) {
        await assert.rejects(use, (error) => error instanceof LeaseLost && error.loss === "released");
      }
      assert.ok(lease.remaining <= 0);
      assert.equal(lease.signal.aborted, false); // that was no loss
    }
    assert.ok(!existsSync(out));
  });

  test("10 the next holder finds the checkpoint, however the lease before it ended", async (t) => {
    const s = new Station(t);
    const client = s.client();
    const bytes = Uint8Array.from([112, 255, 0, 17]);
    const first = await client.acquire("jobs/a");
    assert.equal(first.checkpoint.length, 0);
    await first.save(bytes);
    await first.release();
    const second = await client.acquire("jobs/a");
    assert.deepEqual(second.checkpoint, bytes);
    await second.save("page 18");
    await second.fail();
    const third = await client.acquire("jobs/a");
    assert.equal(new TextDecoder().decode(third.checkpoint), "page 18");
  });

  test("11 a report is in the store, and the TTL can be changed", async (t) => {
    const s = new Station(t);
    const lease = await s.client().acquire("jobs/a", { ttl: 60 });
    await lease.report("page 7 of 9");
    assert.equal((await s.show("jobs/a")).progress, "page 7 of 9");
    await lease.renew(600);
    assert.ok(lease.remaining > 60);
    assert.equal((await s.show("jobs/a")).ttl, "10m0s");
    await lease.renew();
    assert.equal((await s.show("jobs/a")).ttl, "10m0s");
  });

  test("12 the fence is up at the named guards before the work begins", apart, async (t) => {
    const s = new Station(t);
    const out = s.path("out.txt");
    const first = await s.client().acquire("jobs/a");
    await first.write(out, "first");
    await first.release();
    const second = await s.client("other").acquire("jobs/a", { guards: [out] });
    const mark = JSON.parse(await s.croft("guard", "show", "--json", out)) as { token: number };
    assert.equal(mark.token, second.token);
    assert.equal(await s.exit("write", out, "--stamp", first.stamp, "--from", s.path("out.txt")), 13);
  });

  test("13 a function can be guarded: each call holds the lease, and gets it", async (t) => {
    const s = new Station(t);
    const client = s.client();
    const work = client.guarded(
      (n: number) => `jobs/${n}`,
      { ttl: 60 },
      async (lease: Lease, n: number) => {
        assert.equal((await s.show(lease.key)).state, "held");
        return `done ${n}`;
      },
    );
    assert.deepEqual([await work(3), await work(4), await work(3)], ["done 3", "done 4", "done 3"]);
    assert.equal((await s.show("jobs/3")).ended, "released");
    await assert.rejects(client.guarded("jobs/b", {}, () => Promise.reject(new Unknown("mine")))(), Unknown);
    assert.equal((await s.show("jobs/b")).ended, "failed");
  });
}
