"""Reports on a store in SQLite: SQLite's own check, a census against the manifest, and the properties of its file and folder.

Each is one snapshot. Relies on the reader's connections; reads the state of the file by name, never by opening it. Writes nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from everstep.backends import sql_files
from everstep.backends.contract.query_semantics import meta_scalars
from everstep.backends.contract.types import Census
from everstep.backends.deleted_pks import PREFIX, count
from everstep.backends.sqlite.feed import faults
from everstep.backends.sqlite.files import mounts
from everstep.backends.sqlite.files.create import left_behind
from everstep.backends.sqlite.files.store_file import SqliteFile
from everstep.errors import Damaged, StoreError
from everstep.records import MODULUS
from everstep.system import needs_full_sync

SQL = sql_files.load("sqlite", "health")
_STEPS = 20_000  # of SQLite's virtual machine, between two looks at the clock: well under a millisecond
_SYNC = {0: "off", 1: "normal", 2: "full", 3: "extra"}


def check(cursor: apsw.Cursor, stop: Callable[[], bool] | None) -> list[str] | None:
    """Check pages, indexes and types, the listing tables, and the feed. None if `stop` ended the check."""
    connection = cursor.connection
    if stop is not None:
        connection.set_progress_handler(stop, _STEPS)
    try:
        found = [text for (text,) in cursor.execute(SQL["integrity"]) if text != "ok"]
        found += [text for (text,) in cursor.execute(SQL["listing"]) if text is not None]
        return found + _unlisted(cursor) + faults(cursor)
    except apsw.InterruptError:
        return None
    finally:
        if stop is not None:
            connection.set_progress_handler(None)


def _unlisted(cursor: apsw.Cursor) -> list[str]:
    """Return where the meta values in the listing tables differ from those of the rows."""
    listed: dict[int, set[tuple[str, str]]] = {}
    for pk, key, value in cursor.execute(SQL["run_meta"]):
        listed.setdefault(pk, set()).add((key, value))
    found = []
    for pk, meta in cursor.execute(SQL["metas"]):
        try:
            wanted = set(meta_scalars(meta).items())
        except (TypeError, ValueError):
            wanted = set()  # the row itself is damaged; its own digest reveals that
        has = listed.pop(pk, set())
        found += [f"meta {key} of run {pk} is listed, but not in its row" for key, _ in sorted(has - wanted, key=repr)]
        found += [f"meta {key} of run {pk} is not listed" for key, _ in sorted(wanted - has, key=repr)]
    return found + [f"meta of run {pk} is listed, but its row has none" for pk in sorted(listed, key=repr)]


def census(cursor: apsw.Cursor) -> Census:
    """Return the manifest as recorded, and the sum of all stored checks."""
    total, runs, created = cursor.execute(SQL["manifest"]).fetchone() or (None, None, None)
    if type(total) is not bytes or type(runs) is not int or type(created) is not int:
        raise Damaged("the manifest of the store is damaged")
    (found_runs,), (tombstones,) = (cursor.execute(SQL[name]).fetchone() or (0,) for name in ("count_runs", "count_tombstones"))
    forgotten = count(value for (value,) in cursor.execute(SQL["forgotten"], (PREFIX,)) if type(value) is str)
    return Census(total, runs, created, _sum(cursor).to_bytes(32), int(found_runs), int(tombstones) + forgotten)


def _sum(cursor: apsw.Cursor) -> int:
    total = 0
    for (check,) in cursor.execute(SQL["checks"]):
        if type(check) is not bytes:
            raise Damaged("a digest of the store is damaged: it is not bytes")
        total += int.from_bytes(check)
    return total % MODULUS


def health(cursor: apsw.Cursor, file: SqliteFile) -> dict[str, Any]:
    """Return the values that `Audit.health` describes."""
    path = Path(file.path)
    kind = mounts.file_system(path.parent)
    free_pages, pages, page_size = (_number(cursor, name) for name in ("free_pages", "pages", "page_size"))
    (mode,) = cursor.execute(SQL["journal_mode"]).fetchone() or ("unknown",)
    (writes,) = cursor.execute(SQL["writes"]).fetchone() or (None,)
    seen = file.rollback_guard.recall()
    disk = os.statvfs(path.parent)
    return {
        "engine": "SQLite",
        "version": apsw.sqlite_lib_version(),
        "path": file.path,
        "read_only": read_only(file),
        "journal_mode": mode,
        "synchronous": _synchronous(file),
        "page_size": page_size,
        "pages": pages,
        "free_pages": free_pages,
        "wal_bytes": _size(Path(file.wal)),
        "file_mode": stat.S_IMODE(path.stat().st_mode),
        "folder_mode": stat.S_IMODE(path.parent.stat().st_mode),
        "disk_free": disk.f_bavail * disk.f_frsize,
        "file_system": kind,
        "network": mounts.is_network(kind),
        "volatile": mounts.is_volatile(kind),
        "writes": writes,
        "seen": None if seen is None else seen[1],
        "left_behind": {str(left): _size(left) for left in left_behind(path.parent)},
    }


def read_only(file: SqliteFile) -> str | None:
    """Return why the store cannot be written, or None."""
    if file.read_only is not None:
        return file.read_only
    for path in (file.path, os.path.dirname(file.path)):  # noqa: PTH120 - a text, as it is said
        if not os.access(path, os.W_OK):
            return f"{path} cannot be written"
    return None


def _synchronous(file: SqliteFile) -> str | None:
    """Return how commits are synced, read from a connection like the one that commits use. None if there is none."""
    try:
        with closing(file.writer()) as connection:
            fully = connection.pragma("fullfsync") and connection.pragma("checkpoint_fullfsync")
            if needs_full_sync() and not fully:
                return "without F_FULLFSYNC"
            return _SYNC.get(int(connection.pragma("synchronous")))
    except StoreError:
        return None


def _number(cursor: apsw.Cursor, name: str) -> int:
    (value,) = cursor.execute(SQL[name]).fetchone() or (0,)
    return int(value)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
