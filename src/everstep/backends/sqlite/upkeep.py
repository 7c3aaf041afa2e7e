"""Keeps a store in SQLite small, besides the operations of `transaction`: returns free space, sets properties, drops tombstones.

A store has pointer maps, which allow moving pages from the end of the file into free ones, a few at a time. If another program rewrote a
store without them, compacting adds them: it rebuilds the store in one transaction, which blocks all other writers.
"""

from __future__ import annotations

from contextlib import closing
from json import dumps

import apsw

from everstep.backends import sql_files
from everstep.backends.deleted_pks import BLOCK, joined, name_of
from everstep.backends.sqlite.errors import write_error
from everstep.backends.sqlite.feed import runs_in, trim
from everstep.backends.sqlite.files.store_file import SqliteFile
from everstep.backends.sqlite.files.wal import WalKeeper
from everstep.backends.sqlite.rows import property_from, property_values
from everstep.backends.sqlite.transaction import Transaction

_SEEN = sql_files.load("sqlite", "read")["seen"]


def seen(connection: apsw.Connection) -> tuple[bytes, int]:
    """Return the identity of this store, empty if it cannot be read, and how often it was written."""
    identity, writes = connection.execute(_SEEN).fetchone() or (b"", 0)
    return (identity, writes) if type(identity) is bytes and type(writes) is int else (b"", 0)


def shrink(transaction: Transaction, most: int) -> int:
    """Move pages from the end of the file into free ones, and cut the file there; return the bytes."""
    connection = transaction.connection
    before = pages(connection)
    connection.execute(f"PRAGMA incremental_vacuum({max(1, most // page_size(connection))})").fetchall()
    return (before - pages(connection)) * page_size(connection)


def compact(file: SqliteFile, wal: WalKeeper) -> int:
    """Rebuild the file without free pages and with pointer maps."""
    try:
        with closing(file.writer()) as connection:
            before = pages(connection) * page_size(connection)
            # The rebuilt copy is as large as the store: keep it on disk, not in memory.
            connection.execute("PRAGMA temp_store = FILE; PRAGMA auto_vacuum = INCREMENTAL; VACUUM").fetchall()
            after = pages(connection) * page_size(connection)
    except apsw.Error as error:
        raise write_error(error, file.path) from error
    wal.merge()
    return before - after


def pages(connection: apsw.Connection) -> int:
    return int(connection.pragma("page_count"))


def page_size(connection: apsw.Connection) -> int:
    return int(connection.pragma("page_size"))


def forget(transaction: Transaction, asked: tuple[int, int]) -> int:
    """Drop old tombstones of a block, and record their positions in its property."""
    block, before = asked
    pks = transaction.forget(block * BLOCK + 1, (block + 1) * BLOCK, before)
    if pks:
        name = name_of(block)
        found = transaction.rows("property", (name,))
        transaction.set_property(
            name, property_values(name, joined(property_from(found[0], transaction.seal)[1] if found else None, pks), transaction.seal)
        )
    return len(pks)


def trim_feed(transaction: Transaction, asked: tuple[int, int]) -> int:
    """Turn the entries of deleted runs between two positions into gaps; return how many. The part that is being filled stays unchanged."""
    after, most = asked
    rows = transaction.rows("feed_between", (after, after + most))
    there = {pk: True for (pk,) in transaction.rows("existing_runs", (dumps(sorted(runs_in(rows))),))}
    parts, gone = trim(rows, lambda pk: pk in there)
    if gone:
        transaction.replace_feed([first for first, _ in rows], parts)
    return gone


def set_property(transaction: Transaction, asked: tuple[str, str | None]) -> None:
    name, value = asked
    transaction.set_property(name, None if value is None else property_values(name, value, transaction.seal))
