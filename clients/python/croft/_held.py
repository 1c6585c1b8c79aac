"""A lease at a server, and the calls about it.

The helper for leases at a server (_server.py) uses this module. The calls run in
threads of its own.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import deque
from typing import Any, Callable, Mapping
from urllib.parse import quote

from ._calls import Answer, Now, Problem, Server, duration, now, seconds, span, until

SLICE = 5.0  # one call waits so long for a key; then the parent may have given up


class Request:
    """A message of the parent, or of nobody if its id is 0."""

    def __init__(self, do: str, id: int = 0, members: Mapping[str, Any] | None = None) -> None:
        self.do, self.id, self.members = do, id, dict(members or {})


class Lease:
    """A lease, or an acquire that is under way. The main thread owns all of it.
    Others only read what never changes and abandoned, and set unsure."""

    def __init__(self, name: str, key: str, acquire: Request) -> None:
        self.name, self.key, self.acquire = name, key, acquire
        self.secret = secrets.token_hex(16)
        self.path = "/v1/leases/" + quote(key, safe="")
        self.jobs: deque[Request] = deque()
        self.busy = False  # a call about it is under way
        self.abandoned = False  # the parent has given the acquire up
        self.unsure = False  # the key may have been granted
        self.held = self.ending = False
        self.lost: Problem | None = None
        self.token = 0
        self.ttl = 0.0
        self.deadline: Now = (-math.inf, -math.inf)
        self.renew_at = math.inf
        self.pause = 0.1  # before a renewal is sent again
        self.doubted = -math.inf
        self.failed = False  # the last renewal is not confirmed
        self.progress = 0.0
        self.hold_end = math.inf
        self.stall_after = math.inf

    def confirm(self, sent: Now, record: object, at: object) -> None:
        """Moves the local deadline. It lies a tenth of the TTL before the store's,
        and is counted from the moment before the request was sent."""
        if not isinstance(record, dict) or record.get("key") != self.key or (
            self.token not in (0, record.get("token"))
        ):
            raise Problem("unknown", "the server answers about another lease")
        ttl = seconds(record.get("ttl"))
        left = min(ttl, span(at, record.get("deadline"))) - ttl / 10
        if sent[0] + left > self.deadline[0]:
            self.deadline = sent[0] + left, sent[1] + left
            self.ttl = ttl

    def renewed(self, sent: Now) -> None:
        self.failed, self.pause = False, 0.1
        self.renew_at = min(sent[0] + self.ttl / 3, time.monotonic() + max(0.05, until(self.deadline, now()) / 2))


class Asker:
    """Asks the server about leases, again and again if it must. leases tells how
    many share the server."""

    def __init__(self, server: Server, timeout: float, leases: Callable[[], int]) -> None:
        self.server, self._timeout, self.leases = server, timeout, leases

    def take(self, lease: Lease, body: dict[str, Any], wait: float) -> Answer:
        """Takes a key, in a thread. An answer that comes after a wait gives little
        authority, so it is asked once more then."""
        end = time.monotonic() + wait
        turn = 0.0  # how long the server may wait
        broken, pause = math.inf, 0.1  # since when it does not answer, and the pause then
        while True:
            began = time.monotonic()
            more = {"wait": duration("wait", turn)} if turn else {}
            try:
                answer = self.server.call(lease.path + "/acquire", {**body, **more}, wait=turn)
                lease.unsure = True
                return self.server.call(lease.path + "/renew", {"secret": lease.secret}) if turn else answer
            except Problem as e:
                here = time.monotonic()
                if e.code == "held":
                    lease.unsure, broken, pause = False, math.inf, 0.1
                    waits = e.facts.get("why") in ("held", "reserved")
                    if here >= end or not (waits or e.facts["remaining"] <= end - here):
                        raise
                    early = turn > 0 and here - began < turn / 2
                    nap = 0.2 if early else 0.0 if waits else min(1.0, e.facts["remaining"])
                    turn = min(SLICE, end - here) if waits else 0.0
                elif not e.final and not (e.fault and wait == 0 and broken == math.inf):
                    lease.unsure = lease.unsure or not e.fault
                    broken = min(broken, began)
                    if here - broken > 3 * self._timeout:
                        raise
                    nap, pause = pause, min(1.0, 2 * pause)
                else:
                    raise
            if lease.abandoned:
                raise Problem("cancelled", "the acquire was given up before the key was granted")
            time.sleep(nap)

    def ask(self, lease: Lease, request: Request) -> Answer:
        """Carries out a request about a lease, in a thread."""
        if request.do in ("release", "fail"):
            # The success of a lease that is lost does not count.
            return self.release(lease, request.do == "fail" or lease.lost is not None)
        body = {"progress": request.members["marker"]} if request.do == "report" else request.members
        return self._insist(lease, request.do, {"secret": lease.secret, **body}, 3 * self._timeout)

    def release(self, lease: Lease, failed: bool) -> Answer:
        return self._insist(lease, "release", {"secret": lease.secret, "failed": failed}, 2 + 0.05 * self.leases())

    def _insist(self, lease: Lease, verb: str, body: Mapping[str, Any], limit: float) -> Answer:
        """Asks again, with the same secret, while the outcome is unknown."""
        end, pause = time.monotonic() + limit, 0.1
        while True:
            try:
                return self.server.call(f"{lease.path}/{verb}", body)
            except Problem as e:
                if e.final or time.monotonic() + pause > end or (lease.lost and verb != "release"):
                    raise
            time.sleep(pause)
            pause = min(1.0, 2 * pause)
