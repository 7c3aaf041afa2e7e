"""Compares the store with the effects log at the end: every run ended once and with its result, and no step ran after it was recorded.

A step that was running when its worker died runs again; one that has a record never does. Reads only. `faults` are sentences, empty if
everything is as promised; `again` counts repeated executions of steps, which are allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from everstep.api import Store
from everstep.errors import EverstepError
from everstep.records import Kind, Record, Status
from everstep.runtime.outcome import recorded
from everstep.store.journal.entries import said_in
from everstep.store.load import unproved
from everstep.store.refs import find_run
from harness.workers import effects
from harness.workers.effects import Line

_LAST = 2**31 - 2


@dataclass(slots=True)
class Verdict:
    """The findings. `lost`: runs that did not succeed; `twice`: runs that ended more than once; `rerun`: finished steps that ran again."""

    ended: int = 0
    lost: int = 0
    twice: int = 0
    rerun: int = 0
    again: int = 0
    faults: list[str] = field(default_factory=list)

    def fault(self, sentence: str) -> None:
        self.faults.append(sentence)


def judge(store: Store, path: Path, runs: list[str], steps: int, killed: set[int] | None = None) -> Verdict:
    """Judge a store. `killed`: the killed processes, if nothing else was broken: then only their steps may have run again."""
    verdict, lines = Verdict(), effects.read(path)
    for run in runs:
        _judge_run(store, run, steps, lines, killed, verdict)
    strange = {run for run, _ in lines} - set(runs)
    if strange:
        verdict.fault(f"steps of runs that were never enqueued: {sorted(strange)[:3]}")
    entries = store.backend.queue_entries()
    if entries:
        verdict.fault(f"{len(entries)} runs are still in a queue, such as {entries[0]}")
    report = store.verify("full")
    if not report.ok:
        verdict.fault(f"the store does not verify: {report}")
    return verdict


def _judge_run(
    store: Store, run: str, steps: int, lines: dict[tuple[str, str], list[Line]], killed: set[int] | None, verdict: Verdict
) -> None:
    row = store.backend.run(run)
    records = [] if row is None else unproved(store.backend, row, 1, _LAST, (Kind.STATUS.value, Kind.STEP.value))
    ends = [said_in(record)["status"] for record in records if record.kind == Kind.STATUS and said_in(record)["status"] != Status.RUNNING]
    tokens = _result(store, run)
    if ends.count(Status.SUCCEEDED) != 1 or not isinstance(tokens, list) or len(tokens) != steps:
        verdict.lost += Status.SUCCEEDED not in ends
        verdict.twice += ends.count(Status.SUCCEEDED) > 1
        verdict.fault(f"run {run} ended with {ends}, and its result is {tokens}")
        return
    verdict.ended += 1
    written = {str(record.note): record for record in records if record.kind == Kind.STEP}
    if len(written) != steps or sum(record.kind == Kind.STEP for record in records) != steps:
        verdict.fault(f"run {run} has the steps {[r.note for r in records if r.kind == Kind.STEP]}")
        return
    for step in range(steps):
        fault = _judge_step(written[f"work#{step}"], lines.get((run, str(step)), []), tokens[step], killed, verdict)
        if fault:
            verdict.fault(f"step {step} of run {run} {fault}")


def _result(store: Store, run: str) -> object:
    try:
        return recorded(store, find_run(store.backend, run)).result
    except EverstepError as error:
        return error


def _judge_step(record: Record, ran: list[Line], token: str, killed: set[int] | None, verdict: Verdict) -> str | None:
    if token not in [line.token for line in ran]:
        return f"has the result {token}, but ran as {ran}"
    others = [line for line in ran if line.token != token]
    verdict.again += len(others)
    late = [line for line in ran if line.at > record.at]
    if late:
        verdict.rerun += 1
        return f"ran after it was recorded at {record.at}: {late}"
    alive = [line for line in others if killed is not None and line.pid not in killed]
    return f"ran more than once although no process died: {ran}" if alive else None
