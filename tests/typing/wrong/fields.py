"""Mistakes with a typed state."""

from __future__ import annotations

from dataclasses import dataclass

import everstep


@dataclass
class Plan:
    goal: str = ""


def main(store: everstep.Store) -> None:
    with store.run("r", state=Plan()) as run:
        run.state.gaol = "tea"  # error
        run.state.goal = 5  # error
        run.state["goal"] = "tea"  # error
        run.state = {"goal": "tea"}  # error
        run.checkpoint(state="tea")  # error
    with store.run("d") as plain:
        plain.state.goal = "tea"  # error
