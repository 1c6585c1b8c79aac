"""Time, and a point in time that two clocks guard."""

from __future__ import annotations

import time
from dataclasses import dataclass


class Clock:
    """Reads the clocks of this machine."""

    def now(self) -> Instant:
        return Instant(time.monotonic(), time.time())


@dataclass(frozen=True)
class Instant:
    """A moment on the monotonic clock and on the wall clock.

    Nobody sets the monotonic clock back, but it may stand still while the
    machine sleeps. The wall clock goes on then.
    """

    monotonic: float
    wall: float

    def plus(self, seconds: float) -> Instant:
        return Instant(self.monotonic + seconds, self.wall + seconds)

    def until(self, deadline: Instant) -> float:
        """The seconds until a deadline, by the clock on which it is nearer."""
        return min(deadline.monotonic - self.monotonic, deadline.wall - self.wall)
