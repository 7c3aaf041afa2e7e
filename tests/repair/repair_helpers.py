"""A store with something of everything, the truth about it, and a judge that compares a repaired store with the truth."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import everstep
from everstep.backends.contract.queues import Task
from everstep.errors import Damaged, EverstepError, NotFound
from everstep.store.repair.report import Repaired
from everstep.store.retention.retention import Retention
from everstep.testing.queued import beginning, ending, enqueue, take
from everstep.testing.rows import new_worker
from harness.faults.workload import eager

SUFFIXES = ("", "-wal", "-seen")


def text(what: object, size: int) -> str:
    return Random(str(what)).randbytes(size // 2).hex()


def _rows(n: int) -> list[str]:
    return [text((n, i), 1500) for i in range(16)]


def _report(n: int) -> Any:
    run = everstep.current()
    rows = run.step("rows", _rows, n)
    run.state["count"] = len(rows)
    run.checkpoint("counted")
    small = run.step("small", lambda: {"n": n})
    answer = everstep.gate("editor", ask="Publish?")
    run.state["answer"] = answer
    run.step("publish", lambda: answer)
    return {"rows": _rows(n), "small": small, "answer": answer}


report: Any = everstep.workflow(_report, name="tests.repair.report", version=1)


def fill(store: everstep.Store) -> None:
    """Loops over bases and deltas, workflows that have ended and that wait, a fork, tags, messages, a pruned and a deleted run, and runs in a queue."""
    with store.run("loop", tags=["prod"], note="a loop", meta={"who": "me"}, session="monday") as run:
        run.state["lines"] = [text(i, 300) for i in range(60)]
        for n in range(1, 24):
            run.state["n"] = n
            run.state["lines"][n] = text(("line", n), 300)
            run.step("ask", lambda n=n: n * n)
            run.checkpoint(f"turn {n}", tags=["even"] if n % 2 == 0 else (), meta={"n": n})
    store.tag("loop@5", "milestone")
    store.tag("loop@7", "later")
    with store.run("gone", state={"n": 0}) as run:
        run.checkpoint()
    store.start(report, 1, id="ended")
    store.answer("ended", "editor", "yes", by="me")
    store.resume("ended")
    store.start(report, 2, id="waits")
    store.fork("loop@8", "fork", {"n": 99})
    with store.run("fork") as run:
        run.state["own"] = text("own", 9000)
        run.checkpoint()
    store.delete("gone")
    with store.run("pruned", state={"text": text("long", 20_000)}) as run:
        for n in range(1, 30):
            run.state["n"] = n
            run.state[f"part {n}"] = text(("part", n), 900)
            run.checkpoint()
    store.prune(Retention(keep_last=3, keep_tagged=["nothing"]), run="pruned")
    store.answer("waits", "editor", "no", by="her")
    for i in range(3):
        with store.run(f"small-{i}", state={"i": i}) as run:
            run.checkpoint()
            run.state["j"] = i + 1
            run.checkpoint("second")
    for name in ("taken", "done", "queued"):
        enqueue(store.backend, name, Task("q", 1, "key", name), 3_600_000_000 if name == "queued" else 0)
    taken, done = (claimed.row for claimed in take(store.backend, new_worker(0), 2))
    assert taken is not None
    assert done is not None
    begun = beginning(done)
    store.backend.commit(begun)
    store.backend.commit(ending(begun.run))


@dataclass
class RunTruth:
    """What one run was."""

    row: Any
    states: dict[int, Any]
    pruned: set[int]
    notes: dict[int, Any]
    tags: set[tuple[str, int]]
    messages: set[str]
    steps: dict[int, tuple[str, str, Any]]


@dataclass
class Truth:
    """What the store was before it was damaged."""

    runs: dict[str, RunTruth] = field(default_factory=dict)

    @classmethod
    def of(cls, store: everstep.Store) -> Truth:
        truth = cls()
        for info in store.runs():
            row = store.backend.run(info.id)
            assert row is not None
            states, pruned = {}, set()
            for number in range(1, row.checkpoints + 1):
                try:
                    states[number] = store.load(f"{row.id}@{number}")
                except NotFound:
                    pruned.add(number)
            notes = {c.number: (c.note, c.meta, c.at) for c in store.checkpoints(row.id, limit=1000)}
            tags = {(tag.name, tag.number) for tag in store.backend.tags(row.id)}
            messages = {message.name for message in store.backend.messages(row.id)}
            steps = {step.seq: (step.address, step.status, step.result) for step in store.steps(row.id)}
            truth.runs[row.id] = RunTruth(row, states, pruned, notes, tags, messages, steps)
        return truth


def copy(source: Path, target: Path) -> None:
    for suffix in SUFFIXES:
        with suppress(FileNotFoundError):
            shutil.copyfile(f"{source}{suffix}", f"{target}{suffix}")


def make(folder: Path) -> tuple[Path, Path, Truth]:
    """A closed store, the same as a killed process leaves it (the newest commits in the WAL), and the truth about both."""
    path, killed = folder / "closed.db", folder / "killed.db"
    with everstep.open(path) as store, eager():
        fill(store)
        truth = Truth.of(store)
    with everstep.open(path) as store:  # one more session, whose commits stay in the WAL of the copy
        with store.run("loop") as run:
            run.state["n"] = 1000
            run.step("ask", lambda: 5)
            run.checkpoint("in the WAL")
        store.start(report, 3, id="late")
        truth = Truth.of(store)
        copy(path, killed)
    return path, killed, truth


class Judge:
    """Compares a repaired store with the truth; `faults` is what is wrong with it."""

    def __init__(self, truth: Truth, done: Repaired, target: Path):
        self.truth, self.done, self.target = truth, done, target
        self.faults: list[str] = []
        self.lost = {(loss.run, loss.what) for loss in done.lost}
        self.lost_numbers = {(loss.run, loss.number) for loss in done.lost if loss.what in ("checkpoint", "note")}
        self.loaded: set[tuple[str, int]] = set()

    def all(self) -> list[str]:
        with everstep.open(self.target, create=False) as store:
            report = store.verify("full")
            if not report.ok:
                self.faults.append(f"verify: {report}")
            there = {info.id for info in store.runs(limit=1000)}
            if there - self.truth.runs.keys():
                self.faults.append(f"runs that there never were, or were deleted: {there - self.truth.runs.keys()}")
            for name, run in self.truth.runs.items():
                if name in there:
                    self._run(store, name, run)
                elif not self._whole_run_lost(name):
                    self.faults.append(f"run {name} is gone, and nothing says so")
        return self.faults

    def _whole_run_lost(self, name: str) -> bool:
        return bool({(name, "run"), (None, "run"), (None, "writes"), (None, "manifest")} & self.lost)

    def _said(self, *what: tuple[str | None, str]) -> bool:
        """Whether the list of losses covers a difference."""
        return bool({*what, (None, "manifest"), (None, "writes")} & self.lost)

    def _run(self, store: everstep.Store, name: str, run: RunTruth) -> None:
        row = store.backend.run(name)
        assert row is not None
        if row.epoch < run.row.epoch and not self._said((name, "end")):
            self.faults.append(f"{name}: epoch {row.epoch} after {run.row.epoch}")
        for field_name in ("workflow", "session", "tags", "note", "meta", "parent", "parent_number", "created_at", "key", "family"):
            if getattr(row, field_name) != getattr(run.row, field_name) and not self._said((name, "row")):
                self.faults.append(f"{name}: {field_name} is {getattr(row, field_name)!r}")
        if row.status != run.row.status and name not in self.done.paused and not self._said((name, "row"), (name, "end")):
            self.faults.append(f"{name}: status {row.status} after {run.row.status}")
        for number in range(1, max(row.checkpoints, run.row.checkpoints) + 1):
            self._checkpoint(store, name, number, run)
        self._beside(store, name, run)
        self._steps(store, name, run)

    def _checkpoint(self, store: everstep.Store, name: str, number: int, run: RunTruth) -> None:
        try:
            state = store.load(f"{name}@{number}")
        except NotFound:
            if number in run.states and (name, number) not in self.lost_numbers and not self._said((name, "end")):
                self.faults.append(f"{name}@{number} is gone, and nothing says so")
            return
        except EverstepError as error:
            self.faults.append(f"{name}@{number}: {type(error).__name__}: {error.message}")
            return
        self.loaded.add((name, number))
        if number not in run.states or run.states[number] != state:
            self.faults.append(f"{name}@{number} is WRONG")
        if number in run.notes:
            found = store.checkpoint(f"{name}@{number}")
            if (found.note, found.meta, found.at) != run.notes[number] and (name, number) not in self.lost_numbers:
                self.faults.append(f"{name}@{number}: its note, meta or time is another")

    def _beside(self, store: everstep.Store, name: str, run: RunTruth) -> None:
        tags = {(tag.name, tag.number) for tag in store.backend.tags(name)}
        if tags - run.tags:
            self.faults.append(f"{name}: tags that there never were: {tags - run.tags}")
        if run.tags - tags and not self._said((name, "tag"), (name, "end")):
            self.faults.append(f"{name}: tags are gone: {run.tags - tags}")
        messages = {message.name for message in store.backend.messages(name)} - {"pause"}
        if messages - run.messages:
            self.faults.append(f"{name}: messages that there were not: {messages - run.messages}")
        if run.messages - messages and not self._said((name, "message"), (name, "row")):
            self.faults.append(f"{name}: messages are gone: {run.messages - messages}")

    def _steps(self, store: everstep.Store, name: str, run: RunTruth) -> None:
        steps = {step.seq: (step.address, step.status, step.result) for step in store.steps(name)}
        for seq, step in steps.items():
            if run.steps.get(seq) != step:
                self.faults.append(f"{name}: step {step[0]} is WRONG")
        gone = run.steps.keys() - steps.keys()
        if gone and not self._said((name, "record"), (name, "step"), (name, "end")):
            self.faults.append(f"{name}: steps {gone} are gone, and nothing says so")
        over = run.row.status in ("succeeded", "cancelled")
        if gone and name not in self.done.paused and not over and not self._said():
            self.faults.append(f"{name}: it lost steps and is not paused")


def readable(path: Path) -> set[tuple[str, int]]:
    """What a damaged store still gives, read through the public API."""
    found: set[tuple[str, int]] = set()
    with suppress(Exception), everstep.open(path, accept_older=True, create=False) as store:
        for info in store.runs(limit=1000):
            for number in range(1, info.checkpoints + 1):
                with suppress(NotFound, Damaged, EverstepError):
                    store.load(f"{info.id}@{number}")
                    found.add((info.id, number))
    return found
