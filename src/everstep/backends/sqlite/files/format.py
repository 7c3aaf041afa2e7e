"""The format of a store in SQLite: its tables, how they are created, how an older store is migrated. Owns the format.

Format 1 (sql/schema.sql; application_id 0x45565354 "EVST", user_version 1, page size 4096, WAL, auto_vacuum incremental):
    runs       one row for each run; `pk` is its position in the order of creation and is never reused
    records    the chains; id = pk of the run << 31 | seq, so that a run's records are adjacent and need no second index.
               body_digest is kept only where the body was pruned, otherwise it is computed from the body
    chunks     frames by (family, digest); stamp is the number of the write that last wrote each, so that gc keeps chunks that
               were written after it looked
    tags       names on checkpoints, with the seq of the checkpoint's record
    messages   messages to runs, by (pk of the run, name)
    pruned     which bodies of a run were dropped on purpose
    bases      bases that prune added, by (pk of the run, number of the checkpoint)
    tombstones the rows that remain of deleted runs, by the pk that they had
    properties properties of the store, for doctor and retention
    feed       the order of all commits, in parts; `feed` has their bytes
    tasks      the queue entries of runs, by pk of the run: a copy of data in the first record and the messages of a run, for workers
    starts, ticks   when runs of a queue with a rate limit were claimed; the activity of each queue, by minute. Not verified
    run_tags, run_meta   a copy of the tags and scalar meta values of runs, for listing
    workers    the holders of leases, with their expiry
    manifest   one row: sum of all checks, number of runs, the next pk, the pk of the run that was committed to last, the end of the
               feed, how often the store was written, 16 random bytes that identify the store, and the parts that were created
Runs, records, workers and the manifest exist from the start; the other tables are created at their first use (`parts`).
A commit of one checkpoint changes one leaf of records, one of runs and that of the manifest; no index.

Format 1 is the first one, so `OLDER` is empty. A later format adds the one before it there, with the digest of its tables and the step
that migrates it to the next. A store is migrated in one transaction, step by step. If the process is killed, the old format remains; if
several processes begin at once, the first one migrates.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple

import apsw

from everstep.backends import sql_files
from everstep.backends.sqlite.files import parts
from everstep.backends.sqlite.files.parts import Part
from everstep.system import needs_full_sync

APPLICATION_ID = 0x45565354
FORMAT = 1
_SQL = sql_files.load("sqlite", "write")
_READ = sql_files.load("sqlite", "read")


class Older(NamedTuple):
    """A format before this one: the digest of its tables and indexes, and the step that migrates a store from it to the next format."""

    schema: str
    step: Callable[[apsw.Connection], None]


OLDER: dict[int, Older] = {}


def is_known(format: int) -> bool:
    """Return whether this program can read a format, or migrate a store from it."""
    return format == FORMAT or format in OLDER


def has_its_tables(connection: apsw.Connection, format: int) -> bool:
    """Return whether a store has the tables and indexes of a known format, and no others."""
    return parts.are_right(connection) if format == FORMAT else schema_digest(connection) == OLDER[format].schema


def schema_digest(connection: apsw.Connection) -> str:
    """Return a digest of a store's tables and indexes. Spaces don't matter."""
    rows: list[Any] = connection.execute(_READ["schema"]).fetchall()
    return sha256(repr(sorted([b" ".join(part.split()) for part in row] for row in rows)).encode()).hexdigest()


def sync_fully(connection: apsw.Connection) -> None:
    """Make commits and merges reach the disk itself on systems where fsync stops at the drive's cache (macOS)."""
    connection.execute("PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON").fetchall()


def build(connection: apsw.Connection) -> None:
    """Turn an empty file into a store."""
    if needs_full_sync():
        sync_fully(connection)
    connection.execute("PRAGMA page_size = 4096; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA synchronous = FULL").fetchall()
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT}").fetchall()
    connection.execute(f"BEGIN; {parts.CORE.script}").fetchall()
    connection.execute(_SQL["set_identity"], (os.urandom(16),))
    connection.execute(_SQL["commit"])
    connection.execute("PRAGMA journal_mode = WAL").fetchall()


def make(connection: apsw.Connection, part: Part, made: int) -> int:
    """Create the tables of a part in the caller's transaction; return the bits of all parts that exist then."""
    connection.execute(part.script).fetchall()
    connection.execute(_SQL["set_parts"], (made | part.bit,))
    return made | part.bit


def migrate(connection: apsw.Connection) -> None:
    """Migrate an older store to this format. Reads the format again once no other process can write: it may be migrated by then."""
    connection.execute(_SQL["begin"])
    try:
        while (version := connection.pragma("user_version")) in OLDER:
            OLDER[version].step(connection)
            connection.execute(f"PRAGMA user_version = {version + 1}")
        connection.execute(_SQL["commit"])
    except BaseException:
        if connection.in_transaction:
            connection.execute(_SQL["rollback"])
        raise
