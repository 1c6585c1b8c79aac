"""Packaging: rows 70 and 71 of conformance.md, and the list itself."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import unittest
from collections import Counter

import wheel

from .support import HERE, PROGRAM, Case, until

TOP = os.path.dirname(HERE)


class Package(Case):
    def test_70_secrets(self) -> None:
        with self.client.lease("jobs/a", ttl=3600) as lease:
            mode = os.stat(lease.lease_file).st_mode
            self.assertEqual((stat.S_IMODE(mode), stat.S_ISREG(mode)), (0o600, True))
            self.assertEqual(stat.S_IMODE(os.stat(os.path.dirname(lease.lease_file)).st_mode), 0o700)
            self.run_croft("report", "by the file", "@" + lease.lease_file)
            with open(lease.lease_file) as f:
                secret = f.read().split(":")[2]
            for seen in (lease.stamp, repr(lease), str(vars(lease._grant))):
                self.assertNotIn(secret, seen)
        until("the end of the file", lambda: not os.path.exists(lease.lease_file))
        lease = self.client.lease("jobs/b", ttl=3600).acquire()
        os.kill(self.process().pid, signal.SIGKILL)
        until("the end of the secret", lambda: not os.path.exists(os.path.dirname(lease.lease_file)))

    def test_71_the_wheel(self) -> None:
        with open(os.path.join(TOP, "README.md")) as f:
            example = re.search(r"```python\n(.*?)```", f.read(), re.DOTALL)
        assert example is not None
        with tempfile.TemporaryDirectory() as folder:
            name = wheel.build_wheel(folder)
            with open(os.path.join(folder, name), "rb") as built:
                once = built.read()
            wheel.build_wheel(folder)
            with open(os.path.join(folder, name), "rb") as built:
                self.assertEqual(built.read(), once)
            env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
            env.update(CROFT_STORE=self.store, CROFT_BIN=PROGRAM, PIP_DISABLE_PIP_VERSION_CHECK="1")

            def run(*args: str) -> str:
                return subprocess.run(
                    args, cwd=self.dir, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout

            run(sys.executable, "-m", "venv", folder + "/venv")
            python = folder + "/venv/bin/python"
            run(python, "-m", "pip", "install", "--no-index", "--quiet", os.path.join(folder, name))
            run(python, "-c", example.group(1))
            _, address = self.serve()
            env["CROFT_STORE"] = f"http://{address}/"
            run(python, "-c", "import croft\nwith croft.lease('reports/at-a-server'): pass")
            installed = os.path.dirname(run(python, "-c", "import croft; print(croft.__file__)").strip())
            self.assertTrue(installed.startswith(folder), installed)
            self.assertIn("py.typed", os.listdir(installed))
        with open(self.path("today.txt")) as f:
            self.assertEqual(f.read(), "the report of today\n")
        for key in ("reports/daily", "reports/at-a-server"):
            self.assertEqual(self.show(key)["ended"], "released")


class List(unittest.TestCase):
    def test_every_row_has_a_test(self) -> None:
        with open(os.path.join(TOP, "..", "conformance.md")) as f:
            rows = re.findall(r"^\| (\d\d) \|", f.read(), re.MULTILINE)
        tests = set()
        for name in os.listdir(HERE):
            with open(os.path.join(HERE, name)) as f:
                tests |= set(re.findall(r"def test_(\d\d)_", f.read())) if name.endswith(".py") else set()
        self.assertEqual([row for row, n in Counter(rows).items() if n > 1], [])
        self.assertEqual(sorted(rows), sorted(tests))
