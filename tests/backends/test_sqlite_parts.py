"""Parts of the tables are made with their first use: a new store is small, and nobody who reads or writes notices when a part is made."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
import warm

import everstep
from everstep.backends.contract.core import Commit, Query
from everstep.backends.contract.queues import Task
from everstep.backends.contract.types import Cut
from everstep.backends.sqlite.backend import SqliteBackend
from everstep.backends.sqlite.files import parts
from everstep.errors import Damaged
from everstep.records import Pruned, RunRow, Tag
from everstep.testing.rows import new_message, new_run, next_commit

CORE = {"runs", "records", "workers", "manifest"}
MOST_BYTES = 40_960


def ask(path: Path, sql: str) -> list[Any]:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def tables(path: Path) -> set[str]:
    return {name for (name,) in ask(path, "SELECT name FROM sqlite_schema WHERE type = 'table'")}


def created(backend: SqliteBackend, name: str = "r", **fields: Any) -> RunRow:
    row = new_run(name, **fields)
    backend.commit(Commit(row, None))
    backend.commit(commit := next_commit(row))
    return commit.run


USES: dict[str, Callable[[SqliteBackend], object]] = {
    "chunks": lambda b: b.commit(next_commit(created(b), chunks=[(bytes(32), b"\x01\x00frame")])),
    "listing": lambda b: created(b, tags=("t",)),
    "tags": lambda b: b.tag(Tag.make(created(b).key, "t", 1, 1), "r"),
    "messages": lambda b: b.post(new_message(created(b)), "r"),
    "feed": lambda b: [created(b, f"r{n}") for n in range(101)],
    "pruned": lambda b: b.prune(Cut("r", None, Pruned.make(created(b).key, (), 0, 1))),
    "tombstones": lambda b: b.delete(created(b)),
    "properties": lambda b: b.set_property("a", "b"),
    "queues": lambda b: b.create([queued("r")]),
    "workflows": lambda b: created(b, workflow="w"),
    "sessions": lambda b: created(b, session="s"),
    "parents": lambda b: created(b, "child", parent=created(b).id, parent_number=-1),
    "notes": lambda b: created(b, note="n"),
    "attached": lambda b: b.commit(next_commit(created(b), kind="attached", note="1:a")),
    "finding": lambda b: b.commit(next_commit(created(b), meta='{"a":1}', labels=bytes(16))),
    "gates": lambda b: b.commit(next_commit(created(b), kind="gate", note="a#0")),
    "keys": lambda b: b.encrypt("header"),
}


def queued(name: str) -> Commit:
    commit = Commit(new_run(name), None)
    commit.task = Task("q", 0, None, None)
    return commit


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def test_a_new_store_is_small_and_has_only_what_every_store_needs(path: Path) -> None:
    SqliteBackend(path).close()
    assert tables(path) == CORE
    assert path.stat().st_size <= MOST_BYTES
    with everstep.open(path) as store, store.run("r", state={"n": 1}) as run:
        run.step("a", len, "abc")
    assert tables(path) == CORE
    assert path.stat().st_size <= MOST_BYTES


def test_every_part_is_tried() -> None:
    assert list(USES) == list(parts.PARTS)


@pytest.mark.parametrize("name", USES)
def test_a_part_is_made_by_its_first_use_and_found_by_all_who_have_the_store_open(path: Path, name: str) -> None:
    backend, other = SqliteBackend(path), SqliteBackend(path)
    read_all(other)
    USES[name](backend)
    assert read_all(other) == read_all(backend)
    assert ask(path, "SELECT parts FROM manifest")[0][0] & parts.PARTS[name].bit
    assert other.check() == []
    assert other.census().total == other.census().found_total
    connection = apsw.Connection(str(path))
    assert parts.are_right(connection)
    connection.close()
    other.close()
    backend.close()
    again = SqliteBackend(path)
    assert again.check() == []
    again.close()


def read_all(backend: SqliteBackend) -> list[Any]:
    """Every read that there is."""
    queries = [
        Query(),
        *(Query(**{name: "s"}) for name in ("workflow", "session", "parent", "note")),
        Query(tags=("t",)),
        Query(meta={"a": 1}),
    ]
    runs = [[row.id for _, row in backend.runs(query)] for query in queries]
    family = bytes(16)
    return [
        runs, backend.tags("r"), backend.messages("r"), backend.due(2**60), backend.feed(0, 1000), backend.feed_end(), backend.families(),
        backend.chunk_sizes(family), backend.chunks(family, [bytes(32)]), backend.pruned("r"), backend.bases("r"), backend.bases("r", 5),
        backend.tombstones(), backend.properties(), backend.get_property("a"), backend.queue_entry("r"), backend.queue_entries(), backend.held_by("w"),
        backend.twin(Task("q", 0, None, "d")), backend.next_ready(["q"]), backend.depths(), backend.check(), backend.census(),
        backend.checkpoints("r", Query()), backend.checkpoints("r", Query(tags=("t",))),
    ]  # fmt: skip


def test_an_empty_store_answers_every_question(path: Path) -> None:
    with everstep.open(path) as store:
        assert store.runs() == store.runs(workflow="w", session="s") == store.queues() == store.schedules() == store.workers() == []
        assert list(store.events()) == []
        assert store.verify("full").ok
        assert store.gc().problems == []
        assert store.cleanup().problems == []
        assert [finding.level for finding in store.doctor().findings if finding.level == "fail"] == []
    done = everstep.repair(path, path.with_name("new.db"))
    assert done.ok
    assert path.with_name("new.db").stat().st_size <= 2 * MOST_BYTES


def test_a_thread_that_reads_all_the_time_sees_what_is_written_as_soon_as_it_is(path: Path) -> None:
    backend, reader = SqliteBackend(path), SqliteBackend(path)
    found: list[Any] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            read_all(reader)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n, name in enumerate(("messages", "tags", "properties", "listing", "tombstones", "notes")):
        row = created(backend, f"n{n}", **({"tags": ("t",), "note": "a note s"} if name in ("listing", "notes") else {}))
        match name:
            case "messages":
                backend.post(new_message(row), row.id)
                found.append(len(reader.messages(row.id)))
            case "tags":
                backend.tag(Tag.make(row.key, "t", 1, 1), row.id)
                found.append(len(reader.tags(row.id)))
            case "properties":
                backend.set_property("a", "b")
                found.append(len(reader.properties()))
            case "tombstones":
                backend.delete(row)
                found.append(len(reader.tombstones()))
            case _:
                found.append(len(reader.runs(Query(tags=("t",), note="note"))))
    stop.set()
    for thread in threads:
        thread.join()
    assert found == [1, 1, 1, 1, 1, 2]
    reader.close()
    backend.close()


FIRST_USE = """
import sys
import everstep
from everstep.backends.sqlite.backend import SqliteBackend
sys.path.insert(0, sys.argv[3])
from test_sqlite_parts import created, queued
from everstep.records import Tag
from everstep.testing.rows import new_message
backend, me = SqliteBackend(sys.argv[1]), sys.argv[2]
print("ready", flush=True); sys.stdin.readline()
row = created(backend, me, tags=("t",), note="n", session="s", workflow="w")
backend.post(new_message(row), me); backend.tag(Tag.make(row.key, "t", 1, 1), me); backend.set_property(me, "x")
backend.create([queued(me + "-queued")]); backend.delete(created(backend, me + "-gone"))
backend.close()
"""


def test_processes_that_need_a_part_at_the_same_moment_make_it_once(path: Path) -> None:
    SqliteBackend(path).close()
    command = [sys.executable, "-c", FIRST_USE, str(path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [
        warm.Popen(
            [*command, f"p{n}", str(Path(__file__).parent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        for n in range(6)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.wait(60) for process in processes] == [0] * 6
    for process in processes:
        process.communicate()
    backend = SqliteBackend(path)
    assert backend.check() == []
    assert (len(backend.properties()), len(backend.tombstones()), len(backend.queue_entries())) == (6, 6, 6)
    assert [len(backend.runs(query)) for query in (Query(session="s"), Query(workflow="w"), Query(note="n"), Query(tags=("t",)))] == [6] * 4
    assert [len(backend.messages(f"p{n}")) for n in range(6)] == [1] * 6
    assert backend.census().total == backend.census().found_total
    backend.close()


@pytest.mark.parametrize("table", ["messages", "tags", "properties", "tombstones", "chunks", "feed", "pruned"])
def test_a_part_whose_tables_vanished_is_damage_and_not_an_empty_one(path: Path, table: str) -> None:
    backend = SqliteBackend(path)
    USES[table](backend)
    backend.manifest()
    ask(path, f"DROP TABLE {table}")
    with pytest.raises(Damaged, match="tables that its manifest names are missing"):
        backend.properties()
    backend.close()
    with pytest.raises(Damaged, match="tables and indexes of"):
        SqliteBackend(path)


def test_a_bit_of_the_parts_that_is_wrong_is_damage(path: Path) -> None:
    backend = SqliteBackend(path)
    USES["messages"](backend)
    backend.close()
    for bit in range(16):
        ask(path, f"UPDATE manifest SET parts = (parts | {1 << bit}) - (parts & {1 << bit})")
        with pytest.raises(Damaged):
            SqliteBackend(path)
        ask(path, f"UPDATE manifest SET parts = (parts | {1 << bit}) - (parts & {1 << bit})")
    SqliteBackend(path).close()


def test_a_part_that_was_made_in_a_transaction_that_failed_is_made_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SqliteBackend(path)
    row = created(backend)

    def fails(transaction: Any, _: Any) -> None:
        transaction.need(parts.MESSAGES)
        raise apsw.FullError("no space")

    with pytest.raises(everstep.errors.StoreError):
        backend._writer.call(fails, None)
    assert "messages" not in tables(path)
    assert backend.messages("r") == []
    backend.post(new_message(row), "r")
    assert len(backend.messages("r")) == 1
    assert backend.check() == []
    backend.close()


def test_a_reader_that_connected_just_before_a_part_was_made_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first statement of a connection is prepared with the schema that was read when it was opened."""
    path = tmp_path / "s.db"
    with everstep.open(path, config=False):
        pass
    reading, writing = SqliteBackend(path), SqliteBackend(path)
    reading._reader.close()
    reading._reader._closed = False
    connect, row = reading._reader._connect, created(writing)

    def connect_first() -> apsw.Connection:
        connection = connect()
        writing.commit(next_commit(row, chunks=[(bytes(32), b"\x01\x00frame")]))
        return connection

    monkeypatch.setattr(reading._reader, "_connect", connect_first)
    assert reading.chunks(row.family, [bytes(32)]) == {bytes(32): b"\x01\x00frame"}
    reading.close()
    writing.close()
