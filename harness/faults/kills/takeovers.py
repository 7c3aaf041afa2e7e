"""A worker that wakes up after another one has taken over its run: none of its writes is accepted.

It is stopped (SIGSTOP), or its lease is no longer renewed, inside a step, before or after a checkpoint, or anywhere. Another worker takes over the
run and ends it; then the first one wakes up and continues. Its write is stale if it changed anything of the run. Only the step
that was in flight may run twice. The canary is a backend whose commit ignores the epoch. Relies on `actor` for processes; the
store is in SQLite, the programs are a loop and a workflow.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count as counted
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import everstep
from everstep.api import Store
from everstep.backends.registry import open_backend
from everstep.errors import EverstepError, LeaseHeld, StoreBusy
from harness.faults.actor import Actor
from harness.faults.broken_backends import Unfenced
from harness.faults.count import Count, Progress

STEPS = 4
LEASE = 0.03
BUSY_MS = 400
STOPS = ("inside", "before save", "after save", "anywhere")


@dataclass(frozen=True, slots=True)
class Plan:
    """One take-over: the program, how its worker is put to sleep, and where."""

    run: str
    program: str
    stopped: bool
    place: str
    turn: int

    def __str__(self) -> str:
        return f"{self.program} {self.run}, {'stopped' if self.stopped else 'lease not renewed'} {self.place} {self.turn}"


def run(folder: Path, *, deep: bool, seed: int = 0, progress: Progress = None) -> Count:
    """60 take-overs; deep: 1,000."""
    count = Count("a worker wakes after a take-over")
    with count.timed():
        _take_overs(folder / "takeovers.db", count, 1000 if deep else 60, seed, progress)
        count.tell_canary("a commit that ignores the epoch", canary(folder))
    return count


def canary(folder: Path) -> bool:
    """Whether stale writes are detected if the backend accepts them."""
    broken = Count("canary")
    _take_overs(folder / "canary.db", broken, 4, 0, None, unfenced=True)
    return broken.wrong > 0


def on_server(urls: tuple[str, str], folder: Path, times: int, seed: int = 0, progress: Progress = None) -> Count:
    """Run the take-overs on a server: the addresses of two new stores, one for the canary."""
    count, broken = Count("a worker wakes after a take-over, on a server"), Count("canary")
    with count.timed():
        _take_overs(folder / "takeovers", count, times, seed, progress, url=urls[0])
        _take_overs(folder / "canary", broken, 4, 0, None, unfenced=True, url=urls[1])
        count.tell_canary("a commit that ignores the epoch", broken.wrong > 0)
    return count


def _open(place: Path | str, unfenced: bool = False, **options: Any) -> Store:
    backend: Any = open_backend(place, busy_ms=BUSY_MS) if isinstance(place, Path) else open_backend(place)
    return Store(Unfenced(backend) if unfenced else backend, **options)


def work(pipe: Connection, place: Path | str, effects: Path, unfenced: bool) -> None:
    """Run a worker: given a plan, it executes a run until it is stopped; given "over", it takes a run over and ends it."""
    while True:
        kind, plan = pipe.recv()
        player = Player(pipe, plan, effects, slow=kind == "begin")
        if kind == "begin":
            with _open(place, unfenced, lease_seconds=LEASE) as store:
                pipe.send(player.drive(store))
        else:
            with _open(place) as store:
                pipe.send(player.take_over(store))


class Player:
    """The program of a run, which logs its effects outside of it: each must happen once for each step."""

    def __init__(self, pipe: Connection, plan: Plan, effects: Path, slow: bool):
        self._pipe = pipe
        self._plan = plan
        self._effects = effects
        self._slow = slow
        self._store: Store | None = None

    def drive(self, store: Store) -> list[str]:
        self._store = store
        try:
            self._play(store)
        except EverstepError as error:
            return [type(error).__name__]
        return ["ended"]

    def take_over(self, store: Store) -> str:
        while True:
            try:
                self._play(store)
            except LeaseHeld:
                time.sleep(LEASE / 4)
            except StoreBusy:
                return "busy"
            else:
                return "ended"

    def _play(self, store: Store) -> None:
        if self._plan.program == "workflow":
            self._flow(store)
        else:
            self._loop(store)

    def _loop(self, store: Store) -> None:
        with store.run(self._plan.run, state={"done": []}) as run:
            if self._slow and self._plan.place == "anywhere":
                self._pipe.send("here")
            for turn in range(len(run.state["done"]), STEPS):
                self._turn(run, turn)

    def _flow(self, store: Store) -> None:
        @everstep.workflow(name="takeover")  # type: ignore[untyped-decorator, unused-ignore]
        def flow() -> list[int]:
            run = everstep.current()
            run.state["done"] = []
            if self._slow and self._plan.place == "anywhere":
                self._pipe.send("here")
            for turn in range(STEPS):
                self._turn(run, turn)
            return list(run.state["done"])

        outcome = store.start(flow, id=self._plan.run)
        if outcome.error is not None:
            raise outcome.error

    def _turn(self, run: Any, turn: int) -> None:
        run.state["done"].append(run.step("work", self._effect, turn))
        self._pause("before save", turn)
        run.checkpoint()
        self._pause("after save", turn)

    def _effect(self, turn: int) -> int:
        with self._effects.open("a") as file:
            file.write(f"{self._plan.run} {turn}\n")
        self._pause("inside", turn)
        return turn

    def _pause(self, place: str, turn: int) -> None:
        """Put this worker to sleep. The lease is not renewed from here on: a stopped process cannot, and in the other form its keeper has
        ended.
        """
        if not self._slow or (place, turn) != (self._plan.place, self._plan.turn):
            return
        if not self._plan.stopped and self._store is not None:
            self._store.keeper.close()
        self._pipe.send("here")
        self._pipe.recv()


def _plans(rng: random.Random) -> Iterator[Plan]:
    """Yield all combinations in turn, at random turns."""
    kinds = [(p, s, w) for w in STOPS for s in (True, False) for p in ("loop", "workflow") if s or w != "anywhere"]
    for i in counted():
        yield Plan(f"r{i}", *kinds[i % len(kinds)], rng.randrange(STEPS))


def _take_overs(
    path: Path, count: Count, times: int, seed: int, progress: Progress, unfenced: bool = False, url: str | None = None
) -> None:
    place, effects = url or path, path.with_suffix(".effects")
    effects.touch()
    rng = random.Random(seed)  # noqa: S311
    with _open(place) as store, Actor(work, place, effects, unfenced) as slow, Actor(work, place, effects, False) as heir:
        plans = _plans(rng)
        while count.tried < times:
            _take_over(store, next(plans), slow, heir, effects, count, rng)
            if progress is not None:
                progress(count)
        if not unfenced and not (report := store.verify("full")).ok:
            count.wrong += 1
            count.note(f"after the take-overs: {report}")


def _take_over(store: Store, plan: Plan, slow: Actor, heir: Actor, effects: Path, count: Count, rng: random.Random) -> None:
    slow.tell("begin", plan)
    slow.hear()
    if plan.place == "anywhere":
        time.sleep(rng.random() * 0.015)
    if plan.stopped:
        slow.stop()
    if plan.place == "anywhere" and not slow.silent(0):  # it had ended before it was stopped
        slow.resume()
        slow.hear()
        return
    _let_heir_end(plan, slow, heir)
    before = _history(store, plan.run)
    if plan.stopped:
        slow.resume()
    if plan.place != "anywhere":
        slow.tell("continue")
    said = slow.hear()
    count.tried += 1
    _judge(plan, before, _history(store, plan.run), said, effects, count)


def _let_heir_end(plan: Plan, slow: Actor, heir: Actor) -> None:
    """Let the other worker end the run. A worker that was stopped in the middle of a transaction keeps the store locked, and is resumed for
    a moment.
    """
    while heir.ask("over", plan) == "busy":
        slow.resume()
        time.sleep(0.002)
        slow.stop()


def _history(store: Store, run: str) -> tuple[Any, ...]:
    events = [(event.seq, event.name) for event in store.events(run=run, limit=1000)]
    return store.get(run), [c.digest for c in store.checkpoints(run)], events, store.load(run)


def _judge(plan: Plan, before: tuple[Any, ...], after: tuple[Any, ...], said: list[str], effects: Path, count: Count) -> None:
    ran = Counter(line.split()[1] for line in effects.read_text().splitlines() if line.split()[0] == plan.run)
    effects.write_text("")
    faults = []
    if before != after or ("ended" in said and plan.place != "anywhere"):
        count.wrong += 1
        faults.append(f"a stale write was accepted: {said}")
    if after[3]["done"] != list(range(STEPS)):
        count.lost += 1
        faults.append(f"the run ended with {after[3]}")
    if set(ran) != {str(turn) for turn in range(STEPS)} or sum(ran.values()) > STEPS + 1:
        count.wrong += 1
        faults.append(f"steps ran {dict(ran)} times")
    count.held += not faults
    for fault in faults:
        count.note(f"{plan}: {fault}")
