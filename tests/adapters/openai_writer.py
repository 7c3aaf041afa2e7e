"""Adds items to one session of OpenAI agents, two at a time: `URL NAME COUNT`."""

from __future__ import annotations

import asyncio
import sys

from everstep.adapters.openai_agents import Session


async def write(url: str, name: str, count: int) -> None:
    async with Session("shared", url) as session:
        for n in range(count):
            await session.add_items([{"role": "user", "content": f"{name}{n}"}, {"role": "assistant", "content": f"{name}{n}"}])


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], sys.argv[2], int(sys.argv[3])))
