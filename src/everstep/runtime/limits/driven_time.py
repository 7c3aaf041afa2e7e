"""How long a run was driven, from its records: an attempt that was killed counts up to the last thing that it recorded. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from everstep.records import Kind, Record
from everstep.store.journal.entries import StepEntry, open_as, said_in
from everstep.store.views import header_of


def driven_seconds(records: Iterable[Record], seconds: float = 0.0, at: int = 0, epoch: int = -1) -> float:
    """Seconds in which a run was driven, given how many they were up to a record of that time and epoch.

    A checkpoint or an ending that says how long it was is believed: the process measured that without the wall clock. Between attempts,
    which have different epochs, the run was not driven.
    """
    before = seconds  # the attempt began with that
    for record in records:
        if record.epoch != epoch:
            epoch, at, before = record.epoch, _began(record), seconds
        seconds += max(0, record.at - at) / 1e6
        at = max(at, record.at)
        said = _said(record)
        if said is not None:
            seconds = max(before, said)
    return seconds


class Attempt(NamedTuple):
    """From when to when, in microseconds, an attempt can be seen to have driven a run."""

    began: int
    last: int
    told: bool  # whether its end says how much of it counts for the caller


def attempts(records: Iterable[Record]) -> list[Attempt]:
    """The attempts at a run. Each has an epoch of its own."""
    found = []
    for _, group in groupby(records, lambda record: record.epoch):
        of_one = list(group)
        told = any(record.kind == Kind.STATUS and "used" in said_in(record) for record in of_one)
        found.append(Attempt(_began(of_one[0]), max(record.at for record in of_one), told))
    return found


def seconds_in(given: Iterable[Attempt]) -> float:
    """How long at least one of these attempts lasted: those at the same time count once."""
    total = until = 0
    for attempt in sorted(given):
        total += max(0, attempt.last - max(until, attempt.began))
        until = max(until, attempt.last)
    return total / 1e6


def _began(record: Record) -> int:
    """When an attempt can be seen to have begun: with its first record, or with the step that this is the end of."""
    if record.kind == Kind.STEP and record.body is not None:
        return min(record.at, open_as(record, StepEntry).started)
    return record.at


def _said(record: Record) -> float | None:
    if record.kind == Kind.CHECKPOINT and record.own is not None:
        used = header_of(record.own).get("used")
        return float(used[0]) if used else None
    if record.kind == Kind.STATUS:
        return said_in(record).get("seconds")
    return None
