"""Arguments of `resume`, `start` and `run` that make no sense are refused, whatever the status of the run."""

from typing import Any

import pytest

import everstep
from everstep.errors import InvalidArgument


@everstep.workflow(name="f4-flow")
def flow(ask: bool = False) -> Any:
    found = everstep.current().step("look", lambda: 1)
    return everstep.gate("ok") if ask else found


@pytest.fixture(params=["succeeded", "waiting", "failed", "cancelled"])
def run(request: pytest.FixtureRequest, store: everstep.Store) -> str:
    if request.param == "failed":

        @everstep.workflow(name="f4-bad")
        def bad() -> None:
            everstep.current().step("look", lambda: 1)
            raise OSError("down")

        store.start(bad, id="r")
    else:
        store.start(flow, request.param != "succeeded", id="r")
    if request.param == "cancelled":
        store.cancel("r")
    assert store.get("r").status == request.param
    return "r"


BAD = [
    ({"accept": "look#0"}, r"accept must be a list of step addresses, got 'look#0'"),
    ({"accept": 5}, "accept must be a list of step addresses, got 5"),
    ({"accept": [5]}, r"accept must be a list of step addresses, got \[5\]"),
    ({"accept": ["luk"]}, "accept must name recorded steps of run 'r', got 'luk'"),
    ({"accept": ["look#0", "luk#0"]}, "accept must name recorded steps of run 'r', got 'luk#0'"),
    ({"budget": 5}, "budget must be an everstep.Budget, got 5"),
    ({"timeout": 0}, "timeout must be a number of seconds greater than 0, got 0"),
    ({"timeout": "1"}, "timeout must be a number of seconds, a timedelta, or a string such as \"30s\", got '1'"),
    ({"timeout": True}, "timeout must be a number of seconds greater than 0, got True"),
    ({"timeout": float("nan")}, "timeout must be a number of seconds greater than 0, got nan"),
]


@pytest.mark.parametrize(("given", "says"), BAD)
def test_F4_a_resume_refuses_them(store: everstep.Store, run: str, given: dict[str, Any], says: str) -> None:
    before = store.backend.run(run)
    with pytest.raises(InvalidArgument, match=says) as caught:
        store.resume(run, **given)
    assert caught.value.remedy
    assert store.backend.run(run) == before, "nothing was written"


def test_F4_addresses_of_recorded_steps_are_taken(store: everstep.Store) -> None:
    store.start(flow, id="r")
    assert store.resume("r", accept=["look#0"]).result == 1
    assert store.resume("r", accept=("look#0",), timeout=5, budget=everstep.Budget(steps=5)).result == 1


def test_F4_a_loop_of_your_own_refuses_a_text_too(store: everstep.Store) -> None:
    with pytest.raises(InvalidArgument, match="accept must be a list"):
        store.run("loop", accept="look#0")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="timeout must be"):
        store.run("loop", timeout=True)
    assert store.runs() == []
