"""Reads the threads that LangGraph's own savers have stored: a file of SqliteSaver, or a database of PostgresSaver. The source is not changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.base import SerializerProtocol

from everstep.errors import InvalidArgument

Write = tuple[int, str, Any]


class Stored(NamedTuple):
    """One checkpoint of a source, with the writes of each task: (task, path) and its writes by index."""

    found: CheckpointTuple
    writes: dict[tuple[str, str], list[Write]]


class Source:
    """The threads of one saver."""

    def __init__(self, saver: BaseCheckpointSaver[Any], connection: Any, table: str, mark: str):
        self._saver = saver
        self._connection = connection
        self._table = table
        self._mark = mark

    def threads(self) -> list[str]:
        """Return the ids of all threads."""
        return [row[0] for row in self._rows("SELECT DISTINCT thread_id FROM checkpoints ORDER BY thread_id", ())]

    def checkpoints(self, thread: str) -> Iterator[Stored]:
        """Yield the checkpoints of a thread in the order in which they were made."""
        found = list(self._saver.list({"configurable": {"thread_id": thread}}))
        for one in sorted(found, key=lambda one: one.checkpoint["id"]):
            yield Stored(one, self._writes(thread, one))

    def _writes(self, thread: str, one: CheckpointTuple) -> dict[tuple[str, str], list[Write]]:
        conf, out = one.config["configurable"], {}  # type: ignore[var-annotated]
        data = "blob" if self._table == "checkpoint_writes" else "value"
        query = (
            f"SELECT task_id, task_path, idx, channel, type, {data} FROM {self._table} "  # noqa: S608 - two names of our own
            "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY task_id, idx"
        )
        given = (thread, conf["checkpoint_ns"], conf["checkpoint_id"])
        for task, path, index, channel, kind, value in self._rows(query, given):
            out.setdefault((task, path), []).append((index, channel, self._saver.serde.loads_typed((kind, bytes(value or b"")))))
        return out

    def _rows(self, query: str, given: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(query.replace("?", self._mark), given)
        return [tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in cursor.fetchall()]


@contextmanager
def open_source(address: str, serde: SerializerProtocol) -> Iterator[Source]:
    """Open a file of SqliteSaver or a database of PostgresSaver."""
    if address.startswith(("postgresql://", "postgres://")):
        with _postgres(address, serde) as source:
            yield source
    else:
        with _sqlite(Path(address), serde) as source:
            yield source


@contextmanager
def _sqlite(path: Path, serde: SerializerProtocol) -> Iterator[Source]:
    """Read a copy: a saver changes the file that it opens."""
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver
    except ImportError as error:
        raise InvalidArgument(
            "reading a file of SqliteSaver needs its package", remedy="pip install langgraph-checkpoint-sqlite"
        ) from error
    if not path.is_file():
        raise InvalidArgument(f"there is no file {str(path)!r}", remedy="Give the file of SqliteSaver, or a postgresql:// address.")
    with TemporaryDirectory() as folder, closing(sqlite3.connect(Path(folder) / "copy.db", check_same_thread=False)) as copy:
        try:
            with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as original:
                original.backup(copy)
                tables = {row[0] for row in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        except sqlite3.DatabaseError as error:
            raise InvalidArgument(f"{str(path)!r} cannot be read as a file of SqliteSaver: {error}") from error
        if not {"checkpoints", "writes"} <= tables:
            raise InvalidArgument(f"{str(path)!r} is not a file of SqliteSaver: it has no tables checkpoints and writes")
        saver = SqliteSaver(copy, serde=serde)
        saver.setup()
        yield Source(saver, copy, "writes", "?")


@contextmanager
def _postgres(address: str, serde: SerializerProtocol) -> Iterator[Source]:
    """Read one state of the database, and write nothing."""
    try:
        import psycopg
        from langgraph.checkpoint.postgres import PostgresSaver
        from psycopg.rows import dict_row
    except ImportError as error:
        raise InvalidArgument(
            "reading a database of PostgresSaver needs its package", remedy="pip install langgraph-checkpoint-postgres"
        ) from error
    with psycopg.connect(address, row_factory=dict_row) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        try:
            connection.execute("SELECT thread_id FROM checkpoints LIMIT 1")
        except psycopg.errors.UndefinedTable as error:
            raise InvalidArgument("the database has no tables of PostgresSaver", remedy="Give the address that the saver uses.") from error
        yield Source(PostgresSaver(connection, serde=serde), connection, "checkpoint_writes", "%s")
