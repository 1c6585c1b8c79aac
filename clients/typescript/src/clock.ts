// Time, and a point in time that two clocks guard.

/**
 * A moment on the monotonic clock and on the wall clock, in seconds.
 *
 * Nobody sets the monotonic clock back, but it may stand still while the
 * machine sleeps. The wall clock goes on then.
 */
export interface Instant {
  readonly monotonic: number;
  readonly wall: number;
}

/** Reads both clocks. */
export type Clock = () => Instant;

/** The clocks of this machine. */
export const systemClock: Clock = () => ({ monotonic: performance.now() / 1000, wall: Date.now() / 1000 });

export function plus(moment: Instant, seconds: number): Instant {
  return { monotonic: moment.monotonic + seconds, wall: moment.wall + seconds };
}

/** The seconds until a deadline, by the clock on which it is nearer. */
export function until(deadline: Instant, now: Instant): number {
  return Math.min(deadline.monotonic - now.monotonic, deadline.wall - now.wall);
}
