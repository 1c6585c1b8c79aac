"""Holds leases at a croft server for its parent process.

This program speaks the protocol of croft hold --multi (docs/protocol.md), and
uses the HTTP API of croft serve (docs/server.md). A Client with the URL of a
server starts it in place of croft. So renewal lives in another process here,
too: a held interpreter lock or a blocked event loop cannot starve it. It imports
the standard library alone, and starts without the rest of this package.

The main thread takes what happens, in order: a line of input, the answer of the
server, an act of an operator, a signal. It owns all state, and waits for no
call. So it answers verify at once, and notices a deadline while a call hangs.
Calls run in threads, at most one at a time about each lease. Renewals do not
wait for those: all that are due go in one batch, in a thread of its own. One
thread reads the input, one writes the output, and one hears of operators' acts.

A lease has a secret, which is made here and leaves only for the server. An
unknown outcome is asked again with the same secret.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import queue
import secrets
import signal
import socket
import sys
import threading
import time
from typing import Any, Callable, Iterable

from ._calls import Answer, Problem, Server, duration, invalid, now, number, problem_of, until
from ._held import Asker, Lease, Request

PROTOCOL = 1
MAX_LINE = 64 << 10
MAX_OUTPUT = 8192  # messages that wait for a parent that does not read
MAX_LEASES = 1000
MAX_JOBS = 64  # requests about one lease that wait for the server
MAX_BATCH = 1000
END_TIME = 20.0  # for giving everything back

ACQUIRE = {"key", "ttl", "wait", "every", "once", "hold", "stall_after", "max_hold", "above", "guards"}
MEMBERS: dict[str, set[str]] = {
    "acquire": ACQUIRE, "verify": set(), "renew": {"ttl"}, "report": {"marker"}, "checkpoint": {"checkpoint"},
    "release": set(), "fail": set(),
}
DONE = {"verify": "verified", "renew": "renewed", "report": "reported", "checkpoint": "saved"}


class Process:
    """Everything about the leases of one parent."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._output: queue.Queue[bytes | None] = queue.Queue(MAX_OUTPUT)
        self._leases: dict[str, Lease] = {}
        self._exit: int | None = None  # the exit code, once the end has begun
        self._ended = 0.0
        self._streaming = False
        self._later: list[tuple[Lease, Callable[[], None]]] = []  # acquires that come after others
        self._tidying = 0  # releases of keys that may have been granted
        self._asker: Asker

    def run(self) -> int:
        parent = os.getppid()
        writer = threading.Thread(target=self._write, daemon=True)
        writer.start()
        for each in ("SIGTERM", "SIGINT", "SIGHUP"):
            if hasattr(signal, each):
                signal.signal(getattr(signal, each), lambda *_: self._events.put(lambda: self._end(130)))
        self._say("hello", protocol=PROTOCOL, version="for Python", pid=os.getpid())
        try:
            server = Server(os.environ.get("CROFT_STORE", ""), self._timeout)
            self._asker = Asker(server, self._timeout, lambda: len(self._leases))
        except Problem as e:
            self._say("error", error=e.error())
            self._end(2)
        else:
            threading.Thread(target=self._read, daemon=True).start()
        while self._exit is None or (
            (self._leases or self._tidying) and time.monotonic() - self._ended < END_TIME
        ):
            try:
                self._events.get(timeout=self._sleep())()
            except queue.Empty:
                pass
            if os.getppid() != parent:  # a child of it may have inherited our input
                self._end(0)
            self._look()
            self._asker.server.cut()
        self._put(None)
        writer.join(1)
        return self._exit

    # What happens.

    def _line(self, text: bytes) -> None:
        if self._exit is not None:
            return
        try:
            message = json.loads(text)
            if not isinstance(message, dict):
                raise ValueError("a line is no JSON object")
        except (ValueError, RecursionError) as e:
            self._say("error", error=invalid(f"invalid input: {e}").error())
            self._end(2)
            return
        id, name, do = message.pop("id", 0), str(message.pop("lease", "")), str(message.pop("do", ""))
        try:
            if isinstance(id, bool) or not isinstance(id, int) or not 1 <= id < 2**53:
                id = 0
                raise invalid("id: every request has one, between 1 and 9007199254740991")
            if do not in MEMBERS or len(name.encode()) > 512:
                raise invalid(f"do {do[:40]!r}: it must be one of {', '.join(MEMBERS)}, about a lease's name of at "
                              "most 512 bytes")
            if unknown := set(message) - MEMBERS[do]:
                raise invalid(f"member {min(unknown)[:40]!r}: {do} has none of this name")
            request = Request(do, id, message)
            if do == "acquire":
                self._acquire(name, request)
            else:
                self._pass(name, request)
        except Problem as e:
            self._fail(id, name, e)
        except ValueError as e:  # half a surrogate pair
            self._fail(id, "", invalid(f"{do}: {e}"))

    def _acquire(self, name: str, request: Request) -> None:
        m = request.members
        if not name or name in self._leases or len(self._leases) == MAX_LEASES:
            raise invalid(f"lease {name!r}: it needs a name that is used once, and there are at most {MAX_LEASES}")
        key = m.get("key")
        if not isinstance(key, str) or not key:
            raise invalid("key: acquire needs it, as a text")
        if m.get("guards"):
            raise invalid("guards: only the program croft can raise a fence; use transport=\"croft\"")
        if m.get("once") and m.get("every"):
            raise invalid("every and once do not go together")
        lease = Lease(name, key, request)
        lease.stall_after = number("stall_after", m["stall_after"]) if m.get("stall_after") else math.inf
        max_hold = number("max_hold", m["max_hold"]) if m.get("max_hold") else math.inf
        wait = math.inf if m.get("wait") == "forever" else number("wait", m.get("wait", 0))
        ttl = duration("ttl", m.get("ttl", 60))
        body = {"secret": lease.secret, "owner": owner(), "instance": INSTANCE, "ttl": ttl}
        for member, theirs in (("every", "every"), ("hold", "hold_for")):
            if member in m:
                body[theirs] = duration(member, m[member])
        if m.get("once"):
            body["every"] = f"{200 * 365 * 24}h"
        if "above" in m:
            body["above"] = m["above"]
        # An acquire that was given up may still be granted, and a release be
        # under way. A new acquire of the key comes after them.
        first = any(each.key == key and (each.abandoned or each.ending) for each in self._leases.values())
        self._leases[name] = lease
        lease.busy = True
        if not self._streaming:
            self._streaming = True
            self._spawn(self._hear, lambda _: None)

        def take() -> None:
            self._spawn(lambda: self._asker.take(lease, body, wait), lambda took: self._took(lease, max_hold, took))

        if first:
            self._later.append((lease, take))
        else:
            take()

    def _took(self, lease: Lease, max_hold: float, took: Answer | Problem) -> None:
        lease.busy = False
        id = lease.acquire.id
        try:
            if isinstance(took, Problem):
                raise took
            record, at = took.body, now()
            lease.confirm(took.sent, record, record.get("now"))
            lease.token = record["token"]
            if type(lease.token) is not int or not 1 <= lease.token < 2**53:
                raise ValueError("its token")
            granted = {name: str(record[name]) for name in ("stamp", "owner", "cause", "deadline")}
            granted["checkpoint"] = str(record.get("checkpoint", ""))
        except (Problem, KeyError, ValueError, TypeError) as e:
            problem = e if isinstance(e, Problem) else Problem("unknown", f"the answer of the server lacks {e}")
            if lease.unsure:
                self._tidying += 1
                self._spawn(lambda: self._asker.release(lease, True), lambda _: self._tidied())
            self._fail(id, lease.name, problem)
            self._forget(lease, "released")
            return
        lease.held = True
        lease.renewed(took.sent)
        lease.progress, lease.hold_end = at[0], at[0] + max_hold
        self._say("granted", id, lease.name, key=lease.key, token=lease.token, lease_file="", ttl=lease.ttl,
                  remaining=self._left(lease), **granted)
        if lease.abandoned and not lease.ending:  # the end has begun meanwhile
            lease.ending = True
            lease.jobs.append(Request("fail"))
        self._next(lease)

    def _tidied(self) -> None:
        self._tidying -= 1

    def _pass(self, name: str, request: Request) -> None:
        lease = self._leases.get(name)
        ends = request.do in ("release", "fail")
        if lease is None or lease.ending:
            raise Problem("not_owned", "this process holds no lease of this name, or no longer")
        if lease.lost is not None and not ends:
            raise lease.lost
        if request.do == "verify":
            if not lease.held:
                raise Problem("not_owned", "the key has not been granted yet")
            self._alive(request, lease)
            return
        if len(lease.jobs) >= MAX_JOBS and not ends:
            raise invalid(f"{MAX_JOBS} requests about this lease wait for the server; wait for answers")
        m = request.members
        if request.do == "renew" and "ttl" in m:
            m["ttl"] = duration("ttl", m["ttl"])
            if m["ttl"] == "0ns":
                raise invalid("ttl: leave it out to keep the present one")
        if request.do == "report" and not (isinstance(m.get("marker"), str) and 0 < len(m["marker"].encode()) <= 1024):
            raise invalid("marker: report needs it, as a text of 1 to 1024 bytes")
        if request.do == "checkpoint" and not isinstance(m.get("checkpoint"), str):
            raise invalid("checkpoint: it is a text in base64")
        lease.jobs.append(request)
        if ends:
            lease.ending = True
            lease.abandoned = not lease.held
        self._next(lease)

    def _next(self, lease: Lease) -> None:
        """Begins the next call about a lease."""
        if lease.busy or not lease.held or not lease.jobs:
            return
        request = lease.jobs.popleft()
        lease.busy = True
        self._spawn(lambda: self._asker.ask(lease, request), lambda done: self._asked(lease, request, done))

    def _asked(self, lease: Lease, request: Request, done: Answer | Problem) -> None:
        lease.busy = False
        if request.do in ("release", "fail"):
            if isinstance(done, Problem):
                self._fail(request.id, lease.name, done)
            else:
                self._say("released", request.id, lease.name, key=lease.key, token=lease.token)
            self._forget(lease)
            return
        if isinstance(done, Answer) and lease.lost is None:
            try:
                lease.confirm(done.sent, done.body, done.body.get("now"))
            except Problem as e:
                done = e
            else:
                if request.do == "renew":
                    lease.renewed(done.sent)
                else:
                    self._progressed(lease)
                self._alive(request, lease)
        if isinstance(done, Problem) and done.code == "not_owned" and lease.lost is None:
            self._fail(request.id, lease.name, done)
            self._refused(lease, done)
            return
        if isinstance(done, Problem) or lease.lost is not None:
            self._fail(request.id, lease.name, lease.lost or done)  # type: ignore[arg-type]
        self._next(lease)

    def _progressed(self, lease: Lease) -> None:
        lease.progress = time.monotonic()
        if lease.renew_at == math.inf:  # it was withheld
            lease.renew_at = lease.progress

    # Renewals.

    def _sleep(self) -> float:
        """How long nothing has to be looked at."""
        at, sleep = now(), 1.0
        for lease in self._leases.values():
            if lease.held and lease.lost is None:
                sleep = min(sleep, until(lease.deadline, at), lease.hold_end - at[0], lease.renew_at - at[0])
        return max(sleep, 0.001)

    def _look(self) -> None:
        at, due = now(), []
        for lease in list(self._leases.values()):
            if not lease.held:
                continue
            over = until(lease.deadline, at) <= 0
            if lease.lost is not None:
                if over and not lease.ending:
                    self._forget(lease)
            elif at[0] >= lease.hold_end and not over:
                self._lose(lease, "held_too_long", "held for as long as it may")
            elif over:
                stalled = at[0] - lease.progress >= lease.stall_after
                self._lose(lease, "stalled" if stalled else "unreachable" if lease.failed else "expired",
                           "no progress was reported" if stalled else "the server did not confirm it in time")
            elif at[0] >= lease.renew_at:
                if at[0] - lease.progress >= lease.stall_after:
                    lease.renew_at = math.inf  # until there is progress
                else:
                    due.append(lease)
        for first in range(0, len(due), MAX_BATCH):
            self._renew(due[first:first + MAX_BATCH])

    def _renew(self, leases: list[Lease]) -> None:
        for lease in leases:
            lease.failed = True  # until it is confirmed
            lease.renew_at = time.monotonic() + max(0.1, lease.ttl / 6)  # if there is no answer
        requests = [{"verb": "renew", "key": lease.key, "secret": lease.secret} for lease in leases]
        self._spawn(lambda: self._asker.server.call("/v1/apply", {"requests": requests}),
                    lambda done: self._renewed(leases, done))

    def _renewed(self, leases: list[Lease], done: Answer | Problem) -> None:
        answers: Iterable[Any] = []
        if isinstance(done, Answer):
            answers = done.body.get("answers", [])
            if not isinstance(answers, list) or len(answers) != len(leases):
                done = Problem("unknown", "the server does not answer every renewal")
        if isinstance(done, Problem):
            for lease in leases:
                self._not_renewed(lease)
            return
        for lease, answer in zip(leases, answers):
            if not lease.held or lease.lost is not None:
                continue
            try:
                if "error" in answer:
                    raise problem_of(answer["error"])
                lease.confirm(done.sent, answer["record"], answer.get("now"))
                lease.renewed(done.sent)
            except Problem as e:
                if e.code == "not_owned" and not lease.ending:
                    self._refused(lease, e)
                elif e.code != "not_owned":
                    self._not_renewed(lease)
            except (KeyError, TypeError):
                self._not_renewed(lease)

    def _not_renewed(self, lease: Lease) -> None:
        lease.renew_at = min(lease.renew_at, time.monotonic() + lease.pause)
        lease.pause = min(1.0, 2 * lease.pause)

    def _hear(self) -> Answer:
        """Hears of operators' acts, in a thread. They are only hints."""
        pause = 1.0
        while True:
            began = time.monotonic()
            try:
                self._asker.server.acts(lambda key: self._events.put(lambda: self._doubt(key)))
            except Problem as e:
                if e.theirs == "unsupported":
                    raise  # the store tells nobody
            except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError):
                pass  # the stream broke
            pause = 1.0 if time.monotonic() - began > 30 else min(30.0, 2 * pause)
            time.sleep(pause)

    def _doubt(self, key: str | None) -> None:
        """Renews out of turn: the key may have been given to another."""
        here = time.monotonic()
        for lease in self._leases.values():
            if lease.held and lease.lost is None and key in (lease.key, None):
                lease.renew_at = min(lease.renew_at, max(here, lease.doubted + 1))
                if key is not None:
                    lease.doubted = lease.renew_at

    # How leases end.

    def _refused(self, lease: Lease, refused: Problem) -> None:
        why = str(refused.facts.get("why", ""))
        loss = why if why in ("taken_over", "released", "expired") else "superseded"
        if why == "unknown" and "key" not in refused.facts:
            loss = "expired"  # as far as the store knows, nobody else was granted the key
        lease.deadline = (-math.inf, -math.inf)
        self._lose(lease, loss, str(refused), str(refused.facts.get("owner", "")))

    def _lose(self, lease: Lease, loss: str, why: str, owner: str = "") -> None:
        message = f"the lease on {lease.key!r} is lost ({loss}): {why}; stop this work"
        facts = {"key": lease.key, "token": lease.token, "loss": loss, "owner": owner}
        lease.lost = Problem("not_owned", message, facts)
        self._say("lost", 0, lease.name, message=message, **facts)
        if until(lease.deadline, now()) <= 0 and not lease.ending:
            self._forget(lease)
        # Otherwise the store still keeps the key: the parent stops its work,
        # and then gives the lease back.

    def _forget(self, lease: Lease, ended: str = "") -> None:
        """Takes a lease out of the table, and answers what was not served."""
        self._leases.pop(lease.name, None)
        for left in lease.jobs:
            if ended and left.do in ("release", "fail"):
                self._say(ended, left.id, lease.name)  # nothing is held, as it should be
            else:
                self._fail(left.id, lease.name, lease.lost or Problem("not_owned", "this lease is over"))
        lease.jobs.clear()
        for each in [each for each in self._later if each[0].key == lease.key]:
            if each in self._later:  # an earlier one may have taken it along
                self._later.remove(each)
                self._begin(*each)

    def _begin(self, lease: Lease, take: Callable[[], None]) -> None:
        """Begins an acquire, unless it was given up while it waited for its turn."""
        if lease.abandoned:
            self._took(lease, math.inf, Problem("cancelled", "the acquire was given up"))
        else:
            take()

    def _end(self, code: int) -> None:
        """Begins the end: it gives all leases back as failed."""
        if self._exit is not None:
            return
        self._exit, self._ended = code, time.monotonic()
        for lease in list(self._leases.values()):
            if lease.ending:
                continue
            if lease.held or not lease.busy:
                lease.jobs.append(Request("fail"))
                lease.ending = True
                self._next(lease)
            else:
                lease.abandoned = True

    # Threads, and the output.

    def _spawn(self, work: Callable[[], Answer], then: Callable[[Answer | Problem], None]) -> None:
        """Runs work in a thread, and then the rest in the main thread."""

        def run() -> None:
            try:
                result: Answer | Problem = work()
            except Problem as e:
                result = e
            except Exception as e:  # an answer that no server sends
                result = Problem("unknown", f"the answer of the server cannot be understood: {e!r}")
            self._events.put(lambda: then(result))

        try:
            threading.Thread(target=run, daemon=True).start()
        except RuntimeError as e:
            full = Problem("unknown", f"this process cannot start another thread: {e}", fault=True)
            self._events.put(lambda: then(full))

    def _read(self) -> None:
        lines = sys.stdin.buffer
        while line := lines.readline(MAX_LINE + 1):
            if not line.endswith(b"\n"):
                line = b"torn"
            self._events.put(lambda line=line: self._line(line))  # type: ignore[misc]
            if line == b"torn":
                return
        self._events.put(lambda: self._end(0))

    def _write(self) -> None:
        try:
            while (text := self._output.get()) is not None:
                while text:
                    text = text[os.write(1, text):]
        except OSError:
            self._events.put(lambda: self._end(1))

    def _put(self, text: bytes | None) -> None:
        try:
            self._output.put_nowait(text)
        except queue.Full:
            self._end(1)

    def _say(self, event: str, id: int = 0, lease: str = "", **members: Any) -> None:
        message: dict[str, Any] = {"event": event, **({"id": id} if id else {}), **({"lease": lease} if lease else {})}
        self._put(json.dumps({**message, **members}).encode() + b"\n")

    def _fail(self, id: int, lease: str, problem: Problem) -> None:
        self._say("error", id, lease, error=problem.error())

    def _alive(self, request: Request, lease: Lease) -> None:
        self._say(DONE[request.do], request.id, lease.name, token=lease.token, ttl=lease.ttl,
                  remaining=self._left(lease))

    def _left(self, lease: Lease) -> float:
        return math.floor(until(lease.deadline, now()) * 1e6) / 1e6


def owner() -> str:
    """The owner in records, as croft names it."""
    given = os.environ.get("CROFT_OWNER")
    if given:
        return given
    try:
        import pwd

        user = pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        user = os.environ.get("USER") or os.environ.get("USERNAME") or "somebody"
    return f"{user}@{socket.gethostname() or 'localhost'}"


INSTANCE = f"{os.getpid()}-{secrets.token_hex(4)}@{socket.gethostname() or 'localhost'}"


def main(timeout: float) -> None:
    threading.stack_size(512 << 10)
    code = Process(timeout).run()
    os._exit(code)  # threads may be in calls that hang
