"""A lease that is still to be acquired, for "with", "async with" and guarded."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import math
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Concatenate, Coroutine, ParamSpec, TypeVar, overload

from ._lease import AsyncLease, Grant, Lease, arun, run
from .errors import CroftError, Forked, LeaseLost

if TYPE_CHECKING:
    from ._client import Client

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("croft")


class Term:
    """Holds the lease during a with block.

    The block's end gives the lease back: as success if the block ends well, and
    as failure if it raises. If the lease was lost, the end of a block that ended
    well raises LeaseLost: its result may not count.

    In an "async with" block the loss of the lease cancels the task, and the
    block raises LeaseLost.
    """

    def __init__(self, client: Client, key: str, wait: float, members: dict[str, Any]) -> None:
        self._client, self._key, self._members = client, key, members
        self._patience = None if wait == math.inf else client._patience + wait
        self._taken = False  # a block has it, or is about to
        self._lease: Lease | None = None
        self._task: _Task | None = None

    def acquire(self) -> Lease:
        """Acquires the lease. The caller gives it back."""
        client = self._client
        grant = client._describe(self._key, client._connect())
        try:
            run(client._acquire(grant, self._members), self._patience)
            return Lease(grant)
        except BaseException:
            client._abandon(grant)  # it may be granted all the same
            raise

    async def acquire_async(self) -> AsyncLease:
        """Acquires the lease. The caller gives it back; no task is cancelled."""
        client = self._client
        grant = client._describe(self._key, await asyncio.to_thread(client._connect))
        try:
            await arun(client._acquire(grant, self._members), self._patience)
            return AsyncLease(grant)
        except BaseException:
            client._abandon(grant)
            raise

    def __enter__(self) -> Lease:
        self._take()
        try:
            self._lease = self.acquire()
            return self._lease
        except BaseException:
            self._taken = False
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease, self._lease, self._taken = self._lease, None, False
        assert lease is not None
        try:
            lease.release() if error is None else lease.fail()
        except CroftError as e:
            _late(lease.key, e, error)
        except BaseException:
            self._client._abandon(lease._grant)
            raise

    async def __aenter__(self) -> AsyncLease:
        self._take()
        try:
            self._task = _Task(await self.acquire_async())
            return self._task.lease
        except BaseException:
            self._taken = False
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task, self._taken = self._task, None, False
        assert task is not None
        lost = task.leave(error)
        if lost is not None:
            raise lost from error
        try:
            # The request is sent before anything is awaited, so that a
            # cancellation of this very wait leaves no lease behind.
            await (task.lease.release() if error is None else task.lease.fail())
        except CroftError as e:
            _late(task.lease.key, e, error)

    def _take(self) -> None:
        taken, self._taken = self._taken, True
        if taken:
            raise RuntimeError(f"this lease on {self._key!r} is being held; describe another with lease()")


class _Task:
    """The task that holds a lease, and is cancelled when the lease is lost."""

    def __init__(self, lease: AsyncLease) -> None:
        self.lease = lease
        self._grant: Grant = lease._grant
        task = asyncio.current_task()
        assert task is not None
        self._task, self._loop = task, asyncio.get_running_loop()
        self._left = self._cancelled = False
        # Cancellations by others before this block. Python 3.10 cannot tell.
        self._before = self._cancelling()
        with self._grant.client._lock:
            self._grant.on_loss = self._on_loss
            self._grant.raise_lost()

    def leave(self, error: BaseException | None) -> LeaseLost | None:
        """Ends the watch. It returns the loss if that has cancelled the task,
        and nobody else has."""
        self._grant.client._own()
        self._left = True
        with self._grant.client._lock:
            self._grant.on_loss = None
        if not self._cancelled:
            return None
        uncancel = getattr(self._task, "uncancel", None)
        others = uncancel() > self._before if uncancel is not None else False
        return self.lease.lost if isinstance(error, asyncio.CancelledError) and not others else None

    def _on_loss(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:
            pass  # the loop is closed, and the task with it

    def _cancel(self) -> None:
        if not self._left:
            self._cancelled = True
            self._task.cancel()

    def _cancelling(self) -> int:
        cancelling = getattr(self._task, "cancelling", None)
        return int(cancelling()) if cancelling is not None else 0


def _late(key: str, late: CroftError, error: BaseException | None) -> None:
    """Handles an error of giving a lease back. A loss comes out, unless the block
    has an error of its own. Otherwise the lease lapses by itself."""
    if isinstance(late, LeaseLost):
        if error is None and late.loss != "released":
            raise late
        return
    if isinstance(late, Forked):
        if error is None:
            raise late
        return
    log.warning("the lease on %r could not be given back and lapses by itself: %s", key, late)


class Guarded:
    """The decorator that guarded returns."""

    def __init__(self, term: Callable[..., Term]) -> None:
        self._term = term

    @overload
    def __call__(
        self, work: Callable[Concatenate[AsyncLease, P], Coroutine[Any, Any, R]]
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, work: Callable[Concatenate[Lease, P], R]) -> Callable[P, R]: ...

    def __call__(self, work: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.isgeneratorfunction(work) or inspect.isasyncgenfunction(work):
            raise TypeError(f"{work!r} is a generator: it would run when the call, and so the lease, is over")
        if inspect.iscoroutinefunction(work):

            @functools.wraps(work)
            async def held_async(*args: Any, **kwargs: Any) -> Any:
                async with self._term(*args, **kwargs) as lease:
                    return await work(lease, *args, **kwargs)

            return held_async

        @functools.wraps(work)
        def held(*args: Any, **kwargs: Any) -> Any:
            with self._term(*args, **kwargs) as lease:
                return work(lease, *args, **kwargs)

        return held
