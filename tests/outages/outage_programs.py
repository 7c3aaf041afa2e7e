"""Random programs that treat errors as badly as programs do, and a log of what their steps did.

The same seed gives the same program, and a program whose store never failed gives the same result each time. So whatever an outage does, the
run must end with that result.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any

import everstep
from everstep import Retry
from everstep.errors import StoreUnreachable
from everstep.runtime.engine.context import frame

OPS = ("step", "retry", "keyed", "nested", "map", "child", "save", "now", "gate", "emit", "threads", "enqueue", "load")
HANDLERS = ("none", "swallow", "bare", "wrap", "again", "finally", "group")


class Log:
    """What steps did outside of the store. `watch` is a store that reaches the server whatever is broken."""

    def __init__(self, watch: everstep.Store):
        self.watch = watch
        self.ran: dict[tuple[str, str], list[str]] = {}
        self.faults: list[str] = []

    def note(self, label: str) -> str:
        run = everstep.current()
        here = frame.get()
        assert here is not None
        ticket = here.ticket
        assert ticket is not None
        before = self.ran.setdefault((run.id, ticket.address), [])
        if self.recorded(run.id, ticket.address):
            self.faults.append(f"{run.id} {ticket.address} ran again although it was recorded")
        if before and before[0] != run.step_key:
            self.faults.append(f"{run.id} {ticket.address} has another key")
        if before and not run.step_again and run.step_attempt == 1:
            self.faults.append(f"{run.id} {ticket.address} ran before and was not told so")
        before.append(run.step_key)
        return label

    def recorded(self, run: str, address: str) -> bool:
        row = self.watch.backend.run(run)
        return row is not None and any(step.address == address and step.status == "succeeded" for step in self.watch.steps(run))


LOG: list[Log] = []
STORE: list[everstep.Store] = []
NOTICE: list[Callable[[], bool]] = []


def work(label: str) -> str:
    notice()
    return LOG[0].note(label)


async def awork(label: str) -> str:
    await asyncio.sleep(0)
    notice()
    return LOG[0].note(label)


@everstep.workflow(name="outage child")
def child(label: str) -> str:
    return everstep.current().step("inner", work, f"{label} inner")


@everstep.workflow(name="outage achild")
async def achild(label: str) -> str:
    return await everstep.current().step("inner", awork, f"{label} inner")


@everstep.workflow(name="outage queued")
def queued(label: str) -> str:
    return label


def _nested(label: str) -> str:
    return f"{label} {everstep.current().step('deep', work, label)}"


def _threads(run: Any, label: str) -> list[str]:
    with ThreadPoolExecutor(2) as pool:
        return [f.result() for f in [pool.submit(copy_context().run, run.step, f"t{n}", work, f"{label} {n}") for n in range(2)]]


def _load(label: str) -> str:
    """A step that uses the store by itself."""
    LOG[0].note(label)
    return str(len(STORE[0].runs(prefix="never").__class__.__name__))


def notice() -> None:
    """What the thread that renews leases does in a longer outage: the writer finds its connection lost, so that the next commit is not even sent."""
    if NOTICE and NOTICE[0]():
        with suppress(StoreUnreachable):
            STORE[0].backend.renew(STORE[0].keeper.worker)


def act(op: str, label: str) -> Any:
    notice()
    run = everstep.current()
    acts: dict[str, Callable[[], Any]] = {
        "step": lambda: run.step(label, work, label),
        "retry": lambda: run.step(label, work, label, retry=Retry(5, delay=0.001)),
        "keyed": lambda: run.step(label, work, label, key=label),
        "nested": lambda: run.step(label, _nested, label),
        "map": lambda: run.map(work, [f"{label} {n}" for n in range(3)], 3),
        "child": lambda: child(label),
        "save": lambda: run.checkpoint(note=label).number > 0,
        "now": lambda: [run.now() is not None, run.random() < 1],
        "gate": lambda: run.gate(label, condition=True),
        "emit": lambda: run.emit("said", label=label),
        "threads": lambda: _threads(run, label),
        "enqueue": lambda: STORE[0].enqueue(queued, label, queue="aside").id.startswith(run.id),
        "load": lambda: run.step(label, _load, label),
    }
    return acts[op]()


def handled(handler: str, call: Callable[[], Any]) -> Any:
    """Call something and treat its errors badly."""
    if handler == "none":
        return call()
    if handler == "finally":
        done = False
        try:
            result = call()
            done = True
        finally:
            if not done:
                raise ValueError("raised in finally")
        return result
    if handler == "bare":
        try:
            return call()
        except BaseException:
            return "swallowed"
    try:
        return call()
    except Exception as error:
        if handler == "wrap":
            raise RuntimeError("wrapped") from error
        if handler == "group":
            raise ExceptionGroup("several", [error, ValueError("another")]) from None
        return handled("swallow", call) if handler == "again" else "swallowed"


async def aact(op: str, label: str) -> Any:
    notice()
    run = everstep.current()
    if op == "threads":
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run.step(f"g{n}", awork, f"{label} {n}")) for n in range(3)]
        return [task.result() for task in tasks]
    if op == "nested":
        return list(await asyncio.gather(*(run.step(f"n{n}", awork, f"{label} {n}") for n in range(3))))
    acts: dict[str, Callable[[], Any]] = {
        "step": lambda: run.step(label, awork, label),
        "retry": lambda: run.step(label, awork, label, retry=Retry(5, delay=0.001)),
        "keyed": lambda: run.step(label, work, label, key=label),
        "map": lambda: run.map(awork, [f"{label} {n}" for n in range(3)], 3),
        "child": lambda: achild(label),
        "gate": lambda: run.gate(label, condition=True),
        "load": lambda: run.step(label, _load, label),
    }
    if op in acts:
        return await acts[op]()
    if op == "save":
        return (await run.checkpoint(note=label)).number > 0
    return act(op, label) if op != "enqueue" else None


async def ahandled(handler: str, op: str, label: str) -> Any:
    if handler == "none":
        return await aact(op, label)
    if handler == "finally":
        done = False
        try:
            result = await aact(op, label)
            done = True
        finally:
            if not done:
                raise ValueError("raised in finally")
        return result
    if handler == "bare":
        try:
            return await aact(op, label)
        except BaseException:
            return "swallowed"
    try:
        return await aact(op, label)
    except Exception as error:
        if handler == "wrap":
            raise RuntimeError("wrapped") from error
        if handler == "group":
            raise ExceptionGroup("several", [error, ValueError("another")]) from None
        return await ahandled("swallow", op, label) if handler == "again" else "swallowed"


def plan(seed: int) -> list[tuple[str, str, str]]:
    """What a program does: an operation, how its errors are treated, and a label."""
    rng = random.Random(seed)
    return [(rng.choice(OPS), rng.choice(HANDLERS), f"o{n}") for n in range(rng.randint(2, 4))]


@everstep.workflow(name="outage program")
def program(seed: int) -> list[Any]:
    return [handled(handler, lambda op=op, label=label: act(op, label)) for op, handler, label in plan(seed)]


@everstep.workflow(name="outage aprogram")
async def aprogram(seed: int) -> list[Any]:
    return [await ahandled(handler, op, label) for op, handler, label in plan(seed)]
