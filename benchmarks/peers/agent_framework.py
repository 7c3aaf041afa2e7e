"""agent-framework FileCheckpointStorage: one JSON file a checkpoint, the whole state in each. It has no durable setting: it never fsyncs.

`get_latest` parses every checkpoint of the workflow to find the newest one.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from agent_framework import FileCheckpointStorage, WorkflowCheckpoint

from benchmarks import workload
from benchmarks.timing import Laps
from benchmarks.workload import Message


def run(items: list[Message], folder: Path, laps: Laps) -> None:
    asyncio.run(_turns(FileCheckpointStorage(folder), items, laps))


async def _turns(storage: FileCheckpointStorage, items: list[Message], laps: Laps) -> None:
    live = workload.state()
    for i, item in enumerate(items):
        laps.start()
        workload.turn(live, item)
        await storage.save(WorkflowCheckpoint(workflow_name="chat", graph_signature_hash="0", state=live, iteration_count=i))
        laps.end()


def load(folder: Path) -> int:
    newest = asyncio.run(FileCheckpointStorage(folder).get_latest(workflow_name="chat"))
    if newest is None:
        return 0
    return len(newest.state["messages"])
