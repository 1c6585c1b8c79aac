"""A real croft and a store of its own for each test."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Any, Callable, TypeVar

import croft
from croft._hold import Hold

PROGRAM = os.environ.get("CROFT_BIN", "croft")
SERVER = os.environ.get("CROFT_TEST_TRANSPORT") == "server"
"""Whether the clients of these tests hold their leases at a server."""
PATIENCE = 60.0  # for what must happen soon; it measures nothing
HERE = os.path.dirname(os.path.abspath(__file__))

TTL = 10.0
"""For leases that must end while a test waits, but not while it looks: on a busy
machine a process can stand still for seconds."""


Test = TypeVar("Test", bound=Callable[..., None])


def by_croft_alone(why: str) -> Callable[[Test], Test]:
    """Marks a test of a row that does not apply over a server: see "Over a
    server" in conformance.md."""
    return unittest.skipIf(SERVER, why)


def until(what: str, ok: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE
    while not (found := ok()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {PATIENCE} s for {what} in vain")
        time.sleep(0.01)
    return found


class Case(unittest.TestCase):
    """A test with a folder, a store in it, and a client."""

    over_server = SERVER
    records = "{dir}/store"
    """The store itself, behind a server or not."""

    def setUp(self) -> None:
        self.dir = tempfile.mkdtemp(prefix="croft-test-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.store = self.records = self.records.format(dir=self.dir)
        if self.over_server:
            self.server, address = self.serve()
            self.store = f"http://{address}/"
        self.client = self.another("worker")

    def serve(self, address: str = "127.0.0.1:0", *flags: str) -> tuple[subprocess.Popen[str], str]:
        """Starts a server before the store, and returns it and its address."""
        server = subprocess.Popen(
            [PROGRAM, "serve", "--json", "--store", self.records, "--listen", address, *flags],
            cwd=self.dir, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.addCleanup(end, server)
        assert server.stdout is not None
        while (event := json.loads(server.stdout.readline()))["event"] != "listening":
            pass
        return server, event["address"]

    def certificate(self, name: str, subject: str) -> None:
        """Makes NAME.pem and NAME.key, with which NAME proves itself."""
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
             "-subj", f"/CN={name}", "-addext", f"subjectAltName={subject}", "-keyout", f"{name}.key",
             "-out", f"{name}.pem"], cwd=self.dir, check=True, stderr=subprocess.DEVNULL)

    def policy(self, text: str, *, token: str) -> None:
        """Writes the files policy, where ann has this token, and token."""
        digest = hashlib.sha256(token.encode()).hexdigest()
        for name, content in (("policy", f"token ann sha256:{digest}\n{text}"), ("token", token)):
            with open(os.open(self.path(name), os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
                f.write(content)

    def another(self, owner: str) -> croft.Client:
        client = croft.Client(self.store, owner=owner, croft=PROGRAM)
        self.addCleanup(client.close)
        return client

    def path(self, name: str) -> str:
        return os.path.join(self.dir, name)

    def run_croft(self, *args: str, code: int = 0, **env: str) -> str:
        """Runs croft, which must end with the code, and returns what it prints."""
        done = subprocess.run(
            [PROGRAM, *args], cwd=self.dir, env={**os.environ, "CROFT_STORE": self.store, **env},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, code, f"croft {args}: {done.stdout}")
        return done.stdout

    def show(self, key: str) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.run_croft("show", "--json", key))
        return shown

    def take_over(self, key: str) -> None:
        self.run_croft("takeover", key, "--note", "a test", "--owner", "operator")

    def process(self, client: croft.Client | None = None) -> Hold:
        """The process of croft that holds the leases of a client."""
        transport = (client or self.client)._transport
        assert isinstance(transport, Hold)
        return transport

    def lost(self, lease: croft.Lease) -> croft.LeaseLost:
        """Waits until the loss of a lease is known without a question."""
        lost = until("the loss", lambda: lease.lost)
        assert isinstance(lost, croft.LeaseLost)
        with self.assertRaises(croft.LeaseLost):
            lease.check()
        return lost

    def python(self, code: str, **env: str) -> subprocess.Popen[str]:
        """Starts a Python that runs code with this client."""
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self.dir,
            env={**os.environ, "CROFT_STORE": self.store, "CROFT_BIN": PROGRAM,
                 "PYTHONPATH": os.path.dirname(HERE), **env})
        self.addCleanup(end, process)
        return process

    def fake(self, script: str) -> croft.Client:
        """A client of a program that is not croft."""
        program = self.path("fake")
        with open(program, "w") as f:
            f.write("#!/bin/sh\n" + script)
        os.chmod(program, 0o700)
        client = croft.Client(self.store, croft=program)
        self.addCleanup(client.close)
        return client


def end(process: subprocess.Popen[str]) -> None:
    try:
        process.send_signal(signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.communicate()


def stop(pid: int) -> None:
    """Stops a process, and returns when all of it stands still."""
    os.kill(pid, signal.SIGSTOP)

    def stopped() -> bool:
        states = []
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/stat") as f:
                states.append(f.read().rpartition(")")[2].split()[0])
        return all(state in "Tt" for state in states)

    until("the stop", stopped)


def proceed(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)
