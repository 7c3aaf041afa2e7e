"""Schedules: fired once for each time, however many workers look; what was missed; time zones; what changes while they run."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import worker_programs
from worker_helpers import Notes, Working

import everstep
from everstep.clock import clock
from everstep.errors import InvalidArgument, NotFound
from everstep.queues import schedules, worker
from everstep.testing.clock import FakeClock
from everstep.testing.waiting import until

MINUTE = 60_000_000
NOON = int(datetime(2026, 6, 1, 12, 0, tzinfo=UTC).timestamp()) * 1_000_000


@pytest.fixture(autouse=True)
def known(notes: Notes) -> None:
    worker_programs.know(notes.path)


@pytest.fixture
def at_noon() -> Iterator[FakeClock]:
    """Schedules that are made now begin at noon of a day in June."""
    with FakeClock(NOON / 1e6) as time:
        yield time


def plan(store: everstep.Store, name: str = "s", cron: str = "* * * * *", **options: Any) -> Any:
    return store.schedule(name, "count", 1, cron=cron, **options)


def fired(store: everstep.Store, now: int) -> list[str]:
    return [one.run for one in schedules.fire(store, now)]


def test_many_who_look_at_once_fire_each_time_once(store: everstep.Store, url: str, at_noon: FakeClock) -> None:
    plan(store)
    gate = threading.Barrier(6)
    found: list[str] = []

    def look() -> None:
        with everstep.open(url) as own:
            for minute in (1, 2, 3):
                gate.wait()
                found.extend(fired(own, NOON + minute * MINUTE))

    threads = [threading.Thread(target=look) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [f"s-20260601T120{minute}00Z" for minute in (1, 2, 3)]
    assert len(store.runs(limit=100)) == 3


def test_a_schedule_is_fired_by_workers_and_its_runs_are_driven(
    store: everstep.Store, working: Callable[..., Working], notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "LOOK_SECONDS", 0.05)
    plan(store, missed="once")
    ahead = clock.now_us() + 2 * MINUTE
    real = schedules.fire
    monkeypatch.setattr(schedules, "fire", lambda own, now: real(own, max(now, ahead)))
    three = [working(store) for _ in range(3)]
    until(lambda: notes.count("step 0") == 1)
    until(lambda: sum(one.worker.counts.succeeded for one in three) == 1)
    assert sum(len(one.seen("fired")) for one in three) == 1
    assert store.schedules()[0].next.timestamp() * 1e6 > ahead


@pytest.mark.parametrize(
    ("missed", "expected"),
    [("once", ["s-20260601T121000Z"]), ("skip", []), ("all", ["s-20260601T120500Z", "s-20260601T121000Z"])],
)
def test_what_was_missed_is_fired_once_not_at_all_or_for_each_time(
    store: everstep.Store, at_noon: FakeClock, missed: Any, expected: list[str]
) -> None:
    plan(store, cron="*/5 * * * *", missed=missed)
    late = NOON + 12 * MINUTE
    assert fired(store, late) == expected
    assert fired(store, late) == []
    assert store.schedules()[0].next == datetime(2026, 6, 1, 12, 15, tzinfo=UTC)


def test_skip_still_fires_what_is_only_just_late(store: everstep.Store, at_noon: FakeClock) -> None:
    plan(store, missed="skip")
    assert fired(store, NOON + 3 * MINUTE + 5_000_000) == ["s-20260601T120300Z"]


def test_of_very_many_that_were_missed_the_last_ones_are_fired(
    store: everstep.Store, at_noon: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert schedules._MOST == 1000
    monkeypatch.setattr(schedules, "_MOST", 20)
    plan(store, missed="all")
    found = fired(store, NOON + 1010 * MINUTE)
    assert len(found) == 20
    assert (found[0], found[-1]) == ("s-20260602T043100Z", "s-20260602T045000Z")


def test_a_schedule_that_a_program_sets_again_when_it_starts_does_not_forget_what_was_missed(
    store: everstep.Store, at_noon: FakeClock
) -> None:
    """The usual program says what its schedules are, then works: a time that came while it was away, or just now, is not lost by that."""
    plan(store)
    at_noon.advance(3 * 60 + 1)
    plan(store)
    assert fired(store, clock.now_us()) == ["s-20260601T120300Z"]
    assert plan(store).next == datetime(2026, 6, 1, 12, 4, tzinfo=UTC)


def test_a_schedule_that_is_changed_goes_by_its_new_times_from_now_on(store: everstep.Store, at_noon: FakeClock) -> None:
    plan(store)
    at_noon.advance(90)
    changed = plan(store, cron="0 * * * *")
    assert changed.next == datetime(2026, 6, 1, 13, 0, tzinfo=UTC)
    assert fired(store, NOON + 59 * MINUTE) == []
    assert plan(store, cron="0 * * * *", zone="Asia/Kolkata").next == datetime(2026, 6, 1, 12, 30, tzinfo=UTC)
    store.schedule("s", "count", 7, cron="0 * * * *", zone="Asia/Kolkata", queue="other")
    assert fired(store, NOON + 31 * MINUTE) == ["s-20260601T123000Z"]
    at_noon.advance(31 * 60)
    assert store.backend.queue_entry("s-20260601T123000Z").task.queue == "other"  # type: ignore[union-attr]
    store.worker(queues=["other"]).run(until_idle=True)
    assert len(store.steps("s-20260601T123000Z")) == 7


def test_one_that_is_taken_away_fires_no_more(store: everstep.Store, at_noon: FakeClock) -> None:
    plan(store)
    store.unschedule("s")
    assert fired(store, NOON + 5 * MINUTE) == []
    assert store.schedules() == []
    with pytest.raises(NotFound):
        store.unschedule("s")


def test_one_that_cannot_be_fired_keeps_no_other_from_it(
    store: everstep.Store, working: Callable[..., Working], notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new release of a program takes other arguments; the schedule has the old ones."""
    monkeypatch.setattr(worker, "LOOK_SECONDS", 0.05)
    with FakeClock(clock.now_us() / 1e6 - 600):
        store.schedule("a", everstep.workflow(lambda n: n, name="changing"), 1, cron="* * * * *")
        plan(store, "b")
    everstep.workflow(lambda: None, name="changing")
    one = working(store)
    until(lambda: one.seen("fired", schedule="b") and notes.count("step 0") == 1)
    trouble = until(lambda: one.seen("trouble"))[0]
    assert "'a'" in trouble["error"]
    assert trouble["code"] == "E104"


def berlin(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Berlin")).timestamp()) * 1_000_000


def times(cron: str, after: int, count: int) -> list[str]:
    following = schedules.times(cron, "Europe/Berlin", after)
    return [f"{datetime.fromtimestamp(next(following) / 1e6, ZoneInfo('Europe/Berlin')):%d %H:%M %z}" for _ in range(count)]


def test_an_hour_that_the_clock_skips_or_repeats_is_fired_once() -> None:
    assert times("30 9 * * *", berlin("2026-03-28T12:00"), 2) == ["29 09:30 +0200", "30 09:30 +0200"]
    assert len({text[:2] for text in times("30 2 * * *", berlin("2026-03-28T12:00"), 3)}) == 3  # there is no 02:30 on the 29th
    assert [text[:2] for text in times("30 2 * * *", berlin("2026-10-24T12:00"), 2)] == ["25", "26"]  # there are two on the 25th
    found = schedules.times("0 * * * *", "Europe/Berlin", berlin("2026-10-25T00:30"))
    hours = [next(found) for _ in range(4)]
    assert hours == sorted(set(hours))


def test_what_makes_no_sense_is_refused(store: everstep.Store) -> None:
    for options in (
        {"cron": "61 * * * *"},
        {"cron": ""},
        {"cron": None},
        {"cron": "0 0 30 2 *"},
        {"zone": "Mars/Base"},
        {"missed": "later"},
        {"queue": ""},
    ):
        with pytest.raises(InvalidArgument) as caught:
            plan(store, **({"cron": "* * * * *"} | options))
        assert caught.value.code == "E104"
    with pytest.raises(InvalidArgument):
        plan(store, "no name with @")
    assert store.schedules() == []
