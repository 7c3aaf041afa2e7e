"""Order never depends on a clock: times are labels, and may jump."""

from __future__ import annotations

import pytest

import everstep
from everstep.errors import LeaseHeld, LostLease
from everstep.testing.clock import FakeClock

DAY = 86_400


def test_after_the_clock_went_back_a_day_the_newest_is_still_the_newest(store: everstep.Store) -> None:
    with FakeClock() as time, store.run("r", state={"n": 0}) as run:
        for n in range(6):
            run.state["n"] = n
            run.checkpoint()
            time.step(-DAY)
    assert store.load("r") == {"n": 5}
    assert store.load("r~1") == {"n": 4}
    assert [c.number for c in store.checkpoints("r")] == [6, 5, 4, 3, 2, 1]
    assert store.checkpoint("r@6").at < store.checkpoint("r@1").at
    assert store.verify("full").ok


def test_runs_are_listed_in_the_order_of_their_creation_whatever_the_clock_said(store: everstep.Store) -> None:
    with FakeClock() as time:
        for name in ("first", "second", "third"):
            with store.run(name) as run:
                run.checkpoint()
            time.step(-DAY)
    assert [info.id for info in store.runs()] == ["third", "second", "first"]
    assert store.backend.manifest().last == "third"
    assert store.runs(limit=1)[0].id == "third"


def test_a_wall_clock_that_jumps_ends_no_lease_and_time_that_passes_does(store: everstep.Store) -> None:
    with FakeClock() as time:
        run = store.run("r", state={"n": 1})
        run.__enter__()
        run.checkpoint()
        time.step(10 * DAY)
        assert held(store)
        time.advance(3_600)
        assert not held(store)
        run.state["n"] = 2
        with pytest.raises(LostLease) as caught:
            run.checkpoint()
        assert caught.value.written == "no"
    assert store.load("r") == {"n": 1}


def held(store: everstep.Store) -> bool:
    try:
        with store.run("r"):
            return False
    except LeaseHeld:
        return True
