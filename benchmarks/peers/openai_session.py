"""openai-agents SQLiteSession: keeps the messages of a session, no state beside them and no history. WAL and FULL are its defaults."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agents import SQLiteSession

from benchmarks.timing import Laps
from benchmarks.workload import Message


def run(items: list[Message], folder: Path, laps: Laps) -> None:
    session = SQLiteSession("chat", folder / "session.db")
    asyncio.run(_turns(session, items, laps))
    session.close()


async def _turns(session: SQLiteSession, items: list[Message], laps: Laps) -> None:
    for item in items:
        laps.start()
        await session.add_items([item])
        laps.end()


def load(folder: Path) -> int:
    session = SQLiteSession("chat", folder / "session.db")
    held = asyncio.run(session.get_items())
    session.close()
    return len(held)
