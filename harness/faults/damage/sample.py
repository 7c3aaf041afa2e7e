"""A small store with some of everything, for harnesses that damage every bit of it: the smaller, the more often they can.

A loop with tags, meta and deltas over a base in chunks, a workflow with a big result that waits at a gate and has its answer in a message,
one that has ended, a fork with an edit that is paused, a run that was pruned, one that was deleted, a retention, runs in a queue: one that
waits, one that a worker had, one that has ended.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import apsw

import everstep
from everstep.backends.contract.queues import Task
from everstep.backends.sqlite import feed
from everstep.testing import queued
from everstep.testing.rows import new_worker
from harness.faults.workload import eager

NAME = "store.db"
_HOUR = 3_600_000_000
SHORT_PARTS = 36
"""The bytes of a full part of the feed: so few that a small store has several."""


def text(what: object, size: int) -> str:
    return Random(str(what)).randbytes(size // 2).hex()  # noqa: S311 -- has to be the same each time


def _fetch(n: int) -> dict[str, Any]:
    return {"n": n, "rows": [text((n, i), 1700) for i in range(10)]}


def _report(n: int) -> Any:
    run = everstep.current()
    run.state["size"] = len(run.step("fetch", _fetch, n)["rows"])
    run.checkpoint("fetched")
    return {"n": n, "answer": everstep.gate("editor", ask="Publish?")}


report: Any = everstep.workflow(_report, name="everstep.testing.sample", version=1)


@dataclass(frozen=True, slots=True)
class Sample:
    """One store at several moments, each in its own folder, with its rollback guard; and another store."""

    folder: Path

    def at(self, moment: str) -> Path:
        return self.folder / moment / NAME

    @property
    def closed(self) -> Path:
        """The store at its end, closed."""
        return self.at("closed")

    @property
    def killed(self) -> Path:
        """The store as a killed process leaves it: the newest commits are in the WAL."""
        return self.at("killed")

    @property
    def earlier(self) -> Path:
        """The store one session earlier, closed."""
        return self.at("earlier")

    @property
    def earlier_killed(self) -> Path:
        """The store one session earlier, with a WAL."""
        return self.at("earlier_killed")

    @property
    def other(self) -> Path:
        """Another store of the same kind, with a WAL."""
        return self.at("other")


def build(folder: Path) -> Sample:
    """Make the sample in a new folder."""
    sample = Sample(folder)
    _make(sample.at("made"), sample, ("earlier", "earlier_killed", "killed"))
    _copy(sample.at("made"), sample, "closed")
    _make(sample.at("made_other"), sample, ("", "", "other"))
    return sample


def _make(path: Path, sample: Sample, moments: tuple[str, str, str]) -> None:
    """Make a store in three sessions, copied at three moments: between the first two, in the second, in the third."""
    path.parent.mkdir(parents=True)
    with_small_pages(path)
    with everstep.open(path) as store, patch.object(feed, "_FULL", SHORT_PARTS):
        _pruned(store)
        with eager():
            _fill(store)
    _copy(path, sample, moments[0])
    for action, moment in ((_turn, moments[1]), (_write, moments[2])):
        with everstep.open(path) as store:
            action(store)
            _copy(path, sample, moment)


def with_small_pages(path: Path) -> None:
    """Make an empty store with pages so small that few of their bits are unused: a flip matters more often."""
    everstep.open(path).close()
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("PRAGMA journal_mode = DELETE; PRAGMA page_size = 512; VACUUM; PRAGMA journal_mode = WAL").fetchall()


def _copy(path: Path, sample: Sample, moment: str) -> None:
    if not moment:
        return
    to = sample.at(moment)
    to.parent.mkdir()
    for suffix in ("", "-wal", "-seen"):
        if Path(f"{path}{suffix}").exists():
            shutil.copyfile(f"{path}{suffix}", f"{to}{suffix}")


def pruned_states() -> dict[str, Any]:
    """The states of the run that is pruned, by ref, as they were saved."""
    return {f"diary@{n}": {"page": text(("page", n), 6000)} for n in range(1, 6)}


def _pruned(store: everstep.Store) -> None:
    """Make a run of long deltas, of which prune leaves the ends and one in the middle, with an added base."""
    with store.run("diary") as run:
        for ref, state in pruned_states().items():
            run.state.update(state)
            run.checkpoint(tags="kept" if ref == "diary@4" else ())
    store.prune(everstep.Retention(keep_last=1, keep_tagged=["kept"]), run="diary")
    store.gc()
    store.set_retention(everstep.Retention(keep_last=9))


def _fill(store: everstep.Store) -> None:
    with store.run("loop", tags=["prod"], note="a loop", meta={"who": "me"}, session="monday") as run:
        run.state["lines"] = [text(i, 400) for i in range(24)]
        for n in range(1, 6):
            run.state["n"] = n
            run.state["lines"][n] = text(("line", n), 400)
            run.checkpoint(f"turn {n}", tags="kept" if n == 2 else (), meta={"n": n})
    store.start(report, 1, id="ended")
    store.answer("ended", "editor", "yes", by="me")
    store.resume("ended")
    store.start(report, 2, id="waits")
    store.fork("loop@kept", "fork", {"n": 99})
    with store.run("gone", state={"n": 0}) as run:
        run.checkpoint()
    store.delete("gone")
    _queued(store)


def _queued(store: everstep.Store) -> None:
    for name, task in (("taken", Task("q", 2, "key")), ("done", Task("q", 1)), ("queued", Task("later", -1, None, "once"))):
        queued.enqueue(store.backend, name, task, _HOUR if name == "queued" else 0)
    _, done = queued.take(store.backend, new_worker(3600), 2)
    if done.row is None:
        raise AssertionError("a run of the sample cannot be taken")
    store.backend.commit(begun := queued.beginning(done.row))
    store.backend.commit(queued.ending(begun.run))


def _turn(store: everstep.Store) -> None:
    with store.run("loop") as run:
        run.state["n"] = 6
        run.checkpoint("turn 6")


def _write(store: everstep.Store) -> None:
    store.answer("waits", "editor", "no", by="her")
    store.pause("fork", "for a while")
