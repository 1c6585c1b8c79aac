"""Holds leases at a croft server for its parent process.

This program speaks the protocol of croft hold --multi (docs/protocol.md), and
uses the HTTP API of croft serve (docs/server.md). A Client with the URL of a
server starts it in place of croft. So renewal lives in another process here,
too: a held interpreter lock or a blocked event loop cannot starve it. It is run
as a file, with the standard library alone.

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
import re
import secrets
import signal
import socket
import ssl
import stat
import sys
import threading
import time
from collections import deque
from datetime import datetime
from typing import Any, Callable, Iterable, Mapping
from urllib.parse import parse_qs, quote, urlsplit

PROTOCOL = 1
MAX_LINE = 64 << 10
MAX_OUTPUT = 8192  # messages that wait for a parent that does not read
MAX_LEASES = 1000
MAX_JOBS = 64  # requests about one lease that wait for the server
MAX_BATCH = 1000
MAX_ANSWER = 64 << 20
MAX_FILE = 4 << 20
MAX_SECONDS = 2 * 366 * 86400.0
IDLE_CONNECTIONS = 16
SLICE = 5.0  # one call waits so long for a key; then the parent may have given up
END_TIME = 20.0  # for giving everything back

Now = tuple[float, float]
"""The monotonic clock, which may stand still in a sleep of the machine, and the
wall clock, which somebody may set. An instant has passed when it has on either."""


def now() -> Now:
    return time.monotonic(), time.time()


def until(deadline: Now, at: Now) -> float:
    return min(deadline[0] - at[0], deadline[1] - at[1])


class Problem(Exception):
    """A request that was not carried out. code and facts are those of croft."""

    def __init__(self, code: str, message: str, facts: Mapping[str, Any] | None = None, *, fault: bool = False) -> None:
        super().__init__(message)
        self.code, self.facts = code, dict(facts or {})
        self.fault = fault  # the outcome is not unknown after all: nothing was changed
        self.theirs = code  # the code of the server

    @property
    def final(self) -> bool:
        """Whether asking again cannot help. A server that is not there may come back."""
        return self.code != "unknown" or (self.fault and self.theirs != "unknown")


    def error(self) -> dict[str, Any]:
        return {"code": self.code, "message": str(self)[:4096], **self.facts}


def invalid(message: str) -> Problem:
    return Problem("invalid", message)


class Answer:
    """An answer of the server, and the moment before its request was sent."""

    def __init__(self, sent: Now, body: Mapping[str, Any]) -> None:
        self.sent, self.body = sent, body


class Server:
    """Makes calls. Any thread may use it."""

    def __init__(self, url: str, timeout: float) -> None:
        parts, options = read_url(url)
        self._secure, self._host = parts.scheme == "https", parts.hostname or ""
        self._port, self._path, self._timeout = parts.port, parts.path.rstrip("/"), timeout
        self._token_file = options.get("token", "")
        self._token, self._token_read = self._read_token(), time.monotonic()
        self._idle: deque[http.client.HTTPConnection] = deque(maxlen=IDLE_CONNECTIONS)
        self._tls = tls_of(options) if self._secure else None

    def call(self, path: str, body: Mapping[str, Any], *, wait: float = 0.0) -> Answer:
        """Posts a request. wait is how long the server may wait before it answers."""
        text = json.dumps(body).encode()
        limit = self._timeout + wait
        try:
            used = self._idle.pop()
        except IndexError:
            pass
        else:
            try:
                return self._exchange(used, path, text, limit)
            except Stale:
                pass  # the server has closed it meanwhile; the same secret is asked once more
            try:
                return self._exchange(self._connect(), path, text, limit)
            except Problem as e:
                e.fault = False  # the first copy may have arrived
                raise
        return self._exchange(self._connect(), path, text, limit)

    def acts(self, heard: Callable[[str | None], None]) -> None:
        """Tells of operators' acts until the stream ends. None says that it begins."""
        connection = self._connect()
        try:
            connection.sock.settimeout(60)  # a quiet server says something every 15 seconds
            connection.request("GET", self._path + "/v1/acts", headers=self._headers())
            response = connection.getresponse()
            if response.status != 200:
                raise refusal(response.status, response.read(1 << 20))
            heard(None)
            while line := response.readline(1 << 20):
                if line.startswith(b"data:"):
                    heard(str(json.loads(line[5:])["key"]))
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if self._tls is not None:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._tls)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        try:
            connection.connect()
        except (OSError, ValueError) as e:  # nothing was sent
            raise Problem("unknown", f"the server {self._host} cannot be reached: {e}", fault=True) from e
        return connection

    def _headers(self) -> dict[str, str]:
        if time.monotonic() - self._token_read > 60:
            try:
                self._token = self._read_token()
            except Problem:
                pass  # the last one may still count
            self._token_read = time.monotonic()
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _read_token(self) -> str:
        if not self._token_file:
            return check_token(os.environ.get("CROFT_SERVER_TOKEN", ""))
        token = check_token(read_file("token", self._token_file).decode("ascii", "replace").strip())
        if not token:
            raise invalid(f"token: {self._token_file} is empty")
        return token

    def _exchange(self, connection: http.client.HTTPConnection, path: str, body: bytes, limit: float) -> Answer:
        # Before the request is sent: see "Authority" in docs/protocol.md.
        sent = now()
        try:
            connection.sock.settimeout(limit)
            headers = {"Content-Type": "application/json", **self._headers()}
            connection.request("POST", self._path + path, body, headers)
            response = connection.getresponse()
            text = b""
            while chunk := response.read1(1 << 16):
                text += chunk
                if len(text) > MAX_ANSWER or time.monotonic() - sent[0] > limit:
                    raise Problem("unknown", "the answer of the server is too long, or took too long")
        except (ConnectionError, http.client.RemoteDisconnected, http.client.BadStatusLine) as e:
            connection.close()
            raise Stale("unknown", f"the connection to the server broke: {e!r}; it may or may not have happened") from e
        except (OSError, http.client.HTTPException) as e:
            connection.close()
            raise Problem("unknown", f"the server did not answer ({e!r}); it may or may not have happened") from e
        except Problem:
            connection.close()
            raise
        response.close()  # it is read to its end, but does not know
        if response.will_close:
            connection.close()
        else:
            self._idle.append(connection)
        if response.status != 200:
            raise refusal(response.status, text)
        return Answer(sent, parse_object(text))


class Stale(Problem):
    """The connection broke before the answer."""


def read_url(url: str) -> tuple[Any, dict[str, str]]:
    """Splits the URL of a server into its parts and options, as croft reads it."""
    try:
        parts = urlsplit(url)
        query = parse_qs(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        local = parts.hostname == "localhost" or re.fullmatch(r"127(\.\d+){3}|::1", parts.hostname or "") is not None
        parts.port
    except ValueError as e:
        raise invalid(f"invalid server URL: {e}") from e
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment:
        raise invalid("invalid server URL: write https://HOST/ or http://127.0.0.1:PORT/")
    if parts.username is not None:
        raise invalid("invalid server URL: it has a user; write the token into a file, and token=@FILE into the URL")
    options = {}
    for name, values in query.items():
        if len(values) != 1 or name not in ("token", "ca", "cert", "key", "insecure"):
            raise invalid(f"invalid server URL: the options are token, ca, cert, key and insecure, not {name:.40}")
        options[name] = values[0]
    if "token" in options:
        if not options["token"].startswith("@") or len(options["token"]) == 1:
            raise invalid("invalid server URL: a token does not belong into it; write token=@FILE, "
                          "or set CROFT_SERVER_TOKEN")
        options["token"] = options["token"][1:]
    if options.get("insecure", "true") != "true":
        raise invalid("invalid server URL: write insecure=true, or leave it out")
    if parts.scheme == "http" and not local and "insecure" not in options:
        raise invalid("invalid server URL: http would show the secrets of leases to the network; use https, "
                      "or add insecure=true")
    if parts.scheme == "http" and {"ca", "cert", "key"} & set(options):
        raise invalid("invalid server URL: ca, cert and key are for https")
    return parts, options


def tls_of(options: Mapping[str, str]) -> ssl.SSLContext:
    try:
        pem = read_file("ca", options["ca"]).decode() if "ca" in options else None
        context = ssl.create_default_context(cadata=pem)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if ("cert" in options) != ("key" in options):
            raise invalid("invalid server URL: cert and key belong together; give both or none")
        if "cert" in options:
            context.load_cert_chain(options["cert"], options["key"])
        return context
    except (OSError, ValueError) as e:
        raise invalid(f"invalid server URL: its certificates cannot be used: {e}") from e


def read_file(what: str, path: str) -> bytes:
    """Reads a file that a URL names. Somebody else may have made the URL, so a
    device or a pipe is neither read nor waited for."""
    try:
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as f:
            if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):
                raise invalid(f"{what}: {path} is no file")
            return f.read(MAX_FILE)
    except (OSError, ValueError) as e:
        raise invalid(f"{what}: {e}") from e


def check_token(token: str) -> str:
    if len(token) > 16 << 10 or not re.fullmatch(r"[!-~]*", token):
        raise invalid("token: it is too long, or has a character that no token has")
    return token


def parse_object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise Problem("unknown", "the answer is not that of a croft server; see whether the URL is right") from e
    if not isinstance(value, dict):
        raise Problem("unknown", "the answer is not that of a croft server; see whether the URL is right")
    return value


_CODES = {"held": "held", "not_owned": "not_owned", "invalid": "invalid", "too_large": "invalid", "unknown": "unknown",
          "busy": "unknown"}


def refusal(status: int, text: bytes) -> Problem:
    if 300 <= status < 400:
        return Problem("unknown", f"the server redirects ({status}), and Croft follows no redirects", fault=True)
    try:
        body = parse_object(text)
    except Problem:
        return Problem("unknown", f"the answer is {status}, and none of a croft server; see whether the URL is right")
    return problem_of(body)


def problem_of(body: Mapping[str, Any]) -> Problem:
    """Reads a refusal, which has the facts of croft and times instead of a remaining time."""
    code = str(body.get("code"))
    facts = {name: body[name] for name in ("key", "token", "owner", "why", "until") if name in body}
    if code == "held":
        facts["remaining"] = max(0.0, span(body.get("now"), body.get("until")))
    known = _CODES.get(code, "unknown")
    fault = bool(body.get("fault")) or (known == "unknown" and code not in ("unknown", "busy"))
    problem = Problem(known, str(body.get("detail") or code), facts, fault=fault)
    problem.theirs = code
    return problem


def span(first: object, second: object) -> float:
    """The seconds between two times of one answer, never too many."""
    return moment(second) - moment(first) - 1e-6


def moment(text: object) -> float:
    found = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?Z", str(text))
    if found is None:
        raise Problem("unknown", f"the answer of the server has no time: {str(text)[:40]!r}")
    try:
        return datetime.fromisoformat(found[1] + "+00:00").timestamp() + float(found[2] or 0)
    except ValueError as e:
        raise Problem("unknown", f"the answer of the server has no time: {e}") from e


_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def seconds(duration: object) -> float:
    """Reads a duration as Go prints it, such as 1m30s."""
    parts = re.findall(r"([\d.]+)(h|ms|m|us|µs|ns|s)", str(duration))
    if not parts or "".join(n + unit for n, unit in parts) != str(duration):
        raise Problem("unknown", f"the answer of the server has no duration: {str(duration)[:40]!r}")
    return sum(float(n) * _UNITS[unit] for n, unit in parts)


def duration(name: str, value: object) -> str:
    """Writes a number of seconds for Go."""
    return f"{round(number(name, value) * 1e9)}ns"


def number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= MAX_SECONDS:
        raise invalid(f"{name}: it is a number of seconds, between 0 and {MAX_SECONDS:.0f}")
    return float(value)


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

    def confirm(self, sent: Now, record: Mapping[str, Any], at: object) -> None:
        """Moves the local deadline. It lies a tenth of the TTL before the store's,
        and is counted from the moment before the request was sent."""
        ttl = seconds(record.get("ttl"))
        left = min(ttl, span(at, record.get("deadline"))) - ttl / 10
        if sent[0] + left > self.deadline[0]:
            self.deadline = sent[0] + left, sent[1] + left
            self.ttl = ttl

    def renewed(self, sent: Now) -> None:
        self.failed, self.pause = False, 0.1
        self.renew_at = min(sent[0] + self.ttl / 3, time.monotonic() + max(0.05, until(self.deadline, now()) / 2))


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
        self._tidying = 0  # releases of keys that may have been granted
        self._server: Server

    def run(self) -> int:
        parent = os.getppid()
        writer = threading.Thread(target=self._write, daemon=True)
        writer.start()
        for each in ("SIGTERM", "SIGINT", "SIGHUP"):
            if hasattr(signal, each):
                signal.signal(getattr(signal, each), lambda *_: self._events.put(lambda: self._end(130)))
        self._say("hello", protocol=PROTOCOL, version="for Python", pid=os.getpid())
        try:
            self._server = Server(os.environ.get("CROFT_STORE", ""), self._timeout)
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
        body = {"secret": lease.secret, "owner": owner(), "instance": INSTANCE, "ttl": duration("ttl", m.get("ttl", 60))}
        for member, theirs in (("every", "every"), ("hold", "hold_for")):
            if member in m:
                body[theirs] = duration(member, m[member])
        if m.get("once"):
            body["every"] = f"{200 * 365 * 24}h"
        if "above" in m:
            body["above"] = m["above"]
        self._leases[name] = lease
        lease.busy = True
        if not self._streaming:
            self._streaming = True
            self._spawn(self._hear, lambda _: None)
        self._spawn(lambda: self._take(lease, body, wait), lambda took: self._took(lease, max_hold, took))

    def _take(self, lease: Lease, body: dict[str, Any], wait: float) -> Answer:
        """Takes a key, in a thread. An answer that comes after a wait gives little
        authority, so it is asked once more then."""
        end = time.monotonic() + wait
        turn = 0.0  # how long the server may wait
        broken, pause = math.inf, 0.1  # since when it does not answer, and the pause then
        while True:
            began = time.monotonic()
            more = {"wait": duration("wait", turn)} if turn else {}
            try:
                answer = self._server.call(lease.path + "/acquire", {**body, **more}, wait=turn)
                lease.unsure = True
                return self._server.call(lease.path + "/renew", {"secret": lease.secret}) if turn else answer
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
            granted = {"token": lease.token, "key": lease.key, "checkpoint": record.get("checkpoint", ""), "lease_file": "",
                       **{name: str(record[name]) for name in ("stamp", "owner", "cause", "deadline")}}
        except (Problem, KeyError, ValueError, TypeError) as e:
            problem = e if isinstance(e, Problem) else Problem("unknown", f"the answer of the server lacks {e}")
            if lease.unsure:
                self._tidying += 1
                self._spawn(lambda: self._release(lease, True), lambda _: self._tidied())
            self._fail(id, lease.name, problem)
            self._forget(lease, "released")
            return
        lease.held = True
        lease.renewed(took.sent)
        lease.progress, lease.hold_end = at[0], at[0] + max_hold
        self._say("granted", id, lease.name, **granted, ttl=lease.ttl, remaining=self._left(lease))
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
        self._spawn(lambda: self._ask(lease, request), lambda done: self._asked(lease, request, done))

    def _ask(self, lease: Lease, request: Request) -> Answer:
        """Carries out a request about a lease, in a thread."""
        if request.do in ("release", "fail"):
            # The success of a lease that is lost does not count.
            return self._release(lease, request.do == "fail" or lease.lost is not None)
        body = {"progress": request.members["marker"]} if request.do == "report" else request.members
        return self._insist(lease, request.do, {"secret": lease.secret, **body}, 3 * self._timeout)

    def _release(self, lease: Lease, failed: bool) -> Answer:
        return self._insist(lease, "release", {"secret": lease.secret, "failed": failed}, 2 + 0.05 * len(self._leases))

    def _insist(self, lease: Lease, verb: str, body: Mapping[str, Any], limit: float) -> Answer:
        """Asks again, with the same secret, while the outcome is unknown."""
        end, pause = time.monotonic() + limit, 0.1
        while True:
            try:
                return self._server.call(f"{lease.path}/{verb}", body)
            except Problem as e:
                if e.final or time.monotonic() + pause > end or (lease.lost and verb != "release"):
                    raise
            time.sleep(pause)
            pause = min(1.0, 2 * pause)

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
        self._spawn(lambda: self._server.call("/v1/apply", {"requests": requests}),
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
                if answer["record"]["key"] != lease.key:
                    raise Problem("unknown", "the server answers about another key")
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
                self._server.acts(lambda key: self._events.put(lambda: self._doubt(key)))
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
        lease.lost = Problem("not_owned", message, {"key": lease.key, "token": lease.token, "loss": loss, "owner": owner})
        self._say("lost", 0, lease.name, key=lease.key, token=lease.token, loss=loss, message=message, owner=owner)
        if until(lease.deadline, now()) <= 0 and not lease.ending:
            self._forget(lease)
        # Otherwise the store still keeps the key: the parent stops its work, and
        # then gives the lease back.

    def _forget(self, lease: Lease, ended: str = "") -> None:
        """Takes a lease out of the table, and answers what was not served."""
        self._leases.pop(lease.name, None)
        for left in lease.jobs:
            if ended and left.do in ("release", "fail"):
                self._say(ended, left.id, lease.name)  # nothing is held, as it should be
            else:
                self._fail(left.id, lease.name, lease.lost or Problem("not_owned", "this lease is over"))
        lease.jobs.clear()

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
        self._say(DONE[request.do], request.id, lease.name, token=lease.token, ttl=lease.ttl, remaining=self._left(lease))

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


if __name__ == "__main__":
    threading.stack_size(512 << 10)
    code = Process(float(sys.argv[1])).run()
    sys.stdout.flush()
    os._exit(code)  # threads may be in calls that hang
