"""Workers: functions that work on the items of a queue.

Worker.run turns this process into "croft work run", which claims items, keeps
them alive, and runs this very program again for each. In that run, Worker.run
calls the function once and ends. So croft has the whole supervision: if the
function stalls or its item is lost, croft kills the process and all that it has
started. If croft dies or stands still, its warden does.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import subprocess
import sys
import tempfile
import traceback
from typing import Any, Callable, NoReturn

from ._hold import find
from ._lease import HEADER
from .errors import CroftError, Invalid, Unknown, error_of

VARIABLE = "CROFT_WORKER"  # has the queue, in the run for an item
DONE = "CROFT_DONE"  # names the file that takes the token once the function has returned
RESULT = 3  # the file descriptor that takes the result then
FINAL, NOT_NOW = 65, 75  # exit codes that croft work run understands

# Standard output is the result for croft. Here it is for people, from the first
# import on: all that the program and its children print goes to standard error.
SHELL = ["/bin/sh", "-c", f'export {VARIABLE}="$0"; exec "$@" {RESULT}>&1 1>&2']


class Final(Exception):
    """Raised by a worker: trying again would not help. The item is dead."""


class NotNow(Exception):
    """Raised by a worker: the item is given back, and the attempt does not count."""


class Job:
    """An attempt at an item, as the worker's function sees it."""

    def __init__(self, env: dict[str, str], payload: bytes) -> None:
        self._env = env
        self.payload = payload
        """What was added to the queue."""
        self.id, self.queue, self.key = env["CROFT_ITEM"], env["CROFT_QUEUE"], env["CROFT_KEY"]
        self.attempt, self.limit = int(env["CROFT_ATTEMPT"]), int(env["CROFT_LIMIT"])
        self.generation = int(env["CROFT_GENERATION"])
        self.token, self.stamp = int(env["CROFT_TOKEN"]), env["CROFT_STAMP"]
        self.checkpoint = b""
        """What the attempt before has saved. Empty if there was nothing."""
        if env["CROFT_CHECKPOINT"]:
            with open(env["CROFT_CHECKPOINT"], "rb") as f:
                self.checkpoint = f.read()

    def json(self) -> Any:
        """The payload as JSON. The item is dead if it is none."""
        try:
            return json.loads(self.payload)
        except (ValueError, RecursionError) as e:
            raise Final(f"the payload is no JSON: {e}") from e

    def headers(self) -> dict[str, str]:
        """The header that HTTP boundaries (croft proxy, httpfence) read."""
        return {HEADER: self.stamp}

    def report(self, marker: str) -> None:
        """Reports progress, for people to read. With stall_after it is needed."""
        self._croft(["work", "report", "--json", "--", marker])

    def save(self, checkpoint: bytes | str) -> None:
        """Saves a checkpoint of at most 1 MiB for the next attempt. It is progress, too."""
        self._croft(["work", "checkpoint", "--json", "-"], checkpoint)

    def emit(self, name: str, body: object = b"", *, to: str | None = None, at_most_once: bool = False) -> None:
        """Adds an effect, which happens if this attempt completes the item.

        body is bytes, a text, or else JSON. Give one thing the same name in
        every attempt: a receiver can then tell repetitions.
        """
        flags = [f"--to={to}"] if to is not None else []
        flags += ["--at-most-once"] if at_most_once else []
        self._croft(["work", "emit", "--json", *flags, "--", name, "-"], encoded(body))

    def write(self, target: str | os.PathLike[str], data: bytes | str) -> None:
        """Replaces a guarded file or object, if no newer owner has been there."""
        name = os.fspath(target)
        self._croft(["write", "--json", "./" + name if name.startswith("-") else name], data)

    def _croft(self, args: list[str], content: bytes | str = b"") -> None:
        program = find(self._env.get("CROFT_BIN") or "croft")
        try:
            # A file, not a pipe: if this process is killed, croft must not take
            # the half of the content that a pipe holds for all of it.
            with tempfile.TemporaryFile() as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.seek(0)
                done = subprocess.run(
                    [program, *args], stdin=file, stdout=subprocess.PIPE, check=False,
                    env={**self._env, "CROFT_CONFIRM": ""})
        except OSError as e:
            raise CroftError(f"croft cannot be started: {e}") from e
        except ValueError as e:
            raise Invalid(f"invalid argument: {e}") from e
        if done.returncode == 0:
            return
        try:
            facts = json.loads(done.stdout.splitlines()[-1])["error"]
        except (ValueError, KeyError, TypeError, IndexError):
            raise Unknown(f"croft ended with exit code {done.returncode}") from None
        raise error_of(facts)


class Worker:
    """A function that works on the items of a queue: see croft.worker."""

    def __init__(self, queue: str, work: Callable[[Job], Any]) -> None:
        if inspect.isgeneratorfunction(work) or inspect.isasyncgenfunction(work):
            raise TypeError(f"{work!r} is a generator, which gives no result")
        self.queue, self._work = queue, work

    def __call__(self, job: Job) -> Any:
        """Calls the function, as a test of it may do."""
        return self._work(job)

    def run(
        self, *, slots: int = 1, ttl: float | None = None, stall_after: float | None = None,
        drain: float | None = None, grace: float | None = None, until_empty: bool = False, once: bool = False,
        store: str | None = None, croft: str | None = None,
    ) -> NoReturn:
        """Works on the queue until it is interrupted. It does not return: this
        process becomes croft work run, with its exit codes.

        slots is how many items are worked on at once, each in a process of its
        own. stall_after kills a process that calls neither report nor save for
        so long. All times are in seconds. until_empty ends when nothing is left
        to do, once after one item. store is the ledger's URL, by default
        CROFT_STORE. The other options are those of croft work run.
        """
        if os.environ.get("CROFT_ITEM") and os.environ.get(VARIABLE):
            self._attempt()
        flags = [f"--slots={slots}"]
        for name, seconds in (("ttl", ttl), ("stall-after", stall_after), ("drain", drain), ("grace", grace)):
            if seconds is not None:
                flags.append(f"--{name}={seconds:f}s")
        flags += [f"--{name}" for name, on in (("until-empty", until_empty), ("once", once)) if on]
        program = find(croft or os.environ.get("CROFT_BIN") or "croft")
        env = {**os.environ, "CROFT_BIN": program}
        if store is not None:
            env["CROFT_STORE"] = store
        again = [sys.executable, *sys.orig_argv[1:]]
        # An exit with code 0 alone completes nothing: a library may have called
        # os._exit(0), or this program may end before it gets here.
        flags.append("--require-done")
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(program, [program, "work", "run", *flags, self.queue, "--", *SHELL, self.queue, *again], env)

    def _attempt(self) -> NoReturn:
        """Works on one item, and ends the process with what croft understands."""
        # Not for other programs that this one starts: they are no workers.
        queue, done = os.environ.pop(VARIABLE), os.environ.pop(DONE, "")
        os.set_inheritable(RESULT, False)
        code, pid = 1, os.getpid()
        try:
            if queue != self.queue:
                raise CroftError(f"this program has been started to work on {queue!r}, and its first worker is on "
                                 f"{self.queue!r}; run the worker that was started")
            job = Job(dict(os.environ), sys.stdin.buffer.read())
            result = self._work(job)
            if inspect.isawaitable(result):
                result = asyncio.run(_awaited(result))
            text = encoded(result)
            if os.getpid() != pid:
                raise CroftError("a process that the worker has forked returned from its function")
            while text:
                text = text[os.write(RESULT, text):]
            with open(done, "w") as file:
                file.write(str(job.token))
            code = 0
        except Final as e:
            print(e, file=sys.stderr)
            code = FINAL
        except NotNow as e:
            print(e, file=sys.stderr)
            code = NOT_NOW
        except SystemExit as e:
            # A result comes from a return alone.
            print(f"the worker has called sys.exit({e.code!r})", file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        sys.exit(code)


def worker(queue: str) -> Callable[[Callable[[Job], Any]], Worker]:
    """Makes a function a worker on a queue.

        @croft.worker("pages")
        def summarize(job: croft.Job) -> object:
            return {"words": len(job.json()["text"].split())}

        if __name__ == "__main__":
            summarize.run()

    The function may be asynchronous. Its result is bytes, a text, or else JSON;
    None is an empty result. If it raises, the item is tried again later, unless
    it raises Final or NotNow.
    """
    return lambda work: Worker(queue, work)


async def _awaited(result: Any) -> Any:
    return await result


def encoded(value: object) -> bytes:
    """Writes what a worker gives: bytes, a text, nothing, or else JSON."""
    if value is None:
        return b""
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value, allow_nan=False)).encode()
