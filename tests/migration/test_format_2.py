"""A store of format 2: what it held is there, its workflows and loops go on, and it can be pruned, collected and compacted.

`format-2.json` says for each run what its row says, the fingerprint of each checkpoint's state, its steps with their results, its gates with
their answers and its letters; and for the store its feed, its places and those whose runs had been deleted.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import old_programs
import pytest
from migration_helpers import FROZEN, Frozen, ask, fingerprint, total_of

import everstep
from everstep.backends.sqlite.files import format as sqlite_format
from everstep.errors import PrunedCheckpoint

FROZEN_2 = FROZEN[2]
HELD: dict[str, Any] = FROZEN_2.held["runs"]


@pytest.fixture
def frozen() -> Frozen:
    return FROZEN_2


@pytest.mark.parametrize("name", HELD)
def test_a_run_is_what_it_was(migrated: Path, name: str) -> None:
    about = HELD[name]
    with everstep.open(migrated) as store:
        info, row = store.get(name), store.backend.run(name)
        assert row is not None
        assert {key: getattr(info, key) for key in ("workflow", "session", "note", "meta", "parent")} == {
            key: about[key] for key in ("workflow", "session", "note", "meta", "parent")
        }
        assert [str(info.status), list(info.tags), row.parent_number] == [about["status"], about["tags"], about["parent_number"]]
        assert [fingerprint(store.load(name, at=number)) for number in range(1, info.checkpoints + 1)] == about["states"]
        assert [[tag.name, tag.number] for tag in store.backend.tags(name)] == about["checkpoint_tags"]
        steps = [[s.address, str(s.status), fingerprint(s.result) if s.error is None else s.error["message"]] for s in store.steps(name)]
        assert steps == about["steps"]
        assert [[gate.name, fingerprint(gate.answer) if gate.answered else None] for gate in store.gates(name)] == about["gates"]
        letters = [[letter.name, letter.due, sha256(letter.body).hexdigest()] for letter in store.backend.letters(name)]
        assert letters == about["letters"]


def test_the_fixture_has_all_that_a_store_can_have() -> None:
    def some(**what: Any) -> bool:
        return any(all(about[key] == value for key, value in what.items()) for about in HELD.values())

    assert all(some(status=status) for status in ("running", "waiting", "succeeded", "failed", "cancelled"))
    assert some(parent="parent", parent_number=3)
    assert "parent" not in HELD
    assert any(about["parent_number"] == -1 for about in HELD.values())
    kinds = {kind for (kind,) in ask(FROZEN_2.path, "SELECT DISTINCT kind FROM records")}
    assert kinds == {"start", "checkpoint", "base", "status", "step", "gate", "answer", "timer", "event"}
    assert all(count for name in ("letters", "chunks", "tags", "feed") for (count,) in ask(FROZEN_2.path, f"SELECT count(*) FROM {name}"))
    compressions = {frame[1] & 3 for (frame,) in ask(FROZEN_2.path, "SELECT body FROM records UNION ALL SELECT frame FROM chunks")}
    assert compressions == {0, 1, 2}


def test_what_is_due_is_woken(old: Path) -> None:
    with everstep.open(old) as store:
        assert store.due() == ["answered", "fragile", "asleep"]  # the timer of the last has run out since
        outcomes = {out.run: out for out in store.wake()}
        assert outcomes["answered"].result["answer"] == "no"
        assert outcomes["asleep"].result == "slept 86400.0"
        assert outcomes["fragile"].status == "failed"
        assert store.get("paused").status == "waiting"
        assert store.verify("full").ok


def test_a_fork_of_an_edited_fork_still_has_the_edit(old: Path) -> None:
    with everstep.open(old) as store:
        out = store.resume("report-edited-twice")
        assert (out.status, out.result["topic"]) == ("succeeded", "tape")


def test_a_loop_goes_on_from_the_checkpoint_that_its_program_asked_for(old: Path) -> None:
    with everstep.open(old) as store:
        newest = store.get("auto").checkpoints
        with store.run("auto") as run:
            assert run.state == {"n": 0}
            assert [run.step("add", old_programs.look_up, "auto", n)["n"] for n in range(1, 8)] == list(range(1, 8))
            assert (run.report.kept, run.report.executed) == (7, 0)
        assert store.load("auto", at=newest) != {"n": 0}


def test_a_fork_can_be_made_of_a_migrated_run_and_shares_its_chunks(old: Path) -> None:
    with everstep.open(old) as store:
        chunks = store.stats()["chunks"]
        store.fork("chat@50", id="new")
        assert store.load("new") == store.load("chat@50")
        assert store.stats()["chunks"] <= chunks + 2
        assert store.verify("full").ok


def test_pruning_keeps_what_it_says_and_the_chain_is_proven(old: Path) -> None:
    with everstep.open(old) as store:
        before = {number: store.load("chat", at=number) for number in range(1, 62)}
        store.prune(everstep.Retention(keep_last=5), run="chat")
        gone = set()
        for number, state in before.items():
            try:
                assert store.load("chat", at=number) == state
            except PrunedCheckpoint:
                gone.add(number)
        assert not gone & {1, 30, 57, 58, 59, 60, 61}  # a milestone, where a fork begins, and the newest
        assert len(gone) > 30
        assert store.verify("full").ok
        total = store.backend.manifest().total
    assert total == total_of(old)


def test_chunks_that_only_deleted_runs_reached_are_collected(old: Path) -> None:
    with everstep.open(old) as store:
        chunks, states = store.stats()["chunks"], {name: store.load(name) for name, about in HELD.items() if about["states"]}
        collected = store.gc()
        assert store.stats()["chunks"] < chunks, collected
        assert {name: store.load(name) for name in states} == states
        for name, about in HELD.items():
            assert [fingerprint(store.load(name, at=n + 1)) for n in range(len(about["states"]))] == about["states"]
            assert [fingerprint(s.result) for s in store.steps(name) if s.error is None] == [
                s[2] for s in about["steps"] if s[1] != "failed"
            ]
        assert store.verify("full").ok


def test_a_compacted_store_gives_space_back_from_then_on(old: Path) -> None:
    with everstep.open(old) as store:
        assert store.backend.shrink(1 << 20) == 0  # it has no pointer maps
        store.backend.compact()
        assert store.verify("full").ok
        store.delete("chat")
        assert store.backend.shrink(1 << 20) > 0
        assert store.verify("full").ok
    assert ask(old, "PRAGMA auto_vacuum") == [(2,)]
    assert ask(old, "PRAGMA user_version") == [(sqlite_format.FORMAT,)]


def test_a_run_that_is_deleted_now_has_a_tombstone_that_knows_it(old: Path) -> None:
    with everstep.open(old) as store:
        row = store.backend.run("chat-fork")
        assert row is not None
        store.delete("chat-fork")
        found = {tombstone.place: tombstone for tombstone in store.backend.tombstones()}
        assert sorted(found) == sorted([*FROZEN_2.missing, 6])
        assert (found[6].id, found[6].key, found[6].head_seq) == ("chat-fork", row.key, row.head_seq)
        assert store.verify("full").ok


def test_an_id_whose_run_was_deleted_before_the_migration_can_be_used_again(old: Path) -> None:
    with everstep.open(old) as store:
        with store.run("gone-1", state={"again": True}):
            pass
        store.delete("gone-1")
        assert [t.id for t in store.backend.tombstones() if t.id] == ["gone-1"]
        assert store.backend.manifest().places == FROZEN_2.places + 1
        assert store.verify("full").ok
