"""Leases that a server keeps: rows 80 to 87 of conformance.md."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import http.server
import itertools
import json
import math
import os
import socket
import subprocess
import threading
import time
from collections import Counter
from datetime import datetime
from typing import Any, Callable, Iterator

import croft

from .support import PROGRAM, TTL, Case, proceed, stop, until


class Relay(http.server.ThreadingHTTPServer):
    """Passes requests on to a server, and notes them. It may answer by itself:
    with a status and a text, or with nothing at all if the text is None."""

    daemon_threads = True

    def __init__(self, to: str) -> None:
        super().__init__(("127.0.0.1", 0), Relaying)
        self.to = to
        self.seen: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.answer: Callable[[str], tuple[int, str] | None] = lambda path: None
        self.lose: Callable[[str], bool] = lambda path: False
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_: object) -> None:
        pass  # the client has given up

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def bodies(self, verb: str) -> list[dict[str, Any]]:
        return [body for path, _, body in self.seen if path.endswith("/" + verb)]


class Relaying(http.server.BaseHTTPRequestHandler):
    server: Relay
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, dict(self.headers), json.loads(body)))
        own = self.server.answer(self.path)
        if own is None:
            onward = http.client.HTTPConnection(self.server.to, timeout=60)
            onward.request("POST", self.path, body, {"Content-Type": "application/json"})
            reply = onward.getresponse()
            status, kind, text = reply.status, reply.headers["Content-Type"], reply.read()
            onward.close()
        else:
            status, kind, text = own[0], "application/json", own[1].encode()
        if self.server.lose(self.path):
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if 300 <= status < 400:
            self.send_header("Location", text.decode())
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        self.send_error(501)

    def log_message(self, *_: object) -> None:
        pass


class OverServer(Case):
    over_server = True

    def relay(self, timeout: float = 20) -> tuple[Relay, croft.Client]:
        """A client whose calls go through a relay."""
        relay = Relay(self.store.removeprefix("http://").rstrip("/"))
        self.addCleanup(relay.server_close)
        self.addCleanup(relay.shutdown)
        client = croft.Client(relay.url, owner="worker", timeout=timeout)
        self.addCleanup(client.close)
        return relay, client

    def test_80_without_the_program(self) -> None:
        program = self.python(
            "import croft\n"
            "with croft.lease('jobs/a', ttl=60, every=86400) as lease:\n"
            "    lease.report('half'); lease.save(b'page 7'); lease.check()\n"
            "    print(lease.owner)\n"
            "try: croft.lease('jobs/a', every=86400).acquire()\n"
            "except croft.Held as e: print(e.why)\n",
            CROFT_BIN="/nowhere/croft", PATH="/nowhere", CROFT_OWNER="ann")
        self.assertEqual(program.communicate()[0], "ann\nperiod\n")
        shown = self.show("jobs/a")
        self.assertEqual((shown["ended"], shown["progress"]), ("released", "half"))
        with self.client.lease("jobs/a") as lease:
            self.assertEqual(lease.checkpoint, b"page 7")

    def test_80_the_option_decides(self) -> None:
        by_croft = croft.Client(self.store, croft=PROGRAM, transport="croft")
        self.addCleanup(by_croft.close)
        with by_croft.lease("jobs/a") as lease:
            self.assertTrue(os.path.exists(lease.lease_file))
        for store, transport in ((self.records, "server"), (self.store, "carrier pigeon")):
            with self.assertRaises(croft.Invalid):
                croft.Client(store, transport=transport)
        with self.assertRaisesRegex(croft.Invalid, "fence"):
            self.client.lease("jobs/a", guards=[self.path("out")]).acquire()

    def test_81_a_lost_reply_is_asked_for_again(self) -> None:
        relay, client = self.relay()
        lost: Counter[str] = Counter()

        def first(path: str) -> bool:
            lost[path] += 1
            return lost[path] == 1

        relay.lose = first
        lease = client.lease("jobs/a", ttl=3600).acquire()
        lease.report("half")
        lease.save(b"state")
        lease.release()
        for verb in ("acquire", "report", "checkpoint", "release"):
            bodies = relay.bodies(verb)
            self.assertGreater(len(bodies), 1, verb)
            self.assertEqual(len({body["secret"] for body in bodies}), 1, verb)
        shown = self.show("jobs/a")
        self.assertEqual((shown["terms"], shown["ended"]), (1, "released"))

    def test_81_an_acquire_without_answers_leaves_no_lease(self) -> None:
        relay, client = self.relay(timeout=3)
        relay.lose = lambda path: path.endswith("/acquire")
        with self.assertRaises(croft.Unknown):
            client.lease("jobs/a", ttl=3600).acquire()
        self.assertEqual(len({body["secret"] for body in relay.bodies("acquire")}), 1)
        until("the end of the term", lambda: self.show("jobs/a")["ended"] == "failed")

    def test_82_answers_that_cannot_be(self) -> None:
        relay, client = self.relay()
        page = "<html>hello</html>"
        record = {"key": "jobs/a", "token": 7, "stamp": "s", "owner": "o", "cause": "first", "ttl": "1m0s",
                  "deadline": "2026-01-01T00:01:00Z", "now": "2026-01-01T00:00:00Z"}
        for name, wrong in (("ttl", "soon"), ("deadline", "tomorrow"), ("now", None), ("token", None), ("token", 0)):
            changed = json.dumps({**record, name: wrong})
            relay.answer = lambda path: (200, changed)
            with self.subTest(changed), self.assertRaises(croft.Unknown):
                client.lease("jobs/a", ttl=60).acquire()
            client.close()
        for status, text in ((200, page), (404, page), (200, "[]"), (200, "{"), (302, self.store)):
            relay.answer = lambda path: (status, text)
            with self.subTest(text, status=status), self.assertRaises(croft.Unknown):
                croft.Client(relay.url, timeout=0.1).lease("jobs/a", ttl=60).acquire()

    def test_82_answers_about_a_lease_that_cannot_be(self) -> None:
        relay, client = self.relay()
        lease = client.lease("jobs/a", ttl=3600).acquire()
        record: dict[str, Any] = {"key": "jobs/a", "token": lease.token, "ttl": "1h0m0s",
                                  "deadline": "2026-01-01T01:00:00Z", "now": "2026-01-01T00:00:00Z"}
        for name, wrong in (("key", "jobs/b"), ("token", lease.token + 1), ("ttl", "1.1.1s"), ("ttl", "9999999h")):
            changed = json.dumps({**record, name: wrong})
            relay.answer = lambda path: (200, changed) if path.endswith("/report") else None
            with self.subTest(changed), self.assertRaises(croft.Unknown):
                lease.report("half")
        lease = client.lease("jobs/b", ttl=TTL).acquire()
        record |= {"key": "jobs/b", "token": lease.token}
        strange: Iterator[Any] = itertools.cycle(["error", {"error": "x"}, {"record": "x"}, 7,
                                                  {"record": {**record, "ttl": "1.1.1s"}},
                                                  {"error": {"code": "held", "now": "x"}}])
        relay.answer = lambda path: (200, json.dumps({"answers": [next(strange)]})) if path == "/v1/apply" else None
        before = len(relay.bodies("apply"))
        until("the answers", lambda: len(relay.bodies("apply")) > before + 6 or lease.lost)
        self.assertTrue(self.process(client).alive)
        self.assertLess(lease.remaining, TTL)
        self.assertTrue(lease.lost is None or lease.lost.loss == "unreachable", lease.lost)

    def test_82_requests_that_cannot_be(self) -> None:
        acquire = b'{"id": 1, "do": "acquire", "lease": "a", "key": "jobs/a", "ttl": 3600}\n'
        for last, code in ((b'{"id": 2, "do"', 2), (b"[]\n", 2), (b"\xff\n", 2), (b"x" * 70_000 + b"\n", 2), (b"", 0)):
            with self.subTest(last[:20]):
                helper = subprocess.Popen(
                    self.client._command(), env={**os.environ, "CROFT_STORE": self.store}, stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE)
                assert helper.stdin is not None and helper.stdout is not None
                helper.stdin.write(acquire)
                helper.stdin.flush()
                while json.loads(helper.stdout.readline())["event"] != "granted":
                    pass
                helper.communicate(last)
                self.assertEqual(helper.returncode, code)
                self.assertEqual(self.show("jobs/a")["ended"], "failed")
        wrong = [b'{"id": 1, "do": "dance"}', b'{"do": "verify", "lease": "a"}',
                 b'{"id": 1, "do": "verify", "lease": "a"}',
                 b'{"id": 1, "do": "acquire", "lease": "a", "key": "k", "color": 1}',
                 b'{"id": 1, "do": "acquire", "lease": "a", "key": "\\ud800"}',
                 b'{"id": 1, "do": "acquire", "lease": "a", "key": "k", "ttl": "60"}']
        done = subprocess.run(
            self.client._command(), env={**os.environ, "CROFT_STORE": self.store}, input=b"\n".join(wrong) + b"\n",
            stdout=subprocess.PIPE, check=True)
        codes = [json.loads(line)["error"]["code"] for line in done.stdout.splitlines()[1:]]
        self.assertEqual(codes, ["invalid", "invalid", "not_owned", "invalid", "invalid", "invalid"])

    def test_82_a_server_that_drips(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def drip(connection: socket.socket, text: bytes) -> None:
            with connection, contextlib.suppress(OSError):  # the client gives up
                connection.recv(1 << 16)
                while True:
                    connection.send(text)
                    time.sleep(0.1)

        def serve() -> None:
            texts = itertools.cycle([b"HTTP/1.1 100 Continue\r\n\r\n", b"X"])
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=drip, args=(listener.accept()[0], next(texts)), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        client = croft.Client(f"http://127.0.0.1:{listener.getsockname()[1]}/", timeout=1)
        self.addCleanup(client.close)
        with self.assertRaises(croft.Unknown):
            client.lease("jobs/a").acquire()
        tasks = f"/proc/{self.process(client).pid}/task"
        until("the end of the calls", lambda: len(os.listdir(tasks)) <= 4)

    def test_83_where_the_token_goes(self) -> None:
        os.mkfifo(self.path("pipe"))  # nobody waits for what it may bring
        for url in ("http://192.0.2.1/", "http://127.0.0.1:1/?token=abc", "http://u:p@127.0.0.1/", "https://",
                    "http://127.0.0.1:1/?nosuch=1", "http://127.0.0.1:1/#x", "http://127.0.0.1:1/?ca=/etc/passwd",
                    "https://127.0.0.1:1/?token=@/dev/zero", "https://127.0.0.1:1/?ca=@nowhere",
                    "https://127.0.0.1:1/?cert=x", f"https://127.0.0.1:1/?cert={self.path('pipe')}&key=x"):
            with self.subTest(url), self.assertRaises(croft.Invalid):
                croft.Client(url).lease("jobs/a").acquire()
        relay, client = self.relay()
        with open(self.path("token"), "w") as f:
            f.write("a-secret-token\n")
        elsewhere, _ = self.relay()
        relay.answer = lambda path: (307, elsewhere.url)
        client = croft.Client(f"{relay.url}?token=@{self.path('token')}")
        self.addCleanup(client.close)
        with self.assertRaises(croft.Unknown):
            client.lease("jobs/a").acquire()
        self.assertEqual(relay.seen[0][1]["Authorization"], "Bearer a-secret-token")
        self.assertEqual(elsewhere.seen, [])

    def test_84_tls_and_a_policy(self) -> None:
        self.certificate("server", "IP:127.0.0.1")
        self.certificate("builder", "DNS:builder.example")
        self.policy("certificate builder dns:builder.example\n"
                    "ann may acquire, work on reports/\nbuilder may acquire, work on build/\n", token="anns-token")
        _, address = self.serve(
            "127.0.0.1:0", "--cert", "server.pem", "--key", "server.key", "--client-ca", "builder.pem",
            "--policy", "policy")
        url = f"https://{address}/?ca={self.path('server.pem')}"
        with open(self.path("wrong"), "w") as f:
            f.write("another")

        def client(url: str) -> croft.Client:
            made = croft.Client(url, owner="made up", timeout=20)
            self.addCleanup(made.close)
            return made

        ann = client(f"{url}&token=@{self.path('token')}")
        with ann.lease("reports/a") as lease:
            self.assertEqual(lease.owner, "ann")
        with self.assertRaisesRegex(croft.Unknown, "nothing is there"):
            ann.lease("build/a", wait=math.inf).acquire()
        with client(f"{url}&cert={self.path('builder.pem')}&key={self.path('builder.key')}").lease("build/a") as lease:
            self.assertEqual(lease.owner, "builder")
        with self.assertRaisesRegex(croft.Unknown, "token"):
            client(f"{url}&token=@{self.path('wrong')}").lease("reports/a").acquire()
        with self.assertRaisesRegex(croft.Unknown, "certificate"):
            client(f"https://{address}/?token=@{self.path('token')}").lease("reports/a").acquire()

    def test_85_a_server_that_is_restarted(self) -> None:
        address = self.store.removeprefix("http://").rstrip("/")
        lease = self.client.lease("jobs/a", ttl=60).acquire()
        waits = self.another("other").lease("jobs/a", wait=300)

        async def wait() -> int:
            return (await waits.acquire_async()).token

        tokens: list[int] = []
        waiting = threading.Thread(target=lambda: tokens.append(asyncio.run(wait())))
        waiting.start()
        self.server.kill()
        self.server.wait()
        reporting = threading.Thread(target=lambda: lease.report("while it was away"))
        reporting.start()
        self.serve(address)
        reporting.join()
        lease.check()
        self.assertEqual(self.show("jobs/a")["progress"], "while it was away")
        lease.release()
        waiting.join()
        self.assertGreater(tokens[0], lease.token)

    def test_86_the_secret(self) -> None:
        relay, client = self.relay()
        with client.lease("jobs/a", ttl=3600) as lease:
            secret = relay.bodies("acquire")[0]["secret"]
            pid = self.process(client).pid
            seen = [lease.stamp, repr(lease), str(vars(lease._grant)), lease.lease_file]
            for name in ("cmdline", "environ"):
                with open(f"/proc/{pid}/{name}") as f:
                    seen.append(f.read())
            for folder, _, files in os.walk(self.dir):
                for name in files:
                    with open(os.path.join(folder, name), errors="replace") as f:
                        seen.append(f.read())
            for text in seen:
                self.assertNotIn(secret, text)

    def test_87_a_server_that_stands_still(self) -> None:
        lease = self.client.lease("jobs/a", ttl=TTL).acquire()
        stop(self.server.pid)
        self.addCleanup(proceed, self.server.pid)
        self.assertEqual(self.lost(lease).loss, "unreachable")
        proceed(self.server.pid)
        stored = datetime.fromisoformat(self.show("jobs/a")["deadline"].replace("Z", "+00:00"))
        deadline = lease._grant.deadline
        assert deadline is not None
        self.assertLess(deadline.wall, stored.timestamp())
