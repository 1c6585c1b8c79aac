"""A job as APScheduler runs it: a function that a scheduler in every process calls
at the same time. This is plain Python in that shape; it needs no APScheduler: the
two threads below are the schedulers of two machines.

With every, the first one to come does the work of the period. If it fails, the
next one may try at once. A scheduler that comes late, or twice, does nothing.

    CROFT_STORE=/tmp/croft python3 apscheduler_job.py
"""

import threading
from typing import Callable

import croft


def once_per(seconds: float, key: str, work: Callable[[croft.Lease], None]) -> Callable[[], None]:
    """Makes the function for scheduler.add_job(job, "interval", seconds=seconds)."""

    def job() -> None:
        try:
            with croft.lease(key, ttl=60, every=seconds) as lease:
                work(lease)
        except croft.Held:
            pass  # not this machine's turn, or done in this period
        except croft.LeaseLost as e:
            print(f"stopped: {e.loss}")  # its result does not count

    return job


def main() -> None:
    done: list[int] = []

    def report(lease: croft.Lease) -> None:
        lease.write("today.txt", f"the report, under token {lease.token}")
        done.append(lease.token)

    job = once_per(3600, "jobs/report", report)
    machines = [threading.Thread(target=job) for _ in range(2)]
    for machine in machines:
        machine.start()
    for machine in machines:
        machine.join()
    job()  # a scheduler that was started again
    print(f"done {len(done)} time(s)")


if __name__ == "__main__":
    main()
