"""Programs that stand still: rows 25 and 29 of conformance.md."""

from __future__ import annotations

import ctypes
import threading
import time
from datetime import datetime, timezone

from .support import TTL, Case, proceed, stop


class Stopped(Case):
    def test_25_a_thread_keeps_the_interpreter(self) -> None:
        with self.client.lease("jobs/a", ttl=TTL) as lease:
            # Unlike time.sleep, a call through PyDLL keeps the interpreter
            # lock.
            hog = threading.Thread(target=ctypes.PyDLL(None).sleep, args=(int(3 * TTL),))
            hog.start()
            hog.join()
            lease.check()
        self.assertEqual(self.show("jobs/a")["ended"], "released")

    def test_29_the_parent_is_stopped(self) -> None:
        parent = self.python(
            "import croft, sys\n"
            f"with croft.lease('jobs/a', ttl={TTL}) as lease:\n"
            "    print('held', flush=True)\n"
            "    sys.stdin.readline()\n"
            "    lease.check()\n"
            "    print(lease.token, flush=True)\n")
        assert parent.stdout is not None and parent.stdin is not None
        self.assertEqual(parent.stdout.readline(), "held\n")
        first = self.show("jobs/a")
        deadline = datetime.fromisoformat(first["deadline"].replace("Z", "+00:00"))
        stop(parent.pid)
        time.sleep((deadline - datetime.now(timezone.utc)).total_seconds() + 1)
        proceed(parent.pid)
        parent.stdin.write("\n")
        parent.stdin.flush()
        self.assertEqual(parent.stdout.readline(), f"{first['token']}\n")
        self.assertEqual(parent.wait(), 0)
        self.assertEqual(self.show("jobs/a")["ended"], "released")
