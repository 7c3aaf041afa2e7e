"""Whatever somebody did to a table, users see an error of Everstep that names the real cause; never a KeyError, TypeError or ValueError.

A sweep: every table is emptied, dropped, renamed, and has a column renamed; then everything that a program can do is done to the store.
EVERSTEP_DEEP=1 does all of it, otherwise some.
"""

import os
from collections.abc import Callable, Iterator

import pytest

import everstep
from everstep.backends.postgres import feed
from everstep.backends.postgres.connections.readers import Readers
from everstep.errors import EverstepError, Suspended
from everstep.testing.postgres import Server
from harness.faults.machine.api_calls import uses

DEEP = bool(os.environ.get("EVERSTEP_DEEP"))
SINGLE = ["format", "counters", "feed_end", "manifest"]
TABLES = [
    *SINGLE, "runs", "run_tags", "run_meta", "records", "chunks", "tags", "messages", "pruned", "bases", "tombstones", "properties", "workers", "tasks",
    "orders", "starts", "ticks", "feed_new", "feed",
]  # fmt: skip
DAMAGES = {
    "truncate": "TRUNCATE everstep.{table}",
    "drop": "DROP TABLE everstep.{table} CASCADE",
    "rename": "ALTER TABLE everstep.{table} RENAME TO other",
    "column": "ALTER TABLE everstep.{table} RENAME COLUMN {column} TO other",
}
ALL = [(table, damage) for table in TABLES for damage in DAMAGES]
QUICK = [
    *((table, "truncate") for table in SINGLE),
    ("runs", "drop"),
    ("records", "truncate"),
    ("properties", "rename"),
    ("tasks", "column"),
]


@everstep.workflow
def w9_swept(n: int) -> int:
    return n


def fill(store: everstep.Store) -> None:
    with store.run("a", state={"n": 0, "a": 1}, tags=["t"], meta={"k": 1}) as run:
        for n in range(3):
            run.state["n"] = n
            run.checkpoint(tags=["tag"])
        run.step("x", lambda: "x" * 20_000)
    with store.run("b", state={"n": 0}) as run:
        run.checkpoint()
    store.fork("a@1", "fork")
    store.set_retention(everstep.Retention(keep_last=1), run="a")
    store.prune(everstep.Retention(keep_last=1), run="a")
    store.delete("b")
    store.enqueue(w9_swept, 1, id="queued")
    store.answer("queued", "early", 1, early=True)


@pytest.fixture(scope="module")
def filled(server: Server) -> Iterator[str]:
    url = server.database()
    with everstep.open(url) as store:
        fill(store)
    yield url
    server.drop(url)


@pytest.fixture
def copy(server: Server, filled: str) -> Iterator[str]:
    url = server.database(template=filled.partition("?")[0].rpartition("/")[2])
    yield url
    server.drop(url)


def attempts(url: str) -> Iterator[tuple[str, Callable[[], object]]]:
    yield from uses(url, ["a", "queued"])

    def enqueue() -> None:
        with everstep.open(url, patience=0.5) as store:
            store.enqueue(w9_swept, 2, id="again")
            store.backend.depths()

    yield "enqueue", enqueue


def raw_errors(url: str) -> list[str]:
    """The calls that raised an error that is not Everstep's."""
    found = []
    for name, call in attempts(url):
        try:
            call()
        except (EverstepError, Suspended):
            continue
        except Exception as error:
            found.append(f"{name}: {type(error).__name__}: {error}")
    return found


def damage(server: Server, url: str, table: str, kind: str) -> None:
    ((column,),) = server.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = 'everstep' AND table_name = %s ORDER BY ordinal_position DESC LIMIT 1",
        table,
        url=url,
    )
    server.execute(DAMAGES[kind].format(table=table, column=f'"{column}"'), url=url)


@pytest.mark.parametrize(("table", "kind"), ALL if DEEP else QUICK)
def test_a_broken_table_never_raises_a_raw_error(server: Server, copy: str, table: str, kind: str) -> None:
    damage(server, copy, table, kind)
    assert raw_errors(copy) == []


def test_the_sweep_notices_a_raw_error(server: Server, copy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The canary: a reader that takes the end of the feed for granted, as it once did."""

    def careless(readers: Readers) -> int:
        ((position,),) = readers.rows("feed_end")
        return int(position)

    with everstep.open(copy) as store:
        store.events()  # later there is nothing that a position must be given to
    monkeypatch.setattr(feed, "end", careless)
    damage(server, copy, "feed_end", "truncate")
    assert any(found.startswith("events: ValueError") for found in raw_errors(copy))
