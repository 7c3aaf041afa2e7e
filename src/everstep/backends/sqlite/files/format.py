"""The format of a store in SQLite: what the tables hold, how they are made, how an older store is brought to it. Owns the format.

Format 4 (sql/0001_schema.sql to sql/0004_queues.sql; application_id 0x45565354 "EVST", user_version 4, page size 4096, WAL,
auto_vacuum incremental where it was made by format 3 or later, or compacted since):
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
               feed, how often the store was written, and 16 random bytes that tell it from every other store
A commit of one checkpoint changes one leaf of records, one of runs and that of the manifest; no index.

Format 1 had no letters and no feed; its records are fed run by run. Format 2 had no prune marks, tombstones, stamps and facts; what
was deleted in it gets tombstones that know only the place. Format 3 had no queues. A store is migrated in one transaction, step by step. Whoever is killed in it
leaves the old format behind, and of several who begin at once the first does it.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from typing import Any

import apsw

from everstep.backends import sql_files
from everstep.backends.sqlite.feed import fill
from everstep.backends.sqlite.rows import tombstone_values
from everstep.clock import clock
from everstep.errors import Damaged
from everstep.records import Tombstone, shift
from everstep.system import needs_full_sync

APPLICATION_ID = 0x45565354
FORMAT = 4
_SCHEMA = sql_files.script("sqlite", "0001_schema")  # read at import: a daemon may give up the right to read it later
_RUNTIME = sql_files.script("sqlite", "0002_runtime")
_TRUST = sql_files.script("sqlite", "0003_trust")
_QUEUES = sql_files.script("sqlite", "0004_queues")
_SQL = sql_files.load("sqlite", "write")
_READ = sql_files.load("sqlite", "read")
_MOST_GONE = 1_000_000
SCHEMAS = {
    1: "240636317c8e37fdc14454968a143b7124b2eeee0299634ab92d3f6c3a4c7645",
    2: "22ef675784cfac05e71b83775045e6354f0be2878e5b479c0438af7ed5fd4ddb",
    3: "1d90a106bd06ac4071dc54af84b83506d294ff4a450848582d3af6236c33bf92",
    4: "899eb5f5ded21c5f7346a7de9dd161345773530d5b48734fc05d6c6c398f8504",
}
TABLES = frozenset(re.findall(r"CREATE TABLE (\w+)", _SCHEMA + _RUNTIME + _TRUST + _QUEUES))


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
    connection.execute(f"BEGIN; {_SCHEMA} {_RUNTIME} {_TRUST} {_QUEUES}").fetchall()
    connection.execute(_SQL["set_identity"], (os.urandom(16),))
    connection.execute(_SQL["commit"])
    connection.execute("PRAGMA journal_mode = WAL").fetchall()


def migrate(connection: apsw.Connection) -> None:
    """Bring an older store to this format, unless another process was faster: that is looked at once nobody else can write."""
    connection.execute(_SQL["begin"])
    try:
        while (version := connection.pragma("user_version")) in _STEPS:
            _STEPS[version](connection)
            connection.execute(f"PRAGMA user_version = {version + 1}")
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


def _from_2(connection: apsw.Connection) -> None:
    cursor = connection.cursor()
    cursor.execute(_TRUST).fetchall()
    total, _, following, *_ = cursor.execute(_SQL["manifest"]).fetchone() or (None, None, None)
    places = {place for (place,) in cursor.execute(_READ["run_numbers"])}
    if type(total) is not bytes or type(following) is not int or not 0 < following <= len(places) + _MOST_GONE:
        raise Damaged("the manifest of the store is damaged: it is not brought to a newer format")
    now = clock.now_us()
    gone = [Tombstone.unknown(place, now) for place in range(1, following) if place not in places]
    cursor.executemany(_SQL["add_tombstone"], map(tombstone_values, gone))
    cursor.execute(_SQL["set_total"], (shift(total, (), [tombstone.check for tombstone in gone]),))
    cursor.execute(_SQL["set_identity"], (os.urandom(16),))


def _from_3(connection: apsw.Connection) -> None:
    connection.execute(_QUEUES).fetchall()


_STEPS = {1: _from_1, 2: _from_2, 3: _from_3}
