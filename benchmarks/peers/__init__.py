"""Other people's savers on the same turns. One file for each; `everstep` is one of them, so that it runs in the same rounds.

A peer takes the messages one turn at a time, makes its state durable as well as it can by its own settings, and loads the
newest state. The laps are ended right after the save returned. Peers are imported only in a child process.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from benchmarks.timing import Laps
from benchmarks.workload import Message

LABELS = {
    "everstep": "everstep",
    "openai_session": "openai-agents SQLiteSession (messages only)",
    "langgraph_put": "langgraph SqliteSaver.put",
    "langgraph_delta": "langgraph graph, DeltaChannel, sync",
    "langgraph_graph": "langgraph graph, SqliteSaver, sync",
    "pickle_file": "pickle + fsync + rename (latest only)",
    "agent_framework": "agent-framework FileCheckpointStorage",
}


class Peer(Protocol):
    def run(self, items: list[Message], folder: Path, laps: Laps) -> None: ...

    def load(self, folder: Path) -> int:
        """The number of messages in the newest state."""
        ...


def find(name: str) -> Peer:
    return cast(Peer, import_module(f"benchmarks.peers.{name}"))
