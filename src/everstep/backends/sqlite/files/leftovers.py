"""Checks the files beside a store's file: leftovers of a store that no longer exists, and a WAL that belongs to another file. Reads only.

SQLite takes any `NAME-wal` for the WAL of NAME. It merges the frames into whatever file has that name and then deletes the WAL: the saves
in it are lost for the file that they belong to. So a store is created only where no such file exists, and a WAL is merged only into its
own file.

A WAL belongs to a file if both name the same store and no write is missing between them. Every write counts up `manifest.writes` and
puts the manifest into the WAL. So the file must be at least as new as the write before the first one in the WAL and no newer than the last
one, and if both have the same write, its manifest must be the same.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import apsw

from everstep.backends import sql_files
from everstep.errors import LeftoverFiles

PARTS = ("-wal", "-journal", "-shm", "-seen", "-locks")
_SQL = sql_files.load("sqlite", "read")


class Writes(NamedTuple):
    """The figures of a manifest: the identity of its store, how often that was written, and the sum of all its checks."""

    identity: bytes
    times: int
    total: bytes


def leftovers(path: Path) -> list[str]:
    """Return the files of a store that exist beside a path. An empty folder for locks does not count: a closed store leaves one."""
    return [f"{path}{part}" for part in PARTS if _is_there(f"{path}{part}")]


def _is_there(path: str) -> bool:
    if not os.path.lexists(path):
        return False
    try:
        return not path.endswith("-locks") or any(Path(path).iterdir())
    except OSError:
        return True


def refuse_leftovers(path: Path) -> None:
    """Refuse to create a store beside files of another one. If another process created a store meanwhile, both files are its own."""
    found = leftovers(path)
    if found and not path.exists():
        names = ", ".join(file[len(str(path.parent)) :].lstrip("/") for file in found)
        raise LeftoverFiles(
            f"{path} does not exist, but files of an earlier store there do: {names}. Nothing was created or changed",
            remedy=f"Restore {path.name}: its newest saves may be in these files. If the store is no longer needed, move them away: "
            + _move_away(path, found),
        )


def _move_away(path: Path, found: list[str]) -> str:
    """Return a command that can be run as it is: the folder in it does not exist yet."""
    from shlex import quote

    number = next(n for n in range(1, 10_000) if not os.path.lexists(f"{path}.old-{n}"))
    folder = quote(f"{path}.old-{number}")
    return f"mkdir {folder} && mv {' '.join(map(quote, found))} {folder}"


def foreign_wal(connection: apsw.Connection, direct: apsw.Connection, wal: Path) -> str | None:
    """Return why the WAL does not belong to the file, or None. `connection` reads through the WAL, `direct` reads the file alone.

    Everything is read in one read transaction. During it, SQLite merges nothing newer than its snapshot, and does not restart the WAL.
    """
    try:
        with closing(direct), connection:
            newest = _written(connection)
            file, pages = _written(direct), {_page(direct), _page(connection)}
            found = _written_in(wal, connection.pragma("page_size"), pages)
    except (apsw.Error, OSError, ValueError, TypeError):
        return None  # other damage: the next read reports it
    if file is None or newest is None or not found:
        return None
    first, same = found[0], next((one for one in found if one.times == file.times), file)
    if not file.identity == first.identity == newest.identity:
        return "it is the WAL of another store"
    if file.times < first.times - 1:
        return f"the file is older: {first.times - 1 - file.times} writes between them are missing"
    if file.times > newest.times:
        return f"the file is newer: it was written {file.times - newest.times} times after the WAL"
    return None if same == file else f"write {file.times} of the file is not write {file.times} of the WAL"


def _written(connection: apsw.Connection) -> Writes | None:
    identity, times = connection.execute(_SQL["seen"]).fetchone() or (None, None)
    (total,) = connection.execute(_SQL["total"]).fetchone() or (None,)
    return Writes(identity, times, total) if type(identity) is type(total) is bytes and type(times) is int else None


def _page(connection: apsw.Connection) -> int:
    (page,) = connection.execute(_SQL["manifest_page"]).fetchone() or (0,)
    return int(page)


def _written_in(wal: Path, page_size: int, pages: set[int]) -> list[Writes]:
    """Return the manifest after each write that is in the WAL, oldest first."""
    import mmap  # imported here, with the next two, only for a suspicious WAL: an ordinary open should not pay for them

    from everstep.backends.sqlite.recovery.pages import manifest_row
    from everstep.backends.sqlite.recovery.wal_frames import committed_frames

    with wal.open("rb") as file:  # SQLite holds no locks on this file, so closing our own descriptor drops none
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    with data:
        rows = [manifest_row(content, page_size) for page, content in committed_frames(data, page_size) if page in pages]
    return [Writes(row[8], row[7], row[1]) for row in rows if row is not None]
