"""Which code drove a run: the version and the definition of its workflow, as the journal tells. Reads only.

Every record that says `running` carries the version of the driver; one is written at the start and whenever another version takes over. A
run that was started directly has its first driver in its first record. The first record of an enqueued run only tells who enqueued it,
and that program may have other code than the workers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from everstep.backends.contract.core import Backend
from everstep.records import Kind, Record, RunRow
from everstep.store.journal.entries import said_in
from everstep.store.load import unproved

_STATUS = Kind.STATUS.value
_JOURNAL = tuple(kind.value for kind in (Kind.STEP, Kind.GATE, Kind.ANSWER, Kind.TIMER, Kind.CHECKPOINT))


class Driven(NamedTuple):
    """`version` is that of the newest driver that had one; `definition` is the code that the run began with. `ever`: it was driven at all."""

    version: str | None
    definition: str | None
    ever: bool


def driven(backend: Backend, row: RunRow, start: dict[str, Any]) -> Driven:
    """What drove a run, given what its first record says."""
    return driven_in(start, unproved(backend, row.id, 1, row.head_seq, (_STATUS,)))


def driven_in(start: dict[str, Any], records: Iterable[Record]) -> Driven:
    """The same, from records that were read; those that are no status are skipped."""
    enqueued = "task" in start
    version, definition = (None, None) if enqueued else (start.get("version"), start.get("definition"))
    ever = not enqueued
    for record in records:
        said = said_in(record) if record.kind == _STATUS else {}
        if said.get("status") != "running":
            continue
        if not ever:
            definition = said.get("definition", start.get("definition"))
            version = start.get("version")  # an older Everstep did not record the driver: then the enqueuer stands for it
        version = said.get("version", version)
        ever = True
    return Driven(version, definition, ever)


def has_begun(backend: Backend, row: RunRow) -> bool:
    """Whether anything is recorded that other code could contradict."""
    return bool(backend.records(row.id, 1, row.head_seq, _JOURNAL, 1))


def may_drive(found: Driven, begun: bool, version: str | None) -> bool:
    """Whether a worker whose code has this version may take a run.

    | run                                    | worker of v1 | worker of v2 | worker without a version |
    |----------------------------------------|--------------|--------------|--------------------------|
    | never driven, whoever enqueued it      | yes          | yes          | yes                      |
    | driven by v1, nothing recorded yet     | yes          | yes          | yes                      |
    | driven by v1                           | yes          | no           | yes                      |
    | driven by v2, or by v1 and then v2     | no           | yes          | yes                      |
    | only driven by code without a version  | yes          | yes          | yes                      |
    """
    return not begun or found.version is None or version is None or found.version == version
