"""Fence rows: a guard inside your own transaction.

    with conn:  # of sqlite3; with psycopg: with conn.transaction():
        croft.sql.admit(conn, lease.stamp, "orders/42")
        conn.execute("UPDATE orders SET ...")

admit locks the fence row of a resource and decides whether the writes of this
transaction count. The row stays locked until the transaction ends, so check and
write are one step. A rollback takes the mark back. The tables and the law are
those of Go: programs in both languages, and "croft guard", share one mark.

The tables must be there: croft schema sqlite | sqlite3 -bail app.db, or croft
schema postgres | psql. A store in the same database has made them already.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Callable

from ._fence import Mark, Stamp, check_key
from .errors import CroftError, Invalid, Unknown

LOCK_WAIT = 5.0
"""How long admit waits for another writer, in seconds."""

IDLE_LIMIT = 30.0
"""After so many seconds of doing nothing, PostgreSQL ends an admitted
transaction. So a writer that stops halfway does not keep others out for ever."""


def admit(conn: Any, stamp: str, resource: str, *, seq: int = 0) -> None:
    """Decides whether the writes of this transaction to a resource count.

    Call it before any other statement of the transaction. It raises Stale,
    WrongKey, Collision or Repeated if they do not; then the transaction must not
    write to the resource. It raises Unknown if another writer did not leave in
    time. After any other error roll back.

    conn is a connection of sqlite3 or of psycopg (version 3). seq numbers the
    writes of one lease upwards: late and repeated ones are then refused.
    """
    s = Stamp.parse(str(stamp))
    if seq:
        s = Stamp.parse(str(Stamp(s.key, s.token, s.grant, seq)))
    s.check_now()
    check_key(resource, "resource")
    if isinstance(conn, sqlite3.Connection):
        _sqlite(conn, s, resource)
    elif any(f"{c.__module__}.".startswith("psycopg.") for c in type(conn).__mro__) and hasattr(conn, "__enter__"):
        _postgres(conn, s, resource)
    else:
        raise Invalid(f"invalid connection {type(conn)!r}: admit takes those of sqlite3 and psycopg (version 3)")


def _decide(row: tuple[Any, ...] | None, s: Stamp, resource: str, move: Callable[[tuple[Any, ...]], int]) -> None:
    """Admits the stamp, and moves the mark if the law does. Text of the row comes as
    bytes: a connection may decode text in a way of its own."""
    try:
        key, token, grant, seq = row or (b"", 0, b"", b"0")
        if not seq.isdigit():
            raise ValueError(f"its sequence is {seq!r}")
        before = Mark(key.decode(), int(token), grant.decode(), int(seq))
        before.check()
    except (Invalid, ValueError, TypeError) as e:
        raise CroftError(f"guard {resource}: the mark is damaged: {e}; once no old writer lives, set its four "
                         "columns to NULL and raise the fence with the present owner's stamp") from e
    after = before.admit(s)
    if after == before:
        return
    if move((after.key, after.token, after.grant, str(after.seq), resource)) != 1:
        raise CroftError(f"guard {resource}: its mark does not move; look for a trigger or a rule that suppresses "
                         "the change, and roll the transaction back")


def _sqlite(conn: sqlite3.Connection, s: Stamp, resource: str) -> None:
    own = not conn.in_transaction
    if own and (conn.isolation_level is None or getattr(conn, "autocommit", -1) is True):
        raise Invalid('invalid connection: it commits every statement by itself; execute "BEGIN IMMEDIATE" first')
    # Without a row factory of the caller.
    cursor = conn.cursor()
    cursor.row_factory = None
    try:
        (busy,) = cursor.execute("PRAGMA busy_timeout").fetchone()
        cursor.execute(f"PRAGMA busy_timeout = {int(LOCK_WAIT * 1000)}")
        try:
            if own:
                cursor.execute("BEGIN IMMEDIATE")
            # Takes the write lock. A mark that is read after it is the newest.
            cursor.execute("UPDATE main.croft_fence SET fence_token = fence_token WHERE 0")
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {int(busy)}")
        cursor.execute("INSERT INTO main.croft_fence (name) VALUES (?) ON CONFLICT (name) DO NOTHING", (resource,))
        row = cursor.execute(
            "SELECT CAST(coalesce(fence_key, '') AS BLOB), coalesce(fence_token, 0), "
            "CAST(coalesce(fence_grant, '') AS BLOB), CAST(coalesce(fence_seq, '0') AS BLOB) "
            "FROM main.croft_fence WHERE name = ?", (resource,)).fetchone()
    except sqlite3.OperationalError as e:
        if own and conn.in_transaction:
            conn.rollback()
        if "no such table" in str(e):
            raise Invalid(f"guard {resource}: the tables are missing; make them: croft schema sqlite | "
                          "sqlite3 -bail FILE") from e
        raise Unknown(f"guard {resource}: {e}; another writer is in the file, or this transaction has read before "
                      "admit; roll it back and begin again, with admit first") from e
    _decide(row, s, resource, lambda args: cursor.execute(
        "UPDATE main.croft_fence SET fence_key = ?, fence_token = ?, fence_grant = ?, fence_seq = ? WHERE name = ?",
        args).rowcount)


def _postgres(conn: Any, s: Stamp, resource: str) -> None:
    import psycopg
    from psycopg.rows import tuple_row

    if conn.autocommit and conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
        raise Invalid("invalid connection: it commits every statement by itself; use conn.transaction()")
    with conn.cursor(row_factory=tuple_row) as cursor:
        (there,) = cursor.execute("SELECT pg_catalog.to_regclass('croft.fence') IS NOT NULL").fetchone()
        if not there:
            raise Invalid(f"guard {resource}: the tables are missing; make them: croft schema postgres | psql")
        (waits,) = cursor.execute(_LIMIT, (_limit(LOCK_WAIT), _limit(IDLE_LIMIT))).fetchone()[:1]
        try:
            row = cursor.execute(_LOCK, (resource,)).fetchone()
            if row is None:
                cursor.execute(
                    "INSERT INTO croft.fence (name) VALUES (%s) ON CONFLICT (name) DO NOTHING", (resource,))
                row = cursor.execute(_LOCK, (resource,)).fetchone()
        except psycopg.errors.LockNotAvailable as e:
            raise Unknown(f"guard {resource}: another writer did not leave in time; nothing was changed, roll back"
                          ) from e
        cursor.execute("SELECT pg_catalog.set_config('lock_timeout', %s::text, true)", (waits,))
        _decide(row, s, resource, lambda args: int(cursor.execute(_MOVE, args).rowcount))


def _limit(seconds: float) -> str:
    return f"{max(int(seconds * 1000), 1)}ms"  # zero means no limit there


# Bounds the wait for locks, and idleness unless the transaction has a limit.
# Returns the lock_timeout of before.
_LIMIT = """
SELECT pg_catalog.current_setting('lock_timeout'),
       pg_catalog.set_config('lock_timeout', %s::text, true),
       pg_catalog.set_config('idle_in_transaction_session_timeout',
           CASE pg_catalog.current_setting('idle_in_transaction_session_timeout')
               WHEN '0' THEN %s::text
               ELSE pg_catalog.current_setting('idle_in_transaction_session_timeout')
           END, true)
"""

_LOCK = """
SELECT pg_catalog.convert_to(coalesce(fence_key, ''), 'UTF8'), coalesce(fence_token, 0)::bigint,
       pg_catalog.convert_to(coalesce(fence_grant, ''), 'UTF8'),
       pg_catalog.convert_to(coalesce(fence_seq, 0)::text, 'UTF8')
FROM croft.fence
WHERE name = %s
FOR UPDATE
"""

_MOVE = """
UPDATE croft.fence
SET fence_key = %s::text, fence_token = %s::bigint, fence_grant = %s::text, fence_seq = %s::text::numeric
WHERE name = %s
"""
