"""The calls of a process with too little memory, and the conditions that must hold afterwards. Part of `memory`.

Each call of the public API works, or raises a MemoryError, an error of ours or an OSError for it (ENOMEM).
"""

from __future__ import annotations

import errno
import resource
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import everstep
from everstep.api import Store
from everstep.errors import EverstepError
from harness.faults.count import Count

KB = 1024
ENCODER_ENDS = (-signal.SIGABRT, -signal.SIGILL)
"""The exit code of a process whose C encoder gets no memory."""
PARTS = (4 * KB, 100 * KB, 20 * KB, 300 * KB, 20)
PREPARED = 12
Told = dict[str, Any]
Limit = tuple[int, int]


def _part(turn: int) -> Told:
    return {"turn": turn, "text": f"{turn} " * (PARTS[turn % len(PARTS)] // 2)}


def turns_of(state: Any) -> list[int]:
    """Return the turns whose parts a state contains, which identify it. Allocates almost no memory."""
    return [part["turn"] for part in state["parts"]]


def state_of(turns: list[int]) -> Any:
    return {"parts": [_part(turn) for turn in turns]}


def prepare(path: Path) -> dict[str, list[int]]:
    """Create a store with some history; return the turns in each of its states by ref."""
    known = {}
    with everstep.open(path) as store, store.run("r", state={"parts": []}) as run:
        for turn in range(PREPARED):
            run.state["parts"].append(_part(turn))
            if len(run.state["parts"]) > 6:
                del run.state["parts"][0]
            known[run.checkpoint().ref] = turns_of(run.state)
    return known


class Acts:
    """Calls of the public API; reports the result of each."""

    def __init__(self, store: Store, pipe: Connection, early: bool = False):
        self._store = store
        self._pipe = pipe
        self._early = early
        self.limits: tuple[Limit, Limit] | None = None  # the memory limit during an attempt, and during its report
        self._handle = store.run("r").__enter__()

    def _try(self, what: str, act: Callable[[], Told]) -> None:
        told: Told | None = None
        problem: BaseException | None = None
        try:
            told = act()
        except BaseException as error:  # noqa: BLE001 -- every error is reported
            problem = error
        if self.limits is not None:
            resource.setrlimit(resource.RLIMIT_AS, self.limits[1])
        self._pipe.send({"what": what, **(told if problem is None and told is not None else _told_of(problem))})
        problem = None
        if self.limits is not None:
            resource.setrlimit(resource.RLIMIT_AS, self.limits[0])

    def save(self, turn: int) -> None:
        def act() -> Told:
            state = self._handle.state
            state["parts"].append(_part(turn))
            made = self._handle.checkpoint(note=f"turn {turn}")
            return {"ref": made.ref, "turns": turns_of(state)}

        if self._early:
            turns = [*turns_of(self._handle.state), turn]
            self._pipe.send({"what": "save", "ref": f"r@{self._handle.number + 1}", "turns": turns})
        self._try("save", act)

    def defer(self, turn: int) -> None:
        """Save without waiting, then wait."""

        def act() -> Told:
            with self._store.run("deferred", state=state_of([]), durability="async") as run:
                for n in range(3):
                    run.state["parts"].append(_part(turn + n))
                    made = run.checkpoint()
                run.flush()
                turns = turns_of(run.state)
            return {"ref": made.ref, "turns": turns}

        self._try("defer", act)

    def step(self, turn: int) -> None:
        self._try("step", lambda: {"length": len(self._handle.step("big", lambda: "x" * PARTS[(turn + 1) % len(PARTS)]))})

    def fork(self, turn: int) -> None:
        self._try("fork", lambda: {"fork": self._store.fork("r", edit={"turn": turn}).id})

    def load(self, turn: int) -> None:
        ref = f"r@{turn * 7 % PREPARED + 1}"
        self._try("load", lambda: {"loaded": ref, "turns": turns_of(self._store.load(ref))})

    def verify(self) -> None:
        def act() -> Told:
            report = self._store.verify("full")
            return {} if report.ok else {"error": str(report)}  # it could not check everything, and reports it

        self._try("verify", act)

    def open(self, path: Path) -> None:
        def act() -> Told:
            with everstep.open(path) as other, other.run("another", state=state_of([])) as run:
                made = run.checkpoint()
            return {"ref": made.ref, "turns": []}

        self._try("open", act)

    def leave(self) -> None:
        def act() -> Told:
            self._handle.__exit__(None, None, None)
            return {}

        self._try("leave", act)

    def close(self) -> None:
        def act() -> Told:
            self._store.close()
            return {}

        self._try("close", act)


def _told_of(problem: BaseException | None) -> Told:
    """Describe the error of a call; strange if it is neither one of ours nor one about memory."""
    if isinstance(problem, (MemoryError, EverstepError)):
        return {"error": f"{type(problem).__name__}: {str(problem)[:200]}"}
    return {"error": repr(problem), "strange": not (isinstance(problem, OSError) and problem.errno == errno.ENOMEM)}


def settle(where: str, path: Path, told: list[Told], ended: bool, known: dict[str, list[int]], count: Count) -> None:
    """Count a process that ran out of memory, unless nothing failed in it; then its folder is removed."""
    fired = ended or any("error" in said for said in told)
    faults = _faults(path, told, known, count)
    count.tried += fired
    count.held += fired and not faults
    for fault in faults:
        count.note(f"{where}: {fault}")
    shutil.rmtree(path.parent)


def _faults(path: Path, told: list[Told], known: dict[str, list[int]], count: Count) -> list[str]:
    """List broken promises after a process ran out of memory; the store is opened with enough memory."""
    found = [f"{said['what']}: {said['error']}" for said in told if said.get("strange")]
    for said in told:
        if "loaded" in said and known[said["loaded"]] != said["turns"]:
            count.wrong += 1
            found.append(f"{said['loaded']} was loaded with another content than it was saved with")
    with everstep.open(path) as store:
        for ref, turns in [*known.items(), *((said["ref"], said["turns"]) for said in told if "ref" in said)]:
            found += _fault(store, ref, turns, count)
        if not (report := store.verify("full")).ok:
            count.wrong += 1
            found.append(str(report))
        with suppress(EverstepError), store.run("r") as run:
            run.state["again"] = True
            run.checkpoint()
            return found
    return [*found, "the run cannot continue"]


def _fault(store: Store, ref: str, turns: list[int], count: Count) -> list[str]:
    try:
        now = store.load(ref)
    except EverstepError as error:
        count.lost += 1
        return [f"{ref} was acknowledged: {error.message}"]
    if now != state_of(turns):
        count.wrong += 1
        return [f"{ref} differs from the saved state"]
    return []
