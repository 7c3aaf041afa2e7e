"""The floors: a durable write of the same bytes without any meaning, which no store can beat by much.

`OneRow` is one INSERT into a one-table SQLite file through the standard library, WAL, synchronous=FULL and otherwise default settings.
`RawAppend` is write + fdatasync at the end of a file.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from types import TracebackType
from typing import Self

_datasync = getattr(os, "fdatasync", os.fsync)


class Floor:
    def write(self, body: bytes) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class OneRow(Floor):
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(folder / "one-row.db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("CREATE TABLE turn (id INTEGER PRIMARY KEY, body BLOB)")

    def write(self, body: bytes) -> None:
        self._db.execute("INSERT INTO turn (body) VALUES (?)", (body,))

    def close(self) -> None:
        self._db.close()


class RawAppend(Floor):
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(folder / "raw", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def write(self, body: bytes) -> None:
        os.write(self._fd, body)
        _datasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)
