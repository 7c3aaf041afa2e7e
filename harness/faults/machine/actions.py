"""Uses a store as a program would: an open store and its open runs, each call with plain arguments and results.

So the same calls can be made in this process or in one that is killed. A refusal by Everstep comes back as `Refused`, never as an
exception. `shorten` makes bases and chunks so small that a few saves produce everything that a store can contain.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import everstep
from everstep import clock as clocks
from everstep.api import Store
from everstep.backends.contract.queues import Task
from everstep.backends.registry import open_backend
from everstep.codec.values import decode, encode
from everstep.errors import EverstepError, Waiting
from everstep.records import Status
from everstep.snapshot import saver, tree
from everstep.store.journal import results
from everstep.testing import queued
from everstep.testing.rows import new_worker
from harness.faults.broken_backends import Forgetful

_NEVER = 10 * 365 * 86_400 * 1_000_000  # longer than any machine runs
_SHORT: tuple[tuple[Any, str, int], ...] = (
    (saver, "BASE_EVERY", 4), (saver, "MOST_DELTAS", 12), (tree, "INLINE", 300), (tree, "TARGET", 400), (tree, "MOST", 1600),
    (tree, "PIECE_LEAST", 100), (tree, "PIECE_MOST", 400), (results, "BIG_RESULT", 500),
)  # fmt: skip


@contextmanager
def shorten() -> Iterator[None]:
    before = [getattr(module, name) for module, name, _ in _SHORT]
    for module, name, value in _SHORT:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(_SHORT, before, strict=True):
            setattr(module, name, value)


@dataclass(frozen=True, slots=True)
class Refused:
    """An error of Everstep."""

    kind: str
    written: str
    message: str


class Hands:
    """One open store, and the handles of its open runs."""

    def __init__(self, path: Path, forgetful: bool = False):
        backend: Any = open_backend(path)
        self.backend = Forgetful(backend) if forgetful else backend
        self.store = Store(self.backend, checking=True)
        self.open: dict[str, Any] = {}
        self._worker = new_worker(60)
        self._aside: dict[str, Any] = {}

    def do(self, what: str, *args: Any) -> Any:
        try:
            return getattr(self, what)(*args)
        except EverstepError as error:
            return Refused(type(error).__name__, error.written, error.message)

    def enter(self, name: str, state: Any = None) -> tuple[Any, int]:
        handle = self.store.run(name, state=state).__enter__()
        self.open[name], self._aside[name] = handle, {}
        return decode(encode(handle.state)), handle.number

    def edit(self, name: str, edits: list[tuple[str, str, Any]]) -> None:
        for how, key, value in edits:
            change(self.open[name].state, how, key, value, self._aside[name])

    def checkpoint(self, name: str, note: str | None, tags: tuple[str, ...]) -> int:
        number: int = self.open[name].checkpoint(note=note, tags=tags).number
        return number

    def step(self, name: str, step: str, result: Any) -> tuple[Any, bool]:
        """Return the result, and whether the function was called for it."""
        ran: list[bool] = []

        def work() -> Any:
            ran.append(True)
            return result

        return self.open[name].step(step, work), bool(ran)

    def gate(self, name: str, gate: str) -> tuple[str, Any]:
        """Open a gate; without an answer, the run releases its process."""
        try:
            return "answered", self.open[name].gate(gate, ask="Continue?")
        except Waiting as waiting:
            self.open.pop(name).__exit__(type(waiting), waiting, None)
            return "waiting", None

    def leave(self, name: str) -> None:
        self.open.pop(name).__exit__(None, None, None)

    def late(self, name: str, handle: str) -> Any:
        """Use a handle that another one has overtaken."""
        self.open[handle].state["late"] = name
        return self.open[handle].checkpoint().number

    def answer(self, name: str, address: str, value: Any) -> None:
        self.store.answer(name, address, value, early=True)

    def load(self, ref: str) -> Any:
        return self.store.load(ref)

    def look(self, name: str) -> tuple[str, list[tuple[int, tuple[str, ...]]], list[str]]:
        """Return status, checkpoints with their tags, and addresses of the recorded steps."""
        steps = [step.address for step in self.store.steps(name)]
        return self.store.get(name).status, [(c.number, c.tags) for c in self.store.checkpoints(name, oldest_first=True)], steps

    def runs(self) -> list[str]:
        return [info.id for info in self.store.runs(oldest_first=True) if info.workflow != queued.WORKFLOW]

    def enqueue(self, name: str, priority: int, dedupe: str | None, later: bool) -> None:
        queued.enqueue(self.backend, name, Task("q", priority, None, dedupe), _NEVER if later else 0)

    def take(self, most: int) -> list[str]:
        return [claimed.run for claimed in queued.take(self.backend, self._worker, most)]

    def begin(self, name: str) -> None:
        self.backend.commit(queued.beginning(self._row(name)))

    def end(self, name: str, how: str, due: bool) -> None:
        row = self._row(name)
        messages = (queued.message(row, how, 0 if due else _NEVER),) if how in ("timer", "retry") else ()
        status = {"timer": "waiting", "retry": "failed"}.get(how, how)
        commit = queued.ending(row, Status(status), messages)
        commit.read = ("timer", "retry", "answer")
        self.backend.commit(commit)

    def give_back(self, name: str) -> None:
        self.backend.release(self._row(name))

    def message(self, name: str) -> None:
        self.backend.post(queued.message(self._row(name), "answer"), name)

    def free(self) -> int:
        freed: int = self.backend.free()
        return freed

    def queue_entries(self) -> dict[str, tuple[int, str | None, bool, bool, int]]:
        """Return priority, dedupe, whether it is ready now, whether a worker has it, and how many workers died with it."""
        now = clocks.clock.now_us()
        return {
            p.run: (p.task.priority, p.task.dedupe, p.ready is not None and p.ready <= now, p.worker is not None, p.deaths)
            for p in self.backend.queue_entries()
        }

    def _row(self, name: str) -> Any:
        return self.backend.run(name)

    def tag(self, ref: str, tag: str) -> None:
        self.store.tag(ref, tag)

    def fork(self, ref: str, child: str, edit: Any) -> None:
        self.store.fork(ref, child, edit)

    def delete(self, name: str) -> None:
        self.store.delete(name)

    def prune(self, keep_last: int, tagged: bool, dry_run: bool) -> dict[str, list[int]]:
        """Return the numbers that are dropped, by run."""
        plan = self.store.prune(everstep.Retention(keep_last=keep_last, keep_tagged=tagged or None), dry_run=dry_run)
        if plan.problems:
            raise AssertionError(f"prune found problems: {plan}")
        return {run.run: run.dropped for run in plan.runs if run.dropped}

    def gc(self) -> None:
        self.store.gc()

    def verify(self, depth: Any) -> str:
        report = self.store.verify(depth)
        return "" if report.ok else str(report)

    def close(self) -> None:
        for name in list(self.open):
            self.leave(name)
        self.store.close()


def change(state: Any, how: str, key: str, value: Any, aside: dict[str, Any]) -> None:
    """Change a state once, in the same way for a live one and its model. `aside` holds the parts that the program took out."""
    held = state.get(key)
    if how == "drop":
        state.pop(key, None)
    elif how == "take":
        aside[key] = state.pop(key, None)
    elif how == "put back" and key in aside:
        state[key] = aside.pop(key)
    elif how == "append" and isinstance(held, list):
        held.append(value)
    elif how == "pop" and isinstance(held, list) and held:
        held.pop(0)
    elif how == "double" and isinstance(held, list) and len(held) < 60:
        held += [f"{item!r:.50} again" for item in held]
    else:
        state[key] = value


def serve(pipe: Connection, path: Path) -> None:
    """Serve calls in a separate process, until it is killed or its pipe is closed."""
    with shorten():
        hands = Hands(path)
        while True:
            what, args = pipe.recv()
            try:
                pipe.send(hands.do(what, *args))
            except AssertionError as error:
                pipe.send(error)
