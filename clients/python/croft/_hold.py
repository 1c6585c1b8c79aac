"""The transport over a process of croft hold --multi.

A Hold has two threads. One writes requests from a queue, so that nobody waits
for a croft that does not read. The other reads messages. It resolves the future
of each request, and calls the listener for all other messages. Hold._lock
protects the table of futures. No callback is called while it is held.
"""

from __future__ import annotations

import concurrent.futures
import io
import json
import os
import queue
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
CLOSE_TIME = 15.0


class Hold:
    """A running croft hold --multi."""

    def __init__(
        self, command: Sequence[str], env: dict[str, str], clock: Clock, listen: Listener, ended: Ended
    ) -> None:
        self._clock, self._listen, self._ended = clock, listen, ended
        self._lock = threading.Lock()
        self._asked: dict[int, tuple[Future[Reply], Instant]] = {}
        self._count = 0
        self._why = ""  # why it has ended; "" while it lives
        self._files: dict[str, str] = {}  # the lease files of leases that are held
        self._queue: queue.Queue[bytes | None] = queue.Queue(MAX_QUEUE)
        self._hello: Future[Message] = Future()
        try:
            # In a session of its own, an interrupt from the terminal reaches
            # only the parent, which may still have something to say.
            self._process = subprocess.Popen(
                [*command, "hold", "--multi"], env=env, bufsize=0, start_new_session=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )
        except OSError as e:
            raise CroftError(
                f"croft cannot be started ({e}); install it, or name it with Client(croft=...) or CROFT_BIN"
            ) from e
        assert isinstance(self._process.stdin, io.FileIO) and isinstance(self._process.stdout, io.FileIO)
        self._in, self._out = self._process.stdin, self._process.stdout
        for work in (self._write, self._read):
            threading.Thread(target=work, name="croft-hold", daemon=True).start()
        try:
            self._greeted(self._hello.result(GREETING_TIME))
        except BaseException as e:
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
        with self._lock:
            self._count += 1
            request = {"id": self._count, "do": do, "lease": lease, **members}
            text = json.dumps(request, allow_nan=False).encode() + b"\n"
            if self._why:
                answer.set_exception(self._gone())
                return answer
            if len(text) > MAX_LINE:
                answer.set_exception(error_of({"code": "invalid", "message": "the request is longer than 64 KiB"}))
                return answer
            # Before the request is sent: see "Authority" in docs/protocol.md.
            self._asked[self._count] = answer, self._clock.now()
            try:
                self._queue.put_nowait(text)
            except queue.Full:
                del self._asked[self._count]
                answer.set_exception(Unknown("croft does not read its requests"))
        return answer

    def close(self) -> None:
        """Closes the input of croft, and waits for it to give the leases back."""
        self._hang_up()
        try:
            self._process.wait(CLOSE_TIME)
        except subprocess.TimeoutExpired:
            self._kill()

    def forget(self) -> None:
        """Closes this process's ends of the pipes, in a forked child."""
        self._in.close()
        self._out.close()
        self._process.returncode = 0  # it is the parent's: Popen shall neither wait nor warn

    def _hang_up(self) -> None:
        """Lets the writer close the input of croft."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            self._kill()

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
        return message

    def _heard(self, message: Message) -> None:
        if not self._hello.done():
            self._hello.set_result(message)
            return
        if message["event"] == "granted":
            self._files[str(message["lease"])] = str(message["lease_file"])
        elif message["event"] in ("lost", "released"):
            self._files.pop(str(message["lease"]), None)  # croft has removed it
        if "id" not in message:
            self._listen(message)
            return
        with self._lock:
            answer, sent = self._asked.pop(message["id"])
        try:
            if message["event"] == "error":
                answer.set_exception(error_of(message["error"]))
            else:
                answer.set_result(Reply(sent, message))
        except InvalidStateError:
            pass  # cancelled by its caller

    def _end(self, why: str) -> None:
        """Tells everybody that there will be no more messages."""
        with self._lock:
            self._why = why
            asked, self._asked = self._asked, {}
        if not self._hello.done():
            self._hello.set_exception(CroftError(f"{why} before it said a word; see its message on standard error"))
        for answer, _ in asked.values():
            try:
                answer.set_exception(self._gone())
            except InvalidStateError:
                pass
        self._ended(why)
        self.close()
        self._remove_files()

    def _remove_files(self) -> None:
        """Removes the secrets that a croft which was killed has left behind."""
        for name in self._files.values():
            try:
                os.remove(name)
                os.rmdir(os.path.dirname(name))  # goes with the last of them
            except OSError:
                pass

    def _gone(self) -> LeaseLost:
        return LeaseLost(f"{self._why}; its leases are lost, stop their work", loss="gone")
