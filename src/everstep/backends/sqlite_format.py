"""The format of a store in SQLite: what the tables hold, how they are made, how an older store is brought to it. Owns the format.

Format 2 (sql/0001_schema.sql, sql/0002_runtime.sql; application_id 0x45565354 "EVST", user_version 2, page size 4096, WAL):
    runs       one row for each run; `pk` is its place in the order of creation and is never used again
    records    the chains; id = pk of the run << 31 | seq, so that a run's records lie together and need no second index.
               body_digest is kept only where the body was pruned, otherwise it is computed from the body
    chunks     frames by (family, digest)
    tags       names on checkpoints, with the seq of the checkpoint's record
    letters    what runs are to be told, by (pk of the run, name)
    feed       the order of all commits, in parts; sqlite_feed has their bytes
    run_tags, run_meta   the tags and scalar meta values of runs once more, for listing
    workers    who holds leases, and until when
    manifest   one row: sum of all checks, number of runs, the next pk, the pk of the run that was committed to last, the end of the
               feed
A commit of one checkpoint changes one leaf of records, one of runs and that of the manifest; no index.

Format 1 had no letters and no feed. A store is migrated in one transaction, its records are fed run by run. Whoever is killed in it
leaves format 1 behind, and of several who begin at once the first does it.
"""

from __future__ import annotations

import apsw

from everstep.backends import queries
from everstep.backends.sqlite_feed import fill

APPLICATION_ID = 0x45565354
FORMAT = 2
_SCHEMA = queries.script("0001_schema")  # read at import: a daemon may give up the right to read it later
_RUNTIME = queries.script("0002_runtime")
_SQL = queries.load("write")


def build(connection: apsw.Connection) -> None:
    """Make an empty file a store."""
    connection.execute("PRAGMA page_size = 4096; PRAGMA synchronous = FULL").fetchall()
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT}").fetchall()
    connection.execute(f"BEGIN; {_SCHEMA} {_RUNTIME} COMMIT").fetchall()
    connection.execute("PRAGMA journal_mode = WAL").fetchall()


def migrate(connection: apsw.Connection) -> None:
    """Bring an older store to this format, unless another process was faster: that is looked at once nobody else can write."""
    connection.execute(_SQL["begin"])
    try:
        if connection.pragma("user_version") == 1:
            _from_1(connection)
        connection.execute(_SQL["commit"])
    except BaseException:
        if connection.in_transaction:
            connection.execute(_SQL["rollback"])
        raise


def _from_1(connection: apsw.Connection) -> None:
    cursor = connection.cursor()
    cursor.execute(_RUNTIME).fetchall()
    feed = fill(cursor)
    cursor.executemany(_SQL["add_feed"], feed.full)
    cursor.execute(_SQL["set_feed"], (feed.blob(), feed.fed))
    cursor.execute("PRAGMA user_version = 2")
