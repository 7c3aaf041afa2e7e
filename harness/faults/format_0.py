"""Format 0: an older format that exists for tests only, so that the machinery of migrations is proved before a real second format needs it.

It differs from format 1 as a real older format would: its manifest has two columns less and another name for a third, and it has no feed. `make`
writes such a store, with runs of every kind in it. `register` teaches this process the step from it to format 1: all records are fed, run by
run. Relies on `backends.sqlite.files.format`. No installed program knows format 0.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import apsw

import everstep
from everstep.backends.sqlite.feed import FeedWriter
from everstep.backends.sqlite.files import format as sqlite_format
from everstep.backends.sqlite.files import parts
from everstep.backends.sqlite.files.format import Older
from everstep.errors import Damaged
from everstep.store.retention.retention import Retention

OLD = 0
_LATER = ("feed", "keys")  # parts that format 0 does not have
_MANIFEST = """
CREATE TABLE manifest (
    pk INTEGER PRIMARY KEY CHECK (pk = 1),
    total BLOB NOT NULL,
    runs INTEGER NOT NULL,
    next INTEGER NOT NULL,
    last INTEGER,
    writes INTEGER NOT NULL,
    identity BLOB NOT NULL
) STRICT
"""
_BACK = (
    "BEGIN; DROP TABLE IF EXISTS feed; ALTER TABLE manifest RENAME TO newer",
    _MANIFEST,
    "INSERT INTO manifest SELECT pk, total, runs, next, latest, writes, identity FROM newer",
    f"DROP TABLE newer; PRAGMA user_version = {OLD}; COMMIT;",
)
_NEWEST = "SELECT pk, (SELECT max(id) FROM records WHERE id >> 31 = runs.pk) & 2147483647 FROM runs ORDER BY pk"


def register() -> None:
    """Let this process know format 0."""
    connection = apsw.Connection(":memory:")
    sqlite_format.build(connection)
    _make_all(connection)
    connection.execute(";".join(_BACK)).fetchall()
    sqlite_format.OLDER[OLD] = Older(sqlite_format.schema_digest(connection), _step)
    connection.close()


def _step(connection: apsw.Connection) -> None:
    """Give a store the manifest of format 1, and a feed of all records that are there."""
    cursor = connection.cursor()
    cursor.execute("ALTER TABLE manifest RENAME TO older").fetchall()
    cursor.execute(_of_format_1("manifest")).fetchall()
    feed = FeedWriter()
    newest_records: list[Any] = cursor.execute(_NEWEST).fetchall()
    for pk, newest in newest_records:
        if type(newest) is not int:
            raise Damaged(f"the run at position {pk} has no records")
        feed.add(pk, 1, newest)
    bits = sum(part.bit for name, part in parts.PARTS.items() if name not in _LATER)
    values = (feed.blob(), feed.fed, bits)
    cursor.execute("INSERT INTO manifest SELECT pk, total, runs, next, last, ?, ?, writes, identity, ? FROM older", values)
    if feed.full:
        sqlite_format.make(connection, parts.FEED, bits)
        cursor.executemany("INSERT INTO feed VALUES (?, ?)", feed.full)
    cursor.execute("DROP TABLE older").fetchall()


def _of_format_1(table: str) -> str:
    """The statement that makes a table of format 1."""
    return f"CREATE TABLE {table} " + parts.CORE.script.partition(f"CREATE TABLE {table} ")[2].partition(";")[0]


def make(path: Path) -> None:
    """Write a store of format 0 to a new file."""
    with everstep.open(path) as store:
        fill(store)
    for left in path.parent.glob(f"{path.name}-*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = DELETE").fetchall()
    _make_all(connection)
    connection.execute(";".join(_BACK)).fetchall()
    connection.execute("VACUUM; PRAGMA journal_mode = WAL").fetchall()
    connection.close()


def _make_all(connection: apsw.Connection) -> None:
    """Make all tables: format 0 had them from the start, but for the feed."""
    made: Any = connection.execute("SELECT parts FROM manifest").fetchone()
    for name, part in parts.PARTS.items():
        if not made[0] & part.bit and name != "keys":
            connection.execute(part.script).fetchall()


def _text(n: int) -> str:
    return " ".join(f"word{n * i}" for i in range(200))


def _waits(topic: str) -> Any:
    run = everstep.current()
    pages = run.step("read", lambda: [[i, topic, f"{i * i:050}"] for i in range(300)])
    run.state["pages"] = len(pages)
    run.checkpoint("read", tags=["milestone"], meta={"pages": len(pages)})
    run.emit("found", pages=len(pages))
    return [topic, pages[-1], everstep.gate("editor", ask="Publish?")]


waits: Any = everstep.workflow(_waits, name="format_0.waits", version="7")


def _fails() -> None:
    raise OSError("the tool is down")


fails: Any = everstep.workflow(_fails, name="format_0.fails")


def fill(store: everstep.Store) -> None:
    """Runs of every kind: a loop with bases and tags, a pruned one, a fork, a workflow that waits, a failed one, a deleted one."""
    for name, turns in (("plain", 3), ("loop", 40), ("pruned", 70), ("gone", 2)):
        with store.run(name, state={"said": []}, session="s", tags=["t"], meta={"turns": turns}) as run:
            for n in range(turns):
                run.state["said"].append(_text(n))
                run.checkpoint(f"turn {n}", tags=["first"] if n == 0 else [])
    store.prune(Retention(keep_last=5), run="pruned")
    store.delete("gone")
    with store.run(store.fork("loop@20", id="fork").id) as run:
        run.state["said"] = ["another"]
        run.checkpoint()
    store.start(waits, "logs", id="waiting")
    store.start(fails, id="failed")
    store.enqueue(waits, "later", id="queued", delay=3600)
    store.backend.set_property("remembered", "a property")
