"""A hundred runs in one event loop, sharing commits: python examples/async_many.py

Each task saves durably; saves that wait at the same moment go to disk together, with one fsync for all of them.
"""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import everstep

RUNS, TURNS = 100, 5


async def agent(store: Any, number: int) -> None:
    async with store.run(f"agent-{number:03}", state={"turns": []}, workflow="many") as run:
        for turn in range(TURNS):
            await asyncio.sleep(0.001)  # in place of a call to a model
            run.state["turns"].append({"turn": turn, "answer": turn * number})
            await run.checkpoint()


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with everstep.open(Path(folder) / "store.db") as store:
            began = time.perf_counter()
            await asyncio.gather(*(agent(store, number) for number in range(RUNS)))
            seconds = time.perf_counter() - began
            done = await store.runs(workflow="many", status="succeeded")
            last = await store.load("agent-099")
            print(f"{len(done)} runs, {sum(run.checkpoints for run in done)} durable checkpoints in {seconds:.1f} s")
            print(f"agent-099 ends with {last['turns'][-1]}")
            print(await store.verify("full"))


asyncio.run(main())
