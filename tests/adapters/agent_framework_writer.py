"""Appends to the state of one workflow: `URL NAME COUNT`. A save that comes too late is made again from the newest checkpoint."""

from __future__ import annotations

import asyncio
import sys

from agent_framework import WorkflowCheckpoint

import everstep
from everstep.adapters.agent_framework import CheckpointStorage
from everstep.errors import Conflict, SaveFailed


async def write(storage: CheckpointStorage, name: str, count: int) -> None:
    for n in range(count):
        while True:
            latest = await storage.get_latest(workflow_name="shared")
            known = [] if latest is None else latest.state["said"]
            previous = None if latest is None else latest.checkpoint_id
            try:
                await storage.save(
                    WorkflowCheckpoint("shared", "h", previous_checkpoint_id=previous, state={"said": [*known, f"{name}{n}"]})
                )
            except SaveFailed as failed:
                if not isinstance(failed.error, Conflict):
                    raise
                print("late", flush=True)
                continue
            break


if __name__ == "__main__":
    with everstep.open(sys.argv[1]) as store:
        asyncio.run(write(CheckpointStorage(store, scope="all"), sys.argv[2], int(sys.argv[3])))
