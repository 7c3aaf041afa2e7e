"""langgraph with DeltaChannel (beta): the same graph, but the list of messages is rebuilt from writes, with a snapshot each 100.

The channel turns dicts that have a `role` into LangChain messages, so here the role goes by another name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from langgraph.channels.delta import DeltaChannel

from benchmarks import workload
from benchmarks.peers.langgraph_graph import CONFIG, Chat, build
from benchmarks.timing import Laps
from benchmarks.workload import Message


def extend(held: list[Message], writes: Sequence[list[Message]]) -> list[Message]:
    return [*held, *(new for write in writes for new in write)]


class DeltaChat(Chat):
    log: Annotated[list, DeltaChannel(extend)]


def run(items: list[Message], folder: Path, laps: Laps) -> None:
    renamed = [{"kind" if key == "role" else key: value for key, value in item.items()} for item in items]
    app = build(DeltaChat, "log", renamed, folder, laps)
    app.invoke({**workload.state(), "log": []}, CONFIG, durability="sync")
    laps.end()
    app.checkpointer.conn.close()


def load(folder: Path) -> int:
    app = build(DeltaChat, "log", [], folder, Laps())
    held = len(app.get_state(CONFIG).values["log"])
    app.checkpointer.conn.close()
    return held
