"""Several processes and one run: one drives it, the others are told so; who was overtaken cannot write any more."""

import json
import signal
from typing import Any

import pytest
from replay_helpers import World

from everstep.testing.waiting import until

N = 5
RESULT = {"total": 30, "seen": [0, 1, 4, 9, 16]}
PROGRAMS: dict[str, dict[str, Any]] = {
    "workflow": {"program": "drive", "flow": "flow", "args": [N]},
    "async workflow": {"program": "drive", "flow": "aflow", "args": [N]},
    "own loop": {"program": "loop", "n": N},
    "own loop, saved at every turn": {"program": "loop", "n": N, "saves": 1},
    "async own loop": {"program": "aloop", "n": N},
}
each_program = pytest.mark.parametrize("asked", PROGRAMS.values(), ids=PROGRAMS)


@each_program
def test_of_two_resumes_one_runs_and_one_is_told_that_the_lease_is_held(world: World, asked: dict[str, Any]) -> None:
    world.start(die="inside 1", **asked).died()
    pair = [world.start(**asked, tell_errors=True, wait=True, hold="inside 3").expect("at start") for _ in range(2)]
    for child in pair:
        child.tell()
    said = [child.heard() for child in pair]
    assert sorted(said) == ["LeaseHeld", "at inside 3"]
    runner = pair[said.index("at inside 3")]
    runner.tell()
    assert runner.outcome()["result"] == RESULT
    assert world.counts() == {f"square {i}": 2 if i == 1 else 1 for i in range(N)}
    world.verify()


@pytest.mark.parametrize("flow", ["flow", "aflow"])
def test_of_twenty_processes_that_start_one_id_one_runs_it(world: World, flow: str) -> None:
    asked = {"program": "drive", "flow": flow, "args": [N], "tell_errors": True, "wait": True}
    children = [world.start(**asked).expect("at start") for _ in range(20)]
    for child in children:
        child.tell()
    said = [child.heard() for child in children]
    outcomes = [json.loads(line) for line in said if line != "LeaseHeld"]
    assert sum(outcome["executed"] for outcome in outcomes) == N
    assert all((outcome["status"], outcome["result"]) == ("succeeded", RESULT) for outcome in outcomes)
    assert sum(outcome["executed"] > 0 for outcome in outcomes) == 1
    assert world.counts() == {f"square {i}": 1 for i in range(N)}
    assert all(child.wait() == 0 for child in children)
    world.verify()


@each_program
def test_a_stopped_process_that_was_overtaken_cannot_write_when_it_wakes(world: World, asked: dict[str, Any]) -> None:
    slow = world.start(**asked, lease_seconds=0.3, hold="inside 2").expect("at inside 2")
    slow.signal(signal.SIGSTOP)
    with world.open() as store:
        before = store.get("r")
    assert before.open
    found: list[dict[str, Any]] = []

    def overtaken() -> bool:
        line = world.start(**asked, tell_errors=True).heard()
        assert line, world.errors()
        if line != "LeaseHeld":
            found.append(json.loads(line))
        return bool(found)

    until(overtaken)
    assert (found[0]["status"], found[0]["result"]) == ("succeeded", RESULT)
    with world.open() as store:
        events = [(event.seq, event.name) for event in store.events(run="r", limit=1000)]
        after = store.get("r")
    slow.signal(signal.SIGCONT)
    slow.tell()
    assert slow.wait() == 1
    assert slow.heard() == ""
    assert "LostLease" in world.errors()
    with world.open() as store:
        assert [(event.seq, event.name) for event in store.events(run="r", limit=1000)] == events
        assert store.get("r") == after
    world.verify()
    assert world.counts() == {f"square {i}": 2 if i == 2 else 1 for i in range(N)}
    last = [effect for effect in world.effects() if effect["what"] == "square 2"]
    assert [effect["again"] for effect in last] == [False, True]
    assert last[0]["key"] == last[1]["key"]
    if "flow" in asked:
        assert world.start(**asked).outcome()["result"] == RESULT


def test_a_stopped_process_that_nobody_overtook_goes_on(world: World) -> None:
    asked = PROGRAMS["workflow"]
    child = world.start(**asked, lease_seconds=0.05, hold="inside 2").expect("at inside 2")
    child.signal(signal.SIGSTOP)
    other = world.start("order", do="get", **{"with": ["r"]}).expect("done")
    assert other.wait() == 0
    child.signal(signal.SIGCONT)
    child.tell()
    assert child.outcome()["result"] == RESULT
    assert world.counts() == {f"square {i}": 1 for i in range(N)}


@pytest.mark.parametrize(
    "asked", [{"program": "drive", "flow": "asking", "args": []}, {"program": "asking_loop"}], ids=["workflow", "own loop"]
)
def test_a_gate_is_asked_by_one_process_answered_by_another_and_passed_by_a_third(world: World, asked: dict[str, Any]) -> None:
    first = world.start(**asked)
    assert first.outcome()["status"] == "waiting"
    with world.open() as store:
        assert (store.get("r").status, store.get("r").open) == ("waiting", False)
        assert [gate.address for gate in store.gates("r")] == ["editor#0"]
    second = world.start("order", do="answer", **{"with": ["r", "editor", "yes"]}).expect("done")
    assert second.wait() == 0
    third = world.start(**asked).outcome()
    assert (third["status"], third["result"]) == ("succeeded", [1, "yes", 4])
    assert world.counts() == {"square 1": 1, "square 2": 1}
    world.verify()


@pytest.mark.parametrize(
    "asked", [{"program": "drive", "flow": "asking", "args": []}, {"program": "asking_loop"}], ids=["workflow", "own loop"]
)
def test_a_death_before_a_gate_and_an_answer_before_the_question_lose_nothing(world: World, asked: dict[str, Any]) -> None:
    world.start(**asked, after_commit="square#0").died()
    assert world.start("order", do="answer", **{"with": ["r", "editor", "yes"]}).expect("done").wait() == 0
    assert world.start(**asked).outcome()["result"] == [1, "yes", 4]
    assert world.counts() == {"square 1": 1, "square 2": 1}


def test_an_answer_survives_a_death_right_after_it_was_read(world: World) -> None:
    asked = {"program": "drive", "flow": "asking", "args": []}
    assert world.start(**asked).outcome()["status"] == "waiting"
    with world.open() as store:
        store.answer("r", "editor", "no")
    world.start(**asked, die="before 2").died()
    assert world.start(**asked).outcome()["result"] == [1, "no", 4]
    assert [event.name for event in world.events()].count("gate_answered") == 1
