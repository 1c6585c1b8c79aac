"""Grants: rows 01 to 13 of conformance.md."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import traceback
from typing import Callable, Iterator

import croft

from .support import PROGRAM, Case, by_croft_alone, until


class Grants(Case):
    def test_01_granted(self) -> None:
        with self.client.lease("jobs/a", ttl=60) as lease:
            record = self.show("jobs/a")
            self.assertEqual((record["owner"], record["token"], record["state"]), ("worker", lease.token, "held"))
            self.assertEqual((lease.key, lease.owner, lease.cause), ("jobs/a", "worker", "first"))
            self.assertTrue(lease.stamp.startswith(f"croft1:{lease.token}:"), lease.stamp)
            self.assertTrue(0 < lease.remaining < 60, lease.remaining)
            self.assertTrue(0 < lease.verify() < 60)
            lease.check()
            self.assertIsNone(lease.lost)

    def test_02_held(self) -> None:
        with self.client.lease("jobs/a", ttl=60):
            with self.assertRaises(croft.Held) as caught:
                self.another("other").lease("jobs/a").acquire()
        self.assertEqual((caught.exception.owner, caught.exception.why), ("worker", "held"))
        self.assertTrue(0 < caught.exception.remaining <= 60)

    def test_03_wait(self) -> None:
        first = self.client.lease("jobs/a", ttl=3600).acquire()
        got: list[croft.Lease] = []

        def wait() -> None:
            got.append(self.another("other").lease("jobs/a", wait=300).acquire())

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.2)
        self.assertFalse(got)
        first.release()
        waiting.join()
        self.assertEqual(got[0].cause, "released")

    def test_04_wait_runs_out(self) -> None:
        with self.client.lease("jobs/a", ttl=3600):
            with self.assertRaises(croft.Held):
                self.another("other").lease("jobs/a", wait=0.1).acquire()

    def test_05_tokens_rise(self) -> None:
        tokens = []
        for _ in range(3):
            with self.client.lease("jobs/a") as lease:
                tokens.append(lease.token)
        self.assertEqual(tokens, sorted(set(tokens)))

    def test_06_bad_input(self) -> None:
        for term in (
            self.client.lease("a//b"), self.client.lease(""), self.client.lease("a", ttl=0),
            self.client.lease("a", wait=-1), self.client.lease("a", ttl=float("nan")),
            self.client.lease("a", every=60, once=True), self.client.lease("a", above=-1),
            self.client.lease("a" * 70_000), self.client.lease("a\ud800"), self.client.lease("a", wait=1e300),
        ):
            with self.subTest(term=f"{term._key[:9]} {term._members}"), self.assertRaises(croft.Invalid):
                term.acquire()
        with self.client.lease("jobs/a") as lease:
            with self.assertRaises(croft.Invalid):
                lease.report("")
            with self.assertRaises(croft.Invalid):
                lease.save(b"x" * 1025)
            with self.assertRaises(croft.Invalid):
                lease.renew(0)
            lease.check()
        self.assertEqual(self.show("a")["token"], 0)

    def test_06_bad_clients(self) -> None:
        with self.assertRaisesRegex(croft.Invalid, "nosuch"):
            croft.Client("nosuch://store", croft=PROGRAM).lease("a").acquire()
        for timeout in (0, -1, 1e-5, float("nan"), float("inf")):
            with self.assertRaises(croft.Invalid):
                croft.Client(self.store, timeout=timeout)
        with self.assertRaises(croft.Invalid):
            self.client.lease("a", guards="one.txt")  # its letters are no targets
        with self.client.lease("a") as lease:
            with self.assertRaises(croft.Invalid):
                lease.write("a\0b", "x")

    def test_07_success(self) -> None:
        with self.client.lease("jobs/a", every=86400):
            pass
        self.assertEqual(self.show("jobs/a")["ended"], "released")
        with self.assertRaises(croft.Held) as caught:
            self.client.lease("jobs/a", every=86400).acquire()
        self.assertEqual(caught.exception.why, "period")

    def test_08_failure(self) -> None:
        with self.assertRaisesRegex(ZeroDivisionError, "mine"):
            with self.client.lease("jobs/a", every=86400):
                raise ZeroDivisionError("mine")
        self.assertEqual(self.show("jobs/a")["ended"], "failed")
        with self.client.lease("jobs/a", every=86400):
            pass

    def test_09_given_back(self) -> None:
        with self.client.lease("jobs/a") as lease:
            lease.release()
            self.assertEqual(lease.remaining, 0)
            uses: list[Callable[[], object]] = [
                lease.check, lease.verify, lease.release, lambda: lease.report("x"),
                lambda: lease.write(self.path("out"), "x"),
            ]
            for use in uses:
                with self.assertRaises(croft.LeaseLost) as caught:
                    use()
                self.assertEqual(caught.exception.loss, "released")
        self.assertFalse(os.path.exists(self.path("out")))

    def test_09_the_error_does_not_grow(self) -> None:
        lease = self.client.lease("jobs/a").acquire()
        lease.release()
        places = []
        for _ in range(10):
            try:
                lease.check()
            except croft.LeaseLost as e:
                places.append(len(traceback.extract_tb(e.__traceback__)))
        self.assertEqual(len(places), 10)
        self.assertEqual(places[0], places[-1])

    def test_10_checkpoint(self) -> None:
        with self.client.lease("jobs/a") as lease:
            self.assertEqual(lease.checkpoint, b"")
            lease.save(b"page \xff 17")
        with self.assertRaises(ZeroDivisionError):
            with self.client.lease("jobs/a") as lease:
                self.assertEqual(lease.checkpoint, b"page \xff 17")
                lease.save(b"page 18")
                raise ZeroDivisionError
        with self.client.lease("jobs/a") as lease:
            self.assertEqual(lease.checkpoint, b"page 18")

    def test_11_report_and_renew(self) -> None:
        with self.client.lease("jobs/a", ttl=60) as lease:
            lease.report("page 7 of 9")
            self.assertEqual(self.show("jobs/a")["progress"], "page 7 of 9")
            lease.renew(ttl=600)
            self.assertGreater(lease.remaining, 60)
            self.assertEqual(self.show("jobs/a")["ttl"], "10m0s")
            lease.renew()

    @by_croft_alone("row 12: only croft can raise a fence")
    def test_12_guards(self) -> None:
        out = self.path("out.txt")
        first = self.client.lease("jobs/a").acquire()
        first.write(out, "first")
        first.release()
        with self.another("other").lease("jobs/a", guards=[out]) as second:
            self.assertEqual(json.loads(self.run_croft("guard", "show", "--json", out))["token"], second.token)
            self.run_croft("write", out, "--stamp", first.stamp, code=13)

    def test_13_guarded(self) -> None:
        @croft.guarded(lambda n: f"jobs/{n}", client=self.client, ttl=60)
        def work(lease: croft.Lease, n: int) -> str:
            """Works."""
            self.assertEqual(self.show(lease.key)["state"], "held")
            return f"done {n}"

        @croft.guarded("jobs/b", client=self.client)
        async def work_async(lease: croft.AsyncLease, n: int) -> str:
            await lease.check()
            return f"{lease.key} {n}"

        self.assertEqual(work(3), "done 3")
        self.assertEqual((work.__name__, work.__doc__), ("work", "Works."))
        self.assertEqual(asyncio.run(work_async(4)), "jobs/b 4")
        for key in ("jobs/3", "jobs/b"):
            self.assertEqual(self.show(key)["ended"], "released")
        until("no lease", lambda: not self.client._grants)

    def test_13_generators_cannot_be_guarded(self) -> None:
        def work(lease: croft.Lease) -> Iterator[int]:
            yield 1

        with self.assertRaises(TypeError):
            croft.guarded("jobs/a", client=self.client)(work)
