"""Writes: rows 40 to 45 of conformance.md."""

from __future__ import annotations

import http.server
import json
import os
import sqlite3
import subprocess
import threading
import time
import unittest
import urllib.error
import urllib.request
from typing import Any
from unittest import mock

import croft
from croft import sql

from .support import PROGRAM, SERVER, Case, end, proceed, stop, until

POSTGRES = os.environ.get("CROFT_TEST_POSTGRES", "")


class Writes(Case):
    def replaced(self, key: str) -> tuple[croft.Lease, str]:
        """A lease whose owner does not know yet that an operator has the key, and
        the operator's stamp."""
        lease = self.client.lease(key, ttl=3600).acquire()
        stop(self.process().pid)
        self.addCleanup(proceed, self.process().pid)
        taken = self.run_croft("takeover", key, "--note", "a test", "--owner", "operator", "--json")
        return lease, str(json.loads(taken.splitlines()[-1])["stamp"])

    def test_40_a_guarded_file(self) -> None:
        out = self.path("out.txt")
        with self.client.lease("jobs/a") as first:
            first.write(out, "first")
            first.write(out, b"first again")
        stale, stamp = self.replaced("jobs/a")
        self.run_croft("write", out, "--from", self.file("second"), "--stamp", stamp)
        with self.assertRaises(croft.Stale) as caught:
            stale.write(out, "stale")
        self.assertEqual(caught.exception.facts["token"], stale.token)
        self.assertEqual(self.content(out), "second")

    def test_40_content_comes_whole(self) -> None:
        # If this process is killed in the middle of a write, a pipe would end,
        # and croft would take what it has for everything.
        client = self.fake(f'[ "$1" = write ] && [ ! -f /dev/stdin ] && exit 99\nexec {PROGRAM} "$@"\n')
        with client.lease("jobs/a") as lease:
            lease.write(self.path("out.txt"), "all of it")
        self.assertEqual(self.content(self.path("out.txt")), "all of it")

    def test_41_before_the_successor_has_written(self) -> None:
        out = self.path("out.txt")
        with self.client.lease("jobs/a") as first:
            first.write(out, "first")
        stale, _ = self.replaced("jobs/a")
        with self.assertRaises(croft.LeaseLost):
            stale.write(out, "stale")
        self.assertIsNotNone(stale.lost)
        self.assertEqual(self.content(out), "first")

    def test_42_headers(self) -> None:
        put: list[bytes] = []

        class Service(http.server.BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                put.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
        self.addCleanup(service.server_close)
        threading.Thread(target=service.serve_forever, daemon=True).start()
        self.addCleanup(service.shutdown)
        os.mkdir(self.path("marks"))
        proxy = subprocess.Popen(
            [PROGRAM, "proxy", "--json", "--upstream", f"http://127.0.0.1:{service.server_port}",
             "--resource", "/orders/{id}", "--listen", "127.0.0.1:0", "--marks", self.path("marks/{resource}")],
            cwd=self.dir, env={**os.environ, "CROFT_STORE": self.store}, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(end, proxy)
        assert proxy.stdout is not None
        address = json.loads(proxy.stdout.readline())["address"]

        def write(headers: dict[str, str], body: bytes) -> int:
            request = urllib.request.Request(
                f"http://{address}/orders/42", data=body, method="PUT", headers=headers)
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as e:
                e.close()
                return e.code
            except OSError:
                return 0

        with self.client.lease("orders/42", ttl=3600) as lease:
            until("the proxy", lambda: write(lease.headers(), b"first") == 204)
            self.assertEqual(list(lease.headers()), ["Croft-Stamp"])
        stale, stamp = self.replaced("orders/42")
        until("the successor's write", lambda: write({"Croft-Stamp": stamp}, b"second") == 204)
        self.assertEqual(write(stale.headers(), b"stale"), 409)
        self.assertNotIn(b"stale", put)

    def file(self, text: str) -> str:
        name = self.path("content")
        with open(name, "w") as f:
            f.write(text)
        return name

    def content(self, name: str) -> str:
        with open(name) as f:
            return f.read()


@unittest.skipIf(SERVER, "rows 43 to 45: the database looks at the stamp alone")
class Rows(Case):
    """The law, by way of fence rows. A subclass says in which database."""

    target = ""

    def connect(self) -> Any:
        raise NotImplementedError

    def admit(self, conn: Any, stamp: str, resource: str, seq: int = 0) -> None:
        sql.admit(getattr(conn, "conn", conn), stamp, resource, seq=seq)

    def law(self) -> None:
        """Every line of the law, and that Go and Python share one mark."""
        conn = self.connect()
        with self.client.lease("jobs/a") as first, self.client.lease("jobs/b") as other:
            with conn:
                self.admit(conn, first.stamp, "orders/42")
                conn.execute("INSERT INTO report VALUES ('first')")
            self.assertEqual(self.mark()["token"], first.token)
            with self.assertRaises(croft.WrongKey), conn:
                self.admit(conn, other.stamp, "orders/42")
            grant = first.stamp.split(":")[2]
            with self.assertRaises(croft.Collision), conn:
                self.admit(conn, first.stamp.replace(grant, "0" * 32), "orders/42")
            for seq in (7, 8):
                with conn:
                    self.admit(conn, first.stamp, "orders/42", seq=seq)
            for seq in (8, 3):
                with self.assertRaises(croft.Repeated), conn:
                    self.admit(conn, first.stamp, "orders/42", seq=seq)
            with conn:
                self.admit(conn, first.stamp, "orders/42")  # unnumbered: as often as it likes
        # A rollback takes the mark back.
        with self.client.lease("jobs/a") as second:
            with self.assertRaises(ZeroDivisionError), conn:
                self.admit(conn, second.stamp, "orders/42")
                raise ZeroDivisionError
            self.assertEqual(self.mark()["token"], first.token)
            # Go raises the fence that Python meets.
            self.run_croft("guard", "raise", self.target, "--stamp", second.stamp)
        with self.assertRaises(croft.Stale), conn:
            self.admit(conn, first.stamp, "orders/42")
            conn.execute("INSERT INTO report VALUES ('stale')")
        self.assertEqual(conn.execute("SELECT * FROM report").fetchall(), [("first",)])
        conn.rollback()
        for name in ("", "a//b", "a\nb", "x" * 600):
            with self.assertRaises(croft.Invalid):
                self.admit(conn, first.stamp, name)
        conn.rollback()

    def floor(self) -> None:
        """A mark without a grant, which an operator leaves, refuses its own token."""
        conn = self.connect()
        with self.client.lease("jobs/a") as lease:
            with conn:
                self.admit(conn, lease.stamp, "orders/42")
            self.run_croft("guard", "rekey", self.target, "jobs/b", "--note", "a test")
            self.run_croft("guard", "rekey", self.target, "jobs/a", "--note", "a test")
            with self.assertRaisesRegex(croft.Stale, "operator"), conn:
                self.admit(conn, lease.stamp, "orders/42")
        with self.client.lease("jobs/a") as lease:
            with conn:
                self.admit(conn, lease.stamp, "orders/42")

    def busy(self) -> None:
        """A writer inside the guard keeps others out, for a bounded time."""
        inside, outside = self.connect(), self.connect()
        with self.client.lease("jobs/a") as lease:
            self.admit(inside, lease.stamp, "orders/43")
            with mock.patch.object(sql, "LOCK_WAIT", 0.2):
                with self.assertRaises(croft.Unknown), outside:
                    self.admit(outside, lease.stamp, "orders/43")
            inside.commit()
            with outside:
                self.admit(outside, lease.stamp, "orders/43")

    def mark(self) -> dict[str, Any]:
        mark: dict[str, Any] = json.loads(self.run_croft("guard", "show", "--json", self.target))
        return mark


class Sqlite(Rows):
    def setUp(self) -> None:
        super().setUp()
        self.target = f"sqlite://{self.path('app.db')}#orders/42"
        conn = sqlite3.connect(self.path("app.db"))
        conn.executescript(self.run_croft("schema", "sqlite") + "CREATE TABLE report (body TEXT);")
        conn.close()

    def connect(self) -> sqlite3.Connection:
        conn = sqlite3.connect(self.path("app.db"))
        self.addCleanup(conn.close)
        return conn

    def test_43_sqlite(self) -> None:
        self.law()
        self.busy()
        self.floor()

    def test_43_its_connections(self) -> None:
        with self.client.lease("jobs/a") as lease:
            conn = sqlite3.connect(self.path("app.db"), isolation_level=None)
            with self.assertRaisesRegex(croft.Invalid, "BEGIN IMMEDIATE"):
                sql.admit(conn, lease.stamp, "orders/42")
            conn.execute("BEGIN IMMEDIATE")
            conn.row_factory = sqlite3.Row
            conn.text_factory = bytes
            sql.admit(conn, lease.stamp, "orders/42")
            sql.admit(conn, lease.stamp, "orders/42")
            conn.execute("COMMIT")
            conn.close()
            self.assertEqual(self.mark()["token"], lease.token)
            empty = sqlite3.connect(":memory:")
            with self.assertRaisesRegex(croft.Invalid, "croft schema sqlite"):
                sql.admit(empty, lease.stamp, "orders/42")
            self.assertFalse(empty.in_transaction)
            empty.close()
            with self.assertRaises(croft.Invalid):
                sql.admit(object(), lease.stamp, "orders/42")

    def test_45_impossible_stamps_and_marks(self) -> None:
        conn = self.connect()
        grant = "0123456789abcdef" * 2
        for stamp in (
            "", "croft1", f"croft2:5:{grant}:0:a", f"croft1:0:{grant}:0:a", f"croft1:{2**53}:{grant}:0:a",
            f"croft1:05:{grant}:0:a", f"croft1:5:{grant[1:]}:0:a", f"croft1:5:{grant.upper()}:0:a",
            f"croft1:5:{grant}:-1:a", f"croft1:5:{grant}:{2**64}:a", f"croft1:5:{grant}:0:a//b",
            f"croft1:5:{grant}:0:a\ud800", f"croft1:5:{grant}:0:a b", f"croft1:5:{grant}:0:%61",
            f"croft1:5:{grant}:0:%ff", f"croft1:5:{grant}:0:a:b",
            f"croft1:5:{grant}:0:a:", f"croft1:5:{grant}:0:a::", f"croft1:5:{grant}:0:a:none:{'A' * 86}",
            f"croft1:5:{grant}:0:a:{grant[:16]}:{'A' * 85}B", f"croft1:5:{grant}:0:a:{grant[:16]}:{'A' * 87}",
            f"croft1:{int((time.time() + 2 * 365 * 86400) * 1e6)}:{grant}:0:a",
        ):
            with self.assertRaises(croft.Invalid, msg=stamp):
                sql.admit(conn, stamp, "orders/42")
        self.assertFalse(conn.in_transaction)
        with conn:
            sql.admit(conn, f"croft1:5:{grant}:0:a%20b%3A%C3%A9", "orders/42")
        self.assertEqual(self.mark()["key"], "a b:é")
        with conn:  # a signed stamp, for a guard that does not ask
            sql.admit(conn, f"croft1:6:{grant}:0:a%20b%3A%C3%A9:{grant[:16]}:{'A' * 86}", "orders/42", seq=3)
        self.assertEqual((self.mark()["token"], self.mark()["seq"]), (6, 3))
        for planted in ("fence_token = -5", "fence_token = 9007199254740992", "fence_grant = 'nobody'",
                        "fence_key = 'a//b'", "fence_seq = 'x'", "fence_seq = ' 7'", "fence_seq = '1_0'"):
            with self.subTest(planted), conn:
                conn.execute("UPDATE croft_fence SET fence_key='a', fence_token=4, fence_grant='', fence_seq='0'")
                conn.execute("UPDATE croft_fence SET " + planted)
                with self.assertRaisesRegex(croft.CroftError, "damaged"):
                    sql.admit(conn, f"croft1:5:{grant}:0:a", "orders/42")


class Postgres(Rows):
    def setUp(self) -> None:
        super().setUp()
        if not POSTGRES:
            self.skipTest("NOT CHECKED: CROFT_TEST_POSTGRES names no database")
        self.target = POSTGRES + "#orders/42"
        self.store = POSTGRES
        self.client = self.another("worker")
        with self.client.lease("jobs/first"):  # makes the tables
            pass
        conn = self.connect()
        with conn:
            conn.execute("CREATE TABLE report (body text)")

    def connect(self) -> Any:
        import psycopg

        conn = psycopg.connect(POSTGRES)
        self.addCleanup(conn.close)
        # Unlike sqlite3's, its "with" closes it.
        return Kept(conn)

    def test_44_postgres(self) -> None:
        self.law()
        self.busy()
        self.floor()
        conn = self.connect()
        conn.conn.autocommit = True
        with self.client.lease("jobs/a") as lease:
            with self.assertRaisesRegex(croft.Invalid, "transaction"):
                sql.admit(conn.conn, lease.stamp, "orders/42")
            with conn.conn.transaction():
                sql.admit(conn.conn, lease.stamp, "orders/42")
                (wait,) = conn.execute("SHOW lock_timeout").fetchone()
                self.assertEqual(wait, "0")


class Kept:
    """A connection of psycopg with the "with" of sqlite3."""

    def __init__(self, conn: Any) -> None:
        self.conn = conn

    def __getattr__(self, name: str) -> Any:
        return getattr(self.conn, name)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, *_: object) -> None:
        self.conn.commit() if kind is None else self.conn.rollback()


del Rows  # the base is no test by itself

if __name__ == "__main__":
    unittest.main()
