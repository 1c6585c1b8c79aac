"""What is not known: rows 50 to 53 of conformance.md."""

from __future__ import annotations

import os

import croft

from .support import PROGRAM, Case, by_croft_alone, until

HELLO = """echo '{"event": "hello", "protocol": 1, "version": "a test", "pid": 1}'\n"""


class NotKnown(Case):
    def test_50_the_store_is_away(self) -> None:
        client = croft.Client("redis://127.0.0.1:1/0", croft=PROGRAM, timeout=0.2)
        self.addCleanup(client.close)
        with self.assertRaises(croft.Unknown):
            client.lease("jobs/a").acquire()

    @by_croft_alone("row 51: the two programs of the transport are of one package")
    def test_51_another_protocol(self) -> None:
        hello = """{"event": "hello", "protocol": 2, "version": "v9", "pid": 1}"""
        client = self.fake(f"echo '{hello}'; exec cat >/dev/null\n")
        with self.assertRaisesRegex(croft.Incompatible, "v9"):
            client.lease("jobs/a").acquire()

    @by_croft_alone("row 52: the messages of both programs are read by the same code")
    def test_52_a_torn_message(self) -> None:
        granted = (
            """{"event": "granted", "id": 1, "lease": "1", "key": "jobs/a", "token": 7, "stamp": "s", "owner": "o", """
            """"cause": "first", "deadline": "", "ttl": 60, "remaining": 50, "lease_file": "", "checkpoint": ""}""")
        verified = """{"event": "verified", "id": 2, "lease": "1", "token": 7, "ttl": 60, "remaining": 50}"""
        for last in ("""{"event": "verif""", "verified\\n", "[]\\n", "\\377\\n"):
            with self.subTest(last):
                lease = self.fake(
                    HELLO + f"read x; echo '{granted}'; read x; echo '{verified}'; read x; printf '{last}'\n"
                ).lease("jobs/a").acquire()
                lease.check()
                with self.assertRaises(croft.LeaseLost):
                    lease.report("x")
                self.assertEqual(self.lost(lease).loss, "gone")

    @by_croft_alone("row 52: the messages of both programs are read by the same code")
    def test_52_numbers_that_cannot_be(self) -> None:
        granted = (
            """{"event": "granted", "id": 1, "lease": "1", "key": "jobs/a", "token": %s, "stamp": "s", "owner": "o", """
            """"cause": "first", "ttl": 60, "remaining": 50, "lease_file": ""}""")
        verified = """{"event": "verified", "id": 2, "lease": "1", "ttl": 60%s}"""
        for token, rest in (
            ("7", ""), ("7", ', "remaining": NaN'), ("7", ', "remaining": Infinity'), ("7", ', "remaining": 1e300'),
            ("7", ', "remaining": "50"'), ('"7"', ', "remaining": 50'), ("0", ', "remaining": 50'),
        ):
            with self.subTest(token + rest):
                script = f"read x; echo '{granted % token}'; read x; echo '{verified % rest}'; exec cat >/dev/null\n"
                with self.assertRaisesRegex(croft.LeaseLost, "understood"):
                    self.fake(HELLO + script).lease("jobs/a").acquire()
        for reply in ("""{"event": "error", "id": 1, "error": 5}""", """{"event": "verified", "id": [1]}""",
                      """{"event": "released", "id": 1, "lease": "1"}"""):
            with self.subTest(reply):
                with self.assertRaisesRegex(croft.LeaseLost, "understood"):
                    self.fake(HELLO + f"read x; echo '{reply}'; exec cat >/dev/null\n").lease("jobs/a").acquire()

    @by_croft_alone("row 53: it needs no croft")
    def test_53_not_from_the_current_directory(self) -> None:
        with open(self.path("croft"), "w") as f:
            f.write("#!/bin/sh\ntouch ran\n")
        os.chmod(self.path("croft"), 0o700)
        program = self.python(
            "import croft\ntry: croft.lease('jobs/a').acquire()\nexcept croft.CroftError as e: print(e)",
            CROFT_BIN="", PATH=":/nowhere")
        self.assertIn("current directory", program.communicate()[0])
        self.assertFalse(os.path.exists(self.path("ran")))

    @by_croft_alone("row 53: it needs no croft")
    def test_53_no_croft(self) -> None:
        with self.assertRaisesRegex(croft.CroftError, "CROFT_BIN"):
            croft.Client(self.store, croft=self.path("missing")).lease("jobs/a").acquire()
        with self.assertRaises(croft.CroftError):
            self.fake("exit 3\n").lease("jobs/a").acquire()
        dies = self.fake(HELLO + "exit 3\n")
        with self.assertRaises(croft.CroftError):
            dies.lease("jobs/a").acquire()
        until("its end", lambda: not dies._holds or not dies._holds[0].alive)
