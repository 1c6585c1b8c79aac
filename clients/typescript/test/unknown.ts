// What is not known: rows 50 to 53 of conformance.md.

import assert from "node:assert/strict";
import { renameSync, writeFileSync } from "node:fs";
import { test } from "node:test";

import { Client, CroftError, Held, Incompatible, Invalid, LeaseLost, NotStarted, Unknown } from "../src/index.js";
import { byCroftAlone, hello, lossOf, program, Station } from "./support.js";

const granted =
  `{"event":"granted","id":1,"lease":"1","key":"jobs/a","token":7,"stamp":"s","owner":"o","cause":"first",` +
  `"deadline":"","ttl":3600,"remaining":3000,"lease_file":"","checkpoint":""}`;
const verified = `{"event":"verified","id":2,"lease":"1","token":7,"ttl":3600,"remaining":3000}`;

const apart = byCroftAlone("the helper is of the same package");
const apart2 = byCroftAlone("the same code reads the messages of both processes");
const apart3 = byCroftAlone("it needs no croft");

export function notKnown(): void {
  test("50 a store that is away is Unknown, neither held nor lost", async (t) => {
    const s = new Station(t);
    await assert.rejects(s.client("other", { store: "redis://127.0.0.1:1/0" }).acquire("jobs/a"), unknown);

    // On a busy machine the first acquire needs some of this time.
    const client = s.client("worker", { timeout: 8 });
    const lease = await client.acquire("jobs/a", { ttl: 3600 });
    renameSync(s.records, s.path("away"));
    writeFileSync(s.records, "no directory");
    await Promise.all([
      assert.rejects(client.acquire("jobs/b"), unknown),
      assert.rejects(lease.report("x"), unknown),
    ]);
    await lease.check();
    // Its end is not confirmed, and it lapses by itself.
    await assert.rejects(lease.release(), unknown);
  });

  test("51 a protocol that the client does not know is refused", apart, async (t) => {
    const s = new Station(t);
    const client = s.fake(`echo '{"event":"hello","protocol":2,"version":"v9","pid":1}'; cat >/dev/null\n`);
    await assert.rejects(
      client.acquire("jobs/a"),
      (error) => error instanceof Incompatible && /v9/.test(error.message),
    );
  });

  test("52 a torn message ends the leases", apart2, async (t) => {
    const s = new Station(t);
    for (const last of [
      `{"event":"verif`,
      `verified\\n`,
      `[]\\n`,
      `{"event":7}\\n`,
      `{"event":"verified","id":99}\\n`, // nobody has asked that
      `\\377\\n`,
      `%070000d\\n`,
    ]) {
      // After half a message the output ends. After a whole one it goes on.
      const client = s.fake(
        `${hello}read x; echo '${granted}'; read x; echo '${verified}'; read x; printf '${last}'\n` +
          (last.endsWith("n") ? "cat >/dev/null\n" : ""),
      );
      const lease = await client.acquire("jobs/a");
      await lease.check();
      await assert.rejects(lease.report("x"), LeaseLost, last);
      assert.equal((await lossOf(lease)).loss, "gone", last);
    }
  });

  test("52 croft ends the leases if a message to it is torn", apart2, async (t) => {
    const s = new Station(t);
    // A croft whose input ends with half a message, once the file is there.
    const torn = s.script(
      "torn",
      `case "$*" in *hold*) ;; *) exec '${program}' "$@" ;; esac\n` +
        `while [ -e '${s.store}-whole' ] && IFS= read -r line; do printf '%s\\n' "$line"; done | ` +
        `(cat; printf '{"id"') | '${program}' "$@"\n`,
    );
    writeFileSync(`${s.store}-whole`, "");
    const client = new Client({ store: s.store, croft: torn });
    s.last(() => client.close());
    const lease = await client.acquire("jobs/a", { ttl: 3600 });
    renameSync(`${s.store}-whole`, `${s.store}-torn`);
    await lease.report("the last whole message").catch(() => {});
    assert.equal((await lossOf(lease)).loss, "gone");
    await s.ended("jobs/a", "failed");
  });

  test("53 a croft that is missing, or does not start, is an error that says so", apart3, async (t) => {
    const s = new Station(t);
    const missing = new Client({ store: s.store, croft: s.path("missing") });
    await assert.rejects(
      missing.acquire("jobs/a"),
      (error) => error instanceof NotStarted && /CROFT_BIN/.test(error.message),
    );
    await missing.close();
    await assert.rejects(s.fake("exit 3\n").acquire("jobs/a"), NotStarted);
    await assert.rejects(s.fake(`${hello}exit 3\n`).acquire("jobs/a"), Unknown);
    await assert.rejects(s.fake("echo hello\n").acquire("jobs/a"), CroftError);
    // A store that cannot be is the reason that croft itself gives.
    await assert.rejects(s.client("other", { store: "nonsense://x" }).acquire("jobs/a"), Invalid);
  });
}

function unknown(error: unknown): boolean {
  return error instanceof Unknown && !(error instanceof Held) && !(error instanceof LeaseLost);
}
