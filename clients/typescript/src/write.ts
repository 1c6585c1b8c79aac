// Guarded writes, by croft write.

import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

import { CroftError, errorOf, NotStarted, Unknown } from "./errors.js";
import type { Grant } from "./grant.js";
import type { Command } from "./hold.js";

const maxAnswer = 64 << 10;

let count = 0;

/**
 * Replaces the content of a target.
 *
 * The data goes through a file. If it went through a pipe, and this process
 * died in the middle, croft would publish the first half. The file is in the
 * folder of the lease, which croft removes if this process dies. A lease at a
 * server has no such folder: then the file stays if this process dies.
 */
export async function write(command: Command, grant: Grant, target: string, data: string | Uint8Array): Promise<void> {
  const own = grant.leaseFile === "" ? await mkdtemp(join(tmpdir(), "croft-write-")) : "";
  const from = join(own || dirname(grant.leaseFile), `write-${process.pid}-${++count}`);
  try {
    await writeFile(from, data, { mode: 0o600, flag: "wx" });
    const name = target.startsWith("-") ? `./${target}` : target;
    await run(command, ["write", "--json", "--from", from, name], grant.stamp);
  } finally {
    await rm(own || from, { force: true, recursive: own !== "" });
  }
}

/** Runs croft, which must succeed. */
export function run(command: Command, args: string[], stamp: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(command.program, [...command.args, ...args], {
      env: { ...command.env, CROFT_STAMP: stamp },
      stdio: ["ignore", "pipe", "inherit"],
      detached: true, // an interrupt from the terminal is for this process
      windowsHide: true,
    });
    let answer = "";
    child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      answer = (answer + text).slice(0, maxAnswer);
    });
    child.once("error", (error) => reject(new NotStarted(`croft cannot be started (${error.message})`)));
    child.once("close", (code, signal) => {
      if (code === 0) {
        resolve();
      } else {
        reject(refusal(answer, code ?? signal));
      }
    });
  });
}

function refusal(answer: string, end: number | string | null): CroftError {
  try {
    return errorOf((JSON.parse(answer) as { error: unknown }).error);
  } catch {
    return new Unknown(`croft ended with ${end} and no answer; it may or may not have happened`);
  }
}
