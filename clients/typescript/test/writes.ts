// Writes: rows 40 to 42 and 45 of conformance.md.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { dirname } from "node:path";
import { test } from "node:test";

import { header, Invalid, type Lease, LeaseLost, Stale } from "../src/index.js";
import { byCroftAlone, overServer, proceed, Program, program, Station, stop } from "./support.js";

const apart = byCroftAlone("the guard looks at the stamp alone");

export function writes(): void {
  test("40 a guarded file takes the write of the owner, and refuses that of a stale one", async (t) => {
    const s = new Station(t);
    const out = s.path("out.txt");
    const { stale, stamp } = await replaced(s, "jobs/a", async (lease) => {
      await lease.write(out, "first");
      await lease.write(out, Uint8Array.from([0, 255]));
      assert.deepEqual([...readFileSync(out)], [0, 255]);
      const large = Buffer.alloc(3 << 20, "large");
      await lease.write(out, large);
      assert.deepEqual(readFileSync(out), large);
      await lease.write(out, "");
      assert.equal(readFileSync(out, "utf8"), "");
    });
    writeFileSync(s.path("content"), "second");
    await s.croft("write", out, "--from", s.path("content"), "--stamp", stamp);
    await assert.rejects(stale.write(out, "stale"), (error) => {
      assert.ok(error instanceof Stale);
      assert.equal(error.facts["token"], stale.token);
      return true;
    });
    assert.equal(readFileSync(out, "utf8"), "second");
    // The contents on their way are gone.
    const folder = overServer ? s.dir : dirname(stale.leaseFile);
    assert.deepEqual(readdirSync(folder).filter((name) => /^(croft-)?write-/.test(name)), []);
  });

  test("41 a replaced owner's write is refused before its successor has written", async (t) => {
    const s = new Station(t);
    const out = s.path("out.txt");
    const { stale } = await replaced(s, "jobs/a", (lease) => lease.write(out, "first"));
    await assert.rejects(stale.write(out, "stale"), LeaseLost);
    assert.equal(readFileSync(out, "utf8"), "first");
  });

  test("42 the headers of a lease pass croft proxy, and those of a stale one do not", async (t) => {
    const s = new Station(t);
    const bodies: string[] = [];
    const service = createServer((request, response) => {
      let body = "";
      request.setEncoding("utf8").on("data", (text: string) => (body += text));
      request.on("end", () => {
        bodies.push(body);
        response.writeHead(204).end();
      });
    });
    service.listen(0, "127.0.0.1");
    await once(service, "listening");
    s.last(() => service.close());
    const upstream = `http://127.0.0.1:${(service.address() as AddressInfo).port}`;
    mkdirSync(s.path("marks"));
    const marks = ["--marks", s.path("marks/{resource}")];
    const proxy = new Program(
      spawn(
        program,
        ["proxy", "--json", "--upstream", upstream, "--resource", "/orders/{id}", "--listen", "127.0.0.1:0", ...marks],
        { cwd: s.dir, env: s.env, stdio: ["ignore", "pipe", "inherit"] },
      ),
    );
    s.last(() => proxy.child.kill("SIGKILL"));
    const { address } = JSON.parse(await proxy.line()) as { address: string };
    const put = async (headers: Record<string, string>, body: string) =>
      (await fetch(`http://${address}/orders/42`, { method: "PUT", headers, body })).status;

    const { stale, stamp } = await replaced(s, "orders/42", async (lease) => {
      assert.deepEqual(lease.headers(), { [header]: lease.stamp });
      assert.equal(await put(lease.headers(), "first"), 204);
    });
    assert.equal(await put({ [header]: stamp }, "second"), 204);
    assert.equal(await put(stale.headers(), "stale"), 409);
    assert.deepEqual(bodies, ["first", "second"]);
  });

  test("45 a target or a mark that cannot be is refused", apart, async (t) => {
    const s = new Station(t);
    const lease = await s.client().acquire("jobs/a");
    await assert.rejects(lease.write("nonsense://x", "x"), Invalid);
    await assert.rejects(lease.write("", "x"), Invalid);
    const out = s.path("out.txt");
    await lease.write(out, "first");
    writeFileSync(`${out}.fence`, "no mark");
    await assert.rejects(lease.write(out, "second"));
    assert.equal(readFileSync(out, "utf8"), "first");
    await lease.check();
    assert.ok(!existsSync(s.path("x")));
  });
}

/**
 * A lease that has done some work, and whose owner does not know yet that an
 * operator has its key; and the stamp of the operator's lease.
 */
async function replaced(
  s: Station,
  key: string,
  work: (lease: Lease) => Promise<void>,
): Promise<{ stale: Lease; stamp: string }> {
  const stale = await s.client().acquire(key, { ttl: 3600 });
  await work(stale);
  const [pid = 0] = s.pids();
  s.last(() => proceed(pid));
  await stop(pid);
  return { stale, stamp: await s.takeOver(key) };
}

