/**
 * Leases and fencing for background agents.
 *
 *     import * as croft from "@croft/client";
 *
 *     await croft.withLease("reports/daily", { ttl: 60 }, async (lease) => {
 *       const data = await generate({ signal: lease.signal });
 *       // The file refuses it if a newer owner was there.
 *       await lease.write("out/today.json", data);
 *     });
 *
 * A lease says who may try. A guarded resource says whose writes still count:
 * it checks the stamp (lease.stamp) that travels with every write. Renewal
 * lives in a process of croft, so nothing that this program does can starve it.
 *
 * @module
 */

import { Client } from "./client.js";
import type { Lease } from "./lease.js";
import type { LeaseOptions } from "./options.js";

export { Client, type ClientOptions } from "./client.js";
export {
  Collision,
  CroftError,
  type Facts,
  Held,
  Incompatible,
  Invalid,
  LeaseLost,
  NotStarted,
  Refused,
  Repeated,
  Stale,
  Unknown,
  WrongKey,
} from "./errors.js";
export { header, type Lease } from "./lease.js";
export type { LeaseOptions } from "./options.js";
export { Final, Job, NotNow, type Result, Worker, worker, type WorkOptions } from "./work.js";

let client: Client | undefined;

/** The client that acquire, withLease and guarded use. */
export function defaultClient(): Client {
  return (client ??= new Client());
}

/** Acquires the lease on a key: see Client.acquire. */
export function acquire(key: string, options?: LeaseOptions): Promise<Lease> {
  return defaultClient().acquire(key, options);
}

/** Holds the lease on a key while work runs: see Client.withLease. */
export function withLease<T>(key: string, options: LeaseOptions, work: (lease: Lease) => T | Promise<T>): Promise<T> {
  return defaultClient().withLease(key, options, work);
}

/** Makes a function that holds the lease on a key during each call. */
export function guarded<A extends unknown[], T>(
  key: string | ((...args: A) => string),
  options: LeaseOptions,
  work: (lease: Lease, ...args: A) => T | Promise<T>,
): (...args: A) => Promise<T> {
  return defaultClient().guarded(key, options, work);
}
