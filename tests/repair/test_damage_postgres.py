"""A store in PostgreSQL whose rows were changed or removed behind its back: verify finds it, repair saves what proves itself and says what is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pg_damage import ask, change, columns, copy_of, holding, remove
from repair_helpers import Judge, Truth, fill

import everstep
from everstep.backends.postgres.connections.connect import Address
from everstep.backends.postgres.recovery.rebuild import PostgresBuilder
from everstep.errors import Damaged, EverstepError, InvalidArgument, NewerFormat, NotAStore
from everstep.store.verify.report import Depth, Report
from everstep.testing.postgres import Server
from harness.faults.workload import eager

LABELS = {
    ("feed_end", "position"),  # a larger one leaves a gap, as deleted runs do
    ("chunks", "bucket"), ("chunks", "stamp"), ("feed_new", "id"), ("manifest", "writes"), ("manifest", "latest"), ("manifest", "latest_commit"),
}  # fmt: skip
"""What says nothing about the data: when a chunk was last written, and who wrote last."""
TABLES = (
    "bases", "chunks", "counters", "properties", "feed", "feed_end", "feed_new", "messages", "manifest", "pruned", "records", "run_meta", "run_tags",
    "runs", "tags", "tombstones",
)  # fmt: skip


@pytest.fixture(scope="module")
def whole(server: Server) -> Iterator[tuple[str, Truth]]:
    """A closed store with something of everything, and the truth about it."""
    url = server.database()
    with everstep.open(url) as store, eager():
        fill(store)
        store.set_retention(everstep.Retention(keep_last=50), run="loop")
        store.gc()  # what nothing refers to may vanish
        store.events()
        with store.run("small-1") as run:  # what nobody has read of the feed
            run.state["j"] = 7
            run.checkpoint("third")
    with everstep.open(url) as store:
        truth = Truth.of(store)
    yield url, truth
    server.drop(url)


def test_the_tables_are_those_that_are_damaged_here(whole: tuple[str, Truth]) -> None:
    found = {table for table, _, _ in columns(whole[0])}
    assert found - {"format", "workers", "tasks", "orders", "starts", "ticks", "keys"} == set(TABLES)


def verified(url: str, depth: Depth = "full") -> Report:
    with everstep.open(url, create=False) as store:
        return store.verify(depth)


@pytest.mark.parametrize("table", TABLES)
def test_a_changed_value_is_found_by_verify_and_mended_or_said_to_be_lost_by_repair(
    server: Server, whole: tuple[str, Truth], tmp_path: Path, table: str
) -> None:
    url, truth = whole
    chance = Random(table)
    for column in columns(url):
        if column[0] != table or column[:2] in LABELS:
            continue
        place = chance.choice(holding(url, *column[:2]))
        with copy_of(server, url) as copy:
            change(copy, column, place)
            assert not verified(copy).ok, column
            target = tmp_path / f"{column[1]}.db"
            done = everstep.repair(copy, target)
            assert Judge(truth, done, target).all() == [], column


@pytest.mark.parametrize("table", TABLES)
def test_a_row_that_vanished_is_found_by_verify_and_said_to_be_lost_by_repair(
    server: Server, whole: tuple[str, Truth], tmp_path: Path, table: str
) -> None:
    url, truth = whole
    chance = Random(table)
    places = [place for (place,) in ask(url, "SELECT ctid::text FROM everstep.{t} ORDER BY ctid", t=table)]
    for n, place in enumerate(chance.sample(places, min(3, len(places)))):
        with copy_of(server, url) as copy:
            remove(copy, table, place)
            assert not verified(copy).ok, place
            target = tmp_path / f"{n}.db"
            done = everstep.repair(copy, target)
            assert Judge(truth, done, target).all() == [], place


def test_a_sum_that_is_no_number_is_damage(server: Server, whole: tuple[str, Truth], tmp_path: Path) -> None:
    url, truth = whole
    with copy_of(server, url) as copy:
        ask(copy, "UPDATE everstep.manifest SET total = 'NaN' WHERE bucket = 3")
        assert "a sum must be an integer" in str(verified(copy))
        with everstep.open(copy) as store, pytest.raises(Damaged):
            store.backend.manifest()
        done = everstep.repair(copy, tmp_path / "new.db")
        assert Judge(truth, done, tmp_path / "new.db").all() == []


def test_a_commit_that_the_manifest_cannot_count_is_refused(server: Server, whole: tuple[str, Truth]) -> None:
    with copy_of(server, whole[0]) as copy:
        ask(copy, "DELETE FROM everstep.manifest")
        with everstep.open(copy) as store, pytest.raises(Damaged) as caught, store.run("new", state={}):
            raise AssertionError("it was created")
        assert caught.value.written == "no"
        assert ask(copy, "SELECT count(*) FROM everstep.runs WHERE id = 'new'") == [(0,)]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_store_is_repaired_into_another_schema_of_the_same_database(server: Server, whole: tuple[str, Truth], damaged: bool) -> None:
    url, truth = whole
    with copy_of(server, url) as copy:
        if damaged:
            ask(copy, "UPDATE everstep.records SET body = 'x' WHERE run = 1 AND seq IN (7, 20)")
            ask(copy, "DELETE FROM everstep.records WHERE run = 1 AND seq = 12")
            ask(copy, "DELETE FROM everstep.tags WHERE name = 'milestone'")
        target = f"{copy}&schema=mended"
        done = everstep.repair(copy, target)
        assert done.ok != damaged
        assert Judge(truth, done, target).all() == []  # type: ignore[arg-type]
        with everstep.open(copy) as old, everstep.open(target) as new:
            assert [row for row in new.backend.tombstones() if row.id] == old.backend.tombstones()
            assert new.backend.feed_end() >= old.backend.feed_end()
            with new.run("new", state={"n": 1}) as run:
                run.checkpoint()
            assert new.verify("full").ok


def test_a_store_goes_from_a_file_to_postgresql_and_back(place: str, tmp_path: Path) -> None:
    source, back = tmp_path / "a.db", tmp_path / "b.db"
    with everstep.open(source) as store, eager():
        fill(store)
        truth = Truth.of(store)
    assert everstep.repair(source, place).ok
    done = everstep.repair(place, back)
    assert done.ok
    assert Judge(truth, done, back).all() == []


def test_repair_writes_over_nothing_and_leaves_nothing_where_it_fails(place: str, tmp_path: Path, server: Server, database: str) -> None:
    schema = place.rpartition("=")[2]
    with pytest.raises(NotAStore):
        everstep.repair(tmp_path / "nothing.db", place)
    with pytest.raises(NotAStore):
        everstep.repair(place, tmp_path / "new.db")
    assert server.execute("SELECT count(*) FROM pg_namespace WHERE nspname = %s", schema, url=database) == [(0,)]
    everstep.open(place).close()
    with everstep.open(tmp_path / "a.db") as store, store.run("r", state={}) as run:
        run.checkpoint()
    with pytest.raises(InvalidArgument):
        everstep.repair(tmp_path / "a.db", place)
    server.execute(f'UPDATE "{schema}".format SET version = 99', url=database)
    with pytest.raises(NewerFormat):
        everstep.repair(place, tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()


def test_a_store_that_lost_whole_tables_still_gives_the_rest(server: Server, whole: tuple[str, Truth], tmp_path: Path) -> None:
    url, truth = whole
    for table in ("format", "feed", "tags", "messages", "chunks", "manifest", "properties"):
        with copy_of(server, url) as copy:
            ask(copy, "DROP TABLE everstep.{t}", t=table)
            target = tmp_path / f"{table}.db"
            done = everstep.repair(copy, target)
            assert Judge(truth, done, target).all() == [], table
            assert done.runs == len(truth.runs), table


def test_a_password_is_not_in_what_repair_says(tmp_path: Path) -> None:
    from everstep.backends.registry import shown

    assert shown("postgresql://u:secret@h/d") == "postgresql://u@h/d"


QUICK: tuple[Depth, ...] = ("quick", "records", "full")
RECORDS, FULL = QUICK[1:], QUICK[2:]
FOUND_BY: list[tuple[tuple[Depth, ...], str]] = [
    *((QUICK, statement) for statement in (
        "UPDATE everstep.runs SET note = 'other' WHERE pk = 1", "DELETE FROM everstep.runs WHERE pk = 1", "UPDATE everstep.tags SET at = at + 1",
        "DELETE FROM everstep.messages", "UPDATE everstep.tombstones SET id = 'x'", "UPDATE everstep.properties SET value = 'x'",
        "UPDATE everstep.pruned SET freed = freed + 1", "DELETE FROM everstep.bases", "UPDATE everstep.counters SET created = created + 1",
        "UPDATE everstep.manifest SET runs = runs + 1 WHERE bucket = 0", "UPDATE everstep.runs SET head_seq = head_seq - 1 WHERE pk = 1",
    )),
    *((RECORDS, statement) for statement in (
        "UPDATE everstep.records SET body = 'x' WHERE run = 1 AND seq = 9", "UPDATE everstep.records SET note = 'x' WHERE run = 1 AND seq = 9",
        "DELETE FROM everstep.records WHERE run = 1 AND seq = 9", "UPDATE everstep.records SET at = at + 1 WHERE run = 1 AND seq = 9",
    )),
    *((FULL, statement) for statement in (
        "UPDATE everstep.chunks SET frame = substr(frame, 2)", "DELETE FROM everstep.run_tags", "UPDATE everstep.run_meta SET item = 'x'",
        "UPDATE everstep.feed SET seq = seq + 1 WHERE last = (SELECT max(last) FROM everstep.feed)", "DELETE FROM everstep.feed_new",
    )),
]  # fmt: skip


@pytest.mark.parametrize(("depths", "statement"), FOUND_BY)
def test_each_depth_finds_what_it_promises(server: Server, whole: tuple[str, Truth], depths: tuple[Depth, ...], statement: str) -> None:
    with copy_of(server, whole[0]) as copy:
        assert all(verified(copy, depth).ok for depth in QUICK)
        ask(copy, statement)
        assert [depth for depth in QUICK if not verified(copy, depth).ok] == list(depths)


def test_a_server_that_is_lost_at_the_last_commit_is_an_error_and_nothing_is_there(database: str, place: str) -> None:
    builder = PostgresBuilder(place)
    builder._sql["durably"] = b"SELECT pg_terminate_backend(pg_backend_pid())"
    with pytest.raises(EverstepError):
        builder.finish(0, None, [])
    builder.abandon()
    assert ask(database, "SELECT 1 FROM pg_namespace WHERE nspname = %s", Address(place).schema) == []
