// Packaging: rows 70 and 71 of conformance.md.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

import { byCroftAlone, home, lossOf, Station, until } from "./support.js";

const run = promisify(execFile);

const apart = byCroftAlone("there is no lease file");
const apart2 = byCroftAlone("the test installs the package once");

export function packaging(): void {
  test("70 the secret is in a file that only the user can read, and gone at the end", apart, async (t) => {
    const s = new Station(t);
    const client = s.client();
    const lease = await client.acquire("jobs/a");
    assert.equal(statSync(lease.leaseFile).mode & 0o777, 0o600);
    assert.equal(statSync(dirname(lease.leaseFile)).mode & 0o777, 0o700);
    await s.croft("report", "by the file", `@${lease.leaseFile}`);
    assert.equal((await s.show("jobs/a")).progress, "by the file");
    await lease.release();
    await until("the end of the file", () => !existsSync(lease.leaseFile));
    await client.close();
    assert.ok(!existsSync(dirname(lease.leaseFile)));

    const killed = await client.acquire("jobs/b");
    process.kill(s.pids().at(-1) ?? 0, "SIGKILL");
    await lossOf(killed);
    assert.ok(!existsSync(dirname(killed.leaseFile)));
  });

  test("71 the built package installs into an empty folder and runs the example of its README", apart2, async (t) => {
    const s = new Station(t);
    const pack = ["pack", "--ignore-scripts", "--json", "--pack-destination", s.dir];
    const { stdout } = await run("npm", pack, { cwd: home });
    const [packed] = JSON.parse(stdout) as { filename: string; files: { path: string }[] }[];
    assert.ok(packed);
    for (const { path } of packed.files) {
      assert.match(path, /^(dist\/src\/[a-z]+\.(js|d\.ts)|README\.md|LICENSE|package\.json)$/);
    }
    const cwd = s.path("empty");
    mkdirSync(cwd);
    const tarball = join(s.dir, packed.filename);
    await run("npm", ["install", "--offline", "--no-audit", "--no-fund", tarball], { cwd });
    assert.deepEqual(readdirSync(join(cwd, "node_modules")).filter((name) => !name.startsWith(".")), ["@croft"]);

    writeFileSync(join(cwd, "report.mts"), example("report.mts"));
    const flags = ["--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,esnext.disposable"];
    const types = ["--types", "node", "--typeRoots", join(home, "node_modules/@types")];
    const tsc = join(home, "node_modules/typescript/bin/tsc");
    await run(process.execPath, [tsc, ...flags, ...types, "report.mts"], { cwd });
    await run(process.execPath, ["report.mjs"], { cwd, env: s.env });
    assert.equal(readFileSync(join(cwd, "today.json"), "utf8"), '{"pages":40}');
    await s.ended("reports/daily", "released");

    writeFileSync(join(cwd, "daily.mjs"), example("daily.mjs"));
    for (const said of ["done\n", "not my turn: period\n"]) {
      assert.equal((await run(process.execPath, ["daily.mjs"], { cwd, env: s.env })).stdout, said);
    }
    const env = { ...s.env, CROFT_STORE: `http://${s.serve().address}/` };
    assert.equal((await run(process.execPath, ["daily.mjs"], { cwd, env })).stdout, "not my turn: period\n");
    const once = `await (await import("@croft/client")).withLease("jobs/at-a-server", {}, () => {});`;
    await run(process.execPath, ["--input-type=module", "-e", once], { cwd, env });
    await s.ended("jobs/at-a-server", "released");
  });
}

/** The program in the README that begins with its file's name. */
function example(name: string): string {
  const readme = readFileSync(join(home, "README.md"), "utf8");
  const text = new RegExp(`\`\`\`\\w+\n(// ${name}\n[^]*?)\`\`\``).exec(readme)?.[1];
  assert.ok(text, `README.md has no ${name}`);
  return text;
}
