"""A workflow of Agent Framework that books a trip in supersteps: each executor writes its call to a ledger, and keeps a state of its own.

As a program: `URL LEDGER WAY NUMBER` begins or continues it, and is killed in its call of that number. WAY `save` kills before and after saves
instead: those of odd numbers before, of even numbers after. Every save that has returned is acknowledged in the file LEDGER.acknowledged. The
question is answered by the program itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from agent_framework import Executor, Message, WorkflowBuilder, WorkflowContext, handler, response_handler

import everstep
from everstep.adapters.agent_framework import CheckpointStorage

CALLS = 6
ORDER = ["plan", "price Rome", "price Lisbon", "ask", "book Rome", "report"]
SAVES = 9  # for the input, for the response, and after each of seven supersteps


class Planner(Executor):
    def __init__(self, ledger: Any):
        super().__init__("planner")
        self.ledger, self.prices = ledger, {}

    @handler
    async def plan(self, said: Message, ctx: WorkflowContext[str]) -> None:
        self.ledger.enter("plan")
        ctx.set_state("said", [said])
        await ctx.send_message("Rome", "pricer")

    @handler
    async def priced(self, found: tuple[str, int], ctx: WorkflowContext[str]) -> None:
        self.prices[found[0]] = found[1]
        if len(self.prices) == 1:
            await ctx.send_message("Lisbon", "pricer")
        else:
            self.ledger.enter("ask")
            await ctx.request_info(f"Book Rome for {self.prices['Rome']}?", bool)

    @response_handler
    async def book(self, asked: str, yes: bool, ctx: WorkflowContext[str]) -> None:
        self.ledger.enter("book Rome")
        ctx.set_state("booked", "Rome" if yes else None)
        ctx.set_state("said", [*ctx.get_state("said"), Message("assistant", ["booked"])])
        await ctx.send_message("booked", "reporter")

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"prices": dict(self.prices)}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.prices = dict(state["prices"])


class Pricer(Executor):
    def __init__(self, ledger: Any):
        super().__init__("pricer")
        self.ledger = ledger

    @handler
    async def price(self, city: str, ctx: WorkflowContext[tuple[str, int]]) -> None:
        self.ledger.enter(f"price {city}")
        await ctx.send_message((city, 400), "planner")


class Reporter(Executor):
    def __init__(self, ledger: Any):
        super().__init__("reporter")
        self.ledger = ledger

    @handler
    async def report(self, what: str, ctx: WorkflowContext[None, str]) -> None:
        self.ledger.enter("report")
        await ctx.yield_output(what)


class Acknowledging(CheckpointStorage):
    """Writes down each save that has returned; may kill the process before or after one."""

    def __init__(self, store: Any, acknowledged: Path, deadly: int = 0):
        super().__init__(store, scope="ann@example.com")
        self.acknowledged, self.deadly, self.points = acknowledged, deadly, 0

    def reach(self) -> None:
        self.points += 1
        if self.points == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    async def save(self, checkpoint: Any) -> str:
        self.reach()
        id = await super().save(checkpoint)
        with self.acknowledged.open("a") as file:
            file.write(f"{id}\n")
        self.reach()
        return id


def build(storage: Any, ledger: Any) -> Any:
    planner, pricer, reporter = Planner(ledger), Pricer(ledger), Reporter(ledger)
    made = WorkflowBuilder(name="trip", start_executor=planner, checkpoint_storage=storage, output_from=[reporter])
    return made.add_edge(planner, pricer).add_edge(pricer, planner).add_edge(planner, reporter).build()


async def drive(storage: Any, ledger: Any) -> list[str]:
    """Begin the workflow, or continue it where the last process stopped; return its outputs."""
    latest, outputs = await storage.get_latest(workflow_name="trip"), []
    while latest is None or latest.messages or latest.pending_request_info_events:
        workflow = build(storage, ledger)
        if latest is None:
            done = await workflow.run(Message("user", ["Book a trip"]))
        else:
            answers = dict.fromkeys(latest.pending_request_info_events, True)
            done = await workflow.run(checkpoint_id=latest.checkpoint_id, responses=answers or None)
        outputs += done.get_outputs()
        latest = await storage.get_latest(workflow_name="trip")
    return outputs


def main() -> None:
    # The framework compares the modules of the executors, so the program runs as a module that is imported, and not as __main__.
    import agent_framework_program as program
    from killed import Ledger

    url, path, way, number = sys.argv[1:]
    with everstep.open(url) as store:
        storage = program.Acknowledging(store, Path(f"{path}.acknowledged"), int(number) if way == "save" else 0)
        print(asyncio.run(program.drive(storage, Ledger(Path(path), int(number) if way == "call" else 0))))


if __name__ == "__main__":
    main()
