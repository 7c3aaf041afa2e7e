"""Random programs of generators, nested runs, tasks and threads against a model of which run each step belongs to.

Every player knows its own run by construction: it notes (run, text) in `expected` when it calls a step. A step that ended in another run,
or in none, is a fault; so is one that raised AmbiguousRun where the model says that the stack tells. The canary puts the plain context
variable back, and the search must catch it.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

import everstep
from everstep.errors import AmbiguousRun, RunClosed
from everstep.queues import enqueue
from everstep.runtime import workflow
from everstep.runtime.engine import owner
from everstep.runtime.engine.context import frame
from everstep.runtime.steps import options as step_options

ROUNDS = 2000 if os.environ.get("EVERSTEP_DEEP") else 120


@everstep.step
def note(text: str) -> str:
    return text


@everstep.step
async def anote(text: str) -> str:
    return text


class World:
    """One random program, and what it should have recorded."""

    def __init__(self, store: everstep.Store, seed: int):
        self.store = store
        self.chance = random.Random(seed)
        self.runs = 0
        self.texts = 0
        self.expected: dict[str, list[str]] = {}
        self.faults: list[str] = []
        self.refused = 0

    def new_run(self) -> str:
        self.runs += 1
        name = f"r{self.runs}"
        self.expected[name] = []
        return name

    def text(self) -> str:
        self.texts += 1
        return f"t{self.texts}"

    def did(self, run: str | None, text: str) -> None:
        if run is not None:
            self.expected[run].append(text)

    def step(self, run: str | None, told: bool = True) -> None:
        """Call a step in code that belongs to `run`. `told`: whether the stack tells so."""
        text = self.text()
        try:
            note(text)
        except (AmbiguousRun, RunClosed):
            self.refused += 1
            if told and run is not None:
                self.faults.append(f"{text} of {run}: refused")
            return
        self.did(run, text)

    async def astep(self, run: str | None, told: bool = True) -> None:
        text = self.text()
        try:
            await anote(text)
        except (AmbiguousRun, RunClosed):
            self.refused += 1
            if told and run is not None:
                self.faults.append(f"{text} of {run}: refused")
            return
        self.did(run, text)

    def judge(self) -> list[str]:
        for run, texts in self.expected.items():
            found = [step.result for step in self.store.steps(run) if step.name in ("note", "anote")]
            if found != texts:
                self.faults.append(f"{run}: {texts} became {found}")
        return self.faults


def agent(world: World, depth: int) -> Iterator[None]:
    """A generator that opens a run, and does what comes to its mind between two yields."""
    with world.store.run(run := world.new_run()):
        yield from _acts(world, run, depth)


def managed(world: World, depth: int) -> Iterator[None]:
    """The same, with the run opened by a contextmanager."""

    @contextmanager
    def opened(run: str) -> Iterator[Any]:
        with world.store.run(run) as handle:
            yield handle

    with opened(run := world.new_run()):
        yield from _acts(world, run, depth)


def _acts(world: World, run: str, depth: int) -> Iterator[None]:
    for _ in range(world.chance.randint(1, 4)):
        for act in world.chance.choices((step_here, nested, drive, in_step, elsewhere), k=2):
            act(world, run, depth)
        if world.chance.random() < 0.8:
            yield
    world.step(run)


def step_here(world: World, run: str | None, depth: int) -> None:
    world.step(run)


def nested(world: World, run: str | None, depth: int) -> None:
    """A run inside of a run, on purpose."""
    if depth < 3:
        with world.store.run(inner := world.new_run()):
            world.step(inner)
            drive(world, inner, depth + 1)
            world.step(inner)
        world.step(run)


def drive(world: World, run: str | None, depth: int) -> None:
    """Drive some generators in random turns, with steps of one's own in between."""
    if depth >= 3:
        return
    kinds = (agent, managed)
    players = [world.chance.choice(kinds)(world, depth + 1) for _ in range(world.chance.randint(1, 3))]
    while players:
        player = world.chance.choice(players)
        way = world.chance.choice((next_here, next_here, next_in_thread, next_in_context, close))
        if not way(player):
            players.remove(player)
        if world.chance.random() < 0.5:
            world.step(run)


def in_step(world: World, run: str | None, depth: int) -> None:
    """Generators that are driven inside a step."""
    if run is None or depth >= 2:
        return
    handle, inner = everstep.current(), []

    def body() -> None:
        player = agent(world, depth + 1)
        next_here(player)
        text = world.text()
        note(text)
        inner.append(text)
        player.close()

    handle.step("body", body)
    world.expected[run] += inner


def elsewhere(world: World, run: str | None, depth: int) -> None:
    """A thread that inherits the context: the stack doesn't tell, so the right run or an error."""
    world.step(run)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(contextvars.copy_context().run, world.step, run, False).result()


def next_here(player: Iterator[None]) -> bool:
    return next(player, "end") != "end"


def next_in_context(player: Iterator[None]) -> bool:
    return contextvars.copy_context().run(next_here, player)


def next_in_thread(player: Iterator[None]) -> bool:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(next_here, player).result()


def close(player: Any) -> bool:
    player.close()
    return False


async def aagent(world: World, depth: int) -> AsyncIterator[None]:
    async with world.store.run(run := world.new_run()):
        for _ in range(world.chance.randint(1, 3)):
            await world.astep(run)
            way = world.chance.random()
            if way < 0.3 and depth < 2:
                await adrive(world, run, depth + 1)
            elif way < 0.5:
                await asyncio.gather(world.astep(run, told=False))
            elif way < 0.6:
                drive(world, run, depth + 1)
            yield
        await world.astep(run)


async def adrive(world: World, run: str | None, depth: int) -> None:
    players = [aagent(world, depth + 1) for _ in range(world.chance.randint(1, 3))]
    while players:
        player = world.chance.choice(players)
        way = world.chance.random()
        if way < 0.15:
            await player.aclose()
            players.remove(player)
            continue
        ended = await (anext(player, "end") if way < 0.6 else asyncio.ensure_future(_anext(player)))
        if ended == "end":
            players.remove(player)
        if world.chance.random() < 0.5:
            await world.astep(run)


async def _anext(player: AsyncIterator[None]) -> Any:
    return await anext(player, "end")


def play(seed: int) -> tuple[list[str], int, int]:
    """One program, sync or async, in a run of its own or in none."""
    with everstep.open("memory://") as store:
        world = World(store, seed)
        token = frame.set(None)
        try:
            if seed % 3 == 0:
                asyncio.run(_aplay(world))
            elif seed % 3 == 1:
                drive(world, None, 0)
            else:
                with store.run(run := world.new_run()):
                    drive(world, run, 0)
        finally:
            frame.reset(token)
            owner._owned.clear()
        return world.judge(), world.texts, world.refused


async def _aplay(world: World) -> None:
    if world.chance.random() < 0.5:
        await adrive(world, None, 0)
    else:
        async with world.store.run(run := world.new_run()):
            await adrive(world, run, 0)


def test_no_step_is_recorded_in_another_run(capsys: pytest.CaptureFixture[str]) -> None:
    texts = refused = 0
    for seed in range(ROUNDS):
        faults, many, no = play(seed)
        assert not faults, f"seed {seed}: {faults[:3]}"
        texts, refused = texts + many, refused + no
    assert texts > ROUNDS * 5
    assert refused < texts
    with capsys.disabled():
        print(f" [{ROUNDS} programs, {texts} steps, {refused} refused]", end="")


def test_the_search_catches_a_plain_context_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    plain: Callable[[], Any] = frame.get
    for module in (owner, step_options, workflow, enqueue.owner):
        monkeypatch.setattr(module, "current_frame", plain, raising=False)
    caught = 0
    for seed in range(15):
        try:
            caught += bool(play(seed)[0])
        except (everstep.EverstepError, RuntimeError):
            caught += 1
    assert caught >= 5
