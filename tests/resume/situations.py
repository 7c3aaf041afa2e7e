"""Shared by the tests of what a resume does: a world that counts calls, and every state of a store in which a process can have died."""

import asyncio
import os
import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import everstep
from everstep.backends.memory import data as memory
from everstep.ids import new_id
from everstep.store.journal.entries import RUNNING, StepEntry, open_as, said_in
from everstep.store.journal.results import show_input


class Down(Exception):
    """A service that a step calls is down."""


class World:
    """What steps call outside of the store. It lives on when a process dies.

    `broken[name]` is how many attempts of a step fail. Attempts are counted by the journal, so a kill changes nothing in what a step comes to.
    """

    def __init__(self, broken: dict[str, int] | None = None) -> None:
        self.broken = broken or {}
        self.version = 1  # part of the input of each step
        self.calls: list[str] = []

    def do(self, name: str, version: int = 1) -> str:
        self.calls.append(name)
        if everstep.current().step_attempt <= self.broken.get(name, 0):
            raise Down(name)
        return name

    async def ado(self, name: str, version: int = 1, seconds: float = 0.0) -> str:
        result = self.do(name)
        await asyncio.sleep(seconds)
        return result


class Kill:
    """What is left when a process dies: the store as it was at one commit, and the calls that were made until then."""

    def __init__(self, place: str, open_store: Callable[[], everstep.Store], calls: list[str]):
        self.place = place
        self.open = open_store
        self.calls = calls


class Kills:
    """Watches the commits of a store in memory, or in a folder, and keeps a copy of it before and after each of them."""

    def __init__(self, store: everstep.Store, world: World, folder: Path | None = None):
        self.found: list[Kill] = []
        self._world = world
        self._folder = folder
        self._numbers = count()
        self._lock = threading.RLock()
        self._backend: Any = store.backend
        self._commit, self._submit = self._backend.commit, self._backend.submit
        self._backend.commit = self._watched_commit
        if folder is not None:  # a store in memory submits by `commit`
            self._backend.submit = self._watched_submit

    def _watched_commit(self, *commits: Any) -> Any:
        with self._lock:
            n = next(self._numbers)
            self._keep(f"before {n}")
            found = self._commit(*commits)
            self._keep(f"after {n}")
            return found

    def _watched_submit(self, commit: Any, done: Any) -> None:
        n = next(self._numbers)

        def told(outcome: Any) -> None:
            self._keep(f"after {n}")
            done(outcome)

        self._submit(commit, told)

    def _keep(self, place: str) -> None:
        opener = self._copy_of_memory() if self._folder is None else self._copy_of_folder(place)
        self.found.append(Kill(place, opener, list(self._world.calls)))

    def _copy_of_memory(self) -> Callable[[], everstep.Store]:
        data = _copied(self._backend._data)

        def opened() -> everstep.Store:
            name = f"kill-{new_id()}"
            memory._named[name] = data
            store = everstep.open(f"memory://{name}")
            del memory._named[name]
            return store

        return opened

    def _copy_of_folder(self, place: str) -> Callable[[], everstep.Store]:
        assert self._folder is not None
        copy = self._folder.parent / f"{self._folder.name} {place} {len(self.found)}"
        shutil.copytree(self._folder, copy)
        return lambda: everstep.open(str(copy / "store.db"))


def _copied(data: Any) -> Any:
    """The data of a store in memory, as a process that dies leaves it: its worker does not live any more."""
    made = memory.Data(data.seal)
    with data.lock:
        for name, run in data.runs.items():
            parts = {"tags": dict(run.tags), "messages": dict(run.messages), "bases": dict(run.bases), "pruned": run.pruned}
            made.runs[name] = memory.Run(run.pk, run.row, records=list(run.records), **parts)
        made.chunks, made.properties, made.tombstones = dict(data.chunks), dict(data.properties), list(data.tombstones)
        made.feed, made.fed = list(data.feed[: data.fed]), data.fed
        made.writes, made.total, made.last, made.created = data.writes, data.total, data.last, data.created
    return made


def journal(store: everstep.Store, to_run_again: bool = True) -> dict[str, tuple[int, str, str]]:
    """The newest end of each step by name, over all runs: its place in the feed, its status, and the run that has it.

    Without those `to_run_again`: the failed steps that the end of an attempt names as such.
    """
    found: dict[str, tuple[int, str, str]] = {}
    for place, record in store.backend.feed(0, 1_000_000):
        if record.kind == "step" and record.note:
            step = open_as(record.opened_by(store.framer), StepEntry)
            if step.status != RUNNING and not step.flags.get("next"):
                status = "cancelled" if step.flags.get("cancelled") else step.status
                name = record.note.rpartition("/")[2].partition("#")[0]
                found[name] = (place, status, record.run)
        elif record.kind == "status" and not to_run_again:
            for address in said_in(record.opened_by(store.framer)).get("steps", ()):
                found.pop(address.rpartition("/")[2].partition("#")[0], None)
    return found


def attempts(store: everstep.Store) -> Counter[str]:
    """How many attempts of each step are recorded, over all runs."""
    found: Counter[str] = Counter()
    for _, record in store.backend.feed(0, 1_000_000):
        record.opened_by(store.framer)
        if record.kind == "step" and record.note and open_as(record, StepEntry).status != RUNNING:
            found[_called(record.note, open_as(record, StepEntry))] += 1
    return found


def _called(address: str, step: StepEntry) -> str:
    """What a step calls in the world: its first argument, or its name where it has none."""
    word = re.match(r"\W*'([\w-]+)'", show_input(step.input))
    return word[1] if word else address.rpartition("/")[2].partition("#")[0]


def drive(store: everstep.Store, flow: Any, world: World, id: str = "r", most: int = 12) -> everstep.Outcome:
    """Start or resume a run until it has ended for good: open gates are answered, and a run that failed is resumed while that calls something."""
    outcome, called, quiet = store.start(flow, id=id), -1, 0
    for _ in range(most):
        quiet = quiet + 1 if outcome.status == "failed" and called == len(world.calls) else 0
        if outcome.status == "succeeded" or quiet > 1:  # the first one may have replayed a failure that the next one runs again
            return outcome
        if outcome.status == "waiting":
            answer_all(store)
        called = len(world.calls)
        outcome = store.resume(id)
    raise AssertionError(f"no end after {most} resumes: {outcome}")


def answer_all(store: everstep.Store) -> None:
    """Answer the open gates of all runs."""
    for run in store.runs(status="waiting"):
        posted = {message.name for message in store.backend.messages(run.id)}
        for gate in store.gates(run.id):
            if gate.open and f"answer:{gate.address}" not in posted:
                store.answer(run.id, gate.address, f"yes to {gate.name}")


DEEP = bool(os.environ.get("EVERSTEP_DEEP"))
