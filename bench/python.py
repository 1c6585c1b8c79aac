"""Takes locks with one library, and prints how long each took, in seconds.

    python3 python.py LIBRARY COUNT
"""

import json
import os
import sys
import time

library, count = sys.argv[1], int(sys.argv[2])
took = []


def measure(acquire, release):
    start = time.perf_counter()
    held = acquire()
    took.append(time.perf_counter() - start)
    release(held)


if library == "redis-py":
    import redis

    host, _, port = os.environ["BENCH_REDIS"].rpartition(":")
    client = redis.Redis(host=host, port=int(port))

    def lock():
        made = client.lock("redis-py", timeout=60)
        assert made.acquire()
        return made

    for _ in range(count + 1):
        measure(lock, lambda lock: lock.release())
else:
    import croft

    def lease():
        return croft.lease("bench/python", ttl=60).acquire()

    if library == "first":  # with the start of the process that renews
        for _ in range(count + 1):
            measure(lease, lambda lease: lease.release())
            croft.default_client().close()
    else:
        for _ in range(count + 1):
            measure(lease, lambda lease: lease.release())

print(json.dumps(took[1:]))
