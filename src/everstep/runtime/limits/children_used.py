"""What the children of a run have used, as their journals tell. Reads only."""

from __future__ import annotations

from everstep.backends.contract.core import Backend, Query
from everstep.records import CHILD, Kind, RunRow
from everstep.runtime.engine import replay
from everstep.runtime.limits.account import Account
from everstep.runtime.limits.budget import Used
from everstep.store.load import newest_of
from everstep.store.refs import verified


def know_children(backend: Backend, row: RunRow, account: Account) -> None:
    """Count what children used before this attempt: of those that are not finished, too, and of those that were resumed by themselves."""
    if account.complete:
        return
    account.complete = True
    for child in _children(backend, row):
        if not account.knows(child.id):
            account.know(child.id, _used(backend, verified(child, backend.seal)))


def _children(backend: Backend, row: RunRow) -> list[RunRow]:
    return [child for _, child in backend.runs(Query(parent=row.id)) if child.parent_number == CHILD]


def _used(backend: Backend, row: RunRow) -> Used:
    """The end of an attempt says what the run had used. If a process died after that, its records are added up."""
    newest = newest_of(backend, row, Kind.STATUS)
    said = replay.content(newest) if newest is not None else {}
    if newest is not None and newest.seq == row.head_seq and "used" in said:
        return Used(*said["used"])
    played = replay.whole(backend, row)
    account = Account(row.id, played, 0.0)
    know_children(backend, row, account)
    return account.for_caller(driven=True)
