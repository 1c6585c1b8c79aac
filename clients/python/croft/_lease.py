"""Leases, as the work sees them: one for threads, and one for asyncio."""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import copy
import os
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Callable, Generator, TypeVar

from ._clock import Instant
from ._transport import Message, Reply, Transport
from .errors import Invalid, LeaseLost, Unknown

if TYPE_CHECKING:
    from ._client import Client

T = TypeVar("T")
Steps = Generator["Future[Reply]", Reply, T]
"""An operation: it yields each question that it waits for. So threads and
asyncio run the same code."""

HEADER = "Croft-Stamp"


class Grant:
    """What a client knows of one lease. The client's lock protects deadline,
    lost and asked."""

    def __init__(self, client: Client, transport: Transport, name: str, key: str) -> None:
        self.client, self.transport, self.name, self.key = client, transport, name, key
        self.token = 0
        self.stamp = self.owner = self.cause = self.lease_file = ""
        self.checkpoint = b""
        self.ttl = 0.0
        self.confirmed: Reply | None = None  # the newest reply that gave authority
        self.deadline: Instant | None = None  # None until the first such reply
        self.asked: float | None = None  # when the keeper asked, if there is no answer yet
        self.patience = 0.0  # how long the keeper waits for that answer
        self.lost: LeaseLost | None = None
        self.given = False  # whether croft has been asked to give it back
        self.on_loss: Callable[[], None] | None = None
        self._open: set[Future[Reply]] = set()  # questions without an answer

    def ask(self, do: str, **members: Any) -> Future[Reply]:
        """Asks about this lease. A loss answers, too: see answer_all."""
        try:
            answer = self.transport.ask(do, self.name, **members)
        except (TypeError, ValueError) as e:  # what is no JSON
            raise Invalid(f"{do}: {e}") from e
        self._open.add(answer)
        answer.add_done_callback(self._open.discard)
        return answer

    def answer_all(self, lost: LeaseLost) -> None:
        """Lets nobody wait for a croft that may never answer."""
        for answer in list(self._open):
            try:
                answer.set_exception(lost)
            except concurrent.futures.InvalidStateError:
                pass  # answered meanwhile

    def raise_lost(self) -> None:
        """Raises the loss, if there is one, and each time another copy: an error
        grows with every place that raises it."""
        if self.lost is not None:
            raise copy.copy(self.lost)

    def granted(self, message: Message) -> None:
        self.token = int(message["token"])
        self.stamp, self.owner = str(message["stamp"]), str(message["owner"])
        self.cause, self.lease_file = str(message["cause"]), str(message["lease_file"])
        self.checkpoint = base64.b64decode(message.get("checkpoint") or "")
        self.ttl = float(message["ttl"])

    def confirm(self, reply: Reply) -> None:
        """Counts the deadline from the moment before the question was sent."""
        if self.confirmed is None or reply.sent.monotonic >= self.confirmed.sent.monotonic:
            self.confirmed = reply
            self.ttl = float(reply.message["ttl"])
            self.deadline = reply.sent.plus(float(reply.message["remaining"]))

    def remaining(self, now: Instant) -> float:
        return now.until(self.deadline) if self.deadline is not None and self.lost is None else 0.0


class _View:
    """What both kinds of lease tell without asking anybody."""

    def __init__(self, grant: Grant) -> None:
        self._grant = grant

    @property
    def key(self) -> str:
        """The key that the lease is on."""
        return self._grant.key

    @property
    def token(self) -> int:
        """The lease's token. Every later grant of the key has a higher one."""
        return self._grant.token

    @property
    def stamp(self) -> str:
        """The stamp that every write under the lease carries. It holds no secret."""
        return self._grant.stamp

    @property
    def owner(self) -> str:
        """The owner, as the record shows it."""
        return self._grant.owner

    @property
    def cause(self) -> str:
        """How this term began, such as "first" or "expired"."""
        return self._grant.cause

    @property
    def checkpoint(self) -> bytes:
        """What an earlier holder has saved. Empty if there was nothing."""
        return self._grant.checkpoint

    @property
    def lease_file(self) -> str:
        """A file with the lease, for "croft report @FILE". It holds the secret."""
        return self._grant.lease_file

    @property
    def lost(self) -> LeaseLost | None:
        """Why the lease has ended, as far as it is known without asking."""
        self._grant.client._own()
        return copy.copy(self._grant.lost)

    @property
    def remaining(self) -> float:
        """The seconds until the local deadline. Zero or less gives no authority."""
        client = self._grant.client
        client._own()
        with client._lock:
            return self._grant.remaining(client._clock.now())

    def headers(self) -> dict[str, str]:
        """The header that HTTP boundaries (croft proxy, httpfence) read."""
        return {HEADER: self.stamp}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r} token {self.token}>"


class Lease(_View):
    """A lease for work in threads. Any thread may use it."""

    def check(self) -> None:
        """Returns if the lease is alive, and raises LeaseLost if it is over.

        It asks croft if the local deadline has passed, which happens after this
        process stood still. It raises Unknown if there is no answer.
        """
        self._grant.client._check(self._grant, lambda: self._run(self._grant.client._verify(self._grant)))

    def verify(self) -> float:
        """Asks croft now whether the lease is alive, and returns what remains."""
        return self._run(self._grant.client._verify(self._grant))

    def renew(self, ttl: float | None = None) -> None:
        """Renews now, with another TTL if one is given. Renewing needs no call."""
        self._run(self._grant.client._renew(self._grant, ttl))

    def report(self, marker: str) -> None:
        """Reports progress, for people to read. With stall_after it is needed."""
        self._run(self._grant.client._tell(self._grant, "report", marker=marker))

    def save(self, checkpoint: bytes) -> None:
        """Saves a checkpoint of at most 1024 bytes for the next holder."""
        text = base64.b64encode(checkpoint).decode()
        self._run(self._grant.client._tell(self._grant, "checkpoint", checkpoint=text))

    def write(self, target: str | os.PathLike[str], data: bytes | str) -> None:
        """Replaces a guarded file or object, if no newer owner has been there.

        Raises Stale if one has, and LeaseLost if the store says that this is
        no longer the owner.
        """
        self.check()
        self._grant.client._write(self._grant, target, data)

    def release(self) -> None:
        """Gives the lease back after success."""
        self._run(self._grant.client._give(self._grant, "release"))

    def fail(self) -> None:
        """Gives the lease back after failure: period and hold do not apply."""
        self._run(self._grant.client._give(self._grant, "fail"))

    def _run(self, steps: Steps[T]) -> T:
        return run(steps, self._grant.client._patience)


class AsyncLease(_View):
    """A lease for one asyncio task, which is cancelled when the lease is lost."""

    async def check(self) -> None:
        """Returns if the lease is alive, and raises LeaseLost if it is over.

        It asks croft if the local deadline has passed, which happens after this
        process or its event loop stood still. It raises Unknown if there is no
        answer.
        """
        asked: list[Steps[float]] = []
        self._grant.client._check(self._grant, lambda: asked.append(self._grant.client._verify(self._grant)))
        for steps in asked:
            await self._run(steps)

    async def verify(self) -> float:
        """Asks croft now whether the lease is alive, and returns what remains."""
        return await self._run(self._grant.client._verify(self._grant))

    async def renew(self, ttl: float | None = None) -> None:
        """Renews now, with another TTL if one is given. Renewing needs no call."""
        await self._run(self._grant.client._renew(self._grant, ttl))

    async def report(self, marker: str) -> None:
        """Reports progress, for people to read. With stall_after it is needed."""
        await self._run(self._grant.client._tell(self._grant, "report", marker=marker))

    async def save(self, checkpoint: bytes) -> None:
        """Saves a checkpoint of at most 1024 bytes for the next holder."""
        text = base64.b64encode(checkpoint).decode()
        await self._run(self._grant.client._tell(self._grant, "checkpoint", checkpoint=text))

    async def write(self, target: str | os.PathLike[str], data: bytes | str) -> None:
        """Replaces a guarded file or object, if no newer owner has been there.

        If it is cancelled, the write may still happen, under the same stamp.
        """
        await self.check()
        await asyncio.to_thread(self._grant.client._write, self._grant, target, data)

    async def release(self) -> None:
        """Gives the lease back after success."""
        await self._run(self._grant.client._give(self._grant, "release"))

    async def fail(self) -> None:
        """Gives the lease back after failure: period and hold do not apply."""
        await self._run(self._grant.client._give(self._grant, "fail"))

    async def _run(self, steps: Steps[T]) -> T:
        return await arun(steps, self._grant.client._patience)


def run(steps: Steps[T], patience: float | None) -> T:
    """Runs an operation in this thread. It waits at most patience for each
    answer."""
    if patience is not None:
        patience = min(patience, threading.TIMEOUT_MAX)
    try:
        question = next(steps)
        while True:
            try:
                reply = question.result(patience)
            except concurrent.futures.TimeoutError:
                question = steps.throw(unanswered())
            except BaseException as e:
                question = steps.throw(e)
            else:
                question = steps.send(reply)
    except StopIteration as e:
        done: T = e.value
        return done


async def arun(steps: Steps[T], patience: float | None) -> T:
    """Runs an operation in this task."""
    try:
        question = next(steps)
        while True:
            answer = asyncio.wrap_future(question)
            try:
                await asyncio.wait({answer}, timeout=patience)
                if not answer.done():
                    raise unanswered()
                reply = answer.result()
            except BaseException as e:
                answer.cancel()
                question = steps.throw(e)
            else:
                question = steps.send(reply)
    except StopIteration as e:
        done: T = e.value
        return done


def unanswered() -> Unknown:
    return Unknown("croft did not answer in time; the lease gives no authority until it does")
