// A cron job in Node, as node-cron and others run it: a function that a timer calls
// on every machine. This is plain JavaScript in that shape, without such a package.
//
// With every, one machine does the work of a period, and the others say nothing.
// The signal ends what is still under way if the lease is lost.
//
//     CROFT_STORE=/tmp/croft node cron.mjs
import * as croft from "@croft/client";
import { setTimeout as sleep } from "node:timers/promises";

let done = 0;

/** The function for cron.schedule("0 6 * * *", daily). */
async function daily() {
  try {
    await croft.withLease("jobs/daily", { ttl: 60, every: 24 * 3600 }, async (lease) => {
      await sleep(10, undefined, { signal: lease.signal }); // the work: give it the signal
      await lease.write("daily.txt", `the report, under token ${lease.token}`);
      done++;
    });
  } catch (error) {
    if (error instanceof croft.Held) return; // not this machine's turn, or done in this period
    if (error instanceof croft.LeaseLost) console.error(`stopped: ${error.loss}`); // its result does not count
    throw error;
  }
}

await Promise.all([daily(), daily()]); // two machines
await daily(); // one that comes late
console.log(`done ${done} time(s)`);
