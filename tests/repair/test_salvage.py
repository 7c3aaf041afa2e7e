"""`store.load(ref, newest_good=True)`: goes back explicitly to the newest state that is good, and says what it passed over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest
from repair_helpers import text

import everstep
from everstep.backends.sqlite.backend import SqliteBackend
from everstep.errors import Damaged, DamagedChunk, DamagedRecord, DamagedRun, NotFound
from everstep.store.repair import salvage
from everstep.store.retention.retention import Retention
from harness.faults.workload import eager

COUNT = 20


def state_of(n: int) -> dict[str, Any]:
    return {"n": n, "lines": [text(i, 400) for i in range(40)] + [text(("turn", i), 300) for i in range(1, n + 1)]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A run with a base about every third checkpoint, all of them made of chunks."""
    file = tmp_path / "s.db"
    with everstep.open(file) as store, eager():
        run = store.run("r", state=state_of(0))
        run.__enter__()
        for n in range(1, COUNT + 1):
            run.state["n"] = n
            run.state["lines"].append(text(("turn", n), 300))
            run.checkpoint()
        # It is not left, as if the process had died: that would make one checkpoint more.
    return file


def tamper(path: Path, statement: str, *bindings: Any) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement, bindings).fetchall()
    connection.close()


def query(path: Path, statement: str) -> list[Any]:
    connection = apsw.Connection(str(path))
    rows = connection.execute(statement).fetchall()
    connection.close()
    return rows


def damage(path: Path, kind: str, number: int) -> None:
    tamper(path, "UPDATE records SET body = CAST(x'010091' || randomblob(3) AS BLOB) WHERE kind = ? AND number = ?", kind, number)


def bases(path: Path) -> list[int]:
    return [number for (number,) in query(path, "SELECT number FROM records WHERE kind = 'base' ORDER BY id")]


def test_a_good_checkpoint_is_simply_loaded(path: Path) -> None:
    with everstep.open(path) as store:
        found = store.load("r", newest_good=True)
        assert (found.state, found.run, found.number, found.skipped) == (state_of(COUNT), "r", COUNT, [])
        assert str(found) == f"r@{COUNT}"
        assert store.load("r", at=7, newest_good=True).state == state_of(7)
        assert store.load("r@7", newest_good=False) == state_of(7)


@pytest.mark.parametrize("bad", [COUNT, COUNT - 1, COUNT - 4, 10, 2])
def test_a_damaged_delta_is_passed_over_with_all_that_stands_on_it(path: Path, bad: int) -> None:
    damage(path, "checkpoint", bad)
    with everstep.open(path) as store:
        stop = next((base for base in bases(path) if base >= bad), COUNT + 1) - 1  # from the next base on all is good again
        assert stop >= bad, "nothing stands on it: this proves nothing"
        for number in range(1, COUNT + 1):
            found = store.load(f"r@{number}", newest_good=True)
            if bad <= number <= stop:
                assert (found.number, found.state) == (bad - 1, state_of(bad - 1))
                assert [n for n, _ in found.skipped] == list(range(number, bad - 1, -1))
                assert all(reason for _, reason in found.skipped)
                assert all(f"it depends on r@{bad}" in reason for _, reason in found.skipped[:-1])
            else:
                assert (found.number, found.state, found.skipped) == (number, state_of(number), [])


def test_a_damaged_base_is_walked_around_where_deltas_say_the_same(path: Path) -> None:
    last = [base for base in bases(path) if base <= COUNT][-1]
    damage(path, "base", last)
    with everstep.open(path) as store:
        with pytest.raises(Damaged) as refused:
            store.load("r")
        assert refused.value.good == last - 1  # that one needs no way around
        found = store.load("r", newest_good=True)
        assert (found.number, found.state, found.skipped) == (COUNT, state_of(COUNT), [])


@pytest.mark.parametrize("around", [True, False])
def test_a_lost_chunk_is_walked_around_or_passed_over(path: Path, around: bool) -> None:
    """Around it, where deltas say the same; without the delta that does, all that stands on the base is passed over."""
    met = set()
    for (pk,) in query(path, "SELECT pk FROM chunks"):
        [(frame,)] = query(path, f"SELECT frame FROM chunks WHERE pk = {pk}")
        tamper(path, "UPDATE chunks SET frame = x'0100' WHERE pk = ?", pk)
        with everstep.open(path) as store:
            lost = [base for base in bases(path) if not loads(store, base)]
        met.update(lost)
        for base in lost:
            [(body,)] = query(path, f"SELECT body FROM records WHERE kind = 'checkpoint' AND number = {base}")
            if not around:
                damage(path, "checkpoint", base)
            with everstep.open(path) as store:
                found = store.load("r", at=base, newest_good=True)
                good = base if around else base - 1
                assert (found.number, found.state) == (good, state_of(good))
                assert [n for n, _ in found.skipped] == list(range(base, good, -1))
            tamper(path, "UPDATE records SET body = ? WHERE kind = 'checkpoint' AND number = ?", body, base)
        tamper(path, "UPDATE chunks SET frame = ? WHERE pk = ?", frame, pk)
    assert met == set(bases(path))


def loads(store: everstep.Store, number: int) -> bool:
    try:
        return bool(store.load(f"r@{number}") == state_of(number))
    except (DamagedRecord, DamagedChunk):
        return False


def test_several_kinds_of_damage_at_once(path: Path) -> None:
    damage(path, "checkpoint", COUNT)
    tamper(path, "DELETE FROM records WHERE kind = 'checkpoint' AND number = ?", COUNT - 2)
    with everstep.open(path) as store:
        found = store.load("r", newest_good=True)
        assert found.state == state_of(found.number)
        assert found.number < COUNT - 2 or found.number == COUNT - 1
        assert "skipped r@20" in str(found)


def test_a_record_that_cannot_even_be_read_is_passed_over(path: Path) -> None:
    tamper(path, "UPDATE records SET tags = 'no list' WHERE kind = 'checkpoint' AND number = ?", COUNT - 1)
    with everstep.open(path) as store:
        with pytest.raises(Damaged):
            store.load(f"r@{COUNT - 1}")
        found = store.load(f"r@{COUNT - 1}", newest_good=True)
        assert found.state == state_of(found.number)
        assert found.number < COUNT - 1


def test_a_run_of_which_no_record_can_be_read_comes_to_an_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tamper(path, "UPDATE records SET tags = 'no list'")
    reads = _counted(monkeypatch)
    with everstep.open(path) as store, pytest.raises(Damaged):
        store.load("r")
    assert len(reads) < 20 * COUNT


def test_a_record_that_one_way_of_reading_finds_and_another_cannot_read_is_passed_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pages of an index that took each other's place look so."""
    original = SqliteBackend.records

    def records(self: SqliteBackend, run: str, first: int, last: int, **options: Any) -> Any:
        if options.get("newest") != 1:
            raise Damaged("unreadable")
        return original(self, run, first, last, **options)

    def locate(self: SqliteBackend, *where: Any, **options: Any) -> Any:
        raise Damaged("unreadable")

    monkeypatch.setattr(SqliteBackend, "records", records)
    monkeypatch.setattr(SqliteBackend, "locate", locate)
    reads = _counted(monkeypatch)
    with everstep.open(path) as store, pytest.raises(Damaged):
        store.load("r", newest_good=True)
    assert len(reads) < 20 * COUNT


def test_where_too_many_reads_fail_the_walk_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salvage, "_MOST_FAILURES", 3)
    tamper(path, "UPDATE records SET tags = 'no list' WHERE number > 2")
    reads = _counted(monkeypatch)
    with everstep.open(path) as store, pytest.raises(Damaged):
        store.load("r", newest_good=True)
    assert len(reads) < 20


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every read of records. A walk that comes to no end is stopped."""
    reads: list[Any] = []
    original = SqliteBackend.records

    def records(self: SqliteBackend, *args: Any, **options: Any) -> Any:
        reads.append(args)
        if len(reads) > 5_000:
            raise AssertionError(f"no end: {reads[-3:]}")
        return original(self, *args, **options)

    monkeypatch.setattr(SqliteBackend, "records", records)
    return reads


def test_where_nothing_is_good_the_error_is_that_of_the_load(path: Path) -> None:
    tamper(path, "UPDATE records SET body = x'0100' WHERE kind IN ('base', 'checkpoint')")
    with everstep.open(path) as store, pytest.raises(Damaged, match="no older checkpoint is undamaged"):
        store.load("r", newest_good=True)


def test_a_damaged_row_is_an_error_because_nothing_can_be_told_of_the_run(path: Path) -> None:
    tamper(path, "UPDATE runs SET checkpoints = checkpoints - 1")
    with everstep.open(path) as store, pytest.raises(DamagedRun):
        store.load("r", newest_good=True)


def test_a_checkpoint_that_there_is_not_is_not_found(path: Path) -> None:
    with everstep.open(path) as store:
        for ref in ("r@99", "nobody", "r@tag"):
            with pytest.raises(NotFound):
                store.load(ref, newest_good=True)


def test_pruned_checkpoints_are_passed_over_and_said_to_be_pruned(path: Path) -> None:
    with everstep.open(path) as store:
        store.tag("r@4", "keep")
        store.prune(Retention(keep_last=2, keep_tagged=["keep"]))
        kept = {c.number for c in store.checkpoints("r", limit=100) if not c.pruned}
        assert {4, COUNT - 1, COUNT} <= kept
        assert len(kept) < COUNT - 5
        for number in range(4, COUNT + 1):
            found = store.load(f"r@{number}", newest_good=True)
            assert found.number == max(n for n in kept if n <= number)
            assert found.state == state_of(found.number)
            assert [n for n, _ in found.skipped] == list(range(number, found.number, -1))
            assert {reason for _, reason in found.skipped} <= {
                "its state was pruned",
                f"it depends on r@{found.number + 1}",
                f"the state of r@{number} was pruned",
            }


def test_bytes_that_stay_for_others_are_no_state(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        with store.run("r", state={"n": 0}) as run:
            for n in range(1, 9):
                run.state["n"] = n
                run.checkpoint()
        store.prune(Retention(keep_last=2))
        pruned = [c.number for c in store.checkpoints("r", limit=100) if c.pruned]
        assert pruned
        for number in pruned:
            with pytest.raises(NotFound):
                store.load(f"r@{number}", newest_good=True)


def test_of_bytes_that_stay_for_others_only_what_was_kept_is_given(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        with store.run("r", state={"n": 0}) as run:
            for n in range(1, 9):
                run.state["n"] = n
                run.checkpoint()
        store.tag("r@3", "keep")
        store.prune(Retention(keep_last=2, keep_tagged=["keep"]))
        mark = store.backend.pruned("r")
        assert mark is not None
        assert not mark.ranges, "bodies were dropped: this proves nothing"
        assert not mark.has_state(5)
        found = store.load("r@5", newest_good=True)
        assert (found.number, found.state) == (3, {"n": 3})
        assert found.skipped == [(5, "its state was pruned"), (4, "its state was pruned")]


def test_states_come_back_as_the_types_of_the_program(tmp_path: Path) -> None:
    from dataclasses import dataclass

    @dataclass
    class Salvageable:
        n: int

    everstep.register(Salvageable, name="tests.salvage.Salvageable")
    with everstep.open(tmp_path / "s.db") as store, store.run("r") as run:
        for n in (1, 2, 3):
            run.state["it"] = Salvageable(n)
            run.checkpoint()
    damage(tmp_path / "s.db", "checkpoint", 3)
    with everstep.open(tmp_path / "s.db") as store:
        assert store.load("r", newest_good=True).state == {"it": Salvageable(2)}


def test_a_delta_that_fits_nothing_leaves_the_state_before_it_untouched(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delta is applied in place: one that fails half-way must not show in the state that is given."""
    from everstep.store.repair import salvage

    original = salvage.apply

    def failing(value: Any, ops: Any) -> Any:
        changed = original(value, ops)
        if isinstance(changed, dict) and changed.get("n") == COUNT:
            raise Damaged("a delta does not fit the snapshot below it")
        return changed

    damage(path, "base", bases(path)[-1])
    monkeypatch.setattr(salvage, "apply", failing)
    with everstep.open(path) as store:
        found = store.load("r", newest_good=True)
        assert (found.number, found.state) == (COUNT - 1, state_of(COUNT - 1))


def test_going_back_reads_each_record_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with everstep.open(tmp_path / "s.db") as store, store.run("r", state={"n": 0}) as run:
        for n in range(1, 1500):
            run.state["n"] = n
            run.checkpoint()
    tamper(tmp_path / "s.db", "UPDATE records SET body = x'0100' WHERE kind = 'checkpoint' AND number > 1000")
    tamper(tmp_path / "s.db", "UPDATE records SET body = x'0100' WHERE kind = 'base' AND number > 900")
    read = 0
    original = SqliteBackend.records

    def counting(self: SqliteBackend, *args: Any, **options: Any) -> Any:
        nonlocal read
        found = original(self, *args, **options)
        read += len(found)
        return found

    monkeypatch.setattr(SqliteBackend, "records", counting)
    with everstep.open(tmp_path / "s.db") as store:
        assert store.load("r", newest_good=True).number == 1000
    assert read < 12_000  # a walk for the error of the load and one for the state, not one for each of 500 checkpoints


def test_hooks_are_told_which_checkpoint_was_loaded(path: Path) -> None:
    damage(path, "checkpoint", COUNT)
    seen: list[int] = []
    with everstep.open(path) as store:
        store.on("after_load", lambda event: seen.append(event.data["number"]))
        number = store.load("r", newest_good=True).number
    assert seen == [number]
