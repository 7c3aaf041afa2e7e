"""Threads of LangGraph in our saver beside LangGraph's SqliteSaver: 1,000 messages of 1 KB, one more in each checkpoint. Processor time.

Both alternate call by call in one process. Each has made a few puts to another thread before, so that imports and first-time work are not
measured. A cold get_tuple is the first read of a new saver, on a store that was opened before; SqliteSaver's is warm.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time_ns
from typing import Any

import everstep
from benchmarks import workload
from benchmarks.options import Options
from benchmarks.table import Bar, Line
from benchmarks.table import ms as show
from benchmarks.timing import first_tenth, last_tenth, ms, settle, size

LISTED = 50
_WARM = 5
_READS = 5


def lines(options: Options) -> Iterator[Line]:
    from langchain_core.messages import HumanMessage
    from langgraph.checkpoint.sqlite import SqliteSaver

    from everstep.adapters.langgraph import Saver

    folder, count = options.folder / "adapters", options.adapter_messages
    for name in ("ours", "theirs"):
        (folder / name).mkdir(parents=True)
    items = [HumanMessage(str(item["content"]), id=f"m{i}") for i, item in enumerate(workload.messages(count))]
    with (
        everstep.open(str(folder / "ours" / "store.db")) as store,
        sqlite3.connect(folder / "theirs" / "checkpoints.db", check_same_thread=False) as connection,
    ):
        writers = {"ours": Writer(Saver(store)), "theirs": Writer(SqliteSaver(connection))}
        for writer in writers.values():
            for i in range(_WARM):
                writer.turn("warm", items[: i + 1], i)
            writer.begin()
        settle()
        for i in range(count):
            for writer in writers.values():
                writer.turn("chat", items[: i + 1], i)
        yield from _written(writers["ours"], writers["theirs"], count)
        yield from _read(lambda: Saver(store), writers["theirs"].saver, items)
    yield _disk(folder, count)


class Writer:
    """Puts the growing thread into one saver, and keeps the times."""

    def __init__(self, saver: Any):
        self.saver = saver
        self.begin()

    def begin(self) -> None:
        self.puts: list[int] = []
        self.writes: list[int] = []
        self._config: dict[str, Any] | None = None
        self._version: Any = None

    def turn(self, thread: str, messages: list[Any], i: int) -> None:
        from langgraph.checkpoint.base import empty_checkpoint

        before, self._version = self._version, self.saver.get_next_version(self._version, None)
        checkpoint = {
            **empty_checkpoint(),
            "channel_values": {"messages": messages},
            "channel_versions": {"messages": self._version},
            "versions_seen": {"agent": {"messages": before or 0}},
            "updated_channels": ["messages"],
        }
        config = self._config or {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        metadata = {"source": "loop", "step": i, "parents": {}}
        began = process_time_ns()
        self._config = self.saver.put(config, checkpoint, metadata, {"messages": self._version})
        put = process_time_ns()
        self.saver.put_writes(self._config, [("messages", [messages[-1]])], checkpoint["id"], "~__pregel_pull, agent")
        self.writes.append(process_time_ns() - put)
        self.puts.append(put - began)


def _written(ours: Writer, theirs: Writer, count: int) -> Iterator[Line]:
    for name, limit, chosen in (("first 10 %", 1.1, first_tenth), ("last 10 %", 0.2, last_tenth)):
        a, b = ms(chosen(ours.puts)), ms(chosen(theirs.puts))
        bar = Bar("<=", limit) if count >= 1_000 or limit > 1 else None
        yield Line(f"LangGraph put, {name} / SqliteSaver", show(a), show(b), a / b, bar, f"processor time, {count:,} messages of 1 KB")
    a, b = ms(ours.writes), ms(theirs.writes)
    yield Line("LangGraph put_writes / SqliteSaver", show(a), show(b), a / b, Bar("<=", 1.2))


def _read(fresh: Callable[[], Any], theirs: Any, items: list[Any]) -> Iterator[Line]:
    config = {"configurable": {"thread_id": "chat", "checkpoint_ns": ""}}
    times: dict[str, list[int]] = {"ours": [], "theirs": [], "our list": [], "their list": []}
    for _ in range(_READS):
        for name, saver in (("ours", fresh()), ("theirs", theirs)):
            began = process_time_ns()
            found = saver.get_tuple(config)
            times[name].append(process_time_ns() - began)
            assert found.checkpoint["channel_values"]["messages"] == items
    for name, saver in (("our list", fresh()), ("their list", theirs)):
        began = process_time_ns()
        listed = list(saver.list(config, limit=LISTED))
        times[name].append(process_time_ns() - began)
        assert len(listed) == LISTED
    a, b = ms(times["ours"]), ms(times["theirs"])
    yield Line("LangGraph get_tuple, cold / SqliteSaver, warm", show(a), show(b), a / b, Bar("<=", 1.5))
    a, b = ms(times["our list"]), ms(times["their list"])
    yield Line(f"LangGraph list of {LISTED} / SqliteSaver", show(a), show(b), a / b, Bar("<=", 0.6))


def _disk(folder: Path, count: int) -> Line:
    a, b = size(folder / "ours"), size(folder / "theirs")
    bar = Bar("<=", 0.01) if count >= 1_000 else None
    return Line("LangGraph bytes on disk / SqliteSaver", f"{a / 1e6:.1f} MB", f"{b / 1e6:.1f} MB", a / b, bar)
