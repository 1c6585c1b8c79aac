"""A client: the process of croft, the leases that it holds, and their keeper.

The keeper is a thread that runs while there are leases. It asks croft about each
of them when half of its time has passed, and so moves the local deadline. A
lease whose question is not answered until the deadline is lost: croft is stopped
or starved. If the keeper finds that it stood still itself, because this process
was stopped, a thread kept the interpreter to itself, or the machine slept, it
asks once more before it gives a lease up.

The condition Client._changed protects the table of leases and what changes in
them. Nobody waits for croft while it is held.
"""

from __future__ import annotations

import atexit
import itertools
import json
import math
import os
import subprocess
import threading
import weakref
from typing import Any, Callable, Iterable

from ._clock import Clock, Instant
from ._hold import Hold
from ._lease import Grant, Steps
from ._term import Term
from ._transport import Message, Transport
from .errors import CroftError, Forked, Held, Invalid, LeaseLost, Unknown, error_of

LATE = 0.5  # the keeper stood still if it wakes so much later than it wanted
LONGEST_SLEEP = 1.0  # a wall clock that went on during a sleep of the machine is noticed by then
LONGEST_PATIENCE = 5.0  # with the answer to a question


class Client:
    """Holds leases in one store, through one process of croft.

    store is the URL or directory of the store; by default croft finds it, as
    on the command line. croft is the program, by default CROFT_BIN or "croft".
    timeout is how long the store may take for one answer, in seconds.
    """

    def __init__(
        self, store: str | None = None, *, owner: str | None = None, croft: str | None = None, timeout: float = 5.0
    ) -> None:
        self._program = croft or os.environ.get("CROFT_BIN") or "croft"
        self._env: dict[str, str] = {}
        if store is not None:
            self._env["CROFT_STORE"] = store
        if owner is not None:
            self._env["CROFT_OWNER"] = owner
        self._timeout = timeout
        self._patience = 4 * timeout + 5.0  # croft itself gives up after three times the timeout
        self._clock = Clock()
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._starting = threading.Lock()  # held while a process of croft starts
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
        members: dict[str, Any] = {
            "ttl": ttl, "every": every, "hold": hold, "stall_after": stall_after, "max_hold": max_hold,
            "above": above, "wait": "forever" if wait == math.inf else wait, "once": once or None,
            "guards": None if guards is None else [os.fspath(g) for g in guards],
        }
        return Term(self, key, wait, {name: value for name, value in members.items() if value is not None})

    def close(self) -> None:
        """Gives all leases back as failed. The client can be used again."""
        self._own()
        with self._changed:
            holds, self._holds, self._transport = self._holds, [], None
        for each in holds:
            each.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Operations. Lease and AsyncLease run them.

    def _acquire(self, key: str, members: dict[str, Any], transport: Transport) -> Steps[Grant]:
        grant = Grant(self, transport, str(next(self._names)), key)
        with self._changed:
            self._grants[grant.name] = grant  # before the question: a loss may follow the answer at once
        try:
            reply = yield grant.ask("acquire", key=key, **members)
            grant.granted(reply.message)
            # The acquire may have waited for long: its moment gives no authority.
            reply = yield grant.ask("verify")
        except BaseException as e:
            with self._changed:
                self._grants.pop(grant.name, None)
            if not isinstance(e, (Held, Invalid)):
                transport.ask("fail", grant.name)  # it may be granted all the same
            raise
        with self._changed:
            grant.confirm(reply)
            if grant.lost is not None:
                raise grant.lost
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep, name="croft-keeper", daemon=True)
                self._keeper.start()
            self._changed.notify_all()
        return grant

    def _verify(self, grant: Grant) -> Steps[float]:
        yield from self._tell(grant, "verify")
        with self._changed:
            left = grant.remaining(self._clock.now())
            if grant.lost is not None:
                raise grant.lost
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
            raise self._lose(grant, e)
        with self._changed:
            grant.confirm(reply)

    def _give(self, grant: Grant, do: str) -> Steps[None]:
        self._alive(grant)
        with self._changed:
            self._grants.pop(grant.name, None)  # the keeper asks no more
            grant.lost = LeaseLost(f"the lease on {grant.key!r} has been given back", loss="released")
        try:
            yield grant.transport.ask(do, grant.name)
        except LeaseLost as e:
            with self._changed:
                grant.lost = e
            raise

    def _write(self, grant: Grant, target: str | os.PathLike[str], data: bytes | str) -> None:
        self._alive(grant)
        name = os.fspath(target)
        if name.startswith("-"):
            name = "./" + name
        try:
            done = subprocess.run(
                [self._program, "write", "--json", "--timeout", f"{self._timeout}s", name],
                input=data.encode() if isinstance(data, str) else data, stdout=subprocess.PIPE,
                env={**os.environ, **self._env, "CROFT_STAMP": grant.stamp}, check=False,
            )
        except OSError as e:
            raise CroftError(f"croft cannot be started: {e}") from e
        if done.returncode == 0:
            return
        try:
            facts = json.loads(done.stdout)["error"]
        except (ValueError, KeyError, TypeError):
            facts = {"message": f"croft write ended with exit code {done.returncode}"}
        raise error_of(facts)

    def _check(self, grant: Grant, ask: Callable[[], object]) -> None:
        """Raises if the lease is lost, and asks if its time has passed."""
        self._alive(grant)
        with self._changed:
            left = grant.remaining(self._clock.now())
        if left <= 0:
            ask()

    def _alive(self, grant: Grant) -> None:
        self._own()
        if grant.lost is not None:
            raise grant.lost

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
                    [self._program, "--timeout", f"{self._timeout}s"], {**os.environ, **self._env}, self._clock,
                    self._heard, lambda why: self._ended(this, why),
                )
                this.append(started)
                with self._changed:
                    self._holds = [each for each in self._holds if each.alive] + [started]
                    self._transport = started
            return self._transport

    def _heard(self, message: Message) -> None:
        with self._changed:
            grant = self._grants.get(str(message.get("lease")))
        if grant is not None and message["event"] == "lost":
            self._lose(grant, LeaseLost(str(message.get("message", "")), message))

    def _ended(self, holds: list[Hold], why: str) -> None:
        with self._changed:
            gone = [grant for grant in self._grants.values() if grant.transport in holds]
        for grant in gone:
            self._lose(grant, LeaseLost(
                f"{why}; the lease on {grant.key!r} is lost with it, stop this work", loss="gone"))

    def _lose(self, grant: Grant, lost: LeaseLost) -> LeaseLost:
        """Notes that a lease has ended. The first reason stays."""
        with self._changed:
            if grant.lost is None:
                grant.lost = lost
                self._grants.pop(grant.name, None)
                tell, grant.on_loss = grant.on_loss, None
            else:
                lost, tell = grant.lost, None
        grant.answer_all(lost)
        if tell is not None:
            tell()
        return lost

    # The keeper.

    def _keep(self) -> None:
        before, planned = self._clock.now(), math.inf
        while True:
            with self._changed:
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
            with self._changed:
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
            with self._changed:
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
        with self._changed:
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


def _forget_all() -> None:
    for client in list(_clients):
        for each in client._holds:
            each.forget()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
