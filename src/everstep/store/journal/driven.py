"""The code that ran a run: version and definition of its workflow, from the journal. Reads only.

Every record with status `running` has the version of the process that ran it; one is written at the start and whenever another version
takes over. A run that was started directly has its first version in its first record. The first record of an enqueued run only describes
the process that enqueued it, whose code may differ from the workers'.
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
    """`version` is the newest one that ran the run and is known; `definition` is the code that it began with. `ever`: whether it ran at
    all.
    """

    version: str | None
    definition: str | None
    ever: bool


def driven(backend: Backend, row: RunRow, start: dict[str, Any]) -> Driven:
    """Return the code that ran a run, given the content of its first record."""
    return driven_in(start, unproved(backend, row, 1, row.head_seq, (_STATUS,)))


def driven_in(start: dict[str, Any], records: Iterable[Record]) -> Driven:
    """Return the same from records that were read; those that are not a status are skipped."""
    enqueued = "task" in start
    version, definition = (None, None) if enqueued else (start.get("version"), start.get("definition"))
    ever = not enqueued
    for record in records:
        said = said_in(record) if record.kind == _STATUS else {}
        if said.get("status") != "running":
            continue
        if not ever:
            definition = said.get("definition", start.get("definition"))
            version = start.get("version")  # an older Everstep did not record this: use the version of the enqueuer
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
    | never ran, enqueued by any version     | yes          | yes          | yes                      |
    | run by v1, nothing recorded yet        | yes          | yes          | yes                      |
    | run by v1                              | yes          | no           | yes                      |
    | run by v2, or by v1 and then v2        | no           | yes          | yes                      |
    | run only by code without a version     | yes          | yes          | yes                      |
    """
    return not begun or found.version is None or version is None or found.version == version
