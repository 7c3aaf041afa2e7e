"""Hostile files: databases that are not a store, or whose schema has more than a store's, and links, pipes and folders in place of a
store's files. Lists cases; does nothing with them.

Each case creates something at a path. Beside it is `victim`, a file of another owner that must not change.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw

import everstep
from everstep.backends.sqlite.files.format import APPLICATION_ID
from harness.faults.hostile.forge import Case

PRECIOUS = b"precious" * 5000


def victim_of(path: Path) -> Path:
    return path.with_name("victim")


def groups() -> list[dict[str, Case]]:
    return [_schemas(), _databases(), _links(), _things()]


def _good(path: Path) -> None:
    """Create a store with a run that has some history."""
    with everstep.open(path) as store, store.run("r", state={"list": []}) as run:
        for turn in range(60):
            run.state["list"].append(f"turn {turn} " * 40)
            run.checkpoint()
        run.step("work", lambda: "x" * 40_000)
    path.with_name(path.name + "-seen").unlink(missing_ok=True)


def _schema(*statements: str) -> Case:
    """Add statements to the schema of a good store."""

    def make(path: Path) -> None:
        _good(path)
        with closing(apsw.Connection(str(path))) as connection:
            connection.execute("PRAGMA writable_schema = ON")
            for statement in statements:
                connection.execute(statement)

    return make


def _schemas() -> dict[str, Case]:
    wipe = "BEGIN DELETE FROM records; UPDATE runs SET note = 'owned'; END"
    out = {
        f"a trigger {when} {what} on {table}": _schema(f"CREATE TRIGGER evil {when} {what} ON {table} {wipe}")
        for when in ("BEFORE", "AFTER") for what in ("INSERT", "UPDATE", "DELETE") for table in ("runs", "records", "manifest")
    }  # fmt: skip
    for table in ("runs", "records", "chunks", "tags", "manifest", "messages", "workers"):
        out[f"a view for the table {table}"] = _schema(
            f"ALTER TABLE {table} RENAME TO real_{table}",
            f"CREATE VIEW {table} AS SELECT * FROM real_{table}",  # noqa: S608
        )
        out[f"no table {table}"] = _schema(f"DROP TABLE {table}")
        out[f"a table {table} of one column"] = _schema(f"DROP TABLE {table}", f"CREATE TABLE {table} (x)")
        out[f"a table {table} with another name for all"] = _schema(f"ALTER TABLE {table} RENAME TO other")
    out["an endless view for the table runs"] = _schema(
        "ALTER TABLE runs RENAME TO real_runs",
        "CREATE VIEW runs AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT real_runs.* FROM real_runs, n",
    )
    out["an index that needs a gigabyte for the next record"] = _greedy
    out["a column that needs a gigabyte for the next run"] = _schema(
        "ALTER TABLE runs ADD COLUMN evil TEXT AS (CASE WHEN pk > 1 THEN length(hex(zeroblob(400000000))) END) CHECK (evil IS NULL OR evil != 'x')"
    )
    out["more tables than ours"] = _schema(*(f"CREATE TABLE more{i} (x)" for i in range(500)))
    return out


def _greedy(path: Path) -> None:
    _good(path)
    with closing(apsw.Connection(str(path))) as connection:
        (last,) = connection.execute("SELECT max(id) FROM records").fetchone() or (0,)
        connection.execute(f"CREATE INDEX evil ON records (CASE WHEN id > {int(str(last))} THEN length(hex(zeroblob(400000000))) END)")


def _databases() -> dict[str, Case]:
    def database(*statements: str) -> Case:
        def make(path: Path) -> None:
            with closing(apsw.Connection(str(path))) as connection:
                for statement in statements:
                    connection.execute(statement)

        return make

    def changed(*statements: str) -> Case:
        def make(path: Path) -> None:
            _good(path)
            with closing(apsw.Connection(str(path))) as connection:
                for statement in statements:
                    connection.execute(statement)

        return make

    def cut(length: int) -> Case:
        def make(path: Path) -> None:
            _good(path)
            os.truncate(path, length)

        return make

    return {
        "a database of another program": database("CREATE TABLE notes (x)"),
        "an empty database with our mark": database(
            f"PRAGMA application_id = {APPLICATION_ID}", "PRAGMA user_version = 1", "CREATE TABLE x (y)"
        ),
        "a format of the future": changed("PRAGMA user_version = 99"),
        "a format of 2**31 - 1": changed("PRAGMA user_version = 2147483647"),
        "a negative format": changed("PRAGMA user_version = -1"),
        "format 1 with the tables of this one": changed("PRAGMA user_version = 1"),
        "format 2 with the tables of this one": changed("PRAGMA user_version = 2"),
        "format 3 with the tables of this one": changed("PRAGMA user_version = 3"),
        "a manifest that counts 2**62 runs": changed("UPDATE manifest SET runs = 4611686018427387904"),
        "a manifest whose next run is 2**62": changed("UPDATE manifest SET next = 4611686018427387904"),
        "a manifest without a row": changed("DELETE FROM manifest"),
        "a feed of noise": changed("UPDATE manifest SET feed = randomblob(300)"),
        "a feed that is a gigabyte of zeros": changed("UPDATE manifest SET fed = 1, feed = zeroblob(1000000)"),
        "a worker on the way out of its folder": changed(
            "INSERT OR REPLACE INTO workers VALUES ('../victim', 'h', 1, 'b', 0, 0, 0)", "UPDATE runs SET worker = '../victim'"
        ),
        **{f"cut at {n} bytes": cut(n) for n in (1, 99, 100, 512, 4095, 4096, 4097, 20_000)},
    }


def _link(suffix: str, target: Callable[[Path], Path]) -> Case:
    def make(path: Path) -> None:
        _good(path)
        place = path.with_name(path.name + suffix)
        if suffix == "":
            shutil.move(path, path.with_name("moved.db"))
        elif place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
        place.symlink_to(target(path))

    return make


def _links() -> dict[str, Case]:
    out: dict[str, Case] = {}
    for suffix in ("", "-wal", "-shm", "-journal", "-seen", "-locks"):
        name = suffix or "the store"
        out[f"{name} is a link to another user's file"] = _link(suffix, victim_of)
        out[f"{name} is a link to itself"] = _link(suffix, lambda path, suffix=suffix: path.with_name(path.name + suffix))  # type: ignore[misc]
        out[f"{name} is a link to nothing"] = _link(suffix, lambda path: path.with_name("nothing"))
        out[f"{name} is a link to another user's folder"] = _link(suffix, lambda path: path.with_name("folder"))
    out["the store is a link to a store"] = _link("", lambda path: path.with_name("moved.db"))

    def worker(path: Path) -> None:
        """Add a dead worker whose lock file would be another owner's file, if locks were there."""
        _good(path)
        with closing(apsw.Connection(str(path))) as connection:
            host = os.uname().nodename
            connection.execute("INSERT INTO workers VALUES ('victim', ?, 1, 'another boot', 0, 0, 0)", (host,))
            connection.execute("INSERT INTO workers VALUES ('folder', ?, 1, 'another boot', 0, 0, 0)", (host,))
        shutil.rmtree(path.with_name(path.name + "-locks"), ignore_errors=True)
        path.with_name(path.name + "-locks").symlink_to(path.parent)

    out["locks in another user's folder, and a dead worker named like a file there"] = worker
    return out


def _things() -> dict[str, Case]:
    """List things that are not regular files."""

    def thing(suffix: str, create: Callable[[Path], object]) -> Case:
        def make(path: Path) -> None:
            if suffix:
                _good(path)
            place = path.with_name(path.name + suffix)
            if place.is_dir():
                shutil.rmtree(place)
            else:
                place.unlink(missing_ok=True)
            create(place)

        return make

    out: dict[str, Case] = {}
    for suffix in ("", "-wal", "-shm", "-journal", "-seen", "-locks"):
        name = suffix or "the store"
        out[f"{name} is a pipe"] = thing(suffix, os.mkfifo)
        out[f"{name} is a folder"] = thing(suffix, Path.mkdir)
        out[f"{name} is a text"] = thing(suffix, lambda place: place.write_text("not a database\n" * 1000))
        out[f"{name} is empty"] = thing(suffix, Path.touch)
        out[f"{name} is a device"] = thing(suffix, lambda place: place.symlink_to("/dev/zero"))
    return out
