"""A small store that is copied at several moments of its life, so that single pages of an older copy can be put back into the newest one.

Between two copies everything happens that makes a page older: checkpoints, tags that move, questions, answers that were read and answers
that were not, a pause that was lifted, forks, a run that was deleted and made again under its id, runs in queues, a changed retention.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import everstep
from everstep.backends.contract.queues import Task
from everstep.backends.sqlite import feed
from everstep.testing import queued
from everstep.testing.rows import new_worker
from harness.faults.damage.sample import SHORT_PARTS, Sample, text, with_small_pages

LOOPS = ("loop", "tagged", "again", "late")
WORKFLOWS = ("ended", "answered", "open", "lifted", "paused")
_FILLERS = 12


def _fetch(n: int) -> str:
    return text(("fetch", n), 60)


def _report(n: int) -> Any:
    run = everstep.current()
    run.state["fetched"] = run.step("fetch", _fetch, n)
    run.checkpoint("fetched")
    first = everstep.gate("first", ask="Publish?")
    run.step("store", _fetch, n + 1)
    return [n, first, everstep.gate("second", ask="Really?")]


report: Any = everstep.workflow(_report, name="everstep.testing.ages", version=1)


def build(folder: Path) -> Sample:
    """Make the store in a new folder. Its copies are the moments `age-0`, `age-1`, …; its end is `closed`."""
    sample = Sample(folder)
    path = sample.at("made")
    path.parent.mkdir(parents=True)
    with_small_pages(path)
    with patch.object(feed, "_FULL", SHORT_PARTS):
        for number, live in enumerate(_LIFE):
            with everstep.open(path) as store:
                live(store)
            _copy(path, sample.at("closed" if live is _LIFE[-1] else f"age-{number}"))
    return sample


def ages(sample: Sample) -> list[bytes]:
    """Return the files of the older copies, the oldest first."""
    return [sample.at(f"age-{number}").read_bytes() for number in range(len(_LIFE) - 1)]


def _copy(path: Path, to: Path) -> None:
    to.parent.mkdir()
    shutil.copyfile(path, to)


def _save(store: everstep.Store, run: str, times: int = 1, tag: str | None = None) -> None:
    with store.run(run, state={"lines": []}, tags=["prod"], meta={"who": run}) as opened:
        for _ in range(times):
            opened.state["lines"].append(text((run, len(opened.state["lines"])), 300))
            opened.checkpoint(f"turn {len(opened.state['lines'])}", tags=tag or ())


def _born(store: everstep.Store) -> None:
    _save(store, "loop", 3)
    _save(store, "tagged", 2, tag="good")
    _save(store, "again", 2)
    for number, run in enumerate(WORKFLOWS):
        store.start(report, number, id=run)
    store.answer("ended", "first", "yes")
    store.pause("lifted", "for a while")
    store.set_retention(everstep.Retention(keep_last=9))
    for name, task in (("waits", Task("q", 2, "key")), ("taken", Task("q", 1))):
        queued.enqueue(store.backend, name, task)


def _grown(store: everstep.Store) -> None:
    _save(store, "loop", 3)
    _save(store, "tagged", 2)
    store.tag("tagged", "good")
    store.resume("ended")
    store.answer("ended", "second", "yes")
    store.answer("answered", "first", "yes", by="me")
    store.delete("again")
    store.fork("loop@2", "fork", {"other": 1})
    for number in range(_FILLERS):
        _save(store, f"filler-{number}")


def _changed(store: everstep.Store) -> None:
    _save(store, "loop")
    _save(store, "again")
    store.resume("ended")
    store.resume("lifted")
    store.tag("tagged", "best")
    store.set_retention(everstep.Retention(keep_last=3))
    (taken,) = queued.take(store.backend, new_worker(3600))
    if taken.row is None:
        raise AssertionError("a run of the sample cannot be taken")
    store.backend.commit(begun := queued.beginning(taken.row))
    store.backend.commit(queued.ending(begun.run))


def _answered(store: everstep.Store) -> None:
    _save(store, "tagged", 2, tag="best")
    store.tag("tagged", "good")
    store.resume("answered")
    store.answer("answered", "second", "no", by="her")
    store.answer("lifted", "first", "yes")
    store.pause("paused", "it is late")
    for number in range(0, _FILLERS, 3):
        store.delete(f"filler-{number}")
    _save(store, "late", 2)


def _ended(store: everstep.Store) -> None:
    _save(store, "loop")
    _save(store, "late")
    store.answer("open", "first", "yes", by="him")
    store.fork("late@1", "late-fork", {"other": 2})
    _save(store, "filler-1")


_LIFE: tuple[Callable[[everstep.Store], None], ...] = (_born, _grown, _changed, _answered, _ended)
