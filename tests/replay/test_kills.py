"""kill -9 at every place of a run: what was finished never runs again, and the result is that of a run which nobody disturbed."""

import os
import random
import signal
import time
from functools import partial
from typing import Any

import pytest
from replay_helpers import Child, World

from everstep.testing.waiting import until

N = 5
RESULT = {"total": 30, "seen": [0, 1, 4, 9, 16]}
PROGRAMS: dict[str, dict[str, Any]] = {
    "workflow": {"program": "drive", "flow": "flow", "args": [N]},
    "async workflow": {"program": "drive", "flow": "aflow", "args": [N]},
    "async workflow in a loop": {"program": "drive_async", "flow": "aflow", "args": [N]},
    "own loop": {"program": "loop", "n": N},
    "own loop, saved at every turn": {"program": "loop", "n": N, "saves": 1},
    "own loop, saved at every third turn": {"program": "loop", "n": N, "saves": 3},
    "own loop with a policy": {"program": "loop", "n": N, "policy": "every 2 steps"},
    "own loop, saved and with a policy": {"program": "loop", "n": N, "saves": 3, "policy": "every 2 steps"},
    "async own loop": {"program": "aloop", "n": N},
    "async own loop, saved and with a policy": {"program": "aloop", "n": N, "saves": 3, "policy": "every 2 steps"},
}
each_program = pytest.mark.parametrize("asked", PROGRAMS.values(), ids=PROGRAMS)


def went_on_right(world: World, run: str, k: int, again: bool, finished: int, asked: dict[str, Any], **options: Any) -> None:
    """Go on with a run that died at step k with `finished` steps; `again` tells whether step k had had its effect."""
    before = world.effects(run)
    assert world.recorded(run) == [f"square#{i}" for i in range(finished)]
    assert [effect["what"] for effect in before] == [f"square {i}" for i in range(k + again)]
    assert not any(effect["again"] for effect in before)
    outcome = world.start(run=run, **asked, **options).outcome()
    assert (outcome["status"], outcome["result"]) == ("succeeded", RESULT)
    after = world.effects(run)[len(before) :]
    assert [effect["what"] for effect in after] == [f"square {i}" for i in range(finished, N)]
    assert [effect["again"] for effect in after] == [i == finished for i in range(finished, N)]
    keys = {effect["what"]: effect["key"] for effect in before}
    assert all(effect["key"] == keys.get(effect["what"], effect["key"]) for effect in after)
    assert world.recorded(run) == [f"square#{i}" for i in range(N)]


@each_program
def test_an_undisturbed_run_has_every_effect_once(world: World, asked: dict[str, Any]) -> None:
    outcome = world.start(**asked).outcome()
    assert (outcome["status"], outcome["result"]) == ("succeeded", RESULT)
    assert world.counts() == {f"square {i}": 1 for i in range(N)}


@each_program
def test_a_run_killed_inside_any_step_runs_that_step_again_and_no_other(world: World, asked: dict[str, Any]) -> None:
    for k in range(N):
        world.start(run=f"r{k}", die=f"inside {k}", **asked).died()
        went_on_right(world, f"r{k}", k, True, k, asked)
    world.verify()


@each_program
def test_a_run_killed_at_the_beginning_of_any_step_runs_it_once(world: World, asked: dict[str, Any]) -> None:
    for k in range(N):
        world.start(run=f"r{k}", die=f"before {k}", **asked).died()
        went_on_right(world, f"r{k}", k, False, k, asked)
    world.verify()


@each_program
def test_a_run_killed_after_any_step_runs_no_finished_step_again(world: World, asked: dict[str, Any]) -> None:
    for k in range(N):
        world.start(run=f"r{k}", die=f"after {k}", **asked).died()
        went_on_right(world, f"r{k}", k, True, k + 1, asked)
    world.verify()


@each_program
def test_a_run_killed_between_a_steps_commit_and_its_return_does_not_run_it_again(world: World, asked: dict[str, Any]) -> None:
    for k in range(N):
        world.start(run=f"r{k}", after_commit=f"square#{k}", **asked).died()
        went_on_right(world, f"r{k}", k, True, k + 1, asked)
    world.verify()


@pytest.mark.parametrize("asked", [p for p in PROGRAMS.values() if "saves" in p], ids=[n for n, p in PROGRAMS.items() if "saves" in p])
def test_a_loop_killed_at_the_end_of_any_turn_goes_on_from_there(world: World, asked: dict[str, Any]) -> None:
    for k in range(N):
        world.start(run=f"r{k}", die=f"turned {k}", **asked).died()
        went_on_right(world, f"r{k}", k, True, k + 1, asked)
    world.verify()


@each_program
def test_a_run_that_dies_at_each_of_its_steps_in_turn_comes_to_its_end(world: World, asked: dict[str, Any]) -> None:
    for k in range(N):
        world.start(die=f"inside {k}", **asked).died()
        world.start(die=f"after {k}", **asked).died()
    assert world.start(**asked).outcome()["result"] == RESULT
    assert world.counts() == {f"square {i}": 2 for i in range(N)}
    for i in range(N):
        first, second = (effect for effect in world.effects() if effect["what"] == f"square {i}")
        assert first["key"] == second["key"]
        assert second["again"]
    world.verify()


def test_the_checks_catch_a_store_that_records_nothing(world: World) -> None:
    asked = PROGRAMS["workflow"]
    world.start(run="r0", die="after 2", **asked).died()
    assert world.recorded("r0")
    world.start(run="r1", die="inside 2", **asked).died()
    with pytest.raises(AssertionError):
        went_on_right(world, "r1", 2, True, 2, asked, enabled=False)


@pytest.mark.parametrize("program", ["drive", "drive_async"])
def test_a_finished_run_that_is_started_again_gives_its_recorded_outcome(world: World, program: str) -> None:
    asked = {"program": program, "flow": "aflow" if program == "drive_async" else "flow", "args": [N]}
    assert world.start(die="done", **asked).heard()
    first = world.start(**asked).outcome()
    assert (first["status"], first["result"], first["executed"]) == ("succeeded", RESULT, 0)
    assert world.counts() == {f"square {i}": 1 for i in range(N)}


# doubt stays until the step has run


@pytest.mark.parametrize("do", ["pause", "signal", "lease"])
@pytest.mark.parametrize("asked", [PROGRAMS["workflow"], PROGRAMS["own loop"]], ids=["workflow", "own loop"])
def test_a_step_that_was_running_at_a_death_is_doubtful_even_if_others_had_the_run_meanwhile(
    world: World, asked: dict[str, Any], do: str
) -> None:
    world.start(die="inside 2", **asked).died()
    if do == "pause":
        world.start("order", do="pause", **{"with": ["r"]}).expect("done").wait()
    elif do == "signal":
        between = world.start(**asked, hold="before 2").expect("at before 2")  # told, but it is stopped before it has done anything
        between.signal(signal.SIGINT)
        between.expect("noted")
        between.signal(signal.SIGINT)
        assert between.wait() in (130, -signal.SIGINT)
    else:
        world.start(**asked, die="before 2").died()
    assert world.start(**asked).outcome()["result"] == RESULT
    assert [effect["again"] for effect in world.effects() if effect["what"] == "square 2"] == [False, True]


def test_inner_steps_of_parallel_ones_stay_doubtful_while_others_end(world: World) -> None:
    asked = {"program": "drive", "flow": "branches", "args": [3]}
    world.start(die="leaf 0 1", **asked).died()
    recorded = set(world.recorded())
    child = world.start(hold="branch 0", **asked).expect("at branch 0")
    until(lambda: {"branch#1", "branch#2"} <= set(world.recorded()))
    child.tell()
    assert child.outcome()["result"] == [1, 2, 3]
    last = [effect for effect in world.effects() if effect["what"] == "leaf 0 1"][-1]
    assert last["again"]
    assert "branch#0/second#0" not in recorded


# waiting for time


SLEEPERS: dict[str, dict[str, Any]] = {
    "workflow": {"program": "drive", "flow": "sleeper", "args": [0.9]},
    "async workflow": {"program": "drive", "flow": "asleeper", "args": [0.9]},
    "own loop": {"program": "sleeping_loop", "seconds": 0.9},
    "async own loop": {"program": "sleeping_aloop", "seconds": 0.9},
}


def asleep(world: World, child: Child) -> Any:
    """Wait until a child has recorded its deadline; the deadline."""
    until(lambda: world.path.exists() and world.effects() and world.timers())
    assert child.code is None
    return world.timers()[0][1]


@pytest.mark.parametrize("asked", SLEEPERS.values(), ids=SLEEPERS)
def test_a_run_killed_in_its_sleep_keeps_its_deadline(world: World, asked: dict[str, Any]) -> None:
    child = world.start(**asked)
    deadline = asleep(world, child)
    child.signal(signal.SIGKILL)
    child.died()
    outcome = world.start(**asked).outcome()
    assert (outcome["status"], outcome["result"]) == ("succeeded", 5)
    assert world.timers() == [("sleep#0", deadline)]
    ran = next(event for event in world.events() if event.name == "step_succeeded" and event.data["step"] == "square#1")
    assert ran.at >= deadline
    assert world.counts() == {"square 1": 1, "square 2": 1}
    world.verify()


@pytest.mark.parametrize("asked", [SLEEPERS["own loop"], SLEEPERS["async own loop"]], ids=["own loop", "async own loop"])
def test_a_loop_killed_in_a_long_sleep_does_not_wait_anew(world: World, asked: dict[str, Any]) -> None:
    asked = {**asked, "seconds": 36_000}
    child = world.start(**asked)
    deadline = asleep(world, child)
    child.signal(signal.SIGKILL)
    child.died()
    second = world.start(**asked, later=1_000)
    with world.open() as store:
        until(lambda: store.get("r").open)
    second.signal(signal.SIGKILL)
    second.died()
    assert world.start(**asked, later=36_001).outcome()["result"] == 5
    assert world.timers() == [("sleep#0", deadline)]
    assert world.counts() == {"square 1": 1, "square 2": 1}


@pytest.mark.parametrize("flow", ["sleeper", "asleeper"])
def test_a_workflow_in_a_long_sleep_holds_no_process_and_keeps_its_deadline(world: World, flow: str) -> None:
    asked = {"program": "drive", "flow": flow, "args": [36_000]}
    child = world.start(**asked, die="done")
    assert '"waiting"' in child.heard()
    child.died()
    [(_, deadline)] = world.timers()
    for later in (0, 35_990):
        assert world.start(**asked, later=later).outcome()["status"] == "waiting"
    assert world.timers() == [("sleep#0", deadline)]
    with world.open() as store:
        assert store.due() == []
    outcome = world.start("resume", later=36_001).outcome()
    assert (outcome["status"], outcome["result"]) == ("succeeded", 5)
    assert world.timers() == [("sleep#0", deadline)]
    assert world.counts() == {"square 1": 1, "square 2": 1}
    world.verify()


@pytest.mark.parametrize("flow", ["sleeper", "asleeper"])
def test_a_workflow_killed_before_its_long_sleep_is_recorded_sleeps_once(world: World, flow: str) -> None:
    asked = {"program": "drive", "flow": flow, "args": [36_000]}
    world.start(**asked, after_commit="square#0").died()
    assert world.timers() == []
    assert world.start(**asked).outcome()["status"] == "waiting"
    assert len(world.timers()) == 1
    assert world.counts() == {"square 1": 1}


# retries


@pytest.mark.parametrize("flow", ["flaky", "aflaky"])
def test_attempts_go_on_after_a_death_between_two_of_them(world: World, flow: str) -> None:
    asked = {"program": "drive", "flow": flow, "args": [3, 4, 0.01], "hooks": ["after_step"]}
    world.start(**asked, die="after_step 1").died()
    outcome = world.start(**asked).outcome()
    assert (outcome["status"], outcome["result"]) == ("succeeded", 3)
    effects = world.effects()
    assert [effect["attempt"] for effect in effects] == [1, 2, 3]
    assert len({effect["key"] for effect in effects}) == 1
    assert [effect["pid"] == effects[0]["pid"] for effect in effects] == [True, False, False]


@pytest.mark.parametrize("flow", ["flaky", "aflaky"])
def test_a_step_that_always_fails_is_tried_as_often_as_it_may_be_however_often_it_dies(world: World, flow: str) -> None:
    asked = {"program": "drive", "flow": flow, "args": [99, 4, 0.01], "hooks": ["after_step"]}
    for attempt in (1, 2, 3):
        world.start(**asked, die=f"after_step {attempt}").died()
    outcome = world.start(**asked).outcome()
    assert (outcome["status"], outcome["error"]) == ("failed", "ValueError: attempt 4")
    assert [effect["attempt"] for effect in world.effects()] == [1, 2, 3, 4]


@pytest.mark.parametrize("flow", ["flaky", "aflaky"])
def test_a_death_inside_an_attempt_keeps_the_attempts_before_it(world: World, flow: str) -> None:
    asked = {"program": "drive", "flow": flow, "args": [99, 3, 0.01]}
    world.start(**asked, die="inside 2").died()
    assert world.start(**asked).outcome()["status"] == "failed"
    assert [(effect["attempt"], effect["again"]) for effect in world.effects()] == [(1, False), (2, False), (2, True), (3, True)]


@pytest.mark.parametrize("flow", ["flaky", "aflaky"])
def test_the_wait_between_two_attempts_stands(world: World, flow: str) -> None:
    asked = {"program": "drive", "flow": flow, "args": [2, 3, 7_200], "hooks": ["after_step"]}
    world.start(**asked, die="after_step 1").died()
    assert world.start(**asked, later=7_201).outcome()["result"] == 2
    assert world.counts() == {"try 1": 1, "try 2": 1}


# at most once


@pytest.mark.parametrize("flow", ["shop", "ashop"])
@pytest.mark.parametrize(
    ("answer", "status", "result", "times"),
    [("run", "succeeded", [1, 7, 4], 2), ("skip", "succeeded", [1, None, 4], 1), ("fail", "failed", None, 1)],
)
def test_a_death_in_a_step_that_is_to_run_at_most_once_asks(
    world: World, flow: str, answer: str, status: str, result: Any, times: int
) -> None:
    asked = {"program": "drive", "flow": flow, "args": [7]}
    world.start(**asked, die="paying 1").died()
    for _ in range(2):
        waiting = world.start(**asked).outcome()
        assert waiting["status"] == "waiting"
        assert world.counts()["pay 7"] == 1
    [gate] = waiting["gates"]
    with world.open() as store:
        assert store.gates("r")[0].choices == ["run", "skip", "fail"]
        store.answer("r", gate, answer)
    outcome = world.start("resume").outcome()
    assert (outcome["status"], outcome["result"]) == (status, result)
    assert world.counts()["pay 7"] == times
    assert world.counts()["square 1"] == 1
    if answer == "fail":
        assert "ProcessDied" in outcome["error"]
    if answer == "run":
        assert world.effects()[2]["again"]
    world.verify()


def test_a_step_at_most_once_that_dies_twice_asks_twice(world: World) -> None:
    asked = {"program": "drive", "flow": "shop", "args": [7]}
    world.start(**asked, die="paying 1").died()
    seen = set()
    for attempt in (2, 3):
        [gate] = world.start(**asked).outcome()["gates"]
        seen.add(gate)
        with world.open() as store:
            store.answer("r", gate, "run")
        if attempt == 2:
            world.start(**asked, die="paying 2").died()
    assert len(seen) == 2
    assert world.start(**asked).outcome()["result"] == [1, 7, 4]
    assert world.counts()["pay 7"] == 3


def test_a_death_in_a_later_attempt_of_a_step_at_most_once_asks_too(world: World) -> None:
    asked = {"program": "drive", "flow": "charging", "args": []}
    world.start(**asked, die="inside 2").died()
    assert world.counts() == {"try 1": 1, "try 2": 1}
    assert world.start(**asked).outcome()["status"] == "waiting"
    assert world.counts() == {"try 1": 1, "try 2": 1}


def test_a_death_after_a_step_at_most_once_asks_nothing(world: World) -> None:
    asked = {"program": "drive", "flow": "shop", "args": [7]}
    world.start(**asked, after_commit="square#1").died()
    assert world.start(**asked).outcome()["result"] == [1, 7, 4]
    assert world.counts()["pay 7"] == 1


# child runs


@pytest.mark.parametrize("flow", ["outer", "aouter"])
def test_a_run_killed_in_its_child_goes_on_in_its_child(world: World, flow: str) -> None:
    asked = {"program": "drive", "flow": flow, "args": [3]}
    for place in ("inside 1", "after 1", "after 2", "inside 11"):
        run = place.replace(" ", "-")
        world.start(run=run, **asked, die=place).died()
        outcome = world.start(run=run, **asked).outcome()
        assert outcome["result"] == [100, 5, 121]
        twice = {f"square {place.split()[1]}"} if place.startswith("inside") else set()
        assert world.counts(run) == {f"square {i}": 1 + (f"square {i}" in twice) for i in (10, 0, 1, 2, 11)}
    world.verify()


# durability


@pytest.mark.parametrize("durability", ["async", "exit"])
@pytest.mark.parametrize("saves", [0, 1])
def test_what_was_flushed_is_there_after_a_death_and_the_rest_is_lost_in_whole_steps(world: World, durability: str, saves: int) -> None:
    asked = {"program": "loop", "n": N, "durability": durability, "saves": saves}
    for k in range(N):
        run = f"r{k}"
        child = world.start(run=run, **asked, flush=[k - 2], die=f"turned {k}")
        child.died()
        recorded = world.recorded(run)
        assert len(recorded) >= k - 1
        if durability == "exit":
            assert len(recorded) == max(0, k - 1)
        assert recorded == [f"square#{i}" for i in range(len(recorded))]
        outcome = world.start(run=run, **asked).outcome()
        assert (outcome["status"], outcome["result"]) == ("succeeded", RESULT)
        lost = [f"square {i}" for i in range(len(recorded), k + 1)]
        assert world.counts(run) == {f"square {i}": 1 + (f"square {i}" in lost) for i in range(N)}
        second = world.effects(run)[k + 1 :]
        assert all(effect["again"] for effect in second if effect["what"] in lost)
    world.verify()


# many at once, at any moment


def ran_or_ended(world: World, wanted: int, n: int) -> bool:
    """Whether that many executions were begun, or there was nothing left to begin."""
    begun = len(world.effects())
    return begun >= wanted or (begun > 0 and len(world.recorded()) == n)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("flow", "n"), [("mapped", 60), ("gathered", 100)])
def test_parallel_steps_killed_at_random_moments_never_run_again_once_recorded(world: World, flow: str, n: int, seed: int) -> None:
    rng = random.Random(f"{flow} {seed}")
    asked = {"program": "drive", "flow": flow, "args": [n]}
    deaths, recorded = 0, set()
    while deaths < 6:
        before = len(world.effects())
        wanted = before + rng.randint(1, n // 3)
        child = world.start(**asked)
        until(partial(ran_or_ended, world, wanted, n))
        time.sleep(rng.random() * 0.02)
        child.signal(signal.SIGKILL)
        if child.wait() == 0:
            break
        deaths += 1
        assert not {f"slow#{effect['what'].split()[1]}" for effect in world.effects()[before:]} & recorded
        recorded = set(world.recorded())
    assert deaths
    before = len(world.effects())
    outcome = world.start(**asked).outcome()
    assert (outcome["status"], outcome["result"]) == ("succeeded", [i * 3 for i in range(n)])
    assert not {f"slow#{effect['what'].split()[1]}" for effect in world.effects()[before:]} & recorded
    assert max(world.counts().values()) <= 1 + deaths
    by_process = [(f"slow#{effect['what'].split()[1]}", effect["pid"]) for effect in world.effects()]
    with world.open() as store:
        steps = store.steps("r")
        assert sorted(step.address for step in steps) == sorted(f"slow#{i}" for i in range(n))
        for step in steps:
            writer = int(step.worker.rpartition(":")[2])
            assert by_process.count((step.address, writer)) == 1
            assert [pid for address, pid in by_process if address == step.address][-1] == writer
    world.verify()


# fork(2)


@pytest.mark.parametrize("by", ["fork", "multiprocessing"])
def test_a_forked_process_is_refused_and_the_run_goes_on_in_its_parent(world: World, by: str) -> None:
    child = world.start("forking", by=by)
    said = list(iter(child.heard, ""))
    assert child.wait() == 0
    refused = [line.split() for line in said if line.split()[0] not in ("child", "parent")]
    assert dict(refused) == dict.fromkeys(("step", "decorated", "checkpoint", "start", "sleep", "gate", "map"), "StoreClosed")
    assert said[-2].startswith("child ")
    assert said[-1] == "parent done"
    assert world.counts() == {"square 0": 1, "square 1": 1}
    with world.open() as store:
        assert store.get("r").status == "succeeded"
        assert [step.worker.rpartition(":")[2] for step in store.steps("r")] == [str(child.pid)] * 2
        assert [run.id for run in store.runs()] == ["r"]
    assert os.getpid() != child.pid
    world.verify()
