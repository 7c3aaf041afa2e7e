"""An agent for a process that is killed at one of its commits: python killed_agent.py STORE BILL WAY NUMBER WHEN"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import everstep
from everstep.agents.loop import Action, Decision


def make(bill: Path) -> everstep.AgentLoop:
    """A scripted agent that writes down each call when it is sent, as a provider would."""

    def pay(what: str) -> None:
        with bill.open("a") as file:
            file.write(f"{what}\n")

    def plan(state: everstep.AgentState) -> list[str]:
        pay("plan#0")
        return ["look", "compare", "answer"]

    def think(state: everstep.AgentState) -> Any:
        pay(f"think#{state.turn}")
        state.memory.setdefault("turns", []).append(state.turn)
        if state.turn == 0:
            return Decision(actions=[Action("fetch", {"n": 0}), Action("fetch", {"n": 1})], tokens=10, cost=0.5)
        if state.turn == 1:
            return Decision(actions=[Action("fetch", {"n": 2}), Action("fetch", {"n": 3})], parallel=True, tokens=10, cost=0.5)
        return f"{sum(state.tool_results.values())} by plan {state.plan}"

    def fetch(n: int) -> int:
        pay(f"fetch {n}")
        return n * 100

    return everstep.AgentLoop(think, tools=[fetch], plan=plan)


def run(loop: everstep.AgentLoop, store: everstep.Store, way: str) -> everstep.Outcome:
    return loop.run(store, "a", "Add it up") if way == "sync" else asyncio.run(loop.arun(store, "a", "Add it up"))


def deadly(backend: Any, number: int, when: str) -> list[int]:
    """Let the process be killed before or after its commit of that number; gives a list with the count of them."""
    commit, submit, made = backend.commit, backend.submit, [0]

    def reached(mine: int, now: str) -> None:
        if mine == number and when == now:
            os.kill(os.getpid(), signal.SIGKILL)

    def deadly_commit(given: Any) -> Any:
        made[0] = mine = made[0] + 1
        reached(mine, "before")
        found = commit(given)
        reached(mine, "after")
        return found

    def deadly_submit(given: Any, done: Any) -> None:
        made[0] = mine = made[0] + 1
        reached(mine, "before")

        def over(outcome: Any) -> None:
            reached(mine, "after")
            done(outcome)

        submit(given, over)

    backend.commit, backend.submit = deadly_commit, deadly_submit
    return made


if __name__ == "__main__":
    path, bill, way, number, when = sys.argv[1:]
    with everstep.open(path) as opened:
        count = deadly(opened.backend, int(number), when)
        print(run(make(Path(bill)), opened, way).result)
        print(count[0])
