"""Workers: rows 90 to 96 of conformance.md."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import unittest
from typing import Any

import croft

from .support import HERE, PATIENCE, PROGRAM, SERVER, TTL, Case, end, proceed, stop, until


class Work(Case):
    """A ledger, and programs that are workers."""

    records = "sqlite://{dir}/ledger.db"

    def work(self, *args: str, code: int = 0) -> str:
        return self.run_croft("work", *args, code=code)

    def add(self, payload: str, *flags: str) -> str:
        added: dict[str, str] = json.loads(self.work("add", "pages", payload, "--json", *flags))
        return added["id"]

    def item(self, id: str) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.work("show", id, "--json"))
        return shown

    def result(self, id: str) -> str:
        return self.work("show", id, "--raw", "result")

    def start(self, file: str, text: str, **env: str) -> subprocess.Popen[str]:
        """Starts a program with this text. It writes to the file "said"."""
        with open(self.path(file), "w") as f:
            f.write(text)
        with open(self.path("said"), "w") as said:
            process = subprocess.Popen(
                [sys.executable, file, "an argument"], cwd=self.dir, text=True, stderr=said, stdout=said,
                env={**os.environ, "CROFT_STORE": self.store, "CROFT_BIN": PROGRAM,
                     "PYTHONPATH": os.path.dirname(HERE), **env})
        self.addCleanup(end, process)
        return process

    def program(self, body: str, options: str = "once=True", **env: str) -> subprocess.Popen[str]:
        """Starts a program that is a worker with this body."""
        indented = "".join(f"    {line}\n" for line in body.splitlines())
        return self.start(
            "program.py",
            f"import croft, json, os, signal, subprocess, sys, time\nprint('an import that prints')\n"
            f"@croft.worker('pages')\ndef work(job):\n{indented}\nwork.run({options})\n", **env)

    def run_program(self, body: str, options: str = "once=True", code: int = 0, **env: str) -> str:
        process = self.program(body, options, **env)
        process.wait(PATIENCE)
        said = self.read("said")
        self.assertEqual(process.returncode, code, said)
        return said

    def test_90_payload_and_result(self) -> None:
        id = self.add('{"text": "a b"}')
        said = self.run_program(
            "print('for people')\n"
            "subprocess.run(['echo', 'from a child'])\n"
            "assert sys.argv == ['program.py', 'an argument'], sys.argv\n"
            "assert (job.queue, job.attempt, job.checkpoint) == ('pages', 1, b'')\n"
            "assert job.stamp.startswith(f'croft1:{job.token}:') and job.headers()['Croft-Stamp'] == job.stamp\n"
            "return {'words': len(job.json()['text'].split()), 'id': job.id}")
        self.assertEqual(json.loads(self.result(id)), {"words": 2, "id": id})
        for text in ("an import that prints", "for people", "from a child"):
            self.assertIn(text, said)

    def test_90_other_results(self) -> None:
        for value, result in (("'a text'", "a text"), ("b'bytes'", "bytes"), ("None", ""), ("[1]", "[1]")):
            id = self.add("x")
            self.run_program(f"return {value}")
            self.assertEqual(self.result(id), result)
        id = self.add("x")
        later = self.start(
            "later.py", "import asyncio, croft\n@croft.worker('pages')\nasync def work(job):\n"
            "    await asyncio.sleep(0)\n    return job.payload + b'!'\nwork.run(until_empty=True)\n")
        self.assertEqual(later.wait(PATIENCE), 0)
        self.assertEqual(self.result(id), "x!")

    @unittest.skipUnless(SERVER, "it is about a server that asks for a token")
    def test_90_a_server_that_asks_for_a_token(self) -> None:
        self.certificate("server", "IP:127.0.0.1")
        self.policy("ann may acquire, work on pages/\nann may acquire, work on work/reconciler\n", token="anns-token")
        _, address = self.serve("127.0.0.1:0", "--cert", "server.pem", "--key", "server.key", "--policy", "policy")
        url = f"https://{address}/?ca={self.path('server.pem')}&token=@{self.path('token')}"
        id = self.add("x")
        self.run_program(
            "job.report('half'); job.save('all'); job.emit('seen')\n"
            "return os.environ['CROFT_STORE']", CROFT_STORE=url)
        self.assertNotIn("anns-token", self.result(id))
        item = self.item(id)
        self.assertEqual((item["state"], item["record"]["owner"], item["record"]["progress"]), ("done", "ann", "half"))
        self.assertIn("seen", self.work("effects", "ls", "--json"))

    def test_90_the_example_of_the_readme(self) -> None:
        with open(os.path.join(os.path.dirname(HERE), "README.md")) as f:
            example = re.search(r"```python\n(# worker\.py.*?)```", f.read(), re.DOTALL)
        assert example is not None
        id = self.add('{"text": "a b c"}')
        process = self.start("worker.py", example.group(1))
        until("the result", lambda: self.item(id)["state"] == "done")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE), 0)
        self.assertEqual(json.loads(self.result(id)), {"words": 3})
        self.assertIn("counted", self.work("effects", "ls", "--json"))

    def test_91_failures(self) -> None:
        for body, state, text in (
            ("raise ZeroDivisionError('mine')", "waiting", "mine"),
            ("raise croft.Final('never')", "dead", "never"),
            ("raise croft.NotNow('later')", "waiting", "later"),
            ("job.json()", "dead", "no JSON"),
            ("sys.exit(0)", "waiting", "sys.exit"),
            ("return float('nan')", "waiting", "JSON"),
            ("os._exit(0)", "waiting", "before its work was done"),
            ("job.report('half'); print('said', flush=True); os._exit(0)", "waiting", "said"),
            ("child = os.fork()\nif child: os.waitpid(child, 0); os._exit(0)\nreturn 'of a child'", "waiting",
             "before its work was done"),
            ("assert 'CROFT_DONE' not in os.environ; os.kill(os.getpid(), signal.SIGKILL)", "waiting", "killed"),
        ):
            with self.subTest(body):
                id = self.add("not json")
                self.run_program(body, code=1)
                item = self.item(id)
                self.assertEqual((item["state"], item["attempts"]), (state, 0 if "NotNow" in body else 1))
                self.assertIn(text, item["error"])
                self.assertEqual(self.result(id), "")
                self.work("cancel", id, "--note", "a test") if state == "waiting" else None

    def test_91_a_program_that_ends_early(self) -> None:
        """Without a word and with code 0: before run, or where nobody calls it."""
        for early in ("sys.exit(0)", "os._exit(0)", "work.run = lambda **_: None"):
            with self.subTest(early):
                id = self.add("x")
                program = self.start(
                    "early.py", "import croft, os, sys\n@croft.worker('pages')\ndef work(job): return 'done'\n"
                    f"if os.environ.get('CROFT_ITEM'): {early}\nwork.run(once=True)\n")
                self.assertEqual(program.wait(PATIENCE), 1, self.read("said"))
                item = self.item(id)
                self.assertEqual((item["state"], item["attempts"]), ("waiting", 1))
                self.assertIn("before its work was done", item["error"])
                self.work("cancel", id, "--note", "a test")

    def test_91_an_attempt_that_ended_early_is_tried_again(self) -> None:
        id = self.add("x")
        self.run_program("if job.attempt == 1: os._exit(0)\nreturn job.attempt", "until_empty=True")
        self.assertEqual(self.result(id), "2")

    def test_91_a_fork_that_returns(self) -> None:
        id = self.add("x")
        said = self.run_program(
            "child = os.fork()\nif child: os.waitpid(child, 0)\nreturn 'of both' if child else 'no'")
        self.assertEqual(self.result(id), "of both")
        self.assertIn("forked", said)

    def test_91_json_that_is_too_deep(self) -> None:
        id = self.add("[" * 50_000)
        self.run_program("job.json()", code=1)
        self.assertEqual(self.item(id)["state"], "dead")

    def test_91_the_worker_of_another_queue(self) -> None:
        id = self.add("x")
        program = self.start(
            "two.py", "import croft, sys\n@croft.worker('pages')\ndef first(job): return 'first'\n"
            "@croft.worker('mails')\ndef second(job): return 'second'\n"
            "import os\n(second if os.environ.get('CROFT_ITEM') else first).run(once=True)\n")
        self.assertEqual(program.wait(PATIENCE), 1)
        self.assertIn("mails", self.item(id)["error"])

    def test_92_progress_and_checkpoint(self) -> None:
        id = self.add("x")
        self.run_program("job.report('-- page 7'); job.save(b'page \\xff 7'); raise OSError", code=1)
        self.assertEqual(self.item(id)["record"]["progress"], "-- page 7")
        self.run_program(
            "assert job.attempt == 2 and job.checkpoint == b'page \\xff 7', job.checkpoint", "until_empty=True")
        self.assertEqual(self.item(id)["state"], "done")

    def test_93_effects(self) -> None:
        first = self.add("x")
        self.run_program("job.emit('counted', {'words': 2}); raise OSError", code=1)
        self.assertEqual(self.work("effects", "ls", "--json"), "")
        self.run_program(
            "job.emit('counted', {'words': 2}, to='elsewhere')\njob.emit('raw', b'\\xff', at_most_once=True)\n"
            "try: job.emit('', 'x')\nexcept croft.Invalid: return 'done'", "until_empty=True")
        self.assertEqual(self.result(first), "done")
        effects = [json.loads(line) for line in self.work("effects", "ls", "--json").splitlines()]
        self.assertEqual(sorted(e["name"] for e in effects), ["counted", "raw"])
        self.assertEqual({e["to"] for e in effects}, {"elsewhere", "raw"})

    def test_94_a_lost_item(self) -> None:
        id = self.add("x")
        program = self.program(
            "open('pid', 'w').write(str(os.getpid()))\n"
            "subprocess.Popen(['sleep', '1000'])\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "time.sleep(1000)", "once=True, ttl=30")
        pid = int(until("the work", lambda: self.read("pid")))
        self.work("cancel", id, "--note", "a test")
        self.assertEqual(program.wait(PATIENCE), 12)
        until("the end of the work", lambda: not os.path.exists(f"/proc/{pid}"))
        self.assertEqual(self.result(id), "")

    def test_94_a_late_write(self) -> None:
        id = self.add("x")
        program = self.program(
            "open('pid', 'w').write(str(os.getpid()))\n"
            "while not os.path.exists('go on'): time.sleep(0.01)\n"
            "try: job.report('late')\n"
            "except (croft.LeaseLost, croft.Stale): open('refused', 'w').close()\n"
            "time.sleep(1000)", "once=True, ttl=3600")
        until("the work", lambda: self.read("pid"))
        stop(program.pid)  # otherwise it kills the work first
        self.work("cancel", id, "--note", "a test")
        with open(self.path("go on"), "w"):
            pass
        until("the refusal", lambda: os.path.exists(self.path("refused")))

    def test_95_stalled_work(self) -> None:
        id = self.add("x", "--attempts", "1")
        self.run_program("time.sleep(1000)", "once=True, ttl=3, stall_after=1", code=12)
        self.assertEqual(self.result(id), "")

    def test_96_croft_is_killed(self) -> None:
        self.add("x")
        program = self.program(
            "open('pid', 'w').write(str(os.getpid()))\ntime.sleep(1000)")
        pid = int(until("the work", lambda: self.read("pid")))
        os.kill(program.pid, signal.SIGKILL)
        until("the end of the work", lambda: not os.path.exists(f"/proc/{pid}"))

    def test_96_croft_stands_still(self) -> None:
        self.add("x")
        program = self.program(
            "open('pid', 'w').write(str(os.getpid()))\ntime.sleep(1000)", f"once=True, ttl={TTL}")
        pid = int(until("the work", lambda: self.read("pid")))
        stop(program.pid)
        self.addCleanup(proceed, program.pid)
        until("the end of the work", lambda: not os.path.exists(f"/proc/{pid}"))

    def test_96_a_drain(self) -> None:
        id = self.add("x")
        program = self.program(
            "open('pid', 'w').write(str(os.getpid()))\ntime.sleep(1000)", "drain=0.1")
        until("the work", lambda: self.read("pid"))
        program.send_signal(signal.SIGTERM)
        program.wait(PATIENCE)
        item = self.item(id)
        self.assertEqual((item["state"], item["attempts"]), ("waiting", 0))

    def test_91_generators(self) -> None:
        with self.assertRaises(TypeError):
            @croft.worker("pages")
            def work(job: croft.Job) -> Any:
                yield job

    def read(self, name: str) -> str:
        try:
            with open(self.path(name)) as f:
                return f.read()
        except OSError:
            return ""


if __name__ == "__main__":
    unittest.main()
