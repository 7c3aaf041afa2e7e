"""A limit of deaths counts every driver: workers, programs, callers of child runs. Processes are killed for real."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import worker_programs
from worker_helpers import Hand, Notes

import everstep
from everstep.errors import WorkerDied
from everstep.records import Kind
from everstep.store.journal.entries import said_in
from everstep.testing.waiting import until
from harness.faults.actor import Actor, ActorDied

Start = Callable[..., Hand]


def drive(url: str, notes: Notes, run: str, how: str, flow: str = "deadly", args: tuple[Any, ...] = ()) -> Any:
    """What a program of its own says of the run that it drove; None if it died of that."""
    actor = Actor(worker_programs.drive, url, notes.path, run, how, flow, args)
    with actor:
        try:
            return actor.hear(60)
        except ActorDied:
            assert actor.ended() == -signal.SIGKILL
            return None


def lives(hand: Hand) -> bool:
    return hand.actor._process.is_alive()


@pytest.mark.parametrize("how", ["start", "resume"])
def test_a_run_that_kills_the_programs_that_drive_it_is_given_up(url: str, store: everstep.Store, notes: Notes, how: str) -> None:
    said = [drive(url, notes, "poison", "start")] + [drive(url, notes, "poison", how) for _ in range(6)]
    dead = ("failed", "WorkerDied", "dead-letter")
    assert said[:6] == [None] * 5 + [dead]
    if how == "start":
        assert said[6] == ("failed", "WorkerDied", "recorded before")
        assert notes.count("dies") == 5
    else:  # a person decided to try once more
        assert said[6] is None
        assert notes.count("dies") == 6
    assert "dead-letter" in store.get("poison").tags


def test_a_run_outside_of_queues_kills_at_most_so_many_workers(url: str, store: everstep.Store, hands: Start, notes: Notes) -> None:
    assert drive(url, notes, "poison", "start") is None
    killed = 0
    while True:
        hand = hands("deadly", worker={"max_deaths": 3})
        until(lambda hand=hand: not lives(hand) or store.get("poison").status == "failed")
        if store.get("poison").status == "failed":
            break
        killed += 1
    assert (killed, notes.count("dies"), notes.count("before 0")) == (2, 3, 1)
    outcome = store.enqueue("count", 1)  # the worker that gave it up goes on
    assert hand.hear("dead-letter", run="poison")["deaths"] == 3
    assert outcome.new


@pytest.mark.parametrize("softly", [False, True])
def test_a_child_that_kills_its_process_counts_for_its_tree(store: everstep.Store, hands: Start, notes: Notes, softly: bool) -> None:
    job = store.enqueue("call_deadly", softly)
    for _ in range(12):
        hand = hands("call_deadly", "deadly", worker={"max_deaths": 3})
        until(lambda hand=hand: not lives(hand) or job.is_over())
        if job.is_over():
            break
    assert notes.count("dies") == 3
    out = job.wait(60)
    (child,) = [run for run in store.runs(limit=10) if run.workflow == "deadly"]
    until(lambda: store.get(child.id).status == "failed")
    assert out.status in ("failed", "succeeded")
    if out.status == "succeeded":
        assert softly
        assert out.result == "WorkerDied"
    else:
        assert isinstance(out.error, WorkerDied)
    assert notes.count("parent before") == 1


def test_what_a_child_records_is_progress_of_its_parent(store: everstep.Store, hands: Start, notes: Notes) -> None:
    job = store.enqueue("call_slow", 6)
    for _ in range(12):
        hand = hands("call_slow", worker={"max_deaths": 3, "recover": False})
        until(lambda hand=hand: not lives(hand) or job.is_over())
        if job.is_over():
            break
    assert job.wait(60).unwrap() == "ended"
    assert notes.count("dies") == 6


def test_a_dead_letter_resumed_by_hand_gets_one_more_allowance(url: str, store: everstep.Store, hands: Start, notes: Notes) -> None:
    job = store.enqueue("deadly", id="poison")

    def give_up(programs: int) -> None:
        """Start workers until the run is given up; so many deaths are left to them."""
        for _ in range(programs):
            assert hands("deadly", worker={"max_deaths": 3}).actor.ended() == -signal.SIGKILL
        hands("deadly", worker={"max_deaths": 3}).hear("dead-letter", run="poison")

    give_up(3)
    assert job.status == "failed"
    assert drive(url, notes, "poison", "wake") is None  # nothing is due: this program says so
    assert notes.count("dies") == 3
    assert drive(url, notes, "poison", "resume") is None
    assert notes.count("dies") == 4
    give_up(2)
    assert notes.count("dies") == 6
    row = store.backend.run("poison")
    assert row is not None
    said = [said_in(record.opened_by(store.framer)) for record in store.backend.records("poison", 1, row.head_seq, (Kind.STATUS.value,))]
    assert sum("allowed_deaths" in one for one in said) == 1
    assert [one["deaths"] for one in said if "deaths" in one] == [3, 3]


def test_a_run_that_gets_on_between_deaths_is_never_given_up(url: str, store: everstep.Store, notes: Notes) -> None:
    for n in range(1, 8):
        assert drive(url, notes, "slow", "start", "call_slow", (7,)) is None
        assert notes.count("dies") == n
    assert drive(url, notes, "slow", "start", "call_slow", (7,)) == ("succeeded", "NoneType", None)


def test_a_loop_of_ones_own_is_never_given_up(store: everstep.Store, tmp_path: Path, url: str, notes: Notes) -> None:
    for _ in range(7):
        with Actor(_die_in_loop, url) as actor:
            assert actor.ended() == -signal.SIGKILL
    with store.run("loop") as run:
        assert run.state == {}


def _die_in_loop(pipe: Any, url: str) -> None:
    import os

    store = everstep.open(url)
    store.run("loop").__enter__()
    os.kill(os.getpid(), signal.SIGKILL)
