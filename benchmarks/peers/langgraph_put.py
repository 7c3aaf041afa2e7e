"""langgraph SqliteSaver.put: the saver without a graph around it, the whole state in each checkpoint."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

from benchmarks import workload
from benchmarks.timing import Laps
from benchmarks.workload import Message

THREAD = {"configurable": {"thread_id": "chat", "checkpoint_ns": ""}}


def saver(folder: Path) -> SqliteSaver:
    """A saver on its own file, with the connection's defaults."""
    made = SqliteSaver(sqlite3.connect(folder / "checkpoints.db", check_same_thread=False))
    made.setup()
    return made


def run(items: list[Message], folder: Path, laps: Laps) -> None:
    saved, config, live = saver(folder), THREAD, workload.state()
    for i, item in enumerate(items):
        laps.start()
        workload.turn(live, item)
        checkpoint = empty_checkpoint()
        versions = dict.fromkeys(live, i + 1)
        checkpoint["channel_values"] = dict(live)
        checkpoint["channel_versions"] = versions
        config = saved.put(config, checkpoint, {"source": "loop", "step": i, "parents": {}}, versions)
        laps.end()
    saved.conn.close()


def load(folder: Path) -> int:
    opened = saver(folder)
    newest = opened.get_tuple(THREAD)
    opened.conn.close()
    return len(newest.checkpoint["channel_values"]["messages"]) if newest else 0
