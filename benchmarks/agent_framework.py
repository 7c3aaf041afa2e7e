"""Workflows of Agent Framework in our storage beside the framework's own files: each checkpoint has one more message of 1 KB.

Messages are dicts in the shared state, as a workflow that keeps its own history has them, or the framework's Message objects, as the snapshots
of its agents have them. Both storages alternate call by call in one process. Processor time: files are written without fsync, our checkpoints
are durable. Each get_latest is the first read of a new storage.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from time import process_time_ns
from typing import Any

import everstep
from benchmarks import workload
from benchmarks.options import Options
from benchmarks.table import Bar, Line
from benchmarks.table import ms as show
from benchmarks.timing import last_tenth, ms, settle, size

_WARM = 3
_READS = 3
_NAME = "chat"


def lines(options: Options) -> Iterator[Line]:
    from agent_framework import Message

    bodies = workload.messages(options.adapter_checkpoints)
    objects = [Message(role=str(item["role"]), contents=[str(item["content"])], message_id=str(item["id"])) for item in bodies]
    for kind, items in (("dict", bodies), ("Message", objects)):
        folder = options.folder / "agent_framework" / kind
        yield from _compared(kind, items, folder, options.adapter_checkpoints >= 300)


def _compared(kind: str, items: list[Any], folder: Path, full: bool) -> Iterator[Line]:
    from agent_framework import FileCheckpointStorage

    from everstep.adapters.agent_framework import CheckpointStorage

    for name in ("ours", "theirs"):
        (folder / name).mkdir(parents=True)
    with everstep.open(str(folder / "ours" / "store.db")) as store:
        fresh: dict[str, Callable[[], Any]] = {
            "ours": lambda: CheckpointStorage(store),
            "theirs": lambda: FileCheckpointStorage(folder / "theirs"),
        }
        saves, reads = asyncio.run(_measured(fresh, items))
    a, b = ms(last_tenth(saves["ours"])), ms(last_tenth(saves["theirs"]))
    note = f"processor time, {len(items):,} checkpoints"
    yield Line(f"Agent Framework save, {kind}, last 10 % / its files, no fsync", show(a), show(b), a / b, note=note)
    a, b = ms(reads["ours"]), ms(reads["theirs"])
    yield Line(f"Agent Framework get_latest, {kind} / its files", show(a), show(b), a / b, Bar("<=", 0.05) if full else None)
    a, b = size(folder / "ours"), size(folder / "theirs")
    bar = Bar("<=", 0.02) if full else None
    yield Line(f"Agent Framework bytes on disk, {kind} / its files", f"{a / 1e6:.2f} MB", f"{b / 1e6:.1f} MB", a / b, bar)


async def _measured(fresh: dict[str, Callable[[], Any]], items: list[Any]) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    saves: dict[str, list[int]] = {name: [] for name in fresh}
    reads: dict[str, list[int]] = {name: [] for name in fresh}
    storages = {name: new() for name, new in fresh.items()}
    for i in range(_WARM):
        for storage in storages.values():
            await storage.save(_checkpoint("warm", items[: i + 1], None, i))
    settle()
    before: str | None = None
    for i in range(len(items)):
        checkpoint = _checkpoint(_NAME, items[: i + 1], before, i)
        before = checkpoint.checkpoint_id
        for name, storage in storages.items():
            took, _ = await _timed(partial(storage.save, checkpoint))
            saves[name].append(took)
    for _ in range(_READS):
        for name, new in fresh.items():
            storage = new()
            await asyncio.sleep(0)  # the loop and its thread still hold the last result of the other one
            await asyncio.to_thread(gc.collect)
            took, found = await _timed(partial(storage.get_latest, workflow_name=_NAME))
            reads[name].append(took)
            kept = found.state["_executor_state"]["agent"]["messages"]
            assert found.checkpoint_id == before
            assert _plain(kept) == _plain(items)
    return saves, reads


async def _timed(call: Callable[[], Awaitable[Any]]) -> tuple[int, Any]:
    began = process_time_ns()
    result = await call()
    return process_time_ns() - began, result


def _checkpoint(name: str, messages: list[Any], before: str | None, i: int) -> Any:
    from agent_framework import WorkflowCheckpoint, WorkflowMessage

    sent = WorkflowMessage(data=messages[-1], source_id="agent", target_id="tools")
    return WorkflowCheckpoint(
        workflow_name=name,
        graph_signature_hash="a" * 64,
        previous_checkpoint_id=before,
        messages={"agent": [sent]},
        state={"_executor_state": {"agent": {"messages": messages, "turn": i}}},
        iteration_count=i,
    )


def _plain(messages: list[Any]) -> list[Any]:
    return [item if isinstance(item, dict) else item.to_dict() for item in messages]
