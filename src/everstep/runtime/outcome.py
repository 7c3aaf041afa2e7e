"""The outcome of executing a run, from the attempt or from the journal. Reads only."""

from __future__ import annotations

from typing import Any, Generic, cast

from everstep.backends.contract.core import Query
from everstep.errors import DamagedRecord, NoResult
from everstep.fields import Shape, field
from everstep.generics import T
from everstep.records import CHILD, Kind, RunRow, Status
from everstep.runtime.engine.messages import request_in
from everstep.runtime.engine.messages import verified as verified_message
from everstep.runtime.engine.replay import content, whole
from everstep.runtime.engine_store import EngineStore
from everstep.runtime.report import Report
from everstep.store.gates import Gate, open_gates
from everstep.store.journal.entries import RUNNING
from everstep.store.journal.results import Arguments, load_result
from everstep.store.load import checked, newest_of
from everstep.store.refs import find_run, verified

DIFFERS = "differs"  # the status of a validation that found differences; no run has it


class Outcome(Shape, Generic[T]):
    """The outcome of executing a run: its status, its result or error, and a report of the attempt. `unwrap` returns the result or raises."""

    run: str
    status: str
    result: T | None = None
    error: BaseException | None = None
    reason: str | None = None
    gates: list[Gate] = field(default_factory=list)
    report: Report = field(default_factory=Report)
    input: Arguments | None = None
    """The arguments that the workflow was started with; None for a run that was opened with `store.run`, and where they were not read."""

    def __str__(self) -> str:
        said = f"{self.run}: {self.status}"
        if self.error is not None:
            said += f": {type(self.error).__qualname__}: {str(self.error).splitlines()[0] if str(self.error) else ''}"
        if self.reason:
            said += f" ({self.reason})"
        if self.status == Status.FAILED and not self.report.handled:
            said += f"; retry with store.resume({self.run!r})"
        return said

    def __repr__(self) -> str:
        said = "" if self.result is None else f": {self.result!r:.100}"
        said = f": {type(self.error).__qualname__}: {(str(self.error).splitlines() or [''])[0][:100]}" if self.error is not None else said
        return f"<everstep.Outcome {self.run!r} {self.status}{said}>"

    def _repr_html_(self) -> str:
        from everstep.notebook import pairs

        about = [("status", self.status), ("input", None if self.input is None else str(self.input)), ("result", self.result)]
        about += [("error", None if self.error is None else f"{type(self.error).__qualname__}: {self.error}"), ("reason", self.reason)]
        return pairs(f"run {self.run}", about)

    def unwrap(self) -> T:
        """Return the result. Raise the error of a failed run, and NoResult for a run that has not ended or was cancelled."""
        if self.status == Status.SUCCEEDED:
            return cast(T, self.result)
        if self.status == DIFFERS:
            raise NoResult(
                self.run, self.status, f"run {self.run!r} differs: {self.reason}", remedy="See outcome.report for the differences."
            )
        if self.error is not None:
            raise self.error
        was = "was cancelled" if self.status == Status.CANCELLED else f"is {self.status}"
        raise NoResult(
            self.run,
            self.status,
            f"run {self.run!r} {was}" + (f": {self.reason}" if self.reason and self.reason != "cancel" else ""),
            remedy=self._way_to_a_result(),
        )

    def _way_to_a_result(self) -> str:
        """Return what to do about a run that has no result."""
        if self.status == Status.CANCELLED:
            return f"A cancelled run can't be resumed. Fork it instead: store.fork({self.run!r}), then store.resume of the fork."
        if self.status != Status.WAITING:
            return f"Wait until it ends: store.wait({self.run!r}). A queued run needs a worker."
        answers = " ".join(f"Answer its gate: store.answer({gate.run!r}, {gate.address!r}, value)." for gate in self.gates[:3])
        return f"{answers} Then, or when its wait is over: store.resume({self.run!r}) or store.wake().".strip()


def recorded(store: EngineStore, row: RunRow, report: Report | None = None) -> Outcome[Any]:
    """Return the outcome of a run from its journal."""
    outcome: Outcome[Any] = Outcome(row.id, row.status, report=report or Report(row.id, row.epoch))
    found = newest_of(store.backend, row, Kind.STATUS)
    said = content(found) if found is not None else {}
    if row.status == Status.SUCCEEDED and "result" in said:
        outcome.result = load_result(store.backend, row.family, *said["result"])
    elif row.status == Status.FAILED and isinstance(said.get("error"), dict):
        from everstep.store.journal.failures import rebuilt  # only when something failed

        outcome.error = rebuilt(said["error"], f"run {row.id}")
    outcome.reason = said.get("reason")
    if row.status == Status.WAITING:
        outcome.gates = waited_for(store, row)
        outcome.reason = _changed_since(store, row) or outcome.reason
    return outcome


def outcome_of(store: EngineStore, run_id: str) -> Outcome[Any]:
    """Return the outcome of a run at this moment, with the input that it was started with."""
    row = find_run(store.backend, run_id)
    outcome = recorded(store, row)
    outcome.input = input_of(store, row, content(checked(store.backend, row, 1, 1)[0]))
    return outcome


def input_of(store: EngineStore, row: RunRow, said: dict[str, Any]) -> Arguments | None:
    """Return the input that a workflow was started with, from its first record; None for a run that was opened with `store.run`."""
    if "input" not in said:
        return None
    match load_result(store.backend, row.family, *said["input"]):
        case [list() as args, dict() as kwargs]:
            return Arguments(tuple(args), kwargs)
    raise DamagedRecord(row.id, 1, "it does not contain the input of a workflow")


def _changed_since(store: EngineStore, row: RunRow) -> str | None:
    """Return why a run waits, if its status record is outdated: it was paused later, or its answer has arrived."""
    messages = {message.name: message for message in store.backend.messages(row.id)}
    if "pause" in messages:
        return request_in(store.backend, row, verified_message(row, messages["pause"], store.backend.seal)).text
    if not any(name.startswith("answer:") for name in messages):
        return None
    come = [gate.address for gate in open_gates(store.backend, row) if f"answer:{gate.address}" in messages]
    return f"the answer at gate {', '.join(map(repr, come))} has arrived" if come else None


def waited_for(store: EngineStore, row: RunRow) -> list[Gate]:
    """Return the open gates of a run, and of the children that it waits for."""
    from everstep.runtime.child import child_id

    posted = {message.name for message in store.backend.messages(row.id)}
    found = [gate for gate in open_gates(store.backend, row) if f"answer:{gate.address}" not in posted]
    waiting = [child for _, child in store.backend.runs(Query(parent=row.id, status=Status.WAITING)) if child.parent_number == CHILD]
    if not waiting:
        return found
    entries = whole(store.backend, row).entries  # shows which failed calls are made again
    over = {
        child_id(row.id, address) for address, one in entries.items() if one.entry.status != RUNNING and not one.entry.flags.get("next")
    }
    for child in reversed(waiting):
        if child.id not in over:
            found += waited_for(store, verified(child, store.backend.seal))
    return found
