"""Event loops that stand still: rows 24 and 26 of conformance.md."""

from __future__ import annotations

import asyncio
import time

import croft

from .support import TTL, Case


class Blocked(Case):
    def test_24_the_event_loop_is_blocked(self) -> None:
        async def work() -> None:
            async with self.client.lease("jobs/a", ttl=TTL) as lease:
                time.sleep(3 * TTL)
                await lease.check()

        asyncio.run(work())
        self.assertEqual(self.show("jobs/a")["ended"], "released")

    def test_26_a_takeover_while_the_loop_is_blocked(self) -> None:
        async def work() -> None:
            async with self.client.lease("jobs/a", ttl=3600) as lease:
                self.take_over("jobs/a")  # which blocks the loop
                while True:
                    await lease.check()
                    await asyncio.sleep(0.01)

        with self.assertRaises(croft.LeaseLost) as caught:
            asyncio.run(work())
        self.assertEqual(caught.exception.loss, "taken_over")
