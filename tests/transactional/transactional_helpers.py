"""The four ways in which a store and the tables of a user can stand to each other."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import warm

import everstep
from everstep.testing.postgres import Server

WORKER = Path(__file__).with_name("transactional_worker.py")
KINDS = ["sqlite", "postgres", "sqlite beside postgres", "postgres beside sqlite"]
"""Where the tables of the user are, and, if not in the same kind of place, where the store is."""


class World:
    """A store, tables of a user, and the processes that use both."""

    def __init__(self, kind: str, folder: Path, store: str, tables: str):
        self.kind = kind
        self.url = store
        self.tables = tables
        self.place: Any = True if kind == "postgres" else tables
        self.folder = folder
        self.inside = kind == "postgres"
        self._opened: list[everstep.Store] = []
        self._started: list[subprocess.Popen[str]] = []
        self.execute("CREATE TABLE totals (n INTEGER)")
        self.execute("INSERT INTO totals VALUES (0)")
        self.execute("CREATE TABLE lines (i INTEGER)")

    @property
    def _is_file(self) -> bool:
        return not self.tables.startswith("postgresql")

    def execute(self, sql: str) -> list[Any]:
        if self._is_file:
            with sqlite3.connect(self.tables, timeout=60) as connection:
                found = connection.execute(sql).fetchall()
            connection.close()
            return found
        with psycopg.connect(self.tables, autocommit=True) as server:
            cursor = server.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def total(self) -> int:
        return int(self.execute("SELECT n FROM totals")[0][0])

    def lines(self) -> list[int]:
        return [i for (i,) in self.execute("SELECT i FROM lines ORDER BY i")]

    def rows(self) -> int:
        """Results that wait for the journal."""
        return 0 if self.inside else int(self.execute("SELECT count(*) FROM everstep_steps")[0][0])

    def open(self, **options: Any) -> everstep.Store:
        store = everstep.open(self.url, **options)
        self._opened.append(store)
        return store

    def finished(self, run: str = "r") -> int:
        """How many steps the journal has."""
        with everstep.open(self.url) as store:
            return sum(step.status == "succeeded" for step in store.steps(run))

    def finished_or_none(self, run: str = "r") -> int:
        """The same for a run that may not have begun."""
        with everstep.open(self.url) as store:
            known = any(info.id == run for info in store.runs())
        return self.finished(run) if known else 0

    def start(self, n: int, **asked: Any) -> "subprocess.Popen[str]":
        """The worker, when it has opened the store."""
        paths = [str(Path(everstep.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        command = [sys.executable, str(WORKER), json.dumps({"store": self.url, "place": self.place, "n": n, **asked})]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        process: subprocess.Popen[str] = warm.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self._started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def finish(self, n: int, **asked: Any) -> dict[str, Any]:
        return outcome(self.start(n, **asked))

    def verify(self) -> None:
        with everstep.open(self.url) as store:
            report = store.verify("full")
            assert report.ok, str(report)

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()
        for store in self._opened:
            store.close()


def outcome(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """What a worker said at its end."""
    assert process.stdout is not None
    said = process.stdout.read()  # not communicate: a line that was read before may have brought the next ones with it
    process.wait(timeout=120)
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def heard(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def make_world(kind: str, folder: Path, server: Server | None) -> World:
    file = str(folder / "app.db")
    if kind == "sqlite":
        return World(kind, folder, str(folder / "store.db"), file)
    assert server is not None
    database = server.database()
    if kind == "postgres":
        return World(kind, folder, database, database)
    if kind == "sqlite beside postgres":
        return World(kind, folder, database, file)
    return World(kind, folder, str(folder / "store.db"), database)
