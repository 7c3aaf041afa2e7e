"""Other people's savers on the same turns. One file for each; `everstep` is one of them, so that it runs in the same rounds.

A peer takes the messages one turn at a time, makes its state durable as well as it can by its own settings, and loads the
newest state. The laps are ended right after the save returned. Peers are imported only in a child process.

The peers of steps are the same with durable steps instead of states: each item is the result of one step of a workflow, and
`resume` takes up that workflow after its process has died.

The peers of throughput run many such workflows at once on one PostgreSQL server, on threads or asyncio tasks.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
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

STEP_LABELS = {
    "everstep_steps": "everstep, workflow",
    "everstep_joined": "everstep, every(steps=1): step and checkpoint",
    "dbos_steps": "dbos workflow, SQLite",
}

RATE_LABELS = {
    "everstep_postgres": "everstep",
    "dbos_postgres": "dbos",
    "langgraph_postgres": "langgraph PostgresSaver",
}


class Peer(Protocol):
    def run(self, items: list[Message], folder: Path, laps: Laps) -> None: ...

    def load(self, folder: Path) -> int:
        """The number of messages in the newest state."""
        ...


class StepPeer(Protocol):
    def run(self, items: list[Message], folder: Path, laps: Laps) -> None: ...

    def resume(self, items: list[Message], folder: Path) -> int:
        """Nanoseconds from the workflow's first line to its last, when it runs again in a new process."""
        ...


class Tallies(Protocol):
    """Who counts."""

    def step(self, name: str) -> bool:
        """One more step of the workflow `name` is durable; whether to take another one."""
        ...


class Program(Protocol):
    """A program that is up: its workflows are called by many at once."""

    def talk(self, name: str, steps: int, tally: Tallies) -> None:
        """One workflow from its start to its end, with so many steps."""
        ...

    async def talk_async(self, name: str, steps: int, tally: Tallies) -> None: ...


class RatePeer(Protocol):
    def opened(self, url: str, width: int) -> AbstractContextManager[Program]:
        """A program that so many threads will use."""
        ...

    def opened_async(self, url: str, width: int) -> AbstractAsyncContextManager[Program]: ...


def find(name: str) -> Peer:
    return cast(Peer, import_module(f"benchmarks.peers.{name}"))
