"""Limits hold for all workers together: how many runs of a queue, of one key in it, and how many in any window of time."""

import sqlite3
import time
from collections.abc import Callable
from typing import Any

import psycopg
from worker_helpers import Hand, Notes

import everstep
from everstep.testing.waiting import until

Start = Callable[..., Hand]


def most_at_once(lines: list[dict[str, Any]], key: str | None = None) -> int:
    """How many were between their begin and their end at the same time, by one clock."""
    moves = sorted((line["at"], 1 if line["what"] == "begin" else -1) for line in lines if key is None or line["key"] == key)
    now = most = 0
    for _, move in moves:
        now += move
        most = max(most, now)
    return most


class Starts:
    """The times at which a store gave runs away, in microseconds. It keeps each for a period, and they are read much more often."""

    def __init__(self, url: str):
        self._seen: dict[int, int] = {}
        if url.startswith("postgresql"):
            place, _, schema = url.replace("?schema=", "&schema=").partition("&schema=")
            self._connection: Any = psycopg.connect(place, autocommit=True)
            self._sql = f'SELECT at, count(*) FROM "{schema}".starts GROUP BY at'
        else:
            self._connection = sqlite3.connect(url, isolation_level=None, timeout=30)
            self._sql = "SELECT at, count(*) FROM starts GROUP BY at"

    def look(self) -> None:
        for at, count in self._connection.execute(self._sql).fetchall():
            self._seen[at] = max(count, self._seen.get(at, 0))

    def all(self) -> list[int]:
        self._connection.close()
        return [at for at, count in sorted(self._seen.items()) for _ in range(count)]


def test_one_at_a_time_is_never_exceeded_by_many_workers(store: everstep.Store, hands: Start, notes: Notes) -> None:
    store.limit("single", concurrency=1)
    runs = [store.enqueue("busy", "k", 0.005, queue="single") for _ in range(25)]
    for _ in range(3):
        hands("busy", worker={"queues": "single"})
    for run in runs:
        assert run.wait(60).status == "succeeded"
    lines = notes.all()
    assert len(lines) == 50
    assert most_at_once(lines) == 1


def test_neither_is_that_of_a_key_and_other_keys_go_beside_it(store: everstep.Store, hands: Start, notes: Notes) -> None:
    store.limit("keyed", per_key=1, concurrency=3)
    runs = [store.enqueue("busy", f"k{n % 4}", 0.01, queue="keyed", key=f"k{n % 4}") for n in range(32)]
    for _ in range(3):
        hands("busy", worker={"queues": "keyed"})
    for run in runs:
        assert run.wait(60).status == "succeeded"
    lines = notes.all()
    assert [most_at_once(lines, f"k{n}") for n in range(4)] == [1] * 4
    assert 1 < most_at_once(lines) <= 3


def test_a_rate_is_not_exceeded_in_any_window(store: everstep.Store, url: str, hands: Start, notes: Notes) -> None:
    rate, period = 5, 0.8
    store.limit("slow", rate=(rate, period))
    for _ in range(3):
        hands("busy", worker={"queues": "slow"})
    starts, began = Starts(url), time.monotonic_ns()
    runs = [store.enqueue("busy", "k", 0.0, queue="slow") for _ in range(4 * rate)]

    def ended() -> bool:
        starts.look()
        return notes.count("end") == len(runs)

    until(ended)
    given = starts.all()
    assert len(given) > 2 * rate
    assert all(given[place] - given[place - rate] >= period * 1e6 for place in range(rate, len(given)))
    begun = sorted(line["at"] for line in notes.all("begin"))
    assert all(at - began >= place // rate * period * 1e9 for place, at in enumerate(begun))
    for run in runs:
        assert run.wait(60).status == "succeeded"


def test_a_limit_that_is_changed_or_taken_away_holds_from_then_on(store: everstep.Store, hands: Start, notes: Notes) -> None:
    store.limit("q", concurrency=1)
    first = [store.enqueue("busy", "k", 0.01, queue="q") for _ in range(5)]
    hands("busy", worker={"queues": "q"})
    for run in first:
        assert run.wait(60).status == "succeeded"
    assert most_at_once(notes.all()) == 1
    store.limit("q", concurrency=None)
    second = [store.enqueue("busy", "k", 0.3, queue="q") for _ in range(8)]
    until(lambda: sum(depth.running for depth in store.queues()) > 1)
    for run in second:
        assert run.wait(60).status == "succeeded"


def test_a_worker_that_died_does_not_keep_its_place_in_the_limit(store: everstep.Store, hands: Start, notes: Notes) -> None:
    store.limit("single", concurrency=1)
    deadly = store.enqueue("deadly", 0, queue="single")
    other = store.enqueue("busy", "k", 0.0, queue="single")
    hands("deadly", worker={"queues": "single", "max_deaths": 1}).actor.ended()
    hands("deadly", "busy", worker={"queues": "single", "max_deaths": 1})
    assert other.wait(60).status == "succeeded"
    assert deadly.wait(60).status == "failed"
