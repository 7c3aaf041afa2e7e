"""Clean-up: policies by run, workflow and store; runs that are deleted; a limit of bytes; and when it is done by itself."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from upkeep_helpers import everything, fingerprint, good, grow, many_bases, states, stored

import everstep
from everstep import Retention
from everstep.errors import Damaged, InvalidArgument, NotFound, StoreFull
from everstep.store.retention.cleanup import last_time
from everstep.testing.clock import FakeClock

pytestmark = pytest.mark.usefixtures("small_bases")
DAY = 86_400


@pytest.fixture
def small_bases() -> Iterator[None]:
    with many_bases():
        yield


@pytest.fixture
def clock() -> Iterator[FakeClock]:
    with FakeClock(datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp()) as found:
        yield found


def short(store: everstep.Store, id: str, turns: int = 12, **options: Any) -> None:
    with store.run(id, **options) as run:
        for turn in range(turns):
            run.state["n"] = turn
            run.checkpoint()


def test_the_narrowest_policy_holds(store: everstep.Store) -> None:
    for name, workflow in (("a", "w"), ("b", "w"), ("c", None)):
        short(store, name, workflow=workflow)
    assert store.get_retention() is None
    assert store.get_retention("a") is None
    store.set_retention(Retention(keep_last=8))
    store.set_retention(Retention(keep_last=5), workflow="w")
    store.set_retention(Retention(keep_last=3), run="a")
    assert [store.get_retention(name) for name in "abc"] == [Retention(keep_last=n) for n in (3, 5, 8)]
    assert store.get_retention() == Retention(keep_last=8)
    reasons = {plan.run: plan.decisions[-2].reason for plan in store.prune(dry_run=True).runs}
    assert reasons == {"a": "keep_last=3", "b": "keep_last=5", "c": "keep_last=8"}
    given = {plan.run: plan.decisions[-2].reason for plan in store.prune(Retention(keep_last=4), dry_run=True).runs}
    assert set(given.values()) == {"keep_last=4"}
    store.set_retention(None, run="a")
    store.set_retention(None, workflow="w")
    assert [store.get_retention(name) for name in "abc"] == [Retention(keep_last=8)] * 3


def test_policies_are_remembered_by_the_store(places: Any) -> None:
    first = places.open()
    short(first, "a")
    policy = Retention(keep_last=3, keep_within=timedelta(days=2), keep_tagged=["x"], completed="final", max_bytes=10**6)
    first.set_retention(policy)
    first.set_retention({"keep_last": 2}, run="a")
    second = places.open(retention=Retention(keep_daily=1))
    assert second.get_retention() == Retention(keep_daily=1)  # what the program says stands before what the store says
    assert second.get_retention("a") == Retention(keep_last=2)
    assert places.open().get_retention() == policy
    assert places.open(retention={"keep_last": 7}).get_retention() == Retention(keep_last=7)


def test_a_policy_is_not_inherited_by_the_next_run_of_that_id(store: everstep.Store) -> None:
    short(store, "a")
    store.set_retention(Retention(keep_last=1), run="a")
    store.delete("a")
    short(store, "a")
    assert store.get_retention("a") is None
    assert store.backend.get_property("retention/run/a") is not None
    store.delete("a")
    store.cleanup()
    assert store.backend.get_property("retention/run/a") is None


def test_what_makes_no_sense_is_refused(places: Any) -> None:
    store = places.open()
    short(store, "a", 2)
    with pytest.raises(InvalidArgument, match="must not be given together"):
        store.set_retention(Retention(), workflow="w", run="a")
    with pytest.raises(NotFound):
        store.set_retention(Retention(), run="nobody")
    with pytest.raises(InvalidArgument, match="no field 'keep'"):
        store.set_retention({"keep": 3})
    for options in ({"schedule": "hourly"}, {"retention": {"keep": 1}}, {"retention": 7}, {"protect": ["a b"]}, {"protect": 7}):
        with pytest.raises(InvalidArgument):
            places.open(**options)
    with pytest.raises(InvalidArgument):
        store.cleanup(seconds=-1)
    store.backend.set_property("retention", '{"keep_lots": 1}')
    with pytest.raises(Damaged, match="not a valid retention"):
        store.prune()
    assert store.prune(Retention(keep_last=1)).dropped == 1


def test_a_dry_run_changes_nothing_and_says_exactly_what_will_be(store: everstep.Store, clock: FakeClock) -> None:
    grow(store, "old", 20, size=2000)
    grow(store, "shared", 20)
    store.fork("shared@9", "old-fork", edit={"text": "y" * 30_000})
    with store.run("old-fork") as run:
        run.state["x"] = 1
    clock.advance(3 * DAY)
    grow(store, "new", 60, size=1500, tags={11: "milestone"})
    with store.run("shared") as run:
        run.state["text"] = "z" * 40_000
        run.checkpoint()
    policy = Retention(keep_last=3, keep_within=DAY, completed="delete")
    before, writes = fingerprint(store), store.backend.manifest().writes
    foreseen = store.cleanup(policy, dry_run=True)
    assert fingerprint(store) == before
    assert store.backend.manifest().writes == writes
    assert store.backend.get_property("cleanup.last") is None
    assert {run.run for run in foreseen.deleted} == {"old", "old-fork"}
    size = stored(store)
    done = store.cleanup(policy)
    assert done.deleted == foreseen.deleted
    assert done.pruned.runs == foreseen.pruned.runs
    assert (done.collected.chunks, done.collected.freed) == (foreseen.collected.chunks, foreseen.collected.freed)
    assert done.freed == foreseen.freed == size - stored(store)
    assert done.freed > 50_000
    assert good(store)
    assert len(store.backend.tombstones()) == 2


def test_a_run_that_ended_is_deleted_when_it_is_old_enough(store: everstep.Store, clock: FakeClock) -> None:
    policy = Retention(keep_within=7 * DAY, completed="delete")
    short(store, "done")
    short(store, "tagged")
    store.tag("tagged@3", "release")
    short(store, "backup", tags=["backup"])
    short(store, "parent")
    store.fork("parent@2", "fork")
    short(store, "cancelled")
    with suppress(ValueError), store.run("failed") as run:
        run.state["n"] = 1
        raise ValueError
    with store.run("open") as run:
        run.checkpoint()
        store.backend.run("cancelled")
        clock.advance(6 * DAY)
        assert store.cleanup(policy).deleted == []
        clock.advance(2 * DAY)
        done = store.cleanup(policy)
    assert sorted(run.run for run in done.deleted) == ["cancelled", "done"]
    assert {run.reason for run in done.deleted} == {"succeeded longer ago than keep_within=7 days, 0:00:00"}
    assert sorted(info.id for info in store.runs()) == ["backup", "failed", "fork", "open", "parent", "tagged"]
    assert good(store)


def test_a_fork_goes_before_what_it_was_forked_from(store: everstep.Store, clock: FakeClock) -> None:
    short(store, "a")
    store.fork("a@2", "b")
    store.fork("b", "c")
    for name in "bc":
        with store.run(name) as run:
            run.state["x"] = name
    clock.advance(2 * DAY)
    policy = Retention(keep_within=DAY, completed="delete")
    foreseen = store.cleanup(policy, dry_run=True)
    done = store.cleanup(policy)
    assert [run.run for run in done.deleted] == ["c", "b", "a"]
    assert done.deleted == foreseen.deleted
    assert stored(store) == 0
    assert done.freed == foreseen.freed


def test_a_child_stays_while_its_caller_may_ask_for_it(places: Any, clock: FakeClock) -> None:
    @everstep.workflow(name="clean-child")
    def child() -> str:
        return "c"

    @everstep.workflow(name="clean-parent")
    def parent() -> str:
        return str(child()) + str(everstep.gate("ok", ask="ok?"))

    store = places.open()
    assert store.start(parent, id="p").status == "waiting"
    clock.advance(2 * DAY)
    policy = Retention(keep_within=DAY, completed="delete")
    assert store.cleanup(policy).deleted == []
    store.answer("p", "ok", "!")
    assert store.resume("p").unwrap() == "c!"
    assert store.cleanup(policy).deleted != []  # the child ended long ago
    clock.advance(2 * DAY)
    store.cleanup(policy)
    assert list(store.runs()) == []


def test_a_run_that_is_used_again_meanwhile_stays(store: everstep.Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    short(store, "r")
    clock.advance(2 * DAY)
    delete = store.backend.delete_many

    def beside(rows: Any) -> set[bytes]:
        monkeypatch.setattr(store.backend, "delete_many", delete)
        with store.run("r") as run:
            run.state["again"] = True
        return delete(rows)

    monkeypatch.setattr(store.backend, "delete_many", beside)
    assert store.cleanup(Retention(keep_within=DAY, completed="delete")).deleted == []
    assert store.load("r")["again"] is True


def test_hooks_hear_of_runs_that_are_deleted(store: everstep.Store, clock: FakeClock) -> None:
    heard: list[tuple[str, str]] = []
    for name in ("before_delete", "after_delete"):
        store.on(name, lambda event: heard.append((event.name, event.run)))
    short(store, "r", 2)
    clock.advance(2 * DAY)
    store.cleanup(Retention(keep_within=DAY, completed="delete"), dry_run=True)
    assert heard == []
    store.cleanup(Retention(keep_within=DAY, completed="delete"))
    assert heard == [("before_delete", "r"), ("after_delete", "r")]


def bulky(store: everstep.Store, clock: FakeClock, names: str, turns: int = 10) -> None:
    """Runs side by side, each with a long text that is another one each time."""
    import random

    runs = {name: store.run(name, state={"text": ""}) for name in names}
    for name in names:
        runs[name].__enter__()
    for turn in range(turns):
        for name in names:
            clock.advance(60)
            runs[name].state["text"] = random.Random(f"{name}{turn}").randbytes(10_000).hex()
            runs[name].checkpoint()
    for name in names:
        runs[name].__exit__(None, None, None)


@pytest.mark.parametrize("share", [0.9, 0.5, 0.3])
def test_beyond_a_limit_the_oldest_go_over_all_runs(store: everstep.Store, clock: FakeClock, share: float) -> None:
    bulky(store, clock, "abc")
    before = {name: states(store, name) for name in "abc"}
    ages = {(name, c.number): c.at for name in "abc" for c in store.checkpoints(name)}
    limit = int(stored(store) * share)
    foreseen = store.cleanup(Retention(max_bytes=limit), dry_run=True)
    done = store.cleanup(Retention(max_bytes=limit))
    assert stored(store) <= limit
    assert (done.freed, done.pruned.runs) == (foreseen.freed, foreseen.pruned.runs)
    dropped = {(plan.run, number) for plan in done.pruned.runs for number in plan.dropped}
    assert dropped
    assert {d.reason for plan in done.pruned.runs for d in plan.decisions if not d.kept} == {f"max_bytes={limit:,}"}
    kept = set(ages) - dropped
    firm = {(plan.run, d.number) for plan in done.pruned.runs for d in plan.decisions if d.firm}
    loose = [ages[key] for key in kept - firm]
    assert not loose or max(ages[key] for key in dropped) <= max(loose)
    for name in "abc":
        found = states(store, name)
        assert found == {number: before[name][number] for number in found}
        assert max(before[name]) in found
    assert good(store)


@settings(max_examples=12)
@given(limit=st.integers(0, 400_000), turns=st.integers(1, 14), tagged=st.integers(1, 14), fork=st.booleans())
def test_no_more_goes_than_the_limit_asks_for(limit: int, turns: int, tagged: int, fork: bool) -> None:
    with many_bases(3), FakeClock() as clock, everstep.open("memory://") as store:
        bulky(store, clock, "ab", turns)
        if tagged <= turns:
            store.tag(f"a@{tagged}", "milestone")
        if fork:
            store.fork("b@1", "f", edit={"more": "x" * 9000})
        size = stored(store)
        done = store.cleanup(Retention(max_bytes=limit))
        dropped = [d for plan in done.pruned.runs for d in plan.decisions if not d.kept]
        assert bool(dropped) <= (size > limit)
        loose = [d for plan in done.pruned.runs for d in plan.decisions if d.kept and not d.firm]
        assert stored(store) <= limit or not loose
        if tagged <= turns:
            assert tagged in states(store, "a")
        assert good(store)


def test_what_a_relative_still_needs_is_not_counted_as_freed(store: everstep.Store, clock: FakeClock) -> None:
    """The fork's first checkpoint shares its long text with the parent: to drop it frees nothing of that."""
    import random

    with store.run("parent", state={"text": random.Random(1).randbytes(40_000).hex()}) as run:
        for n in range(6):
            run.state["n"] = n
            run.checkpoint()
    store.prune(Retention(keep_last=1))
    store.fork("parent", "fork")
    with store.run("fork") as run:
        for n in range(12):
            clock.advance(60)
            run.state["text"] = random.Random(n + 2).randbytes(1000).hex()
            run.checkpoint()
    limit = stored(store) - 5_000
    done = store.cleanup(Retention(max_bytes=limit))
    assert stored(store) <= limit
    assert 1 < done.pruned.dropped < 12
    assert good(store)


def test_what_is_tagged_after_the_limit_was_worked_out_stays(
    store: everstep.Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from everstep.store.retention import prune

    bulky(store, clock, "ab")
    worked_out = prune.over_size_limit

    def tagged_then(*args: Any) -> Any:
        found = worked_out(*args)
        store.tag("a@3", "milestone")
        return found

    monkeypatch.setattr(prune, "over_size_limit", tagged_then)
    done = store.cleanup(Retention(max_bytes=0))
    assert {plan.run: plan.kept for plan in done.pruned.runs} == {
        "a": [3, store.get("a").checkpoints],
        "b": [store.get("b").checkpoints],
    }


def test_a_limit_counts_what_belongs_to_its_scope(store: everstep.Store, clock: FakeClock) -> None:
    bulky(store, clock, "ab")
    store.set_retention(Retention(max_bytes=30_000), run="a")
    before = states(store, "b")
    done = store.cleanup()
    assert {plan.run for plan in done.pruned.runs} == {"a"}
    assert states(store, "b") == before
    row = store.backend.run("a")
    assert row is not None
    bodies = sum(len(r.body or b"") for r in store.backend.records("a", 1, 1000))
    assert bodies + sum(store.backend.chunk_sizes(row.family).values()) <= 40_000


def test_a_limit_of_the_store_leaves_alone_what_a_runs_own_policy_keeps(store: everstep.Store, clock: FakeClock) -> None:
    bulky(store, clock, "ab")
    before = states(store, "a")
    store.set_retention(Retention(max_bytes=0))
    store.set_retention(Retention(keep_last=100), run="a")
    done = store.cleanup()
    assert states(store, "a") == before
    assert {plan.run: bool(plan.dropped) for plan in done.pruned.runs} == {"a": False, "b": True}
    assert store.prune(run="b").dropped == 0


def test_a_damaged_run_does_not_keep_the_others_from_being_cleaned(store: everstep.Store, clock: FakeClock) -> None:
    bulky(store, clock, "ab")
    backend: Any = store.backend
    row = backend.run("a")
    backend.sweep(row.family, list(backend.chunk_sizes(row.family)), backend.manifest().writes)
    done = store.cleanup(Retention(keep_last=5, max_bytes=50_000))
    assert len(done.problems) == 2  # that nothing of it is pruned, and that nothing is freed
    assert {plan.run: bool(plan.dropped) for plan in done.pruned.runs} == {"a": False, "b": True}
    assert json.loads(store.backend.get_property("cleanup.last") or "")["problems"] == 2


@pytest.mark.parametrize("damage", ["note = 'x'", "tags = 'no json'"])
def test_a_run_whose_row_is_damaged_is_named_and_the_others_are_cleaned(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "s.db"
    with everstep.open(path) as store:
        for id in ("a", "bad", "c"):
            short(store, id)
    connection = apsw.Connection(str(path))
    connection.execute(f"UPDATE runs SET {damage} WHERE id = 'bad'")
    connection.close()
    with everstep.open(path) as store:
        done = store.cleanup(Retention(keep_last=5))
        assert {plan.run: bool(plan.dropped) for plan in done.pruned.runs} == {"a": True, "c": True}
        assert any("bad" in problem for problem in done.pruned.problems)
        assert any("bad" in problem for problem in store.prune().problems)


def test_the_last_time_is_remembered(store: everstep.Store, clock: FakeClock) -> None:
    assert last_time(store.backend) is None
    short(store, "r", 30)
    done = store.cleanup(Retention(keep_last=1))
    said = json.loads(store.backend.get_property("cleanup.last") or "")
    assert said == {
        "at": 1_794_744_000_000_000, "complete": True, "deleted": 0, "dropped": done.pruned.dropped, "freed": done.freed,
        "given_back": done.given_back, "problems": 0,
    }  # fmt: skip
    assert last_time(store.backend) == (datetime(2026, 11, 15, 12, tzinfo=UTC), True)


def cleanups(places: Any, schedule: str, **options: Any) -> int:
    """How many checkpoints a store that is opened so drops by itself."""
    with places.open() as store:
        with store.run("r") as run:
            for turn in range(20):
                run.state["n"] = turn
                run.checkpoint()
        before = len(states(store, "r"))
    with places.open(schedule=schedule, retention=Retention(keep_last=2), **options) as store:
        return before - len(states(store, "r"))


@pytest.mark.parametrize(
    ("schedule", "seconds", "again"),
    [
        ("manual", 400 * DAY, False),
        ("on_open", 0, True),
        ("daily", 11 * 3600, False),
        ("daily", 12 * 3600, True),
        ("daily", -DAY, True),
        ("weekly", 11 * 3600, False),  # the 15th is a Sunday
        ("weekly", 12 * 3600, True),
        ("monthly", 15 * DAY, False),
        ("monthly", 16 * DAY, True),
    ],
)
def test_it_is_done_by_itself_when_it_is_due(places: Any, clock: FakeClock, schedule: str, seconds: float, again: bool) -> None:
    assert (cleanups(places, schedule) > 0) == (schedule != "manual")
    clock.step(seconds)
    assert (cleanups(places, schedule) > 0) == again


def test_one_that_was_broken_off_is_gone_on_with(places: Any, clock: FakeClock) -> None:
    assert cleanups(places, "daily") > 0
    store = places.open()
    said = json.loads(store.backend.get_property("cleanup.last") or "")
    store.backend.set_property("cleanup.last", json.dumps({**said, "complete": False}))
    assert cleanups(places, "daily") > 0
    store.backend.set_property("cleanup.last", "no JSON")
    assert cleanups(places, "daily") > 0
    assert cleanups(places, "daily") == 0


def test_protected_tags_hold_for_what_is_done_by_itself(places: Any, clock: FakeClock) -> None:
    with places.open() as store:
        short(store, "r", 30)
        store.tag("r@4", "precious")
    with places.open(schedule="on_open", retention=Retention(keep_last=1), protect="precious") as store:
        assert 4 in states(store, "r")
        assert 5 not in states(store, "r")


def test_a_store_that_cannot_be_cleaned_up_opens_and_says_so(places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise StoreFull("no space is left")

    with places.open() as store:
        grow(store, "r", 30)
        monkeypatch.setattr(type(store.backend), "prune", full)
    with pytest.warns(UserWarning, match="no space is left"):
        store = places.open(schedule="on_open", retention=Retention(keep_last=1))
    assert store.load("r")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        places.open(schedule="manual", retention=Retention(keep_last=1))


def test_a_store_that_is_switched_off_is_not_cleaned_up(tmp_path: Any) -> None:
    with everstep.open(str(tmp_path / "s.db"), enabled=False, schedule="on_open", retention=Retention(keep_last=1)) as store:
        assert store.cleanup().complete
    assert list(tmp_path.iterdir()) == []


def test_a_report_can_be_read(store: everstep.Store, clock: FakeClock) -> None:
    grow(store, "r", 30)
    short(store, "old", 2)
    clock.advance(2 * DAY)
    with store.run("r") as run:
        run.state["x"] = 1
    text = str(store.cleanup(Retention(keep_last=1, keep_within=DAY, completed="delete"), dry_run=True))
    assert "delete old: succeeded" in text
    assert "drop 1: not kept by keep_last=1, keep_within=1 day" in text
    assert "would be freed" in text
    assert everything(store)["old"]
