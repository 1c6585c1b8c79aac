"""A client: the process that holds its leases, and their keeper.

That process is croft hold --multi, or _server.py for a store that is a server.
Both speak the same protocol, and are called croft below.

The keeper is a thread that runs while there are leases. It asks croft about each
of them when half of its time has passed, and so moves the local deadline. A
lease whose question is not answered until the deadline is lost: croft is stopped
or starved. If the keeper finds that it stood still itself, because this process
was stopped, a thread kept the interpreter to itself, or the machine slept, it
asks once more before it gives a lease up.

Client._lock protects the table of leases and what changes in them. Nobody waits
for croft while it is held. A signal handler of the same thread may enter it
again. "with" takes the lock, not the condition, whose own __enter__ could be
interrupted when it has just got the lock.
"""

from __future__ import annotations

import atexit
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import weakref
from concurrent.futures import Future
from typing import Any, Callable, Iterable

from ._clock import Clock, Instant
from ._hold import Hold, find
from ._lease import Grant, Steps
from ._term import Term
from ._transport import Message, Reply, Transport
from .errors import CroftError, Forked, Invalid, LeaseLost, Unknown, error_of

LATE = 0.5  # the keeper stood still if it wakes so much later than it wanted
LONGEST_SLEEP = 1.0  # a wall clock that went on during a sleep of the machine is noticed by then
LONGEST_PATIENCE = 5.0  # with the answer to a question
HERE = os.path.dirname(os.path.abspath(__file__))
HELPER = (
    "import sys, types; croft = sys.modules['croft'] = types.ModuleType('croft'); croft.__path__ = [sys.argv[1]]; "
    "from croft._server import main; main(float(sys.argv[2]))"
)
"""Runs _server.py without the rest of the package, which takes longer to load."""


class Client:
    """Holds leases in one store, through one process beside this one.

    store is the URL or directory of the store; by default croft finds it, as
    on the command line. croft is the program, by default CROFT_BIN or "croft".
    timeout is how long the store may take for one answer, in seconds.

    transport is "croft", or "server" for a store that is a croft server, at
    https://... or http://...: then the leases need no program but this Python.
    By default the store's URL decides.
    """

    def __init__(
        self, store: str | None = None, *, owner: str | None = None, croft: str | None = None, timeout: float = 5.0,
        transport: str | None = None,
    ) -> None:
        self._program = croft or os.environ.get("CROFT_BIN") or "croft"
        self._env: dict[str, str] = {}
        if store is not None:
            self._env["CROFT_STORE"] = store
        if owner is not None:
            self._env["CROFT_OWNER"] = owner
        if not 0.001 <= timeout <= 86400:
            raise Invalid(f"invalid timeout {timeout!r}: it is between a millisecond and a day, in seconds")
        self._seconds, self._timeout = timeout, f"{timeout:f}s"
        is_server = (store or os.environ.get("CROFT_STORE") or "").startswith(("https://", "http://"))
        if transport not in (None, "croft", "server") or (transport == "server" and not is_server):
            raise Invalid('invalid transport: it is "croft", or "server" for a store at https://... or http://...')
        self._direct = is_server and transport != "croft"
        self._patience = 4 * timeout + 5.0  # croft itself gives up after three times the timeout
        self._clock = Clock()
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._starting = threading.RLock()  # held while a process of croft starts
        self._transport: Transport | None = None
        self._holds: list[Hold] = []  # every process that may still run
        self._grants: dict[str, Grant] = {}
        self._names = itertools.count(1)
        self._keeper: threading.Thread | None = None
        self._late = -math.inf  # when the keeper last found that it had stood still
        _clients.add(self)

    def lease(
        self, key: str, *, ttl: float | None = None, wait: float = 0.0, every: float | None = None,
        once: bool = False, hold: float | None = None, stall_after: float | None = None,
        max_hold: float | None = None, above: int | None = None,
        guards: Iterable[str | os.PathLike[str]] | None = None,
    ) -> Term:
        """Describes a lease, for "with" and "async with".

        All times are in seconds. ttl is how long others wait if this machine
        dies (a minute). wait is how long to wait for a held key; math.inf waits
        for ever. every makes it work that is done once per period, and once
        work that is done once for all. hold keeps the key after success, from
        the start on. stall_after loses the lease if report or save are not
        called for so long, and max_hold loses it in any case. guards are the
        targets that are to refuse older owners at once. above asks for a token
        above this one, after a Collision.
        """
        if isinstance(guards, (str, bytes, os.PathLike)):
            raise Invalid("invalid guards: it is a list of targets, such as guards=[target]")
        members: dict[str, Any] = {
            "ttl": ttl, "every": every, "hold": hold, "stall_after": stall_after, "max_hold": max_hold,
            "above": above, "wait": "forever" if wait == math.inf else wait, "once": once or None,
            "guards": None if guards is None else [os.fspath(g) for g in guards],
        }
        return Term(self, key, wait, {name: value for name, value in members.items() if value is not None})

    def close(self) -> None:
        """Gives all leases back as failed. The client can be used again."""
        self._own()
        with self._lock:
            holds, self._holds, self._transport = self._holds, [], None
            held = [grant for grant in self._grants.values() if grant.transport in holds]
        for grant in held:
            self._lose(grant, LeaseLost(
                f"the client has been closed, and the lease on {grant.key!r} given back as failed", loss="gone"))
        for each in holds:
            each.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Operations. Lease and AsyncLease run them.

    def _describe(self, key: str, transport: Transport) -> Grant:
        return Grant(self, transport, str(next(self._names)), key)

    def _acquire(self, grant: Grant, members: dict[str, Any]) -> Steps[None]:
        with self._lock:
            self._grants[grant.name] = grant  # before the question: a loss may follow the answer at once
        reply = yield grant.ask("acquire", key=grant.key, **members)
        grant.granted(reply.message)
        # The acquire may have waited for long: its moment gives no authority.
        reply = yield grant.ask("verify")
        with self._lock:
            grant.confirm(reply)
            grant.raise_lost()
            if self._keeper is None:
                keeper = threading.Thread(target=self._keep, name="croft-keeper", daemon=True)
                keeper.start()
                self._keeper = keeper
            self._changed.notify_all()

    def _abandon(self, grant: Grant) -> None:
        """Gives back what an error has interrupted. It waits for nothing."""
        with self._lock:
            if not grant.given:
                self._end(grant, "fail")

    def _end(self, grant: Grant, do: str) -> Future[Reply]:
        """Ends a lease, and asks croft to give it back."""
        self._grants.pop(grant.name, None)  # the keeper asks no more
        if grant.lost is None:
            grant.lost = LeaseLost(f"the lease on {grant.key!r} has been given back", loss="released")
        answer = grant.transport.ask(do, grant.name)
        grant.given = True
        return answer

    def _verify(self, grant: Grant) -> Steps[float]:
        yield from self._tell(grant, "verify")
        with self._lock:
            left = grant.remaining(self._clock.now())
            grant.raise_lost()
        if left <= 0:
            raise Unknown("the answer of croft came too late to give authority; ask again")
        return left

    def _renew(self, grant: Grant, ttl: float | None) -> Steps[None]:
        yield from self._tell(grant, "renew", **({} if ttl is None else {"ttl": ttl}))

    def _tell(self, grant: Grant, do: str, **members: Any) -> Steps[None]:
        self._alive(grant)
        try:
            reply = yield grant.ask(do, **members)
        except LeaseLost as e:
            self._lose(grant, e)
            grant.raise_lost()
            raise
        with self._lock:
            grant.confirm(reply)

    def _give(self, grant: Grant, do: str) -> Steps[None]:
        self._alive(grant)
        with self._lock:
            answer = self._end(grant, do)
        try:
            yield answer
        except LeaseLost as e:
            with self._lock:
                grant.lost = e
            raise

    def _write(self, grant: Grant, target: str | os.PathLike[str], data: bytes | str) -> None:
        self._alive(grant)
        name = os.fspath(target)
        if name.startswith("-"):
            name = "./" + name
        try:
            # A file, not a pipe: if this process is killed, croft must not take
            # the half of the data that a pipe holds for all of it.
            with tempfile.TemporaryFile() as content:
                content.write(data.encode() if isinstance(data, str) else data)
                content.seek(0)
                done = subprocess.run(
                    [find(self._program), "write", "--json", "--timeout", self._timeout, name],
                    stdin=content, stdout=subprocess.PIPE,
                    env={**os.environ, **self._env, "CROFT_STAMP": grant.stamp}, check=False,
                )
        except OSError as e:
            raise CroftError(f"croft write cannot be started: {e}") from e
        except ValueError as e:
            raise Invalid(f"invalid target {name!r}: {e}") from e
        if done.returncode == 0:
            return
        try:
            facts = json.loads(done.stdout)["error"]
        except (ValueError, KeyError, TypeError):
            facts = {"message": f"croft write ended with exit code {done.returncode}"}
        error = error_of(facts)
        if isinstance(error, LeaseLost):
            self._lose(grant, error)
        raise error

    def _check(self, grant: Grant, ask: Callable[[], object]) -> None:
        """Raises if the lease is lost, and asks if its time has passed."""
        self._alive(grant)
        with self._lock:
            left = grant.remaining(self._clock.now())
        if left <= 0:
            ask()

    def _alive(self, grant: Grant) -> None:
        self._own()
        grant.raise_lost()

    def _own(self) -> None:
        if os.getpid() != self._pid:
            raise Forked("this client belongs to the parent of this process; make one after the fork")

    # What happens.

    def _connect(self) -> Transport:
        """Returns the running process of croft, and starts one if there is none."""
        self._own()
        with self._starting:
            if self._transport is None or not self._transport.alive:
                this: list[Hold] = []  # the new one, once it is made
                started = Hold(
                    self._command(), {**os.environ, **self._env}, self._clock,
                    self._heard, lambda why: self._ended(this, why),
                )
                this.append(started)
                with self._lock:
                    self._holds = [each for each in self._holds if each.alive] + [started]
                    self._transport = started
            return self._transport

    def _command(self) -> list[str]:
        if not self._direct:
            return [find(self._program), "--timeout", self._timeout, "hold", "--multi"]
        if not sys.executable or getattr(sys, "frozen", False):
            raise CroftError("there is no Python to start beside this program; hold the leases with the program "
                             'croft: Client(transport="croft")')
        # Isolated, and without the packages of this program.
        return [sys.executable, "-I", "-S", "-c", HELPER, HERE, str(self._seconds)]

    def _heard(self, message: Message) -> None:
        with self._lock:
            grant = self._grants.get(str(message.get("lease")))
        if grant is not None and message["event"] == "lost":
            self._lose(grant, LeaseLost(str(message.get("message", "")), message))

    def _ended(self, holds: list[Hold], why: str) -> None:
        with self._lock:
            gone = [grant for grant in self._grants.values() if grant.transport in holds]
        for grant in gone:
            self._lose(grant, LeaseLost(
                f"{why}; the lease on {grant.key!r} is lost with it, stop this work", loss="gone"))

    def _lose(self, grant: Grant, lost: LeaseLost) -> None:
        """Notes that a lease has ended. The first reason stays."""
        with self._lock:
            if grant.lost is None:
                grant.lost = lost
                self._grants.pop(grant.name, None)
                tell, grant.on_loss = grant.on_loss, None
            else:
                lost, tell = grant.lost, None
        grant.answer_all(lost)
        if tell is not None:
            tell()

    # The keeper.

    def _keep(self) -> None:
        before, planned = self._clock.now(), math.inf
        while True:
            with self._lock:
                now = self._clock.now()
                if stood_still(before, now, planned):
                    self._late = now.monotonic
                if not self._grants:
                    self._keeper = None
                    return
                held = [grant for grant in self._grants.values() if grant.deadline is not None]
                silent = [grant for grant in held if self._silent(grant, now)]
                due = [grant for grant in held if self._due(grant, now) and grant not in silent]
                for grant in due:
                    left = grant.remaining(now)
                    grant.asked = now.monotonic
                    grant.patience = LONGEST_PATIENCE if left <= 0 else min(LONGEST_PATIENCE, grant.ttl / 4)
            for grant in silent:
                self._give_up(grant)
            for grant in due:
                self._question(grant)
            with self._lock:
                before = now
                sleep = min([LONGEST_SLEEP, *(self._next(grant, now) for grant in held)])
                planned = now.monotonic + sleep
                self._changed.wait(sleep)

    def _due(self, grant: Grant, now: Instant) -> bool:
        """Whether it is time for a question. A question from before the keeper
        stood still counts no more."""
        if grant.asked is not None and grant.asked >= self._late:
            return False
        return self._until_due(grant, now) <= 0

    def _until_due(self, grant: Grant, now: Instant) -> float:
        assert grant.confirmed is not None
        return grant.remaining(now) - float(grant.confirmed.message["remaining"]) / 2

    def _silent(self, grant: Grant, now: Instant) -> bool:
        """Whether croft has had its time to answer, and the deadline has passed."""
        return (
            grant.remaining(now) <= 0 and grant.asked is not None and grant.asked >= self._late
            and now.monotonic - grant.asked >= grant.patience
        )

    def _next(self, grant: Grant, now: Instant) -> float:
        """When to look at a lease again, in seconds."""
        if grant.asked is None:
            wait = self._until_due(grant, now)
        else:
            wait = max(grant.remaining(now), grant.asked + grant.patience - now.monotonic)
        return max(wait, 0.01)

    def _question(self, grant: Grant) -> None:
        asked = grant.asked
        answer = grant.transport.ask("verify", grant.name)

        def answered(_: object) -> None:
            if answer.cancelled():
                return
            error = answer.exception()
            if isinstance(error, LeaseLost):
                self._lose(grant, error)
            if error is not None:
                return
            with self._lock:
                grant.confirm(answer.result())
                if grant.asked == asked:
                    grant.asked = None
                self._changed.notify_all()

        answer.add_done_callback(answered)

    def _give_up(self, grant: Grant) -> None:
        self._lose(grant, LeaseLost(
            f"croft did not answer until the deadline of {grant.key!r}: it is stopped or starved; stop this work",
            loss="silent"))
        grant.transport.ask("fail", grant.name)  # for when it wakes up
        with self._lock:
            if self._transport is grant.transport:
                self._transport = None  # the next acquire starts another


def stood_still(before: Instant, now: Instant, planned: float) -> bool:
    """Whether the keeper, or the machine, stood still since it last looked."""
    clocks = (now.wall - before.wall) - (now.monotonic - before.monotonic)
    return now.monotonic - planned > LATE or abs(clocks) > LATE


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _close_all() -> None:
    for client in list(_clients):
        if client._pid == os.getpid():
            client.close()


atexit.register(_close_all)
