"""langgraph: a graph of one node that loops, SqliteSaver, durability="sync". The whole state in each checkpoint.

A lap runs from the node's return to its next call: writes, checkpoint, scheduling.
"""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

from benchmarks import workload
from benchmarks.peers.langgraph_put import saver
from benchmarks.timing import Laps
from benchmarks.workload import Message

CONFIG = {"configurable": {"thread_id": "chat"}, "recursion_limit": 1_000_000}


class Chat(TypedDict):
    messages: Annotated[list, operator.add]
    step: int
    tokens: dict
    cost: float
    plan: dict
    config: dict


def build(schema: type, channel: str, items: list[Message], folder: Path, laps: Laps) -> Any:
    def agent(live: dict[str, Any]) -> dict[str, Any]:
        laps.end()
        step = live["step"]
        new = items[step]
        laps.start()
        tokens = {"in": live["tokens"]["in"] + 350, "out": live["tokens"]["out"] + 120}
        return {channel: [new], "step": step + 1, "tokens": tokens, "cost": live["cost"] + 0.0021}

    graph = StateGraph(schema)
    graph.add_node("agent", agent)
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", lambda live: "agent" if live["step"] < len(items) else END)
    return graph.compile(checkpointer=saver(folder))


def run(items: list[Message], folder: Path, laps: Laps) -> None:
    app = build(Chat, "messages", items, folder, laps)
    app.invoke(workload.state(), CONFIG, durability="sync")
    laps.end()
    app.checkpointer.conn.close()


def load(folder: Path) -> int:
    app = build(Chat, "messages", [], folder, Laps())
    held = len(app.get_state(CONFIG).values["messages"])
    app.checkpointer.conn.close()
    return held
