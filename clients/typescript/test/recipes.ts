// The recipes in the folder examples/node.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { Station } from "./support.js";

export function recipes(): void {
  test("the recipe of a cron job does as it says", async (t) => {
    const folder = process.env["CROFT_TEST_EXAMPLES"];
    assert.ok(folder, "CROFT_TEST_EXAMPLES names the folder examples/node");
    assert.deepEqual(readdirSync(folder), ["cron.mjs"]);
    const s = new Station(t);
    const text = readFileSync(join(folder, "cron.mjs"), "utf8");
    assert.match(text, / plain JavaScript/);
    const program = s.node(text.replace(/^import \* as croft from .*$/m, "")); // this very package instead
    assert.equal(await program.line(), "done 1 time(s)");
    assert.equal(await program.code(), 0);
    assert.match(readFileSync(s.path("daily.txt"), "utf8"), /under token \d+/);
  });
}
