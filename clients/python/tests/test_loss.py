"""Loss: rows 20 to 23, 27, 28 and 30 to 35 of conformance.md."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
import unittest
from datetime import datetime
from unittest import mock

import croft
from croft._clock import Clock, Instant

from .support import PATIENCE, TTL, Case, proceed, stop, until


class Loss(Case):
    def test_20_takeover(self) -> None:
        lease = self.client.lease("jobs/a", ttl=3600).acquire()
        self.take_over("jobs/a")
        lost = self.lost(lease)
        self.assertEqual((lost.loss, lost.owner), ("taken_over", "operator"))
        with self.assertRaises(croft.LeaseLost):
            lease.release()

    def test_20_a_block_that_ended_well_raises_the_loss(self) -> None:
        with self.assertRaises(croft.LeaseLost) as caught:
            with self.client.lease("jobs/a", ttl=3600) as lease:
                self.take_over("jobs/a")
                until("the loss", lambda: lease.lost)
        self.assertEqual(caught.exception.loss, "taken_over")
        with self.assertRaises(ZeroDivisionError):
            with self.client.lease("jobs/b", ttl=3600) as lease:
                self.take_over("jobs/b")
                until("the loss", lambda: lease.lost)
                raise ZeroDivisionError

    def test_21_the_store_goes_away(self) -> None:
        lease = self.client.lease("jobs/a", ttl=TTL).acquire()
        away = self.path("away")
        os.rename(self.records, away)
        with open(self.records, "w") as f:
            f.write("no directory")
        lost = self.lost(lease)
        self.assertIn(lost.loss, ("unreachable", "expired"))
        os.remove(self.records)
        os.rename(away, self.records)
        deadline = lease._grant.deadline
        assert deadline is not None
        stored = datetime.fromisoformat(self.show("jobs/a")["deadline"].replace("Z", "+00:00"))
        self.assertLess(deadline.wall, stored.timestamp())

    def test_22_stalled(self) -> None:
        lease = self.client.lease("jobs/a", ttl=TTL, stall_after=1).acquire()
        self.assertEqual(self.lost(lease).loss, "stalled")

    def test_23_held_too_long(self) -> None:
        lease = self.client.lease("jobs/a", ttl=3600, max_hold=1).acquire()
        self.assertEqual(self.lost(lease).loss, "held_too_long")

    def test_27_croft_is_killed(self) -> None:
        leases = [self.client.lease(f"jobs/{n}", ttl=3600).acquire() for n in range(3)]
        first = self.process().pid
        os.kill(first, signal.SIGKILL)
        for lease in leases:
            self.assertEqual(self.lost(lease).loss, "gone")
        with self.client.lease("jobs/other"):
            self.assertNotEqual(self.process().pid, first)

    def test_27_a_keeper_that_cannot_start(self) -> None:
        start = threading.Thread.start

        def fail(thread: threading.Thread) -> None:
            if thread.name == "croft-keeper":
                raise RuntimeError("can't start new thread")
            start(thread)

        with mock.patch.object(threading.Thread, "start", fail):
            with self.assertRaises(RuntimeError):
                self.client.lease("jobs/a", ttl=3600).acquire()
        until("the end of the term", lambda: self.show("jobs/a")["ended"] == "failed")
        lease = self.client.lease("jobs/a", ttl=TTL).acquire()
        stop(self.process().pid)
        self.addCleanup(proceed, self.process().pid)
        self.assertEqual(self.lost(lease).loss, "silent")

    def test_28_croft_is_stopped(self) -> None:
        lease = self.client.lease("jobs/a", ttl=TTL).acquire()
        pid = self.process().pid
        stop(pid)
        try:
            self.assertEqual(self.lost(lease).loss, "silent")
            with self.assertRaises(croft.LeaseLost):
                lease.report("late")
            with self.another("other").lease("jobs/a", wait=60):
                with self.client.lease("jobs/other"):  # by another croft
                    self.assertNotEqual(self.process().pid, pid)
        finally:
            proceed(pid)
        # The stopped croft gives up by itself. Nothing that it says revives
        # the lease.
        until("the end of its requests", lambda: not lease._grant.transport._asked)  # type: ignore[attr-defined]
        with self.assertRaises(croft.LeaseLost):
            lease.check()

    def test_30_the_parent_is_killed(self) -> None:
        parent = self.python(
            "import croft, time\n"
            "lease = croft.lease('jobs/a', ttl=3600).acquire()\n"
            "print('held', flush=True); time.sleep(1000)")
        assert parent.stdout is not None
        self.assertEqual(parent.stdout.readline(), "held\n")
        parent.kill()
        until("the end of the term", lambda: self.show("jobs/a")["ended"] == "failed")

    @unittest.skipUnless(hasattr(os, "fork"), "no fork here")
    def test_31_the_parent_is_killed_and_its_child_lives(self) -> None:
        parent = self.python(
            "import croft, os, time\n"
            "lease = croft.lease('jobs/a', ttl=3600).acquire()\n"
            "child = os.fork()\n"
            "if child: print(child, flush=True)\n"
            "time.sleep(1000)")
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        self.addCleanup(os.kill, child, signal.SIGKILL)
        parent.kill()
        until("the end of the term", lambda: self.show("jobs/a")["ended"] == "failed")

    def test_31_another_program_has_the_pipe(self) -> None:
        lease = self.client.lease("jobs/a", ttl=3600).acquire()
        other = subprocess.Popen(["sleep", "1000"], pass_fds=[self.process()._in.fileno()])
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        with mock.patch("croft._hold.CLOSE_TIME", 0.5), mock.patch("croft._hold.TERM_TIME", PATIENCE):
            self.client.close()
        self.assertEqual(self.show("jobs/a")["ended"], "failed")
        self.assertFalse(os.path.exists(lease.lease_file))

    def test_32_a_closed_client_has_no_leases(self) -> None:
        lease = self.client.lease("jobs/a", ttl=3600).acquire()
        self.process()._ended = lambda why: None  # its reader may be late
        self.client.close()
        with self.assertRaises(croft.LeaseLost):
            lease.check()
        self.assertEqual(lease.remaining, 0)
        self.assertEqual(self.show("jobs/a")["ended"], "failed")

    def test_32_the_program_ends(self) -> None:
        program = self.python("import croft\nlease = croft.lease('jobs/a', ttl=3600).acquire()")
        program.communicate()
        self.assertEqual(program.returncode, 0)
        self.assertEqual(self.show("jobs/a")["ended"], "failed")

    def test_33_clock_jumps(self) -> None:
        class Jumping(Clock):
            ahead = 0.0

            def now(self) -> Instant:
                return Instant(time.monotonic(), time.time() + self.ahead)

        clock = Jumping()
        self.client._clock = clock
        with self.client.lease("jobs/a", ttl=60) as lease:
            clock.ahead = 3600
            lease.check()
            until("time", lambda: lease.remaining > 0)
            clock.ahead = -3600
            self.assertLess(lease.remaining, 60)
            lease.check()
            self.assertIsNone(lease.lost)

    def test_34_a_late_reply(self) -> None:
        with self.client.lease("jobs/a", ttl=600) as lease:
            pid, pause = self.process().pid, 2.0
            stop(pid)
            left: list[float] = []
            asking = threading.Thread(target=lambda: left.append(lease.verify()))
            asking.start()
            until("the question", lambda: lease._grant._open)
            time.sleep(pause)
            proceed(pid)
            asking.join()
            confirmed = lease._grant.confirmed
            assert confirmed is not None
            self.assertLessEqual(left[0], float(confirmed.message["remaining"]) - pause)

    def test_35_the_task_is_cancelled(self) -> None:
        tidied = []

        async def work() -> None:
            try:
                async with self.client.lease("jobs/a", ttl=3600) as lease:
                    await lease.report("begun")
                    try:
                        await asyncio.to_thread(self.take_over, "jobs/a")
                        await asyncio.sleep(1000)
                    finally:
                        tidied.append(lease.lost)
            except croft.LeaseLost as e:
                self.assertEqual(e.loss, "taken_over")
                await asyncio.sleep(0)  # the task goes on, and is cancelled no more
                raise

        with self.assertRaises(croft.LeaseLost):
            asyncio.run(work())
        self.assertEqual(len(tidied), 1)

    def test_35_other_cancellations_stay_what_they_are(self) -> None:
        async def work() -> None:
            async with self.client.lease("jobs/a", ttl=3600):
                started.set()
                await asyncio.sleep(1000)

        async def main() -> None:
            task = asyncio.create_task(work())
            await asyncio.wait_for(started.wait(), PATIENCE)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        started = asyncio.Event()
        asyncio.run(main())
        self.assertEqual(self.show("jobs/a")["ended"], "failed")
