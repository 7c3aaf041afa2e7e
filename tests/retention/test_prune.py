"""Pruning: what stays is exactly what it was, what goes is said to be gone, the chain proves itself, and a dry run says it all before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from upkeep_helpers import fingerprint, good, grow, many_bases, states, steps, stored

import everstep
from everstep import Retention
from everstep.backends.contract.types import Cut
from everstep.errors import Conflict, DamagedChunk, EverstepError, InvalidArgument, NotFound, PrunedCheckpoint
from everstep.records import Base
from everstep.store.retention import apply_prune
from everstep.store.retention.prune import PrunePlan
from everstep.testing.clock import FakeClock

pytestmark = pytest.mark.usefixtures("small_bases")


@pytest.fixture
def small_bases() -> Iterator[None]:
    with many_bases():
        yield


def dropped(plan: PrunePlan) -> list[int]:
    return plan.runs[0].dropped


def why(plan: PrunePlan) -> dict[int, str]:
    return {d.number: d.reason for d in plan.runs[0].decisions}


def test_what_stays_is_what_it_was_and_what_goes_is_said_to_be_gone(store: everstep.Store) -> None:
    grow(store, "r", 60, tags={20: "milestone", 33: "mine"})
    before, journal = states(store, "r"), steps(store, "r")
    plan = store.prune(Retention(keep_last=4))
    kept = plan.runs[0].kept
    assert kept == [20, *list(before)[-4:]]
    assert sorted(kept + dropped(plan)) == list(before)
    assert states(store, "r") == {number: before[number] for number in kept}
    assert steps(store, "r") == journal
    assert good(store)
    assert plan.freed > 5 * plan.added > 0


@pytest.mark.parametrize(("made", "kept"), [(15, 10), (25, 10), (3, 10), (60, 1)])
def test_exactly_so_many_stay(store: everstep.Store, made: int, kept: int) -> None:
    for name in ("r", "other"):
        with store.run(name, state={"n": 0}) as run:
            for n in range(1, made + 1):
                run.state["n"] = n
                run.checkpoint()
    last = store.get("r").checkpoints
    store.prune(Retention(keep_last=kept), run="r")
    assert list(states(store, "r")) == list(range(max(1, last - kept + 1), last + 1))
    assert [c.number for c in store.checkpoints("r", oldest_first=True) if not c.pruned] == list(states(store, "r"))
    assert len(store.checkpoints("r")) == last  # their records stay
    assert len(states(store, "other")) == last
    assert good(store)


def test_a_pruned_checkpoint_names_the_nearest_that_stayed(store: everstep.Store) -> None:
    grow(store, "r", 30, tags={7: "milestone"})
    store.prune(Retention(keep_last=1))
    with pytest.raises(PrunedCheckpoint) as error:
        store.load("r@9")
    last = store.get("r").checkpoints
    assert [c.number for c in store.checkpoints("r") if not c.pruned] == [last, 7]
    assert (error.value.before, error.value.after) == (7, last)
    with pytest.raises(PrunedCheckpoint):
        store.view("r@9")
    with pytest.raises(PrunedCheckpoint):
        store.fork("r@9")
    assert store.checkpoint("r@9").note is None  # the record itself is still there


def test_a_dry_run_changes_nothing_and_says_exactly_what_will_be(store: everstep.Store) -> None:
    grow(store, "r", 60, tags={20: "milestone"})
    grow(store, "s", 10)
    before, writes, size = fingerprint(store), store.backend.manifest().writes, stored(store)
    foreseen = store.prune(Retention(keep_last=3), dry_run=True)
    assert fingerprint(store) == before
    assert store.backend.manifest().writes == writes
    assert foreseen.dropped > 40
    assert foreseen.runs[0].bases
    done = store.prune(Retention(keep_last=3))
    assert done.runs == foreseen.runs
    assert stored(store) == size - done.freed + done.added
    assert store.prune(Retention(keep_last=3)).dropped == 0


@settings(max_examples=20)
@given(
    turns=st.integers(1, 40),
    last=st.integers(1, 6),
    daily=st.none() | st.integers(1, 4),
    minutes=st.integers(1, 600),
    tags=st.dictionaries(st.integers(1, 40), st.sampled_from(["milestone", "x"]), max_size=4),
    every=st.integers(2, 9),
    sqlite=st.booleans(),
    again=st.integers(1, 6),
)
def test_any_policy_on_any_history(
    tmp_path_factory: pytest.TempPathFactory, turns: int, last: int, daily: int | None, minutes: int, tags: dict[int, str], every: int,
    sqlite: bool, again: int,
) -> None:  # fmt: skip
    url = str(tmp_path_factory.mktemp("any") / "s.db") if sqlite else "memory://"
    with many_bases(every), FakeClock() as clock, everstep.open(url, checking=True) as store:
        with store.run("r", state={"log": []}) as run:
            for turn in range(turns):
                run.state["log"].append(f"{turn} " * (turn % 30 * 10))
                run.checkpoint(tags=[tags[turn + 1]] if turn + 1 in tags else ())
                clock.advance(60 * minutes)
        before = states(store, "r")
        turns = len(before)  # leaving may have made one more
        policy = Retention(keep_last=last, keep_daily=daily, keep_tagged=["x"])
        foreseen = store.prune(policy, dry_run=True)
        done = store.prune(policy)
        assert done.runs == foreseen.runs
        kept = done.runs[0].kept
        assert set(range(max(1, turns - last + 1), turns + 1)) | {n for n in tags if n <= turns} <= set(kept)
        assert daily is not None or len(kept) <= last + len(tags)
        assert states(store, "r") == {number: before[number] for number in kept}
        assert good(store)
        would = store.gc(dry_run=True)
        assert (store.gc().freed, would.problems) == (would.freed, [])
        assert states(store, "r") == {number: before[number] for number in kept}
        assert store.prune(policy).dropped == 0
        with store.run("r") as run:
            assert run.state == before[turns]
            for turn in range(again):
                run.state["log"].append(f"more {turn}")
                run.checkpoint()
        after = states(store, "r")
        assert {n: after[n] for n in after if n <= turns} == {n: before[n] for n in kept}
        for k in range(again):
            assert after[turns + k + 1] == {"log": [*before[turns]["log"], *(f"more {i}" for i in range(k + 1))]}
        assert good(store)


def test_every_kind_of_value_comes_through_an_added_base(store: everstep.Store) -> None:
    import decimal
    import uuid

    with store.run("r", state={"values": []}) as run:
        for turn in range(40):
            run.state["values"].append((turn, {1, turn}, {(1, 2): b"x" * turn}, decimal.Decimal("1.50"), uuid.UUID(int=turn), "ü" * 300))
            run.checkpoint()
    before = states(store, "r")
    plan = store.prune(Retention(keep_last=3), run="r")
    assert plan.runs[0].bases
    assert states(store, "r") == {number: before[number] for number in plan.runs[0].kept}
    assert type(store.load("r")["values"][7]) is tuple


def test_a_type_with_upgrades_is_kept_as_it_was_stored(store: everstep.Store) -> None:
    from everstep.codec.kinds import Unknown

    with store.run("r", state={"log": [], "thing": Unknown("no such type", 3, {"a": [1] * 500})}) as run:
        for _ in range(40):
            run.state["log"].append("x" * 200)
            run.checkpoint()
    plan = store.prune(Retention(keep_last=2))
    assert plan.runs[0].bases
    assert store.load("r@39")["thing"] == Unknown("no such type", 3, {"a": [1] * 500})
    assert good(store)


def test_what_others_stand_on_stays(store: everstep.Store) -> None:
    grow(store, "r", 30)
    with store.run("r") as run:
        for turn in range(2):
            run.state["n"] = turn
            run.checkpoint()
    store.fork("r@11", "f")
    store.fork("r@13", "gone")
    store.delete("gone")
    store.tag("r@17", "release")
    store.tag("r@18", "other")
    reasons = why(store.prune(Retention(keep_last=1), run="r"))
    assert reasons[11] == "fork f starts here"
    assert reasons[17] == "protected tag release"
    assert reasons[max(reasons)] == "head"
    assert reasons[13].startswith("not kept by keep_last=1")
    newest = store.backend.records("r", 1, 2**31 - 1, ("base",), newest=1)[0]
    assert newest.body is not None  # a program that has the run open stands on it
    assert newest.number not in states(store, "r")
    assert good(store)


def test_the_newest_base_record_stays_also_where_the_head_has_a_base_of_its_own(store: everstep.Store) -> None:
    with many_bases(20, worth=1):
        with store.run("r", state={"text": ""}) as run:
            for turn in range(35):
                run.state["text"] = random.Random(turn).randbytes(1000).hex()
                run.checkpoint()
        head, before = store.get("r").checkpoints, store.load("r")
        newest = store.backend.records("r", 1, 2**31 - 1, ("base",), newest=1)[0]
        assert newest.number < head - 5
        plan = store.prune(Retention(keep_last=1))
    assert plan.runs[0].bases == (head,)
    again = store.backend.records("r", newest.seq, newest.seq)[0]
    assert again.body == newest.body
    assert store.load("r") == before
    assert good(store)


def test_a_run_with_a_protected_tag_stays_whole(places: Any) -> None:
    store = places.open(protect=["precious"])
    grow(store, "a", 12, tags={3: "precious"})
    grow(store, "r", 12)
    with store.run("b", tags=["backup"]) as run:
        for turn in range(12):
            run.state["n"] = turn
            run.checkpoint()
    plans = {plan.run: plan for plan in store.prune(Retention(keep_last=1)).runs}
    assert plans["b"].dropped == []
    assert {d.reason for d in plans["b"].decisions} == {"head", "protected tag backup of the run"}
    assert plans["a"].kept == [3, len(plans["a"].decisions)]
    assert plans["r"].kept == [len(plans["r"].decisions)]


def test_a_loop_goes_on_from_where_it_would_have_gone_on(places: Any) -> None:
    def drive(store: everstep.Store, until: int) -> list[str]:
        seen = []
        with store.run("r", state={"done": []}, policy=everstep.every(steps=1)) as run:
            while len(run.state["done"]) < until:
                n = len(run.state["done"])
                seen.append(run.step("work", lambda n=n: f"w{n}"))
                run.state["done"].append(seen[-1])
                if n % 10 == 9:
                    run.checkpoint()
            if until == 25:
                raise KeyError("the program dies here")
        return seen

    store = places.open()
    with pytest.raises(KeyError):
        drive(store, 25)
    plan = store.prune(Retention(keep_last=1))
    assert "the run resumes from it" in why(plan).values()
    store.gc()
    assert drive(store, 30) == [f"w{n}" for n in range(20, 30)]
    assert store.load("r") == {"done": [f"w{n}" for n in range(30)]}
    assert good(store)


def test_a_workflow_is_played_back_after_all_its_checkpoints_were_pruned(places: Any) -> None:
    @everstep.workflow(name="pruned-flow")
    def flow(n: int) -> str:
        run = everstep.current()
        for turn in range(n):
            run.state[f"k{turn}"] = run.step("work", lambda turn=turn: "x" * (20_000 if turn == 2 else 10))
            run.checkpoint()
        return str(everstep.gate("ok", ask="ok?"))

    store = places.open()
    assert store.start(flow, 30, id="w").status == "waiting"
    assert store.prune(Retention(keep_last=1)).dropped > 10
    store.gc()
    store.answer("w", "ok", "yes")
    assert store.resume("w").unwrap() == "yes"
    assert good(store)


@pytest.mark.parametrize("tagged", [None, 4])
def test_a_workflow_runs_again_from_a_step_whose_checkpoints_were_pruned(places: Any, tagged: int | None) -> None:
    version = "old"

    @everstep.workflow(name="again-flow")
    def flow() -> list[str]:
        run = everstep.current()
        run.state["said"] = []
        for turn in range(12):
            run.state["said"].append(run.step("say", lambda turn=turn: f"{version} {turn}"))
            run.checkpoint()
        return list(run.state["said"])

    store = places.open()
    store.start(flow, id="w").unwrap()
    if tagged is not None:
        store.tag(f"w@{tagged}", "milestone")
    store.prune(Retention(keep_last=1))
    store.gc()
    version = "new"
    again = store.resume("w", from_step="say#9")
    assert again.unwrap() == [f"old {n}" for n in range(9)] + [f"new {n}" for n in range(9, 12)]
    assert store.load(again.run) == {"said": again.unwrap()}
    assert store.get(again.run).parent_number == tagged
    assert store.resume(again.run).unwrap() == again.unwrap()
    assert good(store)


def test_the_edited_state_of_a_workflows_fork_stays(places: Any) -> None:
    @everstep.workflow(name="edited-flow")
    def flow() -> str:
        run = everstep.current()
        run.state["topic"] = "old"
        run.checkpoint()
        for turn in range(20):
            run.state["n"] = run.step("work", lambda turn=turn: f"{run.state['topic']} {turn}")
            run.checkpoint()
        return f"{run.state['topic']} {everstep.gate('ok', ask='ok?')}"

    store = places.open()
    store.start(flow, id="w")
    store.fork("w@1", "f", edit={"topic": "new"})
    assert store.resume("f").status == "waiting"
    plan = store.prune(Retention(keep_last=1), run="f")
    assert why(plan)[1] == "the edited state that this fork starts with"
    assert plan.dropped > 5
    store.gc()
    store.answer("f", "ok", "yes")
    assert store.resume("f").unwrap() == "new yes"
    twice = store.fork("f", "g")
    assert store.load(twice.id) == store.load("f")


def test_a_run_that_is_open_goes_on_beside_it(store: everstep.Store) -> None:
    grow(store, "r", 30)
    with store.run("r") as run:
        store.prune(Retention(keep_last=1))
        store.gc()
        for turn in range(12):
            run.state["messages"].append({"turn": turn, "content": "y" * 500})
            run.checkpoint()
            if turn % 4 == 0:
                store.prune(Retention(keep_last=2))
                store.gc()
        last = run.number
    assert [m["turn"] for m in store.load("r")["messages"][-12:]] == list(range(12))
    assert store.load(f"r@{last - 1}")["messages"][-1]["turn"] == 10
    assert good(store)


def test_of_a_run_that_ended_only_the_final_checkpoint_stays(store: everstep.Store) -> None:
    grow(store, "ended", 20)
    with suppress(ValueError), store.run("failed") as run:
        for turn in range(20):
            run.state["n"] = turn
            run.checkpoint()
        raise ValueError
    assert store.get("failed").status == "failed"
    policy = Retention(keep_last=10, completed="final")
    with store.run("live") as run:
        for turn in range(20):
            run.state["n"] = turn
            run.checkpoint()
        plans = {plan.run: plan for plan in store.prune(policy).runs}
    assert len(plans["live"].kept) == 10
    for name in ("ended", "failed"):
        assert len(plans[name].kept) == 1
        assert plans[name].decisions[0].reason.startswith('the run has ended and completed="final"')
    assert good(store)


def test_without_a_policy_nothing_goes(store: everstep.Store) -> None:
    grow(store, "r", 10)
    assert store.prune().runs == []
    assert store.prune(Retention()).dropped == 0
    with pytest.raises(NotFound):
        store.prune(Retention(keep_last=1), run="other")
    for wrong in ({"retention": {"keep": 1}}, {"retention": 7}, {"retention": Retention(keep_last=1), "progress": 7}):
        with pytest.raises(InvalidArgument):
            store.prune(**wrong)  # type: ignore[arg-type]
    assert store.prune({"keep_last": 3}, dry_run=True).kept == 3


def test_progress_is_told(store: everstep.Store) -> None:
    for name in "abc":
        grow(store, name, 3)
    told: list[tuple[int, int, str]] = []
    store.prune(Retention(keep_last=1), progress=lambda *about: told.append(about))
    assert told[-1][:2] == (3, 3)


class Broken(Exception):
    """The process dies here."""


@pytest.mark.parametrize("after", [0, 1, 2, 3, 5])
def test_wherever_it_is_broken_off_nothing_is_half_gone(places: Any, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_prune, "Slices", lambda least, most: Few())
    store = places.open()
    grow(store, "r", 60, tags={20: "milestone"})
    before, size = states(store, "r"), stored(store)
    cuts = 0
    prune = store.backend.prune

    def breaking(cut: Cut) -> None:
        nonlocal cuts
        cuts += 1
        if cuts > after:
            raise Broken
        prune(cut)

    monkeypatch.setattr(store.backend, "prune", breaking)
    plan = store.prune(Retention(keep_last=2), dry_run=True).runs[0]
    with pytest.raises(Broken):
        store.prune(Retention(keep_last=2))
    monkeypatch.setattr(store.backend, "prune", prune)
    assert good(store)
    left = states(store, "r")
    assert left == {number: before[number] for number in (plan.kept if after > 1 else before)}  # the first one adds a base
    mark = store.backend.pruned("r")
    assert [n for n in before if mark is not None and not mark.has_state(n)] == [n for n in before if n not in left]
    rest = store.prune(Retention(keep_last=2)).runs[0]
    assert rest.kept == plan.kept
    assert stored(store) == size - plan.freed + plan.added
    assert states(store, "r") == {number: before[number] for number in plan.kept}
    assert good(store)


class Few:
    """Slices of seven, without a rest."""

    size = 7

    def do(self, work: Any) -> Any:
        return work()


@pytest.mark.parametrize("seconds", [0.5, 1.5, 3.5])
def test_when_the_time_is_over_the_next_one_goes_on(places: Any, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(apply_prune, "Slices", lambda least, most: Few())
    with FakeClock() as clock:
        store = places.open()
        grow(store, "r", 60, tags={20: "milestone"})
        before = states(store, "r")
        foreseen = store.cleanup(Retention(keep_last=2), dry_run=True)
        prune = store.backend.prune

        def slow(cut: Cut) -> None:
            prune(cut)
            clock.advance(1)

        monkeypatch.setattr(store.backend, "prune", slow)
        done = store.cleanup(Retention(keep_last=2), seconds=seconds)
        assert not done.complete
        plan = done.pruned.runs[0]
        assert states(store, "r") == {number: before[number] for number in plan.kept}
        assert (plan.dropped == []) == ("to be dropped, but the time ran out" in {d.reason for d in plan.decisions})
        assert (plan.dropped == []) == (seconds < 1)
        assert plan.freed < foreseen.pruned.freed
        assert good(store)
        monkeypatch.setattr(store.backend, "prune", prune)
        rest = store.cleanup(Retention(keep_last=2))
        assert rest.complete
        assert plan.freed + rest.pruned.freed == foreseen.pruned.freed
        assert set(states(store, "r")) == set(foreseen.pruned.runs[0].kept)
        assert good(store)


def test_who_prunes_at_the_same_time_is_noticed(places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_prune, "Slices", lambda least, most: Few())
    store, other = places.open(), places.open()
    grow(store, "r", 60, tags={9: "milestone"})
    before = states(store, "r")
    prune = store.backend.prune
    calls = 0

    def beside(cut: Cut) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            other.prune(Retention(keep_last=10))
        prune(cut)

    monkeypatch.setattr(store.backend, "prune", beside)
    plan = store.prune(Retention(keep_last=3)).runs[0]
    assert plan.problem is None
    assert states(store, "r") == {number: before[number] for number in plan.kept}
    assert plan.kept == [9, *list(before)[-3:]]
    assert good(store)


def test_a_prune_and_a_gc_beside_it_are_not_taken_for_damage(places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = places.open(), places.open()
    grow(store, "r", 60, size=1500, tags={9: "mine"})
    before = states(store, "r")
    chunks = store.backend.chunks
    calls = 0

    def beside(family: bytes, digests: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            other.prune(Retention(keep_last=3))
            other.gc()
        return chunks(family, digests)

    monkeypatch.setattr(store.backend, "chunks", beside)
    plan = store.prune(Retention(keep_last=10, keep_tagged=["mine"]))
    assert plan.problems == []
    assert plan.runs[0].kept == list(before)[-3:]
    assert store.gc().problems == []
    assert good(other)


def test_who_cannot_get_on_beside_another_one_says_so(places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = places.open()
    grow(store, "r", 30)

    def refused(cut: Cut) -> None:
        raise Conflict("another process has pruned run 'r' meanwhile")

    monkeypatch.setattr(store.backend, "prune", refused)
    plan = store.prune(Retention(keep_last=1))
    assert plan.problems == ["r: another process has pruned run 'r' meanwhile"]
    assert plan.dropped == 0


@pytest.mark.parametrize("bases", [True, False])
def test_a_tag_that_comes_meanwhile_is_heard(places: Any, monkeypatch: pytest.MonkeyPatch, bases: bool) -> None:
    store = places.open()
    grow(store, "r", 60, tags={20: "milestone"} if bases else {})
    before = states(store, "r")
    name = "bases" if not bases else "prune"  # while it looks, or when it has added a base
    real = getattr(store.backend, name)
    calls = 0

    def beside(*args: Any) -> Any:
        nonlocal calls
        found = real(*args)
        calls += 1
        if calls == 1:
            store.tag("r@4", "milestone")
            store.fork("r@6", "f")
        return found

    monkeypatch.setattr(store.backend, name, beside)
    plan = store.prune(Retention(keep_last=2), run="r").runs[0]
    assert {4, 6} <= set(plan.kept)
    assert states(store, "r") == {number: before[number] for number in plan.kept}
    assert len(plan.dropped) + len(plan.kept) == len(before)
    assert good(store)


def test_labels_on_what_stays_are_no_reason_to_begin_again(places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = places.open()
    grow(store, "r", 60, tags={20: "milestone"})
    prune = store.backend.prune
    cuts = []

    def beside(cut: Cut) -> None:
        prune(cut)
        cuts.append(cut)
        store.tag("r", f"t{len(cuts)}")
        store.fork("r", f"f{len(cuts)}")

    monkeypatch.setattr(store.backend, "prune", beside)
    monkeypatch.setattr("everstep.store.retention.prune._TRIES", 1)
    plan = store.prune(Retention(keep_last=2), run="r")
    assert plan.problems == []
    assert [len(cut.bases) for cut in cuts] == [1, 0]


def test_a_run_that_is_deleted_meanwhile_is_passed_over(places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = places.open()
    grow(store, "r", 30)
    grow(store, "s", 30)
    prune = store.backend.prune

    def beside(cut: Cut) -> None:
        if store.backend.run("r") is not None:
            store.delete("r")
        prune(cut)

    monkeypatch.setattr(store.backend, "prune", beside)
    plan = store.prune(Retention(keep_last=1))
    assert [run.run for run in plan.runs] == ["s"]
    assert plan.problems == []
    assert good(store)


def damage_record(store: everstep.Store, run: str, seq: int) -> None:
    """One bit of a body is another one."""
    backend: Any = store.backend
    record = backend.records(run, seq, seq)[0]
    body = bytes([*record.body[:-1], record.body[-1] ^ 1])
    if hasattr(backend, "_data"):
        backend._data.runs[run].records[seq - 1].body = body
    else:
        execute(
            store, "UPDATE records SET body = ? WHERE id & 0x7fffffff = ? AND id >> 31 = (SELECT pk FROM runs WHERE id = ?)", body, seq, run
        )


def execute(store: everstep.Store, sql: str, *values: Any) -> None:
    """Change a store behind its back, in SQL for SQLite: in PostgreSQL a record is known by its run and seq."""
    if store.url.startswith("postgresql://"):
        from pg_damage import behind

        behind(store.url, sql, *values)
        return
    import apsw

    connection = apsw.Connection(store.url.removeprefix("sqlite:///"))
    connection.set_busy_timeout(10_000)
    connection.execute(sql, values)
    connection.close()


def checkpoint_seq(store: everstep.Store, run: str, number: int) -> int:
    return next(r.seq for r in store.backend.records(run, 1, 2**31 - 1, ("checkpoint",)) if r.number == number)


@pytest.mark.parametrize("number", [1, 7, 29])
def test_nothing_of_a_damaged_run_goes(store: everstep.Store, number: int) -> None:
    grow(store, "r", 30)
    grow(store, "s", 30)
    damage_record(store, "r", checkpoint_seq(store, "r", number))
    before = fingerprint(store)[0]["r"]
    plan = store.prune(Retention(keep_last=1))
    assert [text.partition(":")[0] for text in plan.problems] == ["r"]
    assert fingerprint(store)[0]["r"] == before
    assert {run.run: bool(run.dropped) for run in plan.runs} == {"r": False, "s": True}


def test_nothing_goes_where_a_chunk_of_what_stays_is_gone(store: everstep.Store) -> None:
    grow(store, "r", 30, size=4000)
    newest = store.backend.records("r", 1, 2**31 - 1, ("base",), newest=1)[0]
    from everstep.store.retention.plan import family_reach
    from everstep.store.retention.reachable import contents_of

    row = store.backend.run("r")
    assert row is not None
    digest = min(family_reach(store.backend, row.family).of(contents_of(newest.opened_by(store.framer))))
    store.backend.sweep(row.family, [digest], store.backend.manifest().writes)
    with pytest.raises(DamagedChunk):
        family_reach(store.backend, row.family).of(contents_of(newest))
    plan = store.prune(Retention(keep_last=1))
    assert plan.dropped == 0
    assert "is not stored" in plan.problems[0]


def test_nothing_goes_where_a_body_vanished_that_nobody_pruned(store: everstep.Store) -> None:
    grow(store, "r", 30)
    store.prune(Retention(keep_last=15))
    backend: Any = store.backend
    seq = checkpoint_seq(store, "r", 20)
    assert backend.records("r", seq, seq)[0].body is not None
    if hasattr(backend, "_data"):
        backend._data.runs["r"].records[seq - 1].body = None
    else:
        digest = backend.records("r", seq, seq)[0].body_digest
        execute(store, "UPDATE records SET body = NULL, body_digest = ? WHERE id & 0x7fffffff = ?", digest, seq)
    plan = store.prune(Retention(keep_last=1))
    assert plan.dropped == 0
    assert "its body is missing although it was not pruned" in plan.problems[0]


def test_a_step_without_its_body_is_damage_also_between_pruned_checkpoints(store: everstep.Store) -> None:
    grow(store, "r", 30)
    store.prune(Retention(keep_last=3))
    backend: Any = store.backend
    step = next(r for r in backend.records("r", 1, 2**31 - 1, ("step",)) if r.number == 5)
    mark = backend.pruned("r")
    assert not mark.has_body(step.seq)  # the mark covers it
    if hasattr(backend, "_data"):
        backend._data.runs["r"].records[step.seq - 1].body = None
    else:
        execute(store, "UPDATE records SET body = NULL, body_digest = ? WHERE id & 0x7fffffff = ?", step.body_digest, step.seq)
    assert "its body is missing" in store.prune(Retention(keep_last=1)).problems[0]
    assert not store.verify("records").ok
    assert store.gc().freed == 0


def test_what_is_dropped_twice_is_dropped_once(store: everstep.Store) -> None:
    grow(store, "r", 30)
    row = store.backend.run("r")
    assert row is not None
    first = store.prune(Retention(keep_last=5))
    mark = store.backend.pruned("r")
    assert mark is not None
    assert mark.freed == first.freed
    second = store.prune(Retention(keep_last=1))
    again = store.backend.pruned("r")
    assert again is not None
    assert again.freed == first.freed + second.freed


def test_an_added_base_goes_when_its_checkpoint_goes(store: everstep.Store) -> None:
    grow(store, "r", 60, tags={18: "keep"})
    first = store.prune(Retention(keep_last=1, keep_tagged=["keep"]))
    assert 18 in first.runs[0].bases
    assert [base.number for base in store.backend.bases("r")] == list(first.runs[0].bases)
    size = stored(store)
    second = store.prune(Retention(keep_last=1))
    assert 18 in second.runs[0].dropped
    assert 18 not in [base.number for base in store.backend.bases("r")]
    assert stored(store) == size - second.freed + second.added
    assert good(store)


def test_a_damaged_added_base_is_noticed(store: everstep.Store) -> None:
    grow(store, "r", 60, tags={18: "milestone"})
    store.prune(Retention(keep_last=1))
    base = store.backend.bases("r")[0]
    backend: Any = store.backend
    body = bytes([*base.body[:-1], base.body[-1] ^ 1])
    if hasattr(backend, "_data"):
        backend._data.runs["r"].bases[base.number] = Base(base.key, base.number, base.at, body, base.check)
    else:
        execute(store, "UPDATE bases SET body = ? WHERE number = ?", body, base.number)
    with pytest.raises(EverstepError):
        store.load("r", at=base.number)
    plan = store.prune(Retention(keep_last=1, minimum=1))
    assert "does not match its digest" in plan.problems[0]
    assert store.gc().freed == 0


def test_history_of_what_stayed_can_be_asked_about(store: everstep.Store) -> None:
    grow(store, "r", 30)
    before = store.diff("r@29", "r@30")
    store.prune(Retention(keep_last=4))
    assert store.diff("r@29", "r@30") == before
    assert store.blame("r", ["messages", -1]).number == 30
    assert store.blame("r@29", ["messages", -1]).number == 29
    assert len(store.events(run="r", limit=10_000)) == store.events(run="r", limit=10_000).next


def test_the_pages_of_bodies_are_given_back(tmp_path: Path) -> None:
    with everstep.open(str(tmp_path / "s.db")) as store, store.run("r", state={"log": []}, durability="exit") as run:
        for turn in range(1500):
            run.state["log"].append(f"{turn} " + "some text" * 60)
            run.state["log"] = run.state["log"][-20:]
            run.checkpoint()
    before = (tmp_path / "s.db").stat().st_size
    with everstep.open(str(tmp_path / "s.db")) as store:
        freed = store.prune(Retention(keep_last=3)).freed + store.gc().freed
        given = store.gc().given_back
        assert good(store)
    after = (tmp_path / "s.db").stat().st_size
    assert freed > before // 4
    assert before - after > freed // 2, (before, after, freed, given)
