"""The transport over a process: croft hold --multi, or _server.py.

A Hold has two threads. One writes requests from a queue, so that nobody waits
for a croft that does not read. The other reads messages. It resolves the future
of each request, and calls the listener for all other messages. There is no lock:
a signal handler may run between any two steps of ask, and ask itself. Each
request is taken out of the table once, by the reader or by ask, if croft has
ended. The queue can be entered again.
"""

from __future__ import annotations

import base64
import concurrent.futures
import io
import itertools
import json
import os
import queue
import shutil
import subprocess
import threading
from concurrent.futures import Future, InvalidStateError
from typing import Any, Sequence

from ._clock import Clock, Instant
from ._transport import Ended, Listener, Message, Reply
from .errors import CroftError, Incompatible, LeaseLost, Unknown, error_of

PROTOCOL = 1
MAX_LINE = 64 << 10
MAX_QUEUE = 10_000
GREETING_TIME = 60.0
CLOSE_TIME = 10.0  # for croft to give the leases back when its input ends
TERM_TIME = 5.0  # and after TERM
MAX_SECONDS = 1e10  # no duration that croft sends is longer
MAX_TOKEN = 2**53 - 1

_REPLIES = {
    "acquire": "granted", "verify": "verified", "renew": "renewed", "report": "reported", "checkpoint": "saved",
    "release": "released", "fail": "released",
}
_GRANTED = ("lease", "key", "stamp", "owner", "cause", "lease_file")

_forking = threading.RLock()  # held while a croft starts, and while this process forks
_running: set[Hold] = set()
"""Every process whose pipes are open here. A forked child closes them: croft
would not notice the end of its input as long as a child has it, too."""


def find(program: str) -> str:
    """Returns the path of a program. It takes none from the current directory,
    unless the caller says so."""
    if os.path.dirname(program):
        return os.path.abspath(program)
    found = shutil.which(program)
    if found is None:
        raise CroftError(
            f"there is no program {program!r} on the PATH; install it, or name it with Client(croft=...) or CROFT_BIN")
    if not os.path.isabs(found):
        raise CroftError(
            f"the PATH finds {program!r} in the current directory, where anybody may have put it; take that out of "
            "the PATH, or name the program with Client(croft=...) or CROFT_BIN")
    return found


class Hold:
    """A running croft hold --multi, or _server.py, which speaks the same."""

    def __init__(
        self, command: Sequence[str], env: dict[str, str], clock: Clock, listen: Listener, ended: Ended
    ) -> None:
        self._clock, self._listen, self._ended = clock, listen, ended
        self._asked: dict[int, tuple[str, Future[Reply], Instant]] = {}
        self._numbers = itertools.count(1)
        self._why = ""  # why it has ended; "" while it lives
        self._error: Message | None = None  # the error with which croft said that it ends
        self._files: dict[str, str] = {}  # the lease files of leases that are held
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._hello: Future[Message] = Future()
        try:
            with _forking:
                # In a session of its own, an interrupt from the terminal
                # reaches only the parent, which may still have something to
                # say.
                self._process = subprocess.Popen(
                    command, env=env, bufsize=0, start_new_session=True,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                )
                _running.add(self)
        except (OSError, ValueError) as e:
            raise CroftError(
                f"croft cannot be started ({e}); install it, or name it with Client(croft=...) or CROFT_BIN"
            ) from e
        assert isinstance(self._process.stdin, io.FileIO) and isinstance(self._process.stdout, io.FileIO)
        self._in, self._out = self._process.stdin, self._process.stdout
        self._reader = threading.Thread(target=self._read, name="croft-hold", daemon=True)
        try:
            self._reader.start()
            threading.Thread(target=self._write, name="croft-hold", daemon=True).start()
            self._greeted(self._hello.result(GREETING_TIME))
        except BaseException as e:
            _running.discard(self)
            self._kill()
            if isinstance(e, concurrent.futures.TimeoutError):
                raise CroftError(f"{command[0]} says nothing; is it croft?") from e
            raise

    def _greeted(self, hello: Message) -> None:
        if hello.get("event") != "hello" or hello.get("protocol") != PROTOCOL:
            raise Incompatible(
                f"croft {hello.get('version', '')} speaks protocol {hello.get('protocol')!r}, and this client "
                f"protocol {PROTOCOL}; install versions that fit"
            )

    @property
    def alive(self) -> bool:
        return not self._why

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, do: str, lease: str, **members: Any) -> Future[Reply]:
        answer: Future[Reply] = Future()
        number = next(self._numbers)
        # As UTF-8, which half a surrogate pair is not: croft must not take it
        # for another character.
        text = json.dumps({"id": number, "do": do, "lease": lease, **members}, ensure_ascii=False, allow_nan=False)
        line = text.encode() + b"\n"
        if len(line) > MAX_LINE:
            answer.set_exception(error_of({"code": "invalid", "message": "the request is longer than 64 KiB"}))
            return answer
        if self._queue.qsize() >= MAX_QUEUE:
            answer.set_exception(Unknown("croft does not read its requests"))
            return answer
        # Before the request is sent: see "Authority" in docs/protocol.md.
        self._asked[number] = do, answer, self._clock.now()
        self._queue.put(line)
        if self._why and self._asked.pop(number, None) is not None:
            answer.set_exception(self._gone(do))
        return answer

    def close(self) -> None:
        """Closes the input of croft, and waits for it to give the leases back."""
        self._queue.put(None)  # lets the writer close the input
        if not self._ends_within(CLOSE_TIME):
            # Somebody else may have the input, too. At TERM croft gives back
            # all the same.
            self._process.terminate()
            if not self._ends_within(TERM_TIME):
                self._kill()
        if threading.current_thread() is not self._reader:
            self._reader.join(CLOSE_TIME)  # it removes the secrets that a killed croft has left

    def _ends_within(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def forget(self) -> None:
        """Closes this process's ends of the pipes, in a forked child."""
        self._in.close()
        self._out.close()
        self._process.returncode = 0  # it is the parent's: Popen shall neither wait nor warn

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _write(self) -> None:
        try:
            while (text := self._queue.get()) is not None:
                while text:
                    text = text[self._in.write(text) or 0:]
        except OSError:
            pass  # croft has ended, and the reader tells
        try:
            self._in.close()
        except OSError:
            pass

    def _read(self) -> None:
        why = "croft has ended"
        with io.BufferedReader(self._out, MAX_LINE) as lines:
            try:
                while line := lines.readline(MAX_LINE + 1):
                    self._heard(self._parse(line))
            except Exception as e:  # a message that no croft sends
                why = f"croft cannot be understood: {e!r}"
            self._end(why)

    def _parse(self, line: bytes) -> Message:
        if not line.endswith(b"\n"):
            raise ValueError("a message is torn")
        message = json.loads(line)
        if not isinstance(message, dict) or not isinstance(message.get("event"), str):
            raise ValueError("a line is no message")
        check(message)
        return message

    def _heard(self, message: Message) -> None:
        if not self._hello.done():
            self._hello.set_result(message)
            return
        if message["event"] == "granted":
            self._files[str(message["lease"])] = str(message["lease_file"])
        elif message["event"] in ("lost", "released"):
            self._files.pop(str(message.get("lease")), None)  # croft has removed it
        if "id" not in message:
            if message["event"] == "error":
                self._error = message["error"]
            else:
                self._listen(message)
            return
        do, answer, sent = self._asked[message["id"]]
        if message["event"] not in ("error", _REPLIES[do]):
            raise ValueError(f"{message['event']} is no reply to {do}")
        del self._asked[message["id"]]
        try:
            if message["event"] == "error":
                answer.set_exception(error_of(message["error"]))
            else:
                answer.set_result(Reply(sent, message))
        except InvalidStateError:
            pass  # cancelled by its caller

    def _end(self, why: str) -> None:
        """Tells everybody that there will be no more messages."""
        self._why = why if self._error is None else f"{why}: {self._error.get('message')}"
        if not self._hello.done():
            self._hello.set_exception(CroftError(f"{why} before it said a word; see its message on standard error"))
        for number in list(self._asked):
            if (asked := self._asked.pop(number, None)) is None:
                continue
            do, answer, _ = asked
            try:
                answer.set_exception(self._gone(do))
            except InvalidStateError:
                pass
        self._ended(self._why)
        self.close()
        _running.discard(self)
        self._remove_files()

    def _remove_files(self) -> None:
        """Removes the secrets that a croft which was killed has left behind."""
        for name in self._files.values():
            try:
                os.remove(name)
                os.rmdir(os.path.dirname(name))  # goes with the last of them
            except (OSError, ValueError):
                pass

    def _gone(self, do: str) -> CroftError:
        if do == "acquire" and self._error is not None:
            return error_of(self._error)  # such as a store that cannot be
        return LeaseLost(f"{self._why}; its leases are lost, stop their work", loss="gone")


def check(message: Message) -> None:
    """Raises ValueError if a message lacks what its event must have. No other
    part of the client meets a number that is none, or is endless."""
    event = message["event"]
    if event == "error" and not isinstance(message.get("error"), dict):
        raise ValueError("an error has no error")
    if event in ("granted", "verified", "renewed", "reported", "saved"):
        for name in ("ttl", "remaining"):
            seconds = message.get(name)
            if not isinstance(seconds, (int, float)) or not -MAX_SECONDS <= seconds <= MAX_SECONDS:
                raise ValueError(f"{event} has no {name}")
    if event == "granted":
        if not all(isinstance(message.get(name), str) for name in _GRANTED):
            raise ValueError(f"{event} needs {', '.join(_GRANTED)}")
        token = message.get("token")
        if not isinstance(token, int) or not 1 <= token <= MAX_TOKEN:
            raise ValueError(f"{event} has no token")
        base64.b64decode(message.get("checkpoint") or "", validate=True)


def _forget_all() -> None:
    """Runs in a forked child."""
    for each in _running:
        each.forget()
    _running.clear()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_forking.acquire, after_in_parent=_forking.release, after_in_child=_forget_all)
