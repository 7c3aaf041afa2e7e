"""Sessions of the OpenAI Agents SDK in our store beside its SQLiteSession: 1,000 items of 1 KB, one in each call. Processor time.

Both alternate in blocks of ten calls: threads that write for a session may still end a call while the next one begins. The file of SQLiteSession
has an item once, as JSON. In our store an item is in a delta, which a resume proves and applies, and again in a chunk of a base as soon as a
base is due. The note of the last line says how many bytes each part has; the rest are rows, digests and the pages of tables and indexes.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from time import process_time_ns
from typing import Any

import everstep
from benchmarks import workload
from benchmarks.options import Options
from benchmarks.table import Bar, Line
from benchmarks.table import ms as show
from benchmarks.timing import first_tenth, last_tenth, ms, settle, size

_BLOCK = 10


def lines(options: Options) -> Iterator[Line]:
    folder, count = options.folder / "sessions", options.adapter_messages
    for name in ("ours", "theirs"):
        (folder / name).mkdir(parents=True)
    items = [{"role": "user", "content": str(item["content"])} for item in workload.messages(count)]
    ours, theirs = folder / "ours" / "store.db", folder / "theirs" / "sessions.db"
    times, reads = asyncio.run(_measured(str(ours), str(theirs), items))
    with sqlite3.connect(theirs) as connection:  # merge what threads that have ended left in the WAL: it is not counted
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    for name, chosen in (("all", list), ("first 10 %", first_tenth), ("last 10 %", last_tenth)):
        a, b = ms(chosen(times["ours"])), ms(chosen(times["theirs"]))
        bar = Bar("<=", 1.2) if name == "all" else None
        note = f"processor time, {count:,} items of 1 KB" if bar else ""
        yield Line(f"OpenAI session add_items, {name} / SQLiteSession", show(a), show(b), a / b, bar, note)
    a, b = ms(reads["ours"]), ms(reads["theirs"])
    yield Line("OpenAI session get_items, all, new session / SQLiteSession", show(a), show(b), a / b)
    a, b = size(folder / "ours"), size(folder / "theirs")
    yield Line("OpenAI session bytes on disk / SQLiteSession", _mb(a), _mb(b), a / b, Bar("<=", 1.5), _where(str(ours)))


async def _measured(ours: str, theirs: str, items: list[Any]) -> tuple[dict[str, list[float]], dict[str, list[int]]]:
    from agents import SQLiteSession

    from everstep.adapters.openai_agents import Session

    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    reads: dict[str, list[int]] = {"ours": [], "theirs": []}
    with everstep.open(ours) as store:
        sessions: dict[str, Any] = {"ours": Session("chat", store), "theirs": SQLiteSession("chat", theirs)}
        for session in (Session("warm", store), SQLiteSession("warm", theirs)):
            for item in items[:_BLOCK]:
                await session.add_items([item])
        settle()
        for first in range(0, len(items), _BLOCK):
            block = items[first : first + _BLOCK]
            for name in ("ours", "theirs") if first // _BLOCK % 2 else ("theirs", "ours"):
                began = process_time_ns()
                for item in block:
                    await sessions[name].add_items([item])
                times[name].append((process_time_ns() - began) / len(block))
        for _ in range(5):
            for name, session in (("ours", Session("chat", store)), ("theirs", sessions["theirs"])):
                began = process_time_ns()
                assert await session.get_items() == items
                reads[name].append(process_time_ns() - began)
        sessions["theirs"].close()
    return times, reads


def _where(store: str) -> str:
    """Return how many bytes of the stored items are in deltas, and how many again in bases and their chunks."""
    with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
        parts = dict(connection.execute("SELECT kind, sum(length(body)) FROM records GROUP BY kind"))
        made = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'chunks'").fetchone()
        (chunks,) = connection.execute("SELECT coalesce(sum(length(frame)), 0) FROM chunks").fetchone() if made else (0,)
    connection.close()
    return f"deltas {_mb(parts.get('checkpoint', 0))}, bases {_mb(parts.get('base', 0))}, chunks {_mb(chunks)}"


def _mb(count: int) -> str:
    return f"{count / 1e6:.2f} MB"
