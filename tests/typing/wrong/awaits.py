"""Mistakes in async code, first of all a forgotten await."""

from __future__ import annotations

import everstep


@everstep.step
async def ask(question: str) -> str:
    return question


@everstep.workflow
async def research(topic: str) -> str:
    run = everstep.current(everstep.AsyncRun)
    ask(topic)  # error
    run.step(ask, topic)  # error
    run.checkpoint("done")  # error
    run.map(ask, [topic])  # error
    run.gate("boss")  # error
    run.sleep(1)  # error
    text: str = run.step(ask, topic)  # error
    text = ask(topic)  # error
    await run.step(ask, 5)  # error
    print(text)
    await run.step(ask, topic, depth=3)  # error
    print(run.numbre)  # error
    return await ask(topic)


@everstep.workflow
async def outer() -> int:
    research("tea")  # error
    return len(await research(5))  # error


async def main() -> None:
    async with everstep.open("memory://") as store:
        store.start(research, "tea")  # error
        await store.start(research, 5)  # error
        await store.start(research, 5, id="r")  # error
        store.load("r")  # error
        store.cancel("r")  # error
        store.enqueue(research, "tea")  # error
        outcome = await store.start(research, "tea", id="r")
        outcome.unwrap().append(1)  # error
        await store.lode("r")  # error
        await store.runs(statsu="failed")  # error
        async with store.run("r") as run:
            run.checkpoint()  # error
            run.flush()  # error
