"""Killed, stopped and overtaken: what the steps wrote and what the journal says are the same, exactly."""

import random
import signal
import subprocess
import time

import pytest
from transactional_helpers import KINDS, World, heard, outcome, tell

from everstep.testing.waiting import until

N = 5
RESULT = sum(i * i for i in range(N))
LOST = ["begun", "written", "returned"]
"""Points at which nothing of the step holds yet."""
FILES = ["sqlite", "sqlite beside postgres"]
BESIDE = [*FILES, "postgres beside sqlite"]
POINTS = [("sqlite", point) for point in (*LOST, "kept", "recorded")]
POINTS += [(kind, point) for kind in BESIDE[1:] for point in ("written", "kept")]
POINTS += [("postgres", point) for point in (*LOST, "asked", "committed", "recorded")]
WAKING = [(kind, "called") for kind in KINDS] + [(kind, "written") for kind in ("postgres", "postgres beside sqlite")]
"""Where a worker stops without keeping others from their work. One that is in a transaction on a file does."""


def assert_done(world: World, n: int = N) -> None:
    assert world.lines() == list(range(n))
    assert world.total() == n
    assert world.finished() == n
    world.verify()


@pytest.mark.parametrize(("world", "point"), POINTS, indirect=["world"])
def test_a_process_that_is_killed_at_a_point_leaves_all_of_a_step_or_nothing(world: World, point: str) -> None:
    dead = world.start(N, point=f"{point} 2", do="die")
    assert dead.wait(60) == -signal.SIGKILL
    nothing = point in (*LOST, "asked")
    assert world.total() == len(world.lines()) == (2 if nothing else 3)
    assert world.finished() == (2 if nothing or point == "kept" else 3)
    found = world.finish(N)
    assert (found["status"], found["result"]) == ("succeeded", RESULT)
    assert_done(world)
    assert world.rows() <= 1  # that of a step whose process died before it could be removed


@pytest.mark.parametrize(
    ("world", "point", "made"),
    [("sqlite", "returned", 2), ("sqlite", "kept", 3), ("postgres", "asked", 2), ("postgres", "committed", 3)],
    indirect=["world"],
)
def test_a_process_that_is_killed_in_a_task_leaves_all_of_a_step_or_nothing(world: World, point: str, made: int) -> None:
    dead = world.start(N, point=f"{point} 2", do="die", flow="aflow")
    assert dead.wait(60) == -signal.SIGKILL
    assert world.total() == len(world.lines()) == made
    found = world.finish(N, flow="aflow")
    assert (found["status"], found["result"]) == ("succeeded", RESULT)
    assert_done(world)


def test_a_process_that_is_killed_again_and_again_writes_each_step_once(world: World) -> None:
    chance, steps, kills, stuck = random.Random(6), 150, 0, False  # many steps: on a busy machine the sleeps last longer
    while True:
        child = world.start(steps, pause=0.003, wait=True)
        before = world.total()
        tell(child)
        time.sleep(chance.uniform(0.0, 0.08))
        if stuck:  # a run whose drivers die one after the other without a step is given up
            until(lambda: world.total() > before or child.poll() is not None)  # noqa: B023 - asked at once
        if kills >= 8 or child.poll() is not None:
            break
        child.kill()
        child.wait()
        kills += 1
        stuck = world.total() == before
        assert world.total() == len(set(world.lines())) == len(world.lines())
        assert world.total() - world.finished_or_none() in ((0,) if world.inside else (0, 1))
    ended = outcome(child)
    assert ended["status"] == "succeeded", ended
    assert kills > 3
    assert_done(world, steps)


def overtake(world: World, slow: "subprocess.Popen[str]", **asked: object) -> dict[str, object]:
    """Drive the run in another process as soon as the lease of a stopped one has ended."""
    slow.send_signal(signal.SIGSTOP)
    while True:
        found = world.finish(N, lease_seconds=0.3, **asked)
        if found["status"] == "StoreBusy":  # it was stopped while it renewed its lease
            slow.send_signal(signal.SIGCONT)
            time.sleep(0.02)
            slow.send_signal(signal.SIGSTOP)
        elif found["status"] != "LeaseHeld":
            return found
        time.sleep(0.05)


@pytest.mark.parametrize(("world", "point"), WAKING, indirect=["world"])
def test_a_stopped_worker_that_was_overtaken_writes_nothing_when_it_wakes(world: World, point: str) -> None:
    slow = world.start(N, point=f"{point} 2", lease_seconds=0.3, shared=False)
    assert heard(slow) == f"at {point}"
    found = overtake(world, slow, shared=False)
    assert (found["status"], found["result"]) == ("succeeded", RESULT)
    assert world.lines() == list(range(N))
    slow.send_signal(signal.SIGCONT)
    tell(slow)
    assert outcome(slow)["status"] == "LostLease"
    assert world.lines() == list(range(N))
    assert world.finished() == N
    world.verify()


@pytest.mark.parametrize("world", FILES, indirect=True)
def test_a_stopped_worker_that_holds_the_file_keeps_others_from_the_step_and_what_it_writes_counts(world: World) -> None:
    slow = world.start(N, point="written 2", lease_seconds=0.3)
    assert heard(slow) == "at written"
    found = overtake(world, slow, busy=0.2)
    assert (found["status"], found["error"]) == ("failed", "OperationalError")
    slow.send_signal(signal.SIGCONT)
    tell(slow)
    assert outcome(slow)["status"] == "LostLease"
    assert (world.total(), world.finished()) == (3, 2)
    found = world.finish(N)
    assert (found["status"], found["result"]) == ("succeeded", RESULT)
    assert_done(world)


@pytest.mark.parametrize("world", BESIDE, indirect=True)
def test_a_worker_that_is_stopped_after_its_transaction_loses_the_record_and_not_the_step(world: World) -> None:
    slow = world.start(N, point="kept 2", lease_seconds=0.3)
    assert heard(slow) == "at kept"
    found = overtake(world, slow)
    assert (found["status"], found["result"]) == ("succeeded", RESULT)
    slow.send_signal(signal.SIGCONT)
    tell(slow)
    assert outcome(slow)["status"] == "LostLease"
    assert_done(world)


@pytest.mark.parametrize("world", ["sqlite", "postgres", "postgres beside sqlite"], indirect=True)
def test_a_stopped_worker_cannot_end_a_step_that_an_operator_has_skipped(world: World) -> None:
    slow = world.start(N, point="called 2", lease_seconds=0.3)
    assert heard(slow) == "at called"
    with world.open() as store:
        store.skip("r", "add#2", 4)
    found = overtake(world, slow)
    assert (found["status"], found["result"]) == ("succeeded", RESULT)
    slow.send_signal(signal.SIGCONT)
    tell(slow)
    assert outcome(slow)["status"] == "LostLease"
    assert (world.total(), world.lines()) == (N - 1, [0, 1, 3, 4])
