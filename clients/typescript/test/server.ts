// Leases that a server keeps: rows 80 to 87 of conformance.md.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import * as http from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { Client, Held, Invalid, Unknown } from "../src/index.js";
import { lossOf, proceed, Program, Station, stop, ttl, until } from "./support.js";

/** A request that a relay has seen. */
interface Seen {
  readonly path: string;
  readonly authorization: string | undefined;
  readonly body: Record<string, unknown>;
}

/** Passes requests on to the server, and notes them. */
class Relay {
  readonly seen: Seen[] = [];
  /** Answers by itself, if it returns a status and a text. */
  answer: (path: string) => [number, string] | undefined = () => undefined;
  /** Whether a reply gets lost on its way back. */
  lose: (path: string) => boolean = () => false;
  url = "";

  async start(s: Station): Promise<this> {
    const server = http.createServer((request, response) => void this.#pass(s, request, response));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    s.last(() => {
      server.close();
      server.closeAllConnections();
    });
    return this;
  }

  bodies(verb: string): Record<string, unknown>[] {
    return this.seen.filter(({ path }) => path.endsWith(`/${verb}`)).map(({ body }) => body);
  }

  async #pass(s: Station, request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const path = request.url ?? "";
    if (request.method === "GET") {
      response.writeHead(501).end();
      return;
    }
    let text = "";
    for await (const chunk of request.setEncoding("utf8")) {
      text += chunk;
    }
    const { authorization } = request.headers;
    this.seen.push({ path, authorization, body: JSON.parse(text) as Record<string, unknown> });
    const own = this.answer(path);
    if (own !== undefined) {
      response.writeHead(own[0], own[0] === 307 ? { location: own[1] } : {}).end(own[1]);
      return;
    }
    const reply = await fetch(new URL(path, s.store), {
      ...{ method: "POST", body: text, headers: { "content-type": "application/json" } },
    });
    const answer = await reply.text();
    if (this.lose(path)) {
      response.destroy();
      return;
    }
    response.writeHead(reply.status, { "content-type": reply.headers.get("content-type") ?? "" }).end(answer);
  }
}

export function server(): void {
  test("80 a lease needs no program of croft", async (t) => {
    const s = new Station(t);
    s.env["CROFT_BIN"] = s.env["PATH"] = "/nowhere";
    s.env["CROFT_OWNER"] = "ann";
    const program = s.node(`
      await croft.withLease("jobs/a", { ttl: 60, every: 86400 }, async (lease) => {
        await lease.report("half");
        await lease.save("page 7");
        await lease.check();
        console.log(lease.owner);
      });
      await croft.acquire("jobs/a", { every: 86400 }).catch((error) => console.log(error.why));`);
    assert.equal(await program.line(), "ann");
    assert.equal(await program.line(), "period");
    s.env["PATH"] = process.env["PATH"];
    const shown = await s.show("jobs/a");
    assert.deepEqual([shown.ended, shown.progress], ["released", "half"]);
    const next = await s.client().acquire("jobs/a");
    assert.equal(new TextDecoder().decode(next.checkpoint), "page 7");
  });

  test("80 the store's URL chooses the transport, and an option overrules it", async (t) => {
    const s = new Station(t);
    const byCroft = await s.client("worker", { transport: "croft" }).acquire("jobs/a");
    assert.ok(existsSync(byCroft.leaseFile));
    assert.throws(() => new Client({ store: s.records, transport: "server" }), Invalid);
    assert.throws(() => new Client({ store: s.store, transport: "pigeon" as "croft" }), Invalid);
    await assert.rejects(s.client().acquire("jobs/b", { guards: [s.path("out")] }), /fence/);
  });

  test("81 a reply that was lost is asked for again with the same secret", async (t) => {
    const s = new Station(t);
    const relay = await new Relay().start(s);
    const lost = new Set<string>();
    relay.lose = (path) => !lost.has(path) && lost.add(path) === lost;
    const lease = await s.client("worker", { store: relay.url, timeout: 600 }).acquire("jobs/a", { ttl: 3600 });
    await lease.report("half");
    await lease.save("state");
    await lease.release();
    for (const verb of ["acquire", "report", "checkpoint", "release"]) {
      const bodies = relay.bodies(verb);
      assert.ok(bodies.length > 1, verb);
      assert.equal(new Set(bodies.map(({ secret }) => secret)).size, 1, verb);
    }
    const shown = JSON.parse(await s.croft("show", "--json", "jobs/a")) as { terms: number; ended: string };
    assert.deepEqual([shown.terms, shown.ended], [1, "released"]);
  });

  test("81 an acquire that gets no answer leaves no lease behind", async (t) => {
    const s = new Station(t);
    const relay = await new Relay().start(s);
    relay.lose = (path) => path.endsWith("/acquire");
    // The relay must run meanwhile, and shares its thread with other tests.
    const client = s.client("worker", { store: relay.url, timeout: 10 });
    await assert.rejects(client.acquire("jobs/a", { ttl: 3600 }), Unknown);
    assert.equal(new Set(relay.bodies("acquire").map(({ secret }) => secret)).size, 1);
    await s.ended("jobs/a", "failed");
  });

  test("82 something else than a server, and an answer that cannot be, give no authority", async (t) => {
    const s = new Station(t);
    const relay = await new Relay().start(s);
    const client = s.client("worker", { store: relay.url, timeout: 0.5 });
    const record = {
      ...{ key: "jobs/a", token: 7, stamp: "s", owner: "o", cause: "first", ttl: "1m0s" },
      ...{ deadline: "2026-01-01T00:01:00Z", now: "2026-01-01T00:00:00Z" },
    };
    const whole = (changed: object) => JSON.stringify({ ...record, ...changed });
    for (const answer of [
      [200, whole({ ttl: "soon" })],
      [200, whole({ ttl: "1m".repeat(99) })],
      [200, whole({ deadline: "tomorrow" })],
      [200, whole({ now: null })],
      [200, whole({ token: "7" })],
      [200, whole({ token: 0 })],
      [200, whole({ stamp: 1 })],
      [200, "<html>hello</html>"],
      [404, "<html>hello</html>"],
      [200, "[]"],
      [200, "{"],
      [307, s.store],
    ] as [number, string][]) {
      relay.answer = (path) => (path.endsWith("/release") ? undefined : answer);
      await assert.rejects(client.acquire("jobs/a", { ttl: 60 }), Unknown, answer[1]);
    }
  });

  test("82 an answer about another lease, or a strange one, gives no authority and ends nothing", async (t) => {
    const s = new Station(t);
    const relay = await new Relay().start(s);
    const client = s.client("worker", { store: relay.url, timeout: 20 });
    const reporting = await client.acquire("jobs/a", { ttl: 3600 });
    const record = {
      ...{ key: "jobs/a", token: reporting.token, ttl: "1h0m0s" },
      ...{ deadline: "2026-01-01T01:00:00Z", now: "2026-01-01T00:00:00Z" },
    };
    for (const changed of [{ key: "jobs/b" }, { token: reporting.token + 1 }, { ttl: "1.1.1s" }, { ttl: "9999999h" }]) {
      const wrong = JSON.stringify({ ...record, ...changed });
      relay.answer = (path) => (path.endsWith("/report") ? [200, wrong] : undefined);
      await assert.rejects(reporting.report("half"), Unknown, wrong);
    }
    const lease = await client.acquire("jobs/b", { ttl });
    const error = { code: "not_owned", why: "taken_over", owner: { toString: 1 } };
    const strange = ["error", null, 7, { error: "x" }, { error: null }, { record: "x" }, { error }];
    let count = 0;
    relay.answer = (path) =>
      path === "/v1/apply" ? [200, JSON.stringify({ answers: [strange[count++ % strange.length]] })] : undefined;
    await until("the loss", () => lease.signal.aborted);
    assert.match((await lossOf(lease)).loss, /^(taken_over|unreachable)$/);
  });

  test("82 a torn request gives the leases back, and a wrong one ends nothing", async (t) => {
    const s = new Station(t);
    const helper = fileURLToPath(new URL("../src/server.js", import.meta.url));
    const start = () => {
      const child = spawn(process.execPath, [helper, "5"], { env: s.env, stdio: ["pipe", "pipe", "inherit"] });
      s.last(() => child.kill("SIGKILL"));
      return new Program(child);
    };
    const acquire = `{"id": 1, "do": "acquire", "lease": "a", "key": "jobs/a", "ttl": 3600}\n`;
    for (const [last, code] of [
      [`{"id": 2, "do"`, 2],
      ["[]\n", 2],
      [Buffer.from([255, 10]), 2],
      ["x".repeat(70_000), 2],
      ["", 0],
    ] as const) {
      const program = start();
      program.child.stdin?.on("error", () => {}).write(acquire);
      while (!(await program.line()).includes(`"granted"`)) {
        // Its greeting.
      }
      program.child.stdin?.end(last);
      assert.equal(await program.code(), code, String(last).slice(0, 20));
      assert.equal((await s.show("jobs/a")).ended, "failed");
    }
    const program = start();
    program.child.stdin?.end(
      [
        `{"id": 1, "do": "dance"}`,
        `{"do": "verify", "lease": "a"}`,
        `{"id": 1, "do": "verify", "lease": "a"}`,
        `{"id": 1, "do": "acquire", "lease": "a", "key": "k", "color": 1}`,
        `{"id": 1, "do": "acquire", "lease": "a", "key": "\\ud800"}`,
        `{"id": 1, "do": "acquire", "lease": "a", "key": "k", "ttl": "60"}\n`,
      ].join("\n"),
    );
    await program.line(); // its greeting
    for (const code of ["invalid", "invalid", "not_owned", "invalid", "invalid", "invalid"]) {
      assert.equal((JSON.parse(await program.line()) as { error: { code: string } }).error.code, code);
    }
    assert.equal(await program.code(), 0);
  });

  test("83 the token and the secret go to the server alone", async (t) => {
    const s = new Station(t);
    for (const url of [
      ...["http://192.0.2.1/", "http://127.0.0.1:1/?token=abc", "http://u:p@127.0.0.1/", "https://"],
      ...["http://127.0.0.1:1/?nosuch=1", "http://127.0.0.1:1/#x", "http://127.0.0.1:1/?ca=/etc/passwd"],
      ...["https://127.0.0.1:1/?token=@/dev/zero", "https://127.0.0.1:1/?ca=@nowhere", "https://127.0.0.1:1/?cert=x"],
    ]) {
      await assert.rejects(s.client("worker", { store: url }).acquire("jobs/a"), Invalid, url);
    }
    const relay = await new Relay().start(s);
    const elsewhere = await new Relay().start(s);
    relay.answer = () => [307, elsewhere.url];
    writeFileSync(s.path("token"), "a-secret-token\n");
    const client = s.client("worker", { store: `${relay.url}?token=@${s.path("token")}` });
    await assert.rejects(client.acquire("jobs/a"), Unknown);
    assert.equal(relay.seen[0]?.authorization, "Bearer a-secret-token");
    assert.deepEqual(elsewhere.seen, []);
  });

  test("84 the server proves its name, and names the owner by token or certificate", async (t) => {
    const s = new Station(t);
    s.certificate("server", "IP:127.0.0.1");
    s.certificate("builder", "DNS:builder.example");
    const rules = "ann may acquire, work on reports/\nbuilder may acquire, work on build/\n";
    s.policy(`certificate builder dns:builder.example\n${rules}`, "anns-token");
    writeFileSync(s.path("wrong"), "another");
    const names = ["--cert", "server.pem", "--key", "server.key", "--client-ca", "builder.pem", "--policy", "policy"];
    const { address } = s.serve("127.0.0.1:0", ...names);
    const url = `https://${address}/?ca=${s.path("server.pem")}`;
    const client = (store: string) => s.client("made up", { store, timeout: 20 });

    const ann = client(`${url}&token=@${s.path("token")}`);
    assert.equal((await ann.acquire("reports/a")).owner, "ann");
    await assert.rejects(ann.acquire("build/a", { wait: Infinity }), /nothing is there/);
    const builder = client(`${url}&cert=${s.path("builder.pem")}&key=${s.path("builder.key")}`);
    assert.equal((await builder.acquire("build/a")).owner, "builder");
    await assert.rejects(client(`${url}&token=@${s.path("wrong")}`).acquire("reports/b"), /token/);
    const unproven = `https://${address}/?token=@${s.path("token")}`;
    await assert.rejects(client(unproven).acquire("reports/b"), /certificate/);
    s.env["NODE_TLS_REJECT_UNAUTHORIZED"] = "0";
    s.env["CROFT_STORE"] = unproven;
    const program = s.node(`await croft.acquire("reports/b").catch((error) => console.log(error.message));`);
    assert.match(await program.line(), /certificate/);
  });

  test("85 a server that is restarted costs no lease, and no acquire that waits", async (t) => {
    const s = new Station(t);
    const lease = await s.client().acquire("jobs/a", { ttl: 60 });
    const other = s.client("other");
    await assert.rejects(other.acquire("jobs/a"), Held);
    const waiting = other.acquire("jobs/a", { wait: 300 });
    s.server?.child.kill("SIGKILL");
    await once(s.server?.child as NodeJS.EventEmitter, "exit");
    const reported = lease.report("while it was away");
    s.serve(s.server?.address);
    await reported;
    await lease.check();
    assert.equal((await s.show("jobs/a")).progress, "while it was away");
    await lease.release();
    assert.ok((await waiting).token > lease.token);
  });

  test("86 the secret is in no file, argument or variable", async (t) => {
    const s = new Station(t);
    const relay = await new Relay().start(s);
    const lease = await s.client("alone", { store: relay.url }).acquire("jobs/a", { ttl: 3600 });
    const secret = String(relay.bodies("acquire")[0]?.["secret"]);
    const seen = [lease.stamp, JSON.stringify(lease), lease.leaseFile];
    for (const pid of readdirSync("/proc").map(Number).filter(Boolean)) {
      try {
        if (readFileSync(`/proc/${pid}/environ`, "utf8").includes(relay.url)) {
          seen.push(...["environ", "cmdline"].map((name) => readFileSync(`/proc/${pid}/${name}`, "utf8")));
        }
      } catch {
        // It has ended, or is another user's.
      }
    }
    assert.equal(seen.length, 5);
    for (const path of readdirSync(s.dir, { recursive: true }).map((name) => s.path(String(name)))) {
      if (statSync(path).isFile()) {
        seen.push(readFileSync(path, "utf8"));
      }
    }
    assert.match(secret, /^[0-9a-f]{32}$/);
    assert.ok(seen.every((text) => !text.includes(secret)));
    await lease.release();
  });

  test("87 a server that stands still is loss before the store's deadline", async (t) => {
    const s = new Station(t);
    const lease = await s.client().acquire("jobs/a", { ttl });
    const pid = s.server?.child.pid ?? 0;
    s.last(() => proceed(pid));
    await stop(pid);
    let believed = 0; // the local deadline, by the wall clock
    await until("the loss", () => {
      believed = Math.max(believed, Date.now() / 1000 + lease.remaining);
      return lease.signal.aborted;
    });
    assert.equal((await lossOf(lease)).loss, "unreachable");
    proceed(pid);
    assert.ok(believed < Date.parse((await s.show("jobs/a")).deadline) / 1000);
  });
}
