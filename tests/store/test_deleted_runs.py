"""What deleted runs leave behind goes, too: feed entries at once, tombstones after a week. The store still proves that nothing is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import everstep
from everstep.backends import deleted_pks
from everstep.backends.sqlite.feed import FeedWriter, length, proven, trim
from everstep.clock import clock
from everstep.errors import HistoryChanged, NotFound
from everstep.store.events.cursor import REMEMBERED_DAYS
from everstep.testing.clock import FakeClock

DAY = 86_400


@pytest.fixture
def later() -> Iterator[FakeClock]:
    """A clock that tests set; it begins with the time of the server, which keeps its own."""
    with FakeClock(clock.now_us() / 1e6) as fake:
        yield fake


def write(store: everstep.Store, names: list[str], saves: int = 3) -> None:
    for name in names:
        with store.run(name) as run:
            for n in range(saves):
                run.state["n"] = n
                run.checkpoint()


def forget(store: everstep.Store, later: FakeClock) -> None:
    later.advance((REMEMBERED_DAYS + 1) * DAY)
    store.gc()


def proof(store: everstep.Store) -> None:
    report = store.verify("full")
    assert report.ok, report.problems
    assert store.doctor()["manifest"].level == "ok"


def test_the_tombstones_of_deleted_runs_go_after_a_week(store: everstep.Store, later: FakeClock) -> None:
    write(store, [f"r{n}" for n in range(12)])
    for n in (1, 2, 3, 7, 11):
        store.delete(f"r{n}")
    store.gc()
    assert [stone.id for stone in store.backend.tombstones()] == ["r1", "r2", "r3", "r7", "r11"]
    later.advance(REMEMBERED_DAYS * DAY - 60)
    store.gc()
    assert len(store.backend.tombstones()) == 5
    later.advance(120)
    store.delete("r5")
    store.gc()
    if not store.url.startswith("postgresql"):  # a server notes the time of a deletion by its own clock
        assert [stone.id for stone in store.backend.tombstones()] == ["r5"]
        assert store.backend.properties(deleted_pks.PREFIX) == {deleted_pks.name_of(0): "2-4,8,12"}
    proof(store)
    forget(store, later)
    assert store.backend.properties(deleted_pks.PREFIX) == {deleted_pks.name_of(0): "2-4,6,8,12"}
    proof(store)


def test_a_run_of_the_same_id_is_another_run(store: everstep.Store, later: FakeClock) -> None:
    write(store, ["again"])
    store.delete("again")
    forget(store, later)
    with pytest.raises(NotFound, match="there is no run 'again'"):
        store.get("again")
    write(store, ["again"], saves=1)
    assert store.load("again") == {"n": 0}
    proof(store)


def test_events_keep_their_positions(store: everstep.Store, later: FakeClock) -> None:
    names = [f"r{n}" for n in range(40)]
    write(store, names)
    before = [(position, record.run, record.seq) for position, record in store.backend.feed(0, 10_000)]
    gone = {name for n, name in enumerate(names) if n % 7}
    for name in gone:
        store.delete(name)
    forget(store, later)
    left = [entry for entry in before if entry[1] not in gone]
    assert [(position, record.run, record.seq) for position, record in store.backend.feed(0, 10_000)] == left
    for position, run, seq in left:
        (first, *_) = store.backend.feed(position - 1, 1)
        assert (first[0], first[1].run, first[1].seq) == (position, run, seq)
    write(store, ["new"], saves=1)
    positions = [position for position, record in store.backend.feed(0, 10_000) if record.run == "new"]
    assert min(positions) > max(position for position, _, _ in before)
    proof(store)


def test_a_cursor_is_refused_when_nobody_can_tell_any_more(store: everstep.Store, later: FakeClock) -> None:
    write(store, ["a", "b"])
    page = store.events(limit=1000)
    store.delete("b")
    store.gc()
    write(store, ["c"], saves=1)
    assert {event.run for event in store.events(after=page.next)} == {"c"}
    forget(store, later)
    with pytest.raises(HistoryChanged, match=f"was not deleted in the last {REMEMBERED_DAYS} days"):
        store.events(after=page.next)


def test_repair_does_not_bring_a_forgotten_run_back(tmp_path: Path) -> None:
    """Its remains may still be in free pages, and its tombstone does not say any more that it was deleted."""
    with FakeClock() as time, everstep.open(tmp_path / "s.db") as store:
        write(store, [f"r{n}" for n in range(6)])
        for n in range(4):
            store.delete(f"r{n}")
        time.advance((REMEMBERED_DAYS + 1) * DAY)
        store.backend.forget(0, clock.now_us())
        store.backend._writer.call(
            lambda transaction, _: transaction.connection.execute("UPDATE runs SET note = 'x' WHERE id = 'r4'"), None
        )  # type: ignore[attr-defined]
    repaired = everstep.repair(tmp_path / "s.db", tmp_path / "new.db")
    assert [loss for loss in repaired.lost if loss.what == "run" and loss.run != "r4"] == []
    with everstep.open(tmp_path / "new.db") as store:
        assert {run.id for run in store.runs()} <= {"r4", "r5"}
        assert store.load("r5") == {"n": 2}
        assert store.verify("full").ok


@pytest.mark.parametrize("seed", range(20))
def test_a_trimmed_feed_has_the_same_positions(seed: int) -> None:
    random = Random(seed)
    writer = FeedWriter()
    seqs: dict[int, int] = {}
    for _ in range(900):
        pk, count = random.randrange(1, 30), random.randrange(1, 5)
        writer.add(pk, seqs.get(pk, 0) + 1, count)
        seqs[pk] = seqs.get(pk, 0) + count
    alive = set(random.sample(range(1, 30), random.choice((0, 1, 5, 20, 29))))
    rows = list(writer.full)
    parts, gone = trim(rows, alive.__contains__)
    parts = parts or rows
    assert placed(parts, alive) == placed(rows, alive)
    assert sum(len(entries) for _, entries in unpacked(rows)) - sum(len(entries) for _, entries in unpacked(parts)) == gone
    assert trim(parts, alive.__contains__)[1] == 0, "a second pass has nothing to do"
    if not alive:
        assert len(parts) == len(unpacked(parts)[0][1]) == 1


def unpacked(rows: list[tuple[int, bytes]]) -> list[tuple[int, list[tuple[int, int, int]]]]:
    found, following = [], rows[0][0]
    for first, blob in rows:
        assert first == following, "there is a hole"
        size = next(n for n in range(1, 10_000) if proven(blob, first + n - 1) is not None)
        entries = proven(blob, first + size - 1)
        assert entries is not None
        found.append((first, entries))
        following = first + length(entries)
    return found


def placed(rows: list[tuple[int, bytes]], alive: set[int]) -> dict[int, tuple[int, int]]:
    """The record at each position, of runs that are there."""
    out = {}
    for first, entries in unpacked(rows):
        position = first
        for pk, seq, count in entries:
            out.update({position + n: (pk, seq + n) for n in range(count) if pk in alive})
            position += count
    return out


@pytest.mark.parametrize("numbers", [[], [5], [1, 2, 3], [1, 3, 5, 6], list(range(1, 4097))])
def test_pks_are_written_as_ranges(numbers: list[int]) -> None:
    packed = deleted_pks.pack(numbers)
    assert [pk for part in deleted_pks.unpack(packed) for pk in part] == numbers
    assert deleted_pks.count([packed]) == len(numbers)
    assert deleted_pks.joined(packed, [7]) == deleted_pks.pack({*numbers, 7})
    assert len(packed) < 40
