"""Many at once: rows 60 to 64 of conformance.md."""

from __future__ import annotations

import asyncio
import os
import threading
import unittest
from unittest import mock

import croft
from croft import _hold
from croft._clock import Clock, Instant

from .support import PATIENCE, Case, by_croft_alone, until


class Many(Case):
    def test_60_a_hundred_leases(self) -> None:
        async def work() -> None:
            leases = await asyncio.gather(*(
                self.client.lease(f"many/{n}", ttl=600).acquire_async() for n in range(100)))
            await asyncio.gather(*(lease.verify() for lease in leases))
            self.assertEqual(len({lease.key for lease in leases}), 100)
            await asyncio.gather(*(lease.release() for lease in leases))

        asyncio.run(work())
        self.assertEqual(len(self.client._holds), 1)

    def test_61_threads(self) -> None:
        done: list[str] = []

        def work(name: str) -> None:
            for n in range(5):
                with self.client.lease(f"{name}/{n}", ttl=600) as lease:
                    lease.report("x")
                    done.append(lease.key)

        threads = [threading.Thread(target=work, args=(f"thread{n}",)) for n in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(len(set(done)), 40)
        self.assertEqual(len(self.client._holds), 1)

    @unittest.skipUnless(hasattr(os, "fork"), "no fork here")
    def test_62_fork(self) -> None:
        program = self.python(
            "import croft, os, sys\n"
            "lease = croft.lease('jobs/a', ttl=3600).acquire()\n"
            "child = os.fork()\n"
            "if not child:\n"
            "    for use in (lease.check, lease.release, lambda: lease.report('x'), lambda: lease.write('out', 'x'),\n"
            "                lambda: lease.remaining, lambda: lease.lost):\n"
            "        try: use()\n"
            "        except croft.Forked: continue\n"
            "        os._exit(1)\n"
            "    with croft.lease('jobs/b'): pass\n"
            "    sys.exit(7)  # with all that Python does at an end\n"
            "status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
            "lease.report('still here')\n"
            "lease.release()\n"
            "print(status)\n")
        self.assertEqual(program.communicate()[0], "7\n")
        self.assertEqual(self.show("jobs/a")["ended"], "released")
        self.assertEqual(self.show("jobs/b")["ended"], "released")

    @unittest.skipUnless(hasattr(os, "fork"), "no fork here")
    def test_62_a_block_ends_in_a_forked_child(self) -> None:
        program = self.python(
            "import croft, os\n"
            "try:\n"
            "    with croft.lease('jobs/a', ttl=3600):\n"
            "        child = os.fork()\n"
            "        if child: print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
            "except croft.Forked:\n"
            "    os._exit(7)\n")
        self.assertEqual(program.communicate()[0], "7\n")
        self.assertEqual(self.show("jobs/a")["ended"], "released")

    @by_croft_alone("it is about a program that stands for croft")
    @unittest.skipUnless(hasattr(os, "fork"), "no fork here")
    def test_62_fork_while_croft_starts(self) -> None:
        """The child must not keep the input of croft open."""
        client = self.fake("exec cat\n")
        starting = threading.Thread(target=lambda: self.assertRaises(croft.CroftError, client._connect))
        starting.start()
        (hold,) = until("a process", lambda: set(_hold._running))
        fd = until("its input", lambda: getattr(hold, "_in", None)).fileno()
        child = os.fork()
        if not child:
            try:
                os.fstat(fd)
            except OSError:
                os._exit(7)
            os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        hold.close()
        starting.join()
        self.assertEqual(status, 7)

    def test_63_an_interrupt_leaves_no_lease(self) -> None:
        with mock.patch.object(croft.Lease, "__init__", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                self.client.lease("jobs/a", ttl=3600).acquire()
        with self.client.lease("jobs/a", ttl=3600, wait=60):
            pass
        with mock.patch.object(croft.Lease, "release", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                with self.client.lease("jobs/a", ttl=3600):
                    pass
        with self.client.lease("jobs/a", ttl=3600, wait=60):
            pass

    def test_63_a_signal_handler_may_ask(self) -> None:
        """A handler runs between any two steps, also while a request is made."""
        lease = self.client.lease("jobs/a", ttl=3600).acquire()
        left: list[float] = []

        class Interrupted(Clock):
            def now(self) -> Instant:
                if not left:
                    left.append(0)
                    left.append(lease.verify())
                return Clock().now()

        self.process()._clock = Interrupted()
        asking = threading.Thread(target=lambda: left.append(lease.verify()), daemon=True)
        asking.start()
        asking.join(PATIENCE)
        self.assertEqual(len(left), 3)
        self.assertGreater(min(left[1:]), 0)

    def test_63_cancellation(self) -> None:
        """Cancels after more and more turns of the event loop, until the work is
        done before that. Each time the key must be free again."""

        async def work() -> None:
            async with self.client.lease("jobs/a", ttl=3600, wait=60) as lease:
                await lease.check()
                await lease.report("x")
                await lease.save(b"x")
                await lease.renew()

        async def main() -> int:
            turns = 0
            while True:
                task = asyncio.create_task(work())
                for _ in range(turns):
                    if not task.done():
                        await asyncio.sleep(0.0005)
                task.cancel()
                try:
                    await task
                except asyncio.CancelledError:
                    turns += 1 + turns // 8
                    continue
                return turns

        self.assertGreater(asyncio.run(main()), 3)
        with self.another("other").lease("jobs/a", wait=60):
            pass

    def test_64_one_description_is_one_block(self) -> None:
        async def work() -> None:
            term = self.client.lease("jobs/a", wait=60)
            first = self.client.lease("jobs/a").acquire()
            entering = asyncio.create_task(term.__aenter__())
            await asyncio.sleep(0)
            with self.assertRaises(RuntimeError):
                await term.__aenter__()
            await asyncio.to_thread(first.release)
            await entering
            await term.__aexit__(None, None, None)

        asyncio.run(work())
        self.assertEqual(self.show("jobs/a")["ended"], "released")

    def test_64_names(self) -> None:
        first = self.client.lease("jobs/a").acquire()
        first.release()
        with self.client.lease("jobs/a") as second:
            self.assertNotEqual(first._grant.name, second._grant.name)
            self.client._heard({"event": "lost", "lease": first._grant.name, "loss": "expired", "message": "late"})
            second.check()
            self.assertIsNone(second.lost)
