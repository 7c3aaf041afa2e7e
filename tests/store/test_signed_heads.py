"""Signed heads: what was changed since they were written is found, by whoever and however; growth is not. In every kind of store."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from upkeep_helpers import grow, many_bases

import everstep
from everstep.errors import InvalidArgument
from everstep.records import RunRow
from everstep.store.chain import Chain
from everstep.store.progress import Pace
from everstep.store.retention.delete_runs import drop_tombstones
from everstep.store.verify import against
from everstep.store.verify.report import Report
from everstep.store.verify.signing_keys import new_file
from everstep.testing.clock import FakeClock


class Notary:
    """A key, and the heads that were signed with it."""

    def __init__(self, folder: Path):
        self.key, self.file = folder / "signing.key", folder / "heads.txt"
        self.public = new_file(self.key).text

    def sign(self, store: everstep.Store) -> Notary:
        self.file.write_text("".join(store.heads(self.key)))
        return self

    def verify(self, store: everstep.Store, depth: Any = "records") -> Report:
        return store.verify(depth, against=self.file, public_key=self.public)

    def problems(self, store: everstep.Store, depth: Any = "records") -> list[str]:
        found = self.verify(store, depth)
        assert {problem.code for problem in found.problems} <= {"E511"}, "the store is damaged, too: this proves nothing"
        return [f"{problem.where}: {problem.what}" for problem in found.problems]


@pytest.fixture
def notary(tmp_path: Path) -> Notary:
    return Notary(tmp_path)


def save(store: everstep.Store, run: str, *values: int) -> None:
    with store.run(run, state={"n": 0}) as handle:
        for value in values:
            handle.state["n"] = value
            handle.checkpoint(f"n is {value}")


@pytest.fixture
def filled(store: everstep.Store) -> everstep.Store:
    for run in ("a", "b", "c"):
        save(store, run, 1, 2, 3)
    return store


def test_a_store_that_did_not_change_has_the_heads_that_were_signed(filled: everstep.Store, notary: Notary) -> None:
    found = notary.sign(filled).verify(filled)
    assert found.ok
    assert found.complete
    assert found.against is not None
    assert found.against.complete
    assert (found.against.runs, found.against.unchanged, found.against.grown, found.against.created) == (3, 3, 0, 0)


def test_growth_and_new_runs_are_no_problem(filled: everstep.Store, notary: Notary) -> None:
    notary.sign(filled)
    save(filled, "b", 4, 5)
    save(filled, "new", 1)
    filled.fork("a@2", "fork")
    filled.tag("a@1", "later")
    found = notary.verify(filled).against
    assert found is not None
    assert not found.problems
    assert (found.unchanged, found.grown, found.created, found.deleted) == (2, 1, 2, [])


def test_pruned_and_dropped_states_leave_the_history_that_was_signed(store: everstep.Store, notary: Notary) -> None:
    with many_bases():
        grow(store, "long", 30)
        notary.sign(store)
        grow(store, "long", 10, seed=1)
        store.prune(everstep.Retention(keep_last=2))
    store.drop("long", [3])
    store.gc()
    assert store.verify("full").ok
    assert notary.problems(store, "full") == []


def test_runs_that_were_deleted_are_named_with_their_time_and_are_no_problem(filled: everstep.Store, notary: Notary) -> None:
    notary.sign(filled)
    save(filled, "b", 9)
    filled.delete("b")
    filled.delete("c")
    found = notary.verify(filled)
    assert found.ok
    assert found.against is not None
    assert [one.run for one in found.against.deleted] == ["b", "c"]
    assert all(one.at is not None for one in found.against.deleted)
    assert "run b: deleted at 2" in str(found)


def test_a_run_whose_tombstone_was_dropped_still_counts_as_deleted(filled: everstep.Store, notary: Notary) -> None:
    notary.sign(filled)
    filled.delete("a")
    with FakeClock(time.time() + 30 * 86_400):
        assert drop_tombstones(filled.backend, Pace(None, None)) == 1
    found = notary.verify(filled).against
    assert found is not None
    assert not found.problems
    assert [(one.run, one.at) for one in found.deleted] == [("a", None)]


def test_another_run_with_the_id_of_a_deleted_one_is_not_taken_for_it(filled: everstep.Store, notary: Notary) -> None:
    notary.sign(filled)
    filled.delete("b")
    save(filled, "b", 1, 2, 3)
    found = notary.verify(filled).against
    assert found is not None
    assert not found.problems
    assert ([one.run for one in found.deleted], found.created) == (["b"], 1)


# Attacks: each leaves a store that is whole in itself.


def remake(store: everstep.Store, row: RunRow, monkeypatch: pytest.MonkeyPatch, key: bytes, values: tuple[int, ...]) -> RunRow:
    """Make a run of this name again, with a key of one's choice, and as many records as it had."""
    monkeypatch.setattr(os, "urandom", lambda count: key[:count].ljust(count, b"x"))
    save(store, row.id, *values)
    monkeypatch.undo()
    made = store.backend.run(row.id)
    assert made is not None
    assert made.key == key
    return made


def pose(store: everstep.Store, file: Path) -> None:
    """Give a store the identity of the heads, and make it look as often written, as anybody can who may write it."""
    said = json.loads(file.read_text().splitlines()[1])
    store.backend.set_property(f"identity:{said['store']}", "me")
    while store.backend.manifest().writes < said["writes"]:
        store.backend.set_property("padding", str(store.backend.manifest().writes))


@pytest.fixture
def other(tmp_path: Path) -> everstep.Store:
    """Another store, which the attacker puts into the place of the first."""
    return everstep.open(tmp_path / "other.db")


def test_another_store_in_its_place_is_found(filled: everstep.Store, notary: Notary, other: everstep.Store) -> None:
    notary.sign(filled)
    for run in ("a", "b", "c"):
        save(other, run, 1, 2, 3)
    assert other.verify("full").ok
    (said,) = notary.problems(other)
    assert "it was replaced, it is older than the first heads, or the heads are of another store" in said


def test_runs_that_were_made_again_are_found(filled: everstep.Store, notary: Notary, other: everstep.Store) -> None:
    notary.sign(filled)
    for run in ("a", "b", "c"):
        save(other, run, 1, 2, 3)
    pose(other, notary.file)
    assert other.verify("full").ok
    said = notary.problems(other)
    assert [line.partition(":")[0] for line in said] == ["run a", "run b", "run c"]
    assert all("was made again" in line for line in said)


def test_a_consistent_chain_with_the_same_keys_and_another_content_is_found(
    filled: everstep.Store, notary: Notary, other: everstep.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    notary.sign(filled)
    for run, values in (("a", (1, 2, 3)), ("b", (1, 99, 3)), ("c", (1, 2, 3, 4))):
        row = filled.backend.run(run)
        assert row is not None
        remake(other, row, monkeypatch, row.key, values)
    pose(other, notary.file)
    assert other.verify("full").ok
    said = notary.problems(other)
    assert len(said) == 3
    assert all("its history was changed: record " in line for line in said)


def test_a_run_that_was_cut_off_is_found(
    filled: everstep.Store, notary: Notary, other: everstep.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    notary.sign(filled)
    for run in ("a", "b", "c"):
        row = filled.backend.run(run)
        assert row is not None
        remake(other, row, monkeypatch, row.key, (1,))
    pose(other, notary.file)
    assert all("it was cut off or rolled back" in line for line in notary.problems(other))


def test_a_run_that_is_gone_without_a_tombstone_is_found(filled: everstep.Store, notary: Notary, other: everstep.Store) -> None:
    notary.sign(filled)
    pose(other, notary.file)
    said = notary.problems(other)
    assert "it is older than the signed heads" in said[0]
    assert ["it is gone, and there is no tombstone" in line for line in said[1:]] == [True] * 3


def test_a_deleted_run_that_is_back_is_found(places: Any, filled: everstep.Store, notary: Notary, other: everstep.Store) -> None:
    filled.delete("b")
    notary.sign(filled)
    for run in ("a", "b", "c"):
        save(other, run, 1, 2, 3)
    pose(other, notary.file)
    assert any(line.startswith("run b: it did not exist when the heads were signed") for line in notary.problems(other))


def test_a_run_that_was_changed_before_it_was_deleted_is_found(
    filled: everstep.Store, notary: Notary, other: everstep.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    notary.sign(filled)
    for run in ("a", "b", "c"):
        row = filled.backend.run(run)
        assert row is not None
        remake(other, row, monkeypatch, row.key, (7, 8, 9))
        other.delete(run)
    pose(other, notary.file)
    said = notary.problems(other)
    assert len(said) == 3
    assert all("its tombstone is of another history" in line for line in said)


@pytest.mark.parametrize("change", ["session", "workflow"])
def test_another_session_or_workflow_of_a_run_is_found(filled: everstep.Store, notary: Notary, change: str) -> None:
    save(filled, "d", 1)
    notary.sign(filled)
    row = filled.backend.run("d")
    assert row is not None
    forged = row.copy()
    setattr(forged, change, "of somebody else")
    made = Chain(filled.framer, forged, row, filled.backend.seal)
    made.entries([])
    filled.backend.commit(made.commit())
    now = filled.backend.run("d")
    if now is None or getattr(now, change) != "of somebody else":
        pytest.skip("this backend does not change that column")
    assert any("its workflow, session, parent or time of creation was changed" in line for line in notary.problems(filled))


# Keys, bounds, and what goes on beside it.


def test_without_the_right_public_key_nothing_is_compared(filled: everstep.Store, notary: Notary, tmp_path: Path) -> None:
    notary.sign(filled)
    stranger = new_file(tmp_path / "stranger.key")
    with pytest.raises(everstep.errors.UntrustedHeads, match=r"it was signed with the key .*, and the given public key is"):
        filled.verify(against=notary.file, public_key=stranger.text)
    with pytest.raises(InvalidArgument, match="none was given"):
        filled.verify(against=notary.file)


def test_heads_can_be_written_and_compared_while_others_write(places: Any, filled: everstep.Store, notary: Notary) -> None:
    lines = filled.heads(notary.key)
    first = [next(lines) for _ in range(3)]
    save(filled, "a", 10)
    save(filled, "later", 1)
    filled.delete("b")
    notary.file.write_text("".join([*first, *lines]))
    assert notary.problems(filled) == []


def test_of_very_many_problems_the_first_are_named_and_the_others_counted(
    filled: everstep.Store, notary: Notary, other: everstep.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    notary.sign(filled)
    pose(other, notary.file)
    monkeypatch.setattr(against, "_NAMED", 2)
    assert notary.problems(other)[-1] == "store: 2 more runs differ from the signed heads"


def test_pages_of_runs_do_not_change_the_result(filled: everstep.Store, notary: Notary, monkeypatch: pytest.MonkeyPatch) -> None:
    from everstep.store.verify import heads

    for number in range(8):
        save(filled, f"more-{number}", number)
    filled.delete("more-3")
    whole = [line for line in filled.heads(notary.key) if line.startswith("run ")]
    monkeypatch.setattr(heads, "_AT_ONCE", 2)
    monkeypatch.setattr(against, "_AT_ONCE", 2)
    assert [line for line in notary.sign(filled).file.read_text().splitlines(keepends=True) if line.startswith("run ")] == whole
    filled.delete("a")
    found = notary.verify(filled).against
    assert found is not None
    assert not found.problems
    assert (found.runs, found.unchanged, len(found.deleted)) == (10, 9, 1)


def test_ids_of_every_alphabet_are_kept(store: everstep.Store, notary: Notary) -> None:
    names = ["Ä-run", "実行", "a" + "🚀" * 199, 'quo"te', "back\\slash"]
    for name in names:
        save(store, name, 1)
    assert notary.sign(store).file.read_text().isascii()
    assert notary.problems(store) == []
    for name in names:
        store.delete(name)
    found = notary.verify(store).against
    assert found is not None
    assert [one.run for one in found.deleted] == names
