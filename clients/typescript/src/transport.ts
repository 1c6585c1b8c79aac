// What a client needs of whatever holds its leases.
//
// There are two, and both are a process (hold.ts): croft hold, and a helper
// that talks to a server (server.ts). The messages are those of
// docs/protocol.md.

import type { Instant } from "./clock.js";

/** A message, as docs/protocol.md describes it. */
export type Message = Readonly<Record<string, unknown>>;

/**
 * The reply to a request, and the moment just before the request was sent.
 * Authority counts from that moment: see "Authority" in docs/protocol.md.
 */
export interface Reply {
  readonly sent: Instant;
  readonly message: Message;
}

/** Carries requests, and tells a listener what happens to leases. */
export interface Transport {
  /** Whether requests can be answered. */
  readonly alive: boolean;

  /**
   * Sends a request. The promise rejects with the error of the reply. It
   * rejects with LeaseLost if the other side is gone, or for an acquire with
   * Unknown.
   */
  ask(what: string, lease: string, members?: Message): Promise<Reply>;

  /** Gives all leases back as failed, and ends. It waits for nothing. */
  hangUp(): void;

  /** Hangs up, and waits for the end. It may be called again. */
  close(): Promise<void>;
}

/** Hears what answers no request. */
export interface Listener {
  heard(message: Message): void;
  /** Hears once why the transport has ended. */
  ended(transport: Transport, why: string): void;
}
