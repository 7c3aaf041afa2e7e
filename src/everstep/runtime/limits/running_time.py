"""Computes how long a run was executing, from its records: a killed attempt counts up to its last record. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from everstep.records import Kind, Record
from everstep.store.journal.entries import StepEntry, open_as, said_in
from everstep.store.views import header_of


def running_seconds(records: Iterable[Record], seconds: float = 0.0, at: int = 0, epoch: int = -1) -> float:
    """Return how many seconds a run was executing, given the seconds up to a record of that time and epoch.

    The figure in a checkpoint or an ending takes precedence: the process measured it without the wall clock. Between attempts, which have
    different epochs, the run was not executing.
    """
    before = seconds  # the seconds before this attempt
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
    """The time, in microseconds, from the first to the last trace of an attempt in the records."""

    began: int
    last: int
    told: bool  # whether its end record has the figures for the caller


def attempts(records: Iterable[Record]) -> list[Attempt]:
    """Return the attempts at a run. Each has its own epoch."""
    found = []
    for _, group in groupby(records, lambda record: record.epoch):
        of_one = list(group)
        told = any(record.kind == Kind.STATUS and "used" in said_in(record) for record in of_one)
        found.append(Attempt(_began(of_one[0]), max(record.at for record in of_one), told))
    return found


def seconds_in(given: Iterable[Attempt]) -> float:
    """Return how long at least one of these attempts lasted: overlapping time counts once."""
    total = until = 0
    for attempt in sorted(given):
        total += max(0, attempt.last - max(until, attempt.began))
        until = max(until, attempt.last)
    return total / 1e6


def _began(record: Record) -> int:
    """Return when an attempt began, as far as the records show: at its first record, or at the start of the step that this record ends."""
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
