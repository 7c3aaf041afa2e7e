"""Other savers on the same turns. One file for each; `everstep` is one of them, so that it runs in the same rounds.

A peer takes the messages one turn at a time, makes its state durable as well as its own settings allow, and loads the newest state. The
laps end right after the save returned. Peers are imported only in a child process.

The peers of steps do the same with durable steps instead of states: each item is the result of one step of a workflow, and `resume` resumes
that workflow after its process has died.

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
        """Return the number of messages in the newest state."""
        ...


class StepPeer(Protocol):
    def run(self, items: list[Message], folder: Path, laps: Laps) -> None: ...

    def resume(self, items: list[Message], folder: Path) -> int:
        """Return the nanoseconds from the workflow's first line to its last, when it runs again in a new process."""
        ...


class Tallies(Protocol):
    """Counts steps."""

    def step(self, name: str) -> bool:
        """Count one more durable step of the workflow `name`; return whether to take another one."""
        ...


class Program(Protocol):
    """A running program, whose workflows many threads or tasks call at once."""

    def talk(self, name: str, steps: int, tally: Tallies) -> None:
        """Run one workflow from its start to its end, with this many steps."""
        ...

    async def talk_async(self, name: str, steps: int, tally: Tallies) -> None: ...


class RatePeer(Protocol):
    def opened(self, url: str, width: int) -> AbstractContextManager[Program]:
        """Open a program for this many threads."""
        ...

    def opened_async(self, url: str, width: int) -> AbstractAsyncContextManager[Program]: ...


def find(name: str) -> Peer:
    return cast(Peer, import_module(f"benchmarks.peers.{name}"))
