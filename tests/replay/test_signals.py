"""Ctrl-C and SIGTERM: the running step is finished and recorded, the state is saved, the lease given back; the second signal stops at once."""

import json
import signal
from typing import Any

import pytest
from replay_helpers import Child, World

from everstep.testing.waiting import until

N = 5
RESULT = {"total": 30, "seen": [0, 1, 4, 9, 16]}
SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
PROGRAMS: dict[str, tuple[dict[str, Any], str]] = {
    "workflow": ({"program": "drive", "flow": "flow", "args": [N]}, "inside"),
    "async workflow": ({"program": "drive", "flow": "aflow", "args": [N]}, "task"),
    "async workflow in a loop": ({"program": "drive_async", "flow": "aflow", "args": [N]}, "task"),
    "own loop": ({"program": "loop", "n": N}, "inside"),
    "own loop, saved at every turn": ({"program": "loop", "n": N, "saves": 1}, "inside"),
    "async own loop": ({"program": "aloop", "n": N}, "task"),
}
each_program = pytest.mark.parametrize(("asked", "place"), PROGRAMS.values(), ids=PROGRAMS)


def stopped(world: World, child: Child, number: int, finished: int, kind: str | None = "interrupt", run: str = "r") -> None:
    """The child has ended as a signal ends a program, and left a run that anybody can go on with."""
    code = child.wait()
    assert code == 128 + number or (code == -number and kind is None)  # a shell says 130 of both
    assert world.recorded(run) == [f"square#{i}" for i in range(finished)]
    with world.open() as store:
        info = store.get(run)
        assert not info.open, "its lease was not given back"
        assert info.status == "running"
        if kind is not None:
            assert store.checkpoints(run)[0].kind == kind
        assert store.verify("full").ok


def goes_on(world: World, asked: dict[str, Any], expected: Any = RESULT) -> None:
    outcome = world.start(**asked).outcome()
    assert (outcome["status"], outcome["result"]) == ("succeeded", expected)
    world.verify()


@SIGNALS
@each_program
def test_a_signal_inside_a_step_lets_it_finish_and_the_next_resume_goes_on(
    world: World, asked: dict[str, Any], place: str, number: int
) -> None:
    child = world.start(hold=f"{place} 2", **asked).expect(f"at {place} 2")
    child.signal(number)
    child.expect("noted")
    child.tell()
    stopped(world, child, number, 3)
    goes_on(world, asked)
    assert world.counts() == {f"square {i}": 1 for i in range(N)}
    assert not any(effect["again"] for effect in world.effects())


@SIGNALS
def test_a_signal_while_an_async_run_waits_for_a_step_in_a_thread_lets_it_finish(world: World, number: int) -> None:
    asked = {"program": "threaded", "n": 3}
    child = world.start(hold="inside 1", **asked).expect("at inside 1")
    child.signal(number)  # the loop may have gone to sleep just before: then it is heard when the step ends
    child.tell()
    stopped(world, child, number, 2)
    goes_on(world, asked, [0, 1, 4])
    assert world.counts() == {f"square {i}": 1 for i in range(3)}


@SIGNALS
@each_program
def test_a_second_signal_stops_at_once_and_the_step_in_flight_is_doubtful(
    world: World, asked: dict[str, Any], place: str, number: int
) -> None:
    child = world.start(hold=f"{place} 2", **asked).expect(f"at {place} 2")
    child.signal(number)
    child.expect("noted")
    child.signal(number)
    stopped(world, child, number, 2, None)
    goes_on(world, asked)
    assert world.counts() == {f"square {i}": 2 if i == 2 else 1 for i in range(N)}
    assert [effect["again"] for effect in world.effects()] == [False, False, False, True, False, False]


def test_sigterm_after_ctrl_c_stops_at_once(world: World) -> None:
    asked = PROGRAMS["workflow"][0]
    child = world.start(hold="inside 2", **asked).expect("at inside 2")
    child.signal(signal.SIGINT)
    child.expect("noted")
    child.signal(signal.SIGTERM)
    stopped(world, child, signal.SIGTERM, 2, None)
    goes_on(world, asked)


@SIGNALS
@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("workflow", "after"),
        ("own loop", "after"),
        ("own loop, saved at every turn", "turned"),
        ("async workflow", "loop"),
        ("async workflow in a loop", "loop"),
        ("async own loop", "loop"),
        ("async own loop", "after"),
    ],
)
def test_a_signal_between_steps_stops_there(world: World, name: str, place: str, number: int) -> None:
    asked, _ = PROGRAMS[name]
    child = world.start(hold=f"{place} 2", **asked).expect(f"at {place} 2")
    child.signal(number)
    if name == "async own loop" and place == "after":  # the loop's thread is busy: it is heard when that is over
        child.tell()
    stopped(world, child, number, 3)
    goes_on(world, asked)
    assert world.counts() == {f"square {i}": 1 for i in range(N)}


@SIGNALS
@pytest.mark.parametrize("flow", ["flaky", "aflaky"])
def test_a_signal_between_two_attempts_stops_there_and_the_attempts_go_on(world: World, flow: str, number: int) -> None:
    asked = {"program": "drive", "flow": flow, "args": [2, 3, 7_200]}
    child = world.start(**asked)
    until(lambda: world.effects() and [event for event in world.events() if event.name == "step_retrying"])
    child.signal(number)
    stopped(world, child, number, 0)
    assert world.start(**asked, later=7_201).outcome()["result"] == 2
    assert world.counts() == {"try 1": 1, "try 2": 1}


@SIGNALS
@pytest.mark.parametrize("program", ["sleeping_loop", "sleeping_aloop"])
def test_a_signal_in_a_sleep_stops_there_and_the_deadline_stands(world: World, program: str, number: int) -> None:
    asked = {"program": program, "seconds": 36_000}
    child = world.start(**asked)
    until(lambda: world.effects() and world.timers())
    deadlines = world.timers()
    child.signal(number)
    stopped(world, child, number, 1)
    assert world.start(**asked, later=36_001).outcome()["result"] == 5
    assert world.timers() == deadlines


@SIGNALS
@pytest.mark.parametrize(("flow", "place"), [("outer", "inside"), ("aouter", "task")])
def test_a_signal_stops_a_child_run_and_the_run_that_called_it(world: World, flow: str, place: str, number: int) -> None:
    asked = {"program": "drive", "flow": flow, "args": [3]}
    child = world.start(hold=f"{place} 1", **asked).expect(f"at {place} 1")
    child.signal(number)
    child.expect("noted")
    child.tell()
    assert child.wait() == 128 + number
    with world.open() as store:
        runs = store.runs()
        assert len(runs) == 2
        for info in runs:
            assert (info.status, info.open) == ("running", False)
            assert store.checkpoints(info.id)[0].kind == "interrupt"
    goes_on(world, asked, [100, 5, 121])
    assert world.counts() == {f"square {i}": 1 for i in (10, 0, 1, 2, 11)}
    assert not any(effect["again"] for effect in world.effects())


@pytest.mark.parametrize(("flow", "n"), [("mapped", 40), ("gathered", 40)])
@SIGNALS
def test_a_signal_amid_parallel_steps_leaves_a_whole_run(world: World, flow: str, n: int, number: int) -> None:
    asked = {"program": "drive", "flow": flow, "args": [n]}
    child = world.start(**asked, linger_from=4)  # from there on, steps end when the signal has been noted
    until(lambda: len(world.effects()) > 7)
    child.signal(number)
    assert child.wait() == 128 + number
    recorded = set(world.recorded())
    assert recorded
    assert flow == "gathered" or len(recorded) <= 12, "steps were begun after the signal"
    before = len(world.effects())
    with world.open() as store:
        assert not store.get("r").open
        assert store.checkpoints("r")[0].kind == "interrupt"
    goes_on(world, asked, [i * 3 for i in range(n)])
    assert not {f"slow#{effect['what'].split()[1]}" for effect in world.effects()[before:]} & recorded
    assert max(world.counts().values()) <= 2
    for effect in world.effects()[before:]:
        if world.counts()[effect["what"]] == 2:
            assert effect["again"]


@SIGNALS
def test_a_signal_just_after_a_checkpoint_was_made_goes_on_from_it(world: World, number: int) -> None:
    child = world.start("counting", n=N, signal_after_save=3, number=number).expect("from 0")
    assert child.wait() == 128 + number
    with world.open() as store:
        assert (store.load("r"), store.get("r").checkpoints, store.get("r").open) == ({"n": 3}, 3, False)
    assert world.start("counting", n=N).expect("from 3").wait() == 0
    with world.open() as store:
        assert (store.load("r"), store.get("r").checkpoints) == ({"n": N}, N)


@SIGNALS
@pytest.mark.parametrize("durability", ["async", "exit"])
def test_a_signal_makes_lagging_steps_durable(world: World, durability: str, number: int) -> None:
    asked = {"program": "loop", "n": N, "durability": durability}
    child = world.start(hold="inside 3", **asked).expect("at inside 3")
    child.signal(number)
    child.expect("noted")
    child.tell()
    stopped(world, child, number, 4)
    goes_on(world, asked)
    assert world.counts() == {f"square {i}": 1 for i in range(N)}


@SIGNALS
@pytest.mark.parametrize("name", ["workflow", "async workflow", "async workflow in a loop", "own loop", "async own loop"])
def test_a_signal_while_a_run_is_being_closed_is_not_lost(world: World, name: str, number: int) -> None:
    asked, _ = PROGRAMS[name]
    child = world.start(**asked, signal_at_end=number)
    assert child.wait() == 128 + number
    assert child.heard() == "", "the program went on"
    with world.open() as store:
        assert (store.get("r").status, store.get("r").open) == ("succeeded", False)
    assert world.counts() == {f"square {i}": 1 for i in range(N)}
    world.verify()


def test_a_program_with_handlers_of_its_own_keeps_them(world: World) -> None:
    child = world.start("own_handler", hold="inside 1").expect("at inside 1")
    for number in (signal.SIGTERM, signal.SIGINT):
        child.signal(number)
        child.expect(f"heard {number}")
    child.tell()
    said = child.outcome()
    assert said == {"heard": [signal.SIGTERM, signal.SIGINT], "kept": True}
    assert world.counts() == {"square 1": 1, "square 2": 1}


def test_handlers_are_those_of_before_when_the_last_run_is_closed(world: World) -> None:
    child = world.start("handlers")
    said = json.loads(child.heard())
    assert child.wait() == 0
    assert said["inside"] == [["_handle", "_handle"]] * 2
    assert said["afters"] == [True] * 7


# an operator's pause and cancel


@pytest.mark.parametrize("do", ["pause", "cancel"])
@each_program
def test_an_operator_in_another_process_stops_a_run_at_its_next_step(world: World, asked: dict[str, Any], place: str, do: str) -> None:
    if asked["program"] in ("loop", "aloop"):
        asked = {**asked, "catch": True}
    child = world.start(hold=f"{place} 2", **asked).expect(f"at {place} 2")
    world.start("order", do=do, **{"with": ["r", "enough"]}).expect("done")
    child.tell()
    said = child.outcome()
    status = "waiting" if do == "pause" else "cancelled"
    assert (said["status"], said["reason"]) == (status, f"{do}: enough")
    assert world.recorded() == ["square#0", "square#1", "square#2"]
    with world.open() as store:
        assert store.get("r").status == status
        assert not store.get("r").open
        assert store.checkpoints("r")[0].kind == "interrupt"
    if do == "pause":
        goes_on(world, asked)
        assert world.counts() == {f"square {i}": 1 for i in range(N)}
    else:
        again = world.start(**asked)
        assert "succeeded" not in again.heard()
        assert world.counts() == {f"square {i}": 1 for i in range(3)}


def test_a_pause_reaches_the_child_run_that_is_being_driven(world: World) -> None:
    asked = {"program": "drive", "flow": "outer", "args": [3]}
    child = world.start(hold="inside 1", **asked).expect("at inside 1")
    world.start("order", do="pause", **{"with": ["r"]}).expect("done")
    child.tell()
    assert child.outcome()["status"] == "waiting"
    assert world.counts() == {"square 10": 1, "square 0": 1, "square 1": 1}
    with world.open() as store:
        assert {info.status for info in store.runs()} == {"waiting"}
    goes_on(world, asked, [100, 5, 121])
    assert world.counts() == {f"square {i}": 1 for i in (10, 0, 1, 2, 11)}
