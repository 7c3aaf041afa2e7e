"""All calls of the public API that a program can make on a store, one after the other, the harmless ones first.

Assumes nothing: a call that cannot be made because an earlier one failed raises, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import everstep
from everstep.api import Store
from everstep.errors import StoreClosed

Use = tuple[str, Callable[[], object]]
MOST_LOOKED_AT = 200


class Opened:
    """A store that the first call opens; missing if that failed."""

    def __init__(self, path: Path | str):
        self.path = path
        self._store: Store | None = None

    def open(self) -> None:
        self._store = everstep.open(self.path, create=False)

    @property
    def store(self) -> Store:
        if self._store is None:
            raise StoreClosed("it could not be opened")
        return self._store

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


def uses(path: Path | str, names: list[str]) -> Iterator[Use]:
    """Yield each call with its name. A text is the address of a store on a server."""
    opened = Opened(path)
    yield "open", opened.open
    yield from _reading(opened)
    for name in names:
        yield from _reading_run(opened, name)
    yield from _proving(opened)
    for name in names:
        yield from _writing_run(opened, name)
    yield from _upkeep(opened)
    for name in names:
        yield f"delete {name!r:.40}", lambda name=name: opened.store.delete(name)  # type: ignore[misc]
    yield "a new run", lambda: _resume(opened.store, "new")
    yield "verify after all", lambda: opened.store.verify("full")
    yield "close", opened.close
    if isinstance(path, Path):
        yield "repair", lambda: everstep.repair(path, path.with_name("repaired.db"))


def _reading(opened: Opened) -> Iterator[Use]:
    yield "runs", lambda: opened.store.runs()
    yield "runs by status", lambda: opened.store.runs(status="waiting", tag="x", note="x", meta={"a": 1})
    yield "events", lambda: opened.store.events()
    yield "stats", lambda: opened.store.stats()
    yield "due", lambda: opened.store.due()
    yield "upgrades", lambda: opened.store.upgrades(True)
    yield "the run written last", lambda: opened.store.load(str(opened.store.backend.manifest().last))


def _reading_run(opened: Opened, name: str) -> Iterator[Use]:
    def of(what: str, act: Callable[[Store], object]) -> Use:
        return f"{what} {name!r:.40}", lambda: act(opened.store)

    yield of("get", lambda store: store.get(name))
    yield of("checkpoints", lambda store: [(c.kind, c.step, c.progress, c.used, c.meta, c.at) for c in store.checkpoints(name)])
    yield of("load", lambda store: store.load(name))
    yield of("load the one before", lambda store: store.load(f"{name}~1"))
    yield of("load a tag", lambda store: store.load(f"{name}@tag"))
    yield of("view", lambda store: _look(store.view(name), [MOST_LOOKED_AT]))
    yield of("newest good", lambda store: store.load(name, newest_good=True))
    yield of("diff", lambda store: store.diff(f"{name}~1", name))
    yield of("blame", lambda store: store.blame(name, ["a"]))
    yield of("steps", lambda store: store.steps(name))
    yield of("results", lambda store: [step.result for step in store.steps(name)])
    yield of("gates", lambda store: store.gates(name))
    yield of("events of", lambda store: store.events(run=name))
    yield of("can resume", lambda store: store.can_resume(name))


def _proving(opened: Opened) -> Iterator[Use]:
    yield "verify quick", lambda: opened.store.verify("quick")
    yield "verify records", lambda: opened.store.verify("records")
    yield "verify full", lambda: opened.store.verify("full")
    yield "doctor", lambda: opened.store.doctor()


def _writing_run(opened: Opened, name: str) -> Iterator[Use]:
    def of(what: str, act: Callable[[Store], object]) -> Use:
        return f"{what} {name!r:.40}", lambda: act(opened.store)

    yield of("tag", lambda store: store.tag(name, "seen"))
    yield of("fork", lambda store: store.fork(name, edit={"forked": True}))
    yield of("answer", lambda store: store.answer(name, "x", 1, early=True))
    yield of("resume", lambda store: store.resume(name))
    yield of("resume", lambda store: _resume(store, name))
    yield of("skip", lambda store: store.skip(name, "x"))
    yield of("retry", lambda store: store.retry(name, "x"))
    yield of("cancel", lambda store: store.cancel(name))


def _upkeep(opened: Opened) -> Iterator[Use]:
    yield "wake", lambda: opened.store.wake()
    yield "prune", lambda: opened.store.prune(everstep.Retention(keep_last=1))
    yield "gc", lambda: opened.store.gc()
    yield "cleanup", lambda: opened.store.cleanup()


def _resume(store: Store, name: str) -> None:
    with store.run(name) as run:
        if isinstance(run.state, dict):
            run.state["more"] = "more"
        run.step("x", lambda: "x" * 20_000)
        run.checkpoint()


def _look(value: Any, left: list[int]) -> None:
    """Read some of a view, at any depth."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__len__") or left[0] <= 0:
        return
    left[0] -= 1
    keys = list(value)[:20] if hasattr(value, "keys") else range(min(len(value), 20))
    for key in keys:
        _look(value[key], left)
