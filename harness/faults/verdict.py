"""Judges a store by the log of its writers: is everything there that was acknowledged, and nothing that was never requested?

    judge(folder)                the store after a crash: reopened, read, verified, played to its end, read again; leftovers searched
    look(store, entries, seed)   one look at an open store, without writing; errors of Everstep are counted as detected

Operations that are done in the log must be there and equal; those that are begun may be there, and equal; those that were refused with
`written` "no" must not. Relies on the public API only, except for queue entries, and on `model` for the expected content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import everstep
from everstep.errors import EverstepError, PrunedCheckpoint
from harness.faults import model
from harness.faults.log import Entry, digest_of, read_log
from harness.faults.workload import PLACE, Workload

QUEUED = tuple(run for jobs in model.JOBS for run in jobs)
RUNS = ("loop", "fork", "flow", "gone", *QUEUED)
_MAKING = ("run", "fork", "start", "enqueue")


@dataclass(slots=True)
class Verdict:
    """Everything wrong, by kind. All empty: the promises held."""

    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    detected: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (self.lost or self.wrong or self.missing or self.detected or self.leftovers)

    def __str__(self) -> str:
        said = [f"{kind}: {what}" for kind in Verdict.__slots__ for what in getattr(self, kind)]
        return "; ".join(said) or "as promised"


class Known:
    """The newest log entry of each operation."""

    def __init__(self, entries: list[Entry]):
        self.entries = entries
        self.newest: dict[tuple[str, str, str], Entry] = {}
        self.done: dict[tuple[str, str, str], Entry] = {}
        self.begun: set[tuple[str, str, str]] = set()
        self.possible: set[tuple[str, str, str]] = set()
        for entry in entries:
            name = (entry.what, entry.run, entry.key)
            if entry.at == "begin":
                self.begun.add(name)
                if name in self.newest and (self.newest[name].at, self.newest[name].written) != ("refused", "no"):
                    self.possible.add(name)  # an earlier attempt may have done it: this one only reports that it did nothing
            if entry.at in ("begin", "done", "refused"):
                self.newest[name] = entry
            if entry.at == "done" or entry.written == "yes":
                self.done[name] = entry

    def of(self, what: str, run: str) -> list[Entry]:
        """Return all operations of a kind on a run that are done."""
        return [e for (w, r, _), e in self.done.items() if (w, r) == (what, run)]

    def denied(self, what: str, run: str) -> list[Entry]:
        """Return those that were refused as not written at every attempt."""
        refused = {name: e for name, e in self.newest.items() if (e.at, e.written) == ("refused", "no") and name not in self.possible}
        return [e for (w, r, _), e in refused.items() if (w, r) == (what, run)]

    def may_be_pruned(self, ref: str) -> bool:
        return any(f"{run}@{number}" == ref for e in self.entries if e.what == "prune" for run, number in e.more)

    def digests(self, run: str) -> set[str]:
        return {e.digest for e in self.entries if e.run == run and e.what in ("checkpoint", "fork")}


class Look:
    """One look at a store."""

    def __init__(self, store: everstep.Store, entries: list[Entry], seed: int, verdict: Verdict):
        self.store, self.seed, self.verdict = store, seed, verdict
        self.known = Known(entries)

    def all(self) -> Verdict:
        listed = None
        with self._guard("list of runs"):
            listed = {info.id: info for info in self.store.runs()}
        for run in RUNS:
            if listed is not None:
                self._there(run, run in listed)
            if listed is None or run in listed:
                self._run(run)
        if listed is not None:
            self.verdict.wrong.extend(f"run {run!r} was never created" for run in listed if run not in RUNS)
        self._ran_twice()
        return self.verdict

    @contextmanager
    def _guard(self, where: str) -> Iterator[None]:
        """Count an error that reports damage as detected, not as a wrong read."""
        try:
            yield
        except EverstepError as error:
            self.verdict.detected.append(f"{where}: {type(error).__name__}: {error.message}")

    def _there(self, run: str, there: bool) -> None:
        known = self.known
        deleted = ("delete", run, "") in known.begun
        made = any(known.of(what, run) for what in _MAKING)
        if made and not there and not deleted:
            self.verdict.missing.append(f"run {run!r}")
        if not there and known.denied("delete", run):
            self.verdict.missing.append(f"run {run!r}, whose deletion was reported as not written")
        if there and ("delete", run, "") in known.done:
            self.verdict.wrong.append(f"run {run!r} was deleted")
        if there and not any((what, run, "") in known.begun for what in _MAKING):
            self.verdict.wrong.append(f"run {run!r} was never created")
        if there and (known.denied("fork", run) or known.denied("enqueue", run)):
            self.verdict.wrong.append(f"run {run!r} was reported as not written")

    def _run(self, run: str) -> None:
        with self._guard(f"run {run!r}"):
            self._status(run)
        with self._guard(f"checkpoints of {run!r}"):
            self._checkpoints(run)
        with self._guard(f"steps of {run!r}"):
            self._steps(run)
        if run == "loop":
            with self._guard("tag"):
                self._tag()
        if run == "flow":
            with self._guard("gate"):
                self._answer()
        if run in QUEUED:
            with self._guard(f"queue entry of {run!r}"):
                self._queue_entry(run)

    def _status(self, run: str) -> None:
        status = self.store.get(run).status
        last = [e for e in self.known.entries if e.run == run and e.what in ("run", "leave", "end")][-1:]
        if last and (last[0].at, last[0].what) in (("done", "leave"), ("done", "end")) and status != "succeeded":
            self.verdict.lost.append(f"run {run!r} had succeeded and is {status}")

    def _checkpoints(self, run: str) -> None:
        """Check that each listed checkpoint is right, and each acknowledged one is listed."""
        found = {c.number: c for c in self.store.checkpoints(run)}
        acknowledged = {e.number: e for e in self.known.of("checkpoint", run)}
        denied = {e.key for e in self.known.denied("checkpoint", run)}
        allowed = self._allowed(run)
        for number, checkpoint in found.items():
            entry = acknowledged.get(number)
            if checkpoint.note in denied:
                self.verdict.wrong.append(f"{checkpoint.ref} ({checkpoint.note}) was reported as not written")
            if entry is not None and entry.key != checkpoint.note:
                self.verdict.wrong.append(f"{checkpoint.ref} is {checkpoint.note!r}, but was {entry.key!r}")
            self._state(checkpoint.ref, {entry.digest} if entry is not None else allowed)
        gone = sorted(acknowledged.keys() - found.keys())
        self.verdict.lost.extend(f"{run}@{number}" for number in gone)

    def _allowed(self, run: str) -> set[str]:
        """Return the allowed states of a checkpoint without an acknowledgement: it was begun, or made by the runtime when it left the run."""
        if run == "flow":
            return {digest_of(state) for state in model.flow_states(self.seed)}
        first = {digest_of(model.first_state(self.seed, run))} if run != "fork" else set()
        return self.known.digests(run) | first

    def _state(self, ref: str, allowed: set[str]) -> None:
        with self._guard(ref):
            try:
                if digest_of(self.store.load(ref)) not in allowed:
                    self.verdict.wrong.append(f"{ref} holds another state")
            except PrunedCheckpoint:
                if not self.known.may_be_pruned(ref):
                    self.verdict.lost.append(f"{ref}, which was pruned but had to be kept")

    def _steps(self, run: str) -> None:
        found: dict[str, Any] = {s.address: s for s in self.store.steps(run) if s.status == "succeeded"}
        done = self.known.of("step", run)
        self.verdict.lost.extend(f"step {e.key} of {run!r}" for e in done if e.key not in found)
        self.verdict.wrong.extend(
            f"step {e.key} of {run!r} was reported as not written" for e in self.known.denied("step", run) if e.key in found
        )
        digests = {e.key: e.digest for e in self.known.entries if (e.what, e.run, e.at) == ("step", run, "begin")}
        for address, step in found.items():
            with self._guard(f"step {address} of {run!r}"):
                if address in digests and digest_of(step.result) != digests[address]:
                    self.verdict.wrong.append(f"step {address} of {run!r} has another result")

    def _tag(self) -> None:
        for entry in self.known.of("tag", "loop"):
            numbers = [c.number for c in self.store.checkpoints("loop", tag=entry.key)]
            if numbers != [entry.number]:
                self.verdict.lost.append(f"tag {entry.key!r} of loop@{entry.number}: it is on {numbers}")
        for entry in self.known.denied("tag", "loop"):
            if list(self.store.checkpoints("loop", tag=entry.key)):
                self.verdict.wrong.append(f"tag {entry.key!r} was reported as not written")

    def _answer(self) -> None:
        """Check the answer: it is a message until the run takes it; then the run is due."""
        for gate in self.store.gates("flow"):
            if gate.answered and gate.answer != model.ANSWER:
                self.verdict.wrong.append(f"gate {gate.address} has another answer")
        waits = self.store.get("flow").status == "waiting" and not any(g.answered for g in self.store.gates("flow"))
        if self.known.of("answer", "flow") and waits and "flow" not in self.store.due():
            self.verdict.lost.append("the answer to gate 'boss'")
        if self.known.denied("answer", "flow") and waits and "flow" in self.store.due():
            self.verdict.wrong.append("the answer to gate 'boss' was reported as not written")

    def _queue_entry(self, run: str) -> None:
        """Check that a run has a queue entry from its first commit to its end. `verify` judges the content of the entry."""
        there, name = self.store.backend.queue_entry(run) is not None, ("end", run, "")
        if not there and name not in self.known.begun:
            self.verdict.lost.append(f"the queue entry of {run!r}")
        if there and name in self.known.done:
            self.verdict.wrong.append(f"run {run!r} has ended and still has a queue entry")

    def _ran_twice(self) -> None:
        done: set[tuple[str, str]] = set()
        for entry in self.known.entries:
            if entry.at == "wrong":
                self.verdict.wrong.append(f"{entry.what} {entry.run} {entry.key} {entry.error}")
            if entry.what == "step" and entry.at == "ran" and (entry.run, entry.key) in done:
                self.verdict.lost.append(f"step {entry.key} of {entry.run!r} ran again")
            if entry.what == "step" and entry.at == "done":
                done.add((entry.run, entry.key))


def look(store: everstep.Store, entries: list[Entry], seed: int = 0) -> Verdict:
    """Compare an open store with its log."""
    return Look(store, entries, seed, Verdict()).all()


def judge(
    folder: Path, seed: int = 0, *, resume: bool = True, play: Callable[[Path, int], object] | None = None, place: str = PLACE
) -> Verdict:
    """Judge the files that a crash left in a workload's folder: read, then played to the end and read again."""
    verdict = _reopened(folder, seed, place, ended=False)
    if resume and verdict.ok:
        try:
            play(folder, seed) if play is not None else Workload(folder, seed, place=place).play()
        except EverstepError as error:
            verdict.lost.append(f"it cannot continue: {type(error).__name__}: {error.message}")
            return verdict
        again = _reopened(folder, seed, place, ended=True)
        for kind in Verdict.__slots__:
            getattr(verdict, kind).extend(f"after continuing: {what}" for what in getattr(again, kind))
    return verdict


def _reopened(folder: Path, seed: int, place: str, ended: bool) -> Verdict:
    path, entries, verdict = folder / place, read_log(folder / "log"), Verdict()
    try:
        store = everstep.open(path, create=False)
    except EverstepError as error:
        if any(e.at == "done" and e.what == "open" for e in entries):
            verdict.lost.append(f"the store: {error.message}")
        return verdict
    with store:
        Look(store, entries, seed, verdict).all()
        verdict.detected.extend(map(str, store.verify("full").problems))
        if ended:
            _came_to_its_end(store, seed, verdict)
    verdict.leftovers.extend(leftovers(path))
    return verdict


def leftovers(path: Path) -> list[str]:
    """List leftover files beside a closed store."""
    ours = (path.name, f"{path.name}-seen", f"{path.name}-locks", ".gitignore")
    found = [p.name for p in path.parent.iterdir() if p.name not in ours]
    locks = path.with_name(f"{path.name}-locks")
    return sorted([*found, *(f"{locks.name}/{p.name}" for p in locks.glob("*"))])


def _came_to_its_end(store: everstep.Store, seed: int, verdict: Verdict) -> None:
    for run, turns in (("loop", model.TURNS[-1]), ("fork", model.FORK_TURNS)):
        if digest_of(store.load(run)) != model.digest(seed, run, turns):
            verdict.lost.append(f"run {run!r} did not come to its end")
    if store.get("flow").status != "succeeded":
        verdict.lost.append("the workflow did not come to its end")
    verdict.lost.extend(f"run {run!r} did not come to its end" for run in QUEUED if store.get(run).status != "succeeded")
