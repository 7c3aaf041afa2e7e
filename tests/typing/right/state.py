"""A typed state: `run.state` has the class of the object that was given."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, assert_type

import everstep


@dataclass
class Plan:
    goal: str = ""
    steps: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Count:
    n: int = 0


def main(store: everstep.Store) -> None:
    with store.run("r", state=Plan()) as run:
        assert_type(run, everstep.Run[Plan])
        run.state.steps.append("one")
        run.checkpoint(state=Plan("other"))
        run.state = Plan("third")
    assert_type(run.state, Plan)
    with store.run("c", state=Count()) as counter:
        counter.state = replace(counter.state, n=counter.state.n + 1)
    with store.run("d") as plain:
        assert_type(plain.state, dict[str, Any])
        plain.state["anything"] = [1, "two"]
    with store.run("e", state={"messages": [], "n": 0}) as mixed:
        mixed.state["messages"].append("text")


async def other(store: everstep.AsyncStore) -> None:
    async with store.run("r", state=Plan()) as run:
        assert_type(run, everstep.AsyncRun[Plan])
        run.state.goal = "tea"
        await run.checkpoint()
