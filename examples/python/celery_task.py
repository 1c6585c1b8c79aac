"""A task as Celery runs it: it may be delivered twice, and may ask for a retry.
This is plain Python in that shape; it needs no Celery and no broker.

Celery delivers a task again if its worker is silent for longer than the
visibility timeout. Then two workers have it. The lease lets one try at a time. The
fence row, in the task's own transaction, lets only the newer one's booking count.

    CROFT_STORE=/tmp/croft python3 celery_task.py
"""

import contextlib
import os
import sqlite3
import subprocess
from typing import Any

import croft

PROGRAM = os.environ.get("CROFT_BIN") or "croft"


class Retry(Exception):
    """What Celery's self.retry(countdown=...) raises."""

    def __init__(self, countdown: float) -> None:
        super().__init__(f"again in {countdown:.0f} s")


def book(order: int) -> str:
    """The task. Under Celery: @app.task(bind=True, acks_late=True)."""
    try:
        with croft.lease(f"orders/{order}", ttl=60) as lease:
            return write(lease, order)
    except croft.Held as e:
        raise Retry(countdown=max(1.0, e.remaining)) from e


def write(lease: croft.Lease, order: int) -> str:
    with contextlib.closing(sqlite3.connect("app.db")) as conn, conn:
        croft.sql.admit(conn, lease.stamp, f"orders/{order}")
        conn.execute("INSERT INTO bookings (id) VALUES (?) ON CONFLICT DO NOTHING", (order,))
    return "booked"


def bookings() -> list[Any]:
    with contextlib.closing(sqlite3.connect("app.db")) as conn:
        return conn.execute("SELECT id FROM bookings").fetchall()


def main() -> None:
    schema = subprocess.run([PROGRAM, "schema", "sqlite"], check=True, stdout=subprocess.PIPE, text=True).stdout
    with contextlib.closing(sqlite3.connect("app.db")) as conn:
        conn.executescript(schema + "CREATE TABLE bookings (id INTEGER PRIMARY KEY);")
    frozen = croft.lease("orders/1", ttl=60).acquire()  # by a worker that then stands still
    try:
        book(1)
    except Retry as e:
        print(type(e).__name__)
    frozen.fail()  # its lease is over, and it does not know
    print(book(1))
    try:
        print(write(frozen, 1))
    except croft.Stale:
        print("the late worker is refused")
    print(bookings())


if __name__ == "__main__":
    main()
