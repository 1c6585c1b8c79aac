"""Calls of a croft server over HTTP, and what it says (docs/server.md).

The helper for leases at a server (_server.py) uses this module.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import ssl
import stat
import time
from collections import deque
from datetime import datetime
from typing import Any, Callable, Mapping
from urllib.parse import parse_qs, urlsplit

MAX_ANSWER = 64 << 20
MAX_FILE = 4 << 20
MAX_FACT = 4096
MAX_SECONDS = 2 * 366 * 86400.0
IDLE_CONNECTIONS = 16

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
        self._ends: dict[socket.socket, float] = {}  # when calls under way have lasted too long

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

    def cut(self) -> None:
        """Breaks calls that last too long. The time limit of a socket begins
        again with every byte that a slow server sends."""
        here = time.monotonic()
        for sock, end in list(self._ends.items()):
            if here > end:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # the call has ended meanwhile

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
        sent, sock = now(), connection.sock
        self._ends[sock] = sent[0] + limit
        try:
            sock.settimeout(limit)
            headers = {"Content-Type": "application/json", **self._headers()}
            connection.request("POST", self._path + path, body, headers)
            response = connection.getresponse()
            text = bytearray()
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
        finally:
            del self._ends[sock]
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
            for name in ("cert", "key"):
                read_file(name, options[name])
            context.load_cert_chain(options["cert"], options["key"], password="")  # nobody is asked for one
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


def parse_object(text: bytes | bytearray) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise Problem("unknown", "the answer is not that of a croft server; see whether the URL is right") from e
    if not isinstance(value, dict):
        raise Problem("unknown", "the answer is not that of a croft server; see whether the URL is right")
    return value


_CODES = {"held": "held", "not_owned": "not_owned", "invalid": "invalid", "too_large": "invalid", "unknown": "unknown",
          "busy": "unknown"}


def refusal(status: int, text: bytes | bytearray) -> Problem:
    if 300 <= status < 400:
        return Problem("unknown", f"the server redirects ({status}), and Croft follows no redirects", fault=True)
    try:
        body = parse_object(text)
    except Problem:
        return Problem("unknown", f"the answer is {status}, and none of a croft server; see whether the URL is right")
    return problem_of(body)


def problem_of(body: object) -> Problem:
    """Reads a refusal, which has the facts of croft and times instead of a remaining time."""
    if not isinstance(body, dict):
        return Problem("unknown", "the refusal is not that of a croft server; see whether the URL is right")
    code = str(body.get("code"))
    facts = {name: body[name] for name in ("key", "token", "owner", "why", "until")
             if isinstance(body.get(name), (str, int)) and len(str(body[name])) <= MAX_FACT}
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
    parts = re.findall(r"(\d+(?:\.\d+)?)(h|ms|m|us|µs|ns|s)", str(duration), re.ASCII)
    total = sum(float(n) * _UNITS[unit] for n, unit in parts)
    if not parts or "".join(n + unit for n, unit in parts) != str(duration) or not total <= MAX_SECONDS:
        raise Problem("unknown", f"the answer of the server has no duration: {str(duration)[:40]!r}")
    return total


def duration(name: str, value: object) -> str:
    """Writes a number of seconds for Go."""
    return f"{round(number(name, value) * 1e9)}ns"


def number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= MAX_SECONDS:
        raise invalid(f"{name}: it is a number of seconds, between 0 and {MAX_SECONDS:.0f}")
    return float(value)
