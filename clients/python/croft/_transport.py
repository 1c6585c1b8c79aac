"""What a client needs of whatever holds its leases.

There are two, and both are a process (_hold.py): croft hold, and a helper that
talks to a server (_server.py). The messages are those of docs/protocol.md.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Protocol

from ._clock import Instant

Message = Mapping[str, Any]


@dataclass(frozen=True)
class Reply:
    """The reply to a request, and the moment just before the request was sent.

    Authority counts from that moment: see "Authority" in docs/protocol.md.
    """

    sent: Instant
    message: Message


class Transport(Protocol):
    """Carries requests, and tells what happens to leases."""

    def ask(self, do: str, lease: str, **members: Any) -> Future[Reply]:
        """Sends a request. It never waits for the other side.

        The future fails with the error of the reply, or with LeaseLost if the
        other side is gone.
        """

    def close(self) -> None:
        """Gives all leases back as failed, and ends. It may be called again."""

    @property
    def alive(self) -> bool:
        """Whether requests can be answered."""


Listener = Callable[[Message], None]
"""Hears every message that answers no request, such as "lost"."""

Ended = Callable[[str], None]
"""Hears once why the transport has ended."""
