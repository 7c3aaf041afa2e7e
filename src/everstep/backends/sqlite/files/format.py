"""The format of a store in SQLite: what the tables hold, how they are made, how an older store is brought to it. Owns the format.

Format 1 (sql/schema.sql; application_id 0x45565354 "EVST", user_version 1, page size 4096, WAL, auto_vacuum incremental):
    runs       one row for each run; `pk` is its place in the order of creation and is never used again
    records    the chains; id = pk of the run << 31 | seq, so that a run's records lie together and need no second index.
               body_digest is kept only where the body was pruned, otherwise it is computed from the body
    chunks     frames by (family, digest); stamp says by which write of the store each was last written, so that gc leaves alone what
               was written after it looked
    tags       names on checkpoints, with the seq of the checkpoint's record
    letters    what runs are to be told, by (pk of the run, name)
    pruned     which bodies of a run were dropped on purpose
    bases      bases that prune added, by (pk of the run, number of the checkpoint)
    tombstones what is left of deleted runs, by the pk that they had
    facts      what the store remembers about itself, for doctor and retention; no part of the proof
    feed       the order of all commits, in parts; `feed` has their bytes
    tasks      the places of runs in queues, by pk of the run: what the first record and the letters of a run say, once more, for workers
    starts, ticks   when runs of a queue with a rate limit were taken; what happened in each queue, minute by minute. No part of the proof
    run_tags, run_meta   the tags and scalar meta values of runs once more, for listing
    workers    who holds leases, and until when
    manifest   one row: sum of all checks, number of runs, the next pk, the pk of the run that was committed to last, the end of the
               feed, how often the store was written, 16 random bytes that tell it from every other store, and which parts were made
Runs, records, workers and the manifest are there from the start; the other tables are made with their first use (`parts`).
A commit of one checkpoint changes one leaf of records, one of runs and that of the manifest; no index.

Format 1 is the first one, so `OLDER` is empty. A later format adds the one before it there, with the digest of its tables and the step that leads
from it to the next. A store is migrated in one transaction, step by step. A process that is killed in it leaves the old format behind; of
several that begin at once, the first one does it.
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
    """A format before this one: the digest of its tables and indexes, and the step that brings a store from it to the next format."""

    schema: str
    step: Callable[[apsw.Connection], None]


OLDER: dict[int, Older] = {}


def is_known(format: int) -> bool:
    """Whether this program can read a format, or bring a store from it to its own."""
    return format == FORMAT or format in OLDER


def has_its_tables(connection: apsw.Connection, format: int) -> bool:
    """Whether a store has the tables and indexes of a format that is known, and no others."""
    return parts.are_right(connection) if format == FORMAT else schema_digest(connection) == OLDER[format].schema


def schema_digest(connection: apsw.Connection) -> str:
    """What tables and indexes a store has, as one text. Spaces don't matter."""
    rows: list[Any] = connection.execute(_READ["schema"]).fetchall()
    return sha256(repr(sorted([b" ".join(part.split()) for part in row] for row in rows)).encode()).hexdigest()


def sync_fully(connection: apsw.Connection) -> None:
    """Let commits and merges reach the disk itself, where fsync stops at the drive's cache (macOS)."""
    connection.execute("PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON").fetchall()


def build(connection: apsw.Connection) -> None:
    """Make an empty file a store."""
    if needs_full_sync():
        sync_fully(connection)
    connection.execute("PRAGMA page_size = 4096; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA synchronous = FULL").fetchall()
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT}").fetchall()
    connection.execute(f"BEGIN; {parts.CORE.script}").fetchall()
    connection.execute(_SQL["set_identity"], (os.urandom(16),))
    connection.execute(_SQL["commit"])
    connection.execute("PRAGMA journal_mode = WAL").fetchall()


def make(connection: apsw.Connection, part: Part, made: int) -> int:
    """Make the tables of a part in a transaction of the caller; gives the bits of all parts that are there by then."""
    connection.execute(part.script).fetchall()
    connection.execute(_SQL["set_parts"], (made | part.bit,))
    return made | part.bit


def migrate(connection: apsw.Connection) -> None:
    """Bring an older store to this format, unless another process was faster: the format is looked at again once no one else can write."""
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
