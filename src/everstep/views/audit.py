"""The audit of a run, and the deletions of a store: entries, masked, and the proof that ends them. Relies on `store.events.audit`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from everstep.fields import Shape
from everstep.store.events.audit import Entry, Proof, deletions
from everstep.store.views import when
from everstep.views.json import Stored
from everstep.views.masking import Masking

if TYPE_CHECKING:
    from everstep.api import Store


class AuditView(Shape, frozen=True):
    """One entry. `record` is the seq of its record; null: it is known from another row."""

    at: datetime
    record: int | None
    attempt: int | None
    who: str | None
    what: str
    data: Stored


class ProofView(Shape, frozen=True):
    """The records that an audit was verified against, and the missing ones."""

    run: str
    key: str
    status: str
    whole: bool
    records: int
    head_digest: str
    checkpoints: int
    entries: int
    deleted: bool
    lost: int
    pruned: int
    pruned_checkpoints: list[list[int]]
    dropped: int
    origin: str | None


class DeletionsView(Shape, frozen=True):
    """How many runs were ever created, are there, and were deleted; `unnamed` deletions are known only by their positions."""

    whole: bool
    created: int
    runs: int
    deleted: int
    unnamed: int


def audit(store: Store, mask: Masking, run: str) -> Iterator[AuditView | ProofView]:
    """Yield the entries of a run, and last the proof."""
    for one in store.audit(run):
        yield _entry(one, mask) if isinstance(one, Entry) else _proof(one)


def deleted(store: Store, mask: Masking) -> Iterator[AuditView | DeletionsView]:
    """Yield the deletions of all runs, and last what they add up to."""
    for one in deletions(store):
        yield _entry(one, mask) if isinstance(one, Entry) else DeletionsView(one.whole, one.created, one.runs, one.deleted, one.unnamed)


def _entry(entry: Entry, mask: Masking) -> AuditView:
    who = None if entry.who is None else mask.text(entry.who)
    return AuditView(when(entry.at), entry.seq, entry.attempt, who, entry.what, mask(entry.data))


def _proof(proof: Proof) -> ProofView:
    pruned = [list(pair) for pair in proof.pruned_checkpoints]
    return ProofView(
        proof.run, proof.key, proof.status, proof.whole, proof.records, proof.head_digest, proof.checkpoints, proof.entries, proof.deleted,
        proof.lost, proof.pruned, pruned, proof.dropped, proof.origin,
    )  # fmt: skip
