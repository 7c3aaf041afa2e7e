"""Changes a plain store to an encrypted one: writes a new store, verifies it, compares it with the old one, and puts it in its place.

In place (a file): the new store is built beside the old one, and takes its name in one step; `backends.sqlite.recovery.exchange` says how a
process that is killed leaves the old or the new store. With `to`: the new store appears at another address, complete or not at all, and the
old one stays as it is. No process may write meanwhile: a store that was written is not replaced.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from itertools import zip_longest
from typing import Any

from everstep.backends.contract.capability import need
from everstep.backends.contract.core import Backend, Query
from everstep.backends.contract.keys import Keys
from everstep.backends.contract.recovery import Builder
from everstep.backends.registry import finish_exchange, is_database, open_backend, open_builder, open_exchange, shown
from everstep.codec.frame import Framer
from everstep.codec.values import encode
from everstep.errors import Conflict, Damaged, InvalidArgument, MissingKey, StoreBusy
from everstep.fields import Shape
from everstep.records import RunRow, Seal
from everstep.seals import ServerSeal
from everstep.store.encryption.begin import framing_of
from everstep.store.encryption.conversion import Conversion
from everstep.store.encryption.frames import frames_of, shown_row
from everstep.store.encryption.framing import EncryptedFraming
from everstep.store.encryption.keyring import Keyring, new_keyring
from everstep.store.encryption.sources import Source
from everstep.store.progress import Pace, Progress
from everstep.store.refs import verified
from everstep.store.retention.run_survey import proved
from everstep.store.travel.states import decoded
from everstep.store.verify.verify import verify

_AT_ONCE = 500
Address = str | os.PathLike[str] | None


class Encrypted(Shape, frozen=True):
    """What `everstep.encrypt` did: the encrypted store, how much is in it, and where the plain one is now; None if it was shredded.

    `already`: the store was encrypted before, and nothing was written.
    """

    store: str
    runs: int
    states: int
    plain: str | None
    already: bool = False

    def __str__(self) -> str:
        if self.already:
            return f"{self.store} is already encrypted with this key"
        kept = "the plain one was overwritten and removed" if self.plain is None else f"the plain one is {self.plain}"
        return f"{self.store} is encrypted: {self.runs:,} runs, {self.states:,} states compared; {kept}"


def encrypt(
    source: Address = None, key: Any = None, *, to: Address = None, shred: bool = False, progress: Progress | None = None
) -> Encrypted:
    """Change a plain store to one that is encrypted with `key`. Every run keeps its id, its history and its key of idempotency.

    A store in a file is replaced, and stays beside the new one as NAME.plain-DATE; with `shred` it is overwritten and removed. With `to`, the
    encrypted store is written at another address, where nothing may be, and the source is only read; PostgreSQL needs that.
    """
    if key is None:
        raise MissingKey("a store cannot be encrypted without a key", remedy="Give one: everstep.encrypt(path, key=...), or EVERSTEP_KEY.")
    if to is None and is_database(source):
        raise InvalidArgument(
            f"{shown(source)} cannot be replaced in its place", remedy="Give another schema or database: everstep encrypt --to URL."
        )
    if to is not None and shred:
        raise InvalidArgument(
            "shred needs a store that is replaced in its place", remedy="Remove the old store when the new one is in use."
        )
    given = Source(key)
    return _beside(source, to, given, progress) if to is not None else _in_place(source, given, shred, progress)


def _in_place(source: Address, given: Source, shredded: bool, progress: Progress | None) -> Encrypted:
    if (found := _already(source, given, shredded)) is not None:
        return found
    exchange = open_exchange(source)
    try:
        backend = exchange.source
        _prepare(backend, progress)
        exchange.note()
        ring = new_keyring(given)
        builder = exchange.builder(ring.seal)
        runs, _ = _convert(backend, builder, ring, ring.seal, progress)
        states = _check(backend, open_backend(builder.built), given, progress)
        kept = exchange.swap(shredded)
    finally:
        exchange.abandon()
    return Encrypted(str(exchange.path), runs, states, None if kept is None else str(kept))


def _already(source: Address, given: Source, shredded: bool) -> Encrypted | None:
    """Return a result if the store is encrypted with this key. Finishes what a call that was killed has left: the old store."""
    backend = open_backend(source, create=False)
    try:
        need(backend, Keys)
        if backend.header is None:
            return None
        framing_of(backend, Framer(), given)
        runs = backend.manifest().runs
    finally:
        backend.close()
    kept = [] if is_database(source) else finish_exchange(source, shredded)
    return Encrypted(backend.url, runs, 0, str(kept[-1]) if kept else None, already=True)


def _beside(source: Address, to: Address, given: Source, progress: Progress | None) -> Encrypted:
    backend = open_backend(source, create=False)
    try:
        need(backend, Keys)
        if backend.header is not None:
            raise InvalidArgument(f"{backend.url} is already encrypted", remedy="To replace its key: everstep rekey.")
        _prepare(backend, progress)
        before = backend.manifest()
        ring = new_keyring(given)
        assert to is not None
        builder = open_builder(to)
        try:
            runs, unchanged = _convert(
                backend,
                builder,
                ring,
                ServerSeal(ring.seal) if is_database(to) else ring.seal,
                progress,
                lambda: backend.manifest() == before,
            )
        finally:
            builder.abandon()
        states = _check(backend, open_backend(to, create=False), given, progress)
        if not unchanged():
            raise Conflict(
                f"{backend.url} was written while it was copied: {shown(to)} lacks what is newer",
                remedy="Stop the programs that write it, remove the new store, and repeat the call.",
            )
        return Encrypted(shown(to), runs, states, backend.url)
    finally:
        backend.close()


def _prepare(backend: Backend, progress: Progress | None) -> None:
    """Refuse a store that is in use or damaged."""
    backend.framer = Framer()
    living = backend.living()
    if living:
        who = living[0]
        raise StoreBusy(
            f"{backend.url} is in use: process {who.pid} on {who.host} runs something. Nothing was changed",
            remedy="End every worker and program that uses the store, and repeat the call.",
        )
    report = verify(backend, "full", progress, None)
    if not report.ok:
        raise Damaged(f"{backend.url} is damaged: {report.problems[0]}. Nothing was changed", remedy="Repair it first: everstep repair.")


def _convert(
    backend: Backend, builder: Builder, ring: Keyring, seal: Seal, progress: Progress | None, unchanged: Callable[[], bool] = lambda: True
) -> tuple[int, Callable[[], bool]]:
    keys: dict[bytes, bytes] = {}
    builder.set_seal(ring.seal)
    framing = EncryptedFraming(Framer(), ring, lambda families: {family: keys[family] for family in families if family in keys})
    return Conversion(backend, builder, framing, keys, seal, Pace(progress, None)).all(), unchanged


def _check(plain: Backend, made: Backend, given: Source, progress: Progress | None) -> int:
    """Verify the new store, and compare every state in it with the old one; return how many."""
    try:
        made.framer = framing_of(made, Framer(), given)
        report = verify(made, "full", progress, None)
        if not report.ok:
            raise Damaged(f"the encrypted store is wrong: {report.problems[0]}. The old one was not changed")
        return _compare(plain, made, Pace(progress, None))
    finally:
        made.close()


def _compare(plain: Backend, made: Backend, pace: Pace) -> int:
    """Compare all runs, with what they hold, by the values that a program sees."""
    states, after = 0, None
    pace.total = plain.manifest().runs
    while page := plain.runs(Query(oldest_first=True, after=after, limit=_AT_ONCE)):
        after = page[-1][0]
        for _, row in page:
            other = made.run(row.id)
            if other is None:
                raise Damaged(f"run {row.id!r} is missing in the encrypted store. The old one was not changed")
            states += _same(plain, row, made, verified(other, made.seal))
            pace.on(1, "states")
    return states


def _same(plain: Backend, row: RunRow, made: Backend, other: RunRow) -> int:
    if _about(plain, row) != _about(made, other):
        raise _differs(row, "its row, its records, its messages or its added bases")
    states = 0
    for one, two in zip_longest(decoded(plain, row), decoded(made, other)):
        if one is None or two is None or one[0] != two[0] or _digest(one[1]) != _digest(two[1]):
            raise _differs(row, "a state")
        states += 1
    return states


def _about(backend: Backend, row: RunRow) -> bytes:
    """Return a digest of everything in a run, decrypted, but for the digests themselves."""
    shown_one, frames, total = shown_row(backend, row), frames_of(backend, row), sha256()
    names = [name for name in RunRow._fields if name not in ("head_digest", "stored", "check")]
    total.update(repr([getattr(shown_one, name) for name in names]).encode())
    for r in proved(backend, row):
        content = None if r.body is None or r.kind == "start" else r.content()
        total.update(repr((r.seq, r.kind, r.epoch, r.at, r.number, r.own, r.body is None, r.kind == "checkpoint" or r.note)).encode())
        total.update(repr(r.shown() if r.kind == "checkpoint" else None).encode() + repr(content).encode())
    for message in sorted(backend.messages(row.id), key=lambda one: one.name):
        total.update(repr((message.name, message.due, message.at, frames.unwrap(message.body, ("message", message.name)))).encode())
    for base in sorted(backend.bases(row.id), key=lambda one: one.number):
        total.update(repr((base.number, base.at, frames.unwrap(base.body, ("base", base.number)))).encode())
    mark, entry = backend.pruned(row.id), backend.queue_entry(row.id)
    total.update(repr(None if mark is None else (mark.ranges, mark.freed, mark.at, mark.numbers)).encode())
    total.update(repr(None if entry is None else entry.task).encode())
    return bytes.fromhex(total.hexdigest())


def _digest(state: Any) -> bytes:
    return sha256(encode(state)).digest()


def _differs(row: RunRow, what: str) -> Damaged:
    return Damaged(f"{what} of run {row.id!r} differs in the encrypted store. The old one was not changed")
