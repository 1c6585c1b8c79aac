"""Leases and fencing for background agents.

    import croft

    with croft.lease("reports/daily", ttl=60) as lease:
        data = generate()
        lease.write("out/today.json", data)  # refused if a newer owner was there

A lease says who may try. A guarded resource says whose writes still count: it
checks the stamp (lease.stamp) that travels with every write. Renewal lives in a
process of croft, so nothing that this program does can starve it.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Callable, Iterable

from . import sql
from ._client import Client
from ._lease import HEADER, AsyncLease, Lease
from ._term import Guarded, Term
from ._work import Final, Job, NotNow, Worker, worker
from .errors import (
    Collision,
    CroftError,
    Forked,
    Held,
    Incompatible,
    Invalid,
    LeaseLost,
    Refused,
    Repeated,
    Stale,
    Unknown,
    WrongKey,
)

__version__ = "0.1.0"

_default: Client | None = None
_making = threading.RLock()


def default_client() -> Client:
    """The client that lease and guarded use. A forked child has its own."""
    global _default
    with _making:
        if _default is None:
            _default = Client()
        return _default


def _forget() -> None:
    # Only one thread has survived the fork. Another may have had the lock.
    global _default, _making
    _default, _making = None, threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def lease(
    key: str,
    *,
    ttl: float | None = None,
    wait: float = 0.0,
    every: float | None = None,
    once: bool = False,
    hold: float | None = None,
    stall_after: float | None = None,
    max_hold: float | None = None,
    above: int | None = None,
    guards: Iterable[str | os.PathLike[str]] | None = None,
) -> Term:
    """Describes a lease, for "with" and "async with": see Client.lease."""
    return default_client().lease(
        key, ttl=ttl, wait=wait, every=every, once=once, hold=hold, stall_after=stall_after,
        max_hold=max_hold, above=above, guards=guards,
    )


def guarded(key: str | Callable[..., str], *, client: Client | None = None, **terms: Any) -> Guarded:
    """Makes a function hold the lease on a key during each call.

    The function gets the lease as its first argument. The key may be a function
    of the other arguments. The terms are those of Client.lease.

        @croft.guarded(lambda order: f"orders/{order}", ttl=30)
        def ship(lease: croft.Lease, order: int) -> None: ...
    """

    def term(*args: Any, **kwargs: Any) -> Term:
        name = key(*args, **kwargs) if callable(key) else key
        return (client or default_client()).lease(name, **terms)

    return Guarded(term)


__all__ = [
    "HEADER", "AsyncLease", "Client", "Collision", "CroftError", "Final", "Forked", "Guarded", "Held",
    "Incompatible", "Invalid", "Job", "Lease", "LeaseLost", "NotNow", "Refused", "Repeated", "Stale", "Term",
    "Unknown", "Worker", "WrongKey", "default_client", "guarded", "lease", "sql", "worker",
]
