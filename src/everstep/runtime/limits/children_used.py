"""Reads from the journals of a run's children what they have used. Reads only."""

from __future__ import annotations

from everstep.backends.contract.core import Backend, Query
from everstep.records import CHILD, Kind, RunRow
from everstep.runtime.engine import replay
from everstep.runtime.limits.account import Account
from everstep.runtime.limits.budget import Used
from everstep.runtime.limits.running_time import Attempt, attempts, seconds_in
from everstep.store.load import checked_from, newest_of
from everstep.store.refs import verified


def know_children(backend: Backend, row: RunRow, account: Account) -> None:
    """Count what children used before this attempt, including unfinished ones and those that were resumed on their own."""
    if account.complete:
        return
    account.complete = True
    _know(backend, row, account)
    account.lost = _lost_seconds(backend, row)


def _know(backend: Backend, row: RunRow, account: Account) -> None:
    for child in _children(backend, row):
        if not account.knows(child.id):
            account.know(child.id, _used(backend, verified(child, backend.seal)))


def _lost_seconds(backend: Backend, row: RunRow) -> float:
    """Return the seconds of killed attempts that only the journals of children show: while it executes a child, a caller records nothing itself."""
    killed = _killed_below(backend, row)
    if not killed:
        return 0.0
    own = attempts(checked_from(backend, row, 1))
    return seconds_in([*own, *killed]) - seconds_in(own)


def _killed_below(backend: Backend, row: RunRow) -> list[Attempt]:
    """Return the attempts at children, and at their children, that did not end."""
    found: list[Attempt] = []
    for child in (verified(child, backend.seal) for child in _children(backend, row)):
        newest = newest_of(backend, child, Kind.STATUS)
        if child.epoch > 1 or newest is None or "used" not in replay.content(newest):
            found += (one for one in attempts(checked_from(backend, child, 1)) if not one.told)
        found += _killed_below(backend, child)
    return found


def _children(backend: Backend, row: RunRow) -> list[RunRow]:
    return [child for _, child in backend.runs(Query(parent=row.id)) if child.parent_number == CHILD]


def _used(backend: Backend, row: RunRow) -> Used:
    """Return what a run has used: the figures of its last ended attempt, or the sum of its records if a process died after that."""
    newest = newest_of(backend, row, Kind.STATUS)
    said = replay.content(newest) if newest is not None else {}
    if newest is not None and newest.seq == row.head_seq and "used" in said:
        return Used(*said["used"])
    played = replay.whole(backend, row)
    account = Account(row.id, played, 0.0)
    _know(backend, row, account)
    return account.for_caller(driven=True)
