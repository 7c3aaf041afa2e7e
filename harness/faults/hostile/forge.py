"""Makes stores as an attacker would: any bytes anywhere, with correct digests. Relies on a backend, which stores what it is given.

A forged run has a start record, then states (an empty checkpoint and a base), deltas, journal entries and messages, each with the given
body. Frames and chunks are named by their true digests unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any

import apsw
from ormsgpack import Ext, packb

from everstep.backends.contract.core import Commit
from everstep.backends.registry import open_backend
from everstep.codec.values import REFERENCE
from everstep.records import Kind, Message, Record, RunRow, Tag, make_record, shift
from everstep.snapshot.saver import NO_DELTA
from everstep.testing.rows import new_run

Case = Callable[[Path], None]
"""Makes a hostile store at a path."""
PLAIN = b"\x01\x00"


def plain(content: bytes) -> bytes:
    """A frame that is not compressed."""
    return PLAIN + content


def reference(kind: str, count: int, level: int, digest: bytes) -> bytes:
    """Return the bytes of a value that is stored in chunks."""
    return packb(Ext(REFERENCE, packb([kind, count, level, digest])))


class Forger:
    """One forged run in a store; `commit` writes it."""

    def __init__(self, path: Path, run: str = "r", **fields: Any):
        self._backend = open_backend(path)
        self._row: RunRow = new_run(run, **fields)
        self._row.family = self._row.key
        self._records: list[Record] = []
        self._chunks: list[tuple[bytes, bytes]] = []
        self._messages: list[Message] = []
        self._tags: list[Tag] = []
        self.record(Kind.START, plain(packb({})))

    def record(
        self, kind: str, body: bytes, note: str | None = None, tags: tuple[str, ...] = (), meta: str | None = None, own: str | None = None
    ) -> None:
        """Add the next record of the chain, with a frame as its body."""
        row = self._row
        row.checkpoints += kind == Kind.CHECKPOINT
        row.head_seq += 1
        made = make_record(
            row.head_digest,
            row.id,
            row.key,
            row.head_seq,
            str(kind),
            row.epoch,
            row.updated_at,
            row.checkpoints,
            body,
            note,
            tags,
            meta,
            own,
        )
        row.head_digest = made.digest
        row.stored += len(body)
        self._records.append(made)

    def state(self, content: bytes, **about: Any) -> None:
        """Add a checkpoint whose whole state is this encoded value; references in it lead to chunks."""
        self.base(plain(content), **about)

    def base(self, frame: bytes, **about: Any) -> None:
        self.record(Kind.CHECKPOINT, plain(NO_DELTA), **about)
        self.record(Kind.BASE, frame)

    def delta(self, content: bytes, **about: Any) -> None:
        self.record(Kind.CHECKPOINT, plain(content), **about)

    def step(self, address: str, form: int, result: bytes | None) -> None:
        body = ["succeeded", 1, b"", b"", form, result, None, 0, 0, 0, 0.0, "w", {}]
        self.record(Kind.STEP, plain(packb(body)), address)

    def chunk(self, content: bytes, frame: bytes | None = None, digest: bytes | None = None) -> bytes:
        """Add a chunk, and return its name."""
        name = sha256(content).digest() if digest is None else digest
        self._chunks.append((name, plain(content) if frame is None else frame))
        return name

    def message(self, name: str, body: bytes, due: int | None = 0) -> None:
        self._messages.append(Message.make(self._row.key, name, due, 0, body))

    def tag(self, name: str, number: int) -> None:
        self._tags.append(Tag.make(self._row.key, name, number, 0))

    def commit(self, **changes: Any) -> None:
        row = self._row.sealed(**changes)
        self._backend.commit(Commit(row, None, self._records, self._chunks, self._messages))
        for tag in self._tags:
            self._backend.tag(tag, row.id)

    def __enter__(self) -> Forger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None and self._records:
            self.commit()
        self._backend.close()


def place_value(raw: bytes, path: Path) -> None:
    """Put one encoded value everywhere that a store has values."""
    with Forger(path) as forged:
        forged.state(packb({"a": 1}))
        forged.delta(b"\x91\x93\x00\x91\xa1b" + raw)
        forged.record(Kind.EVENT, plain(packb(["custom:x", raw])), "event:custom:x#0")
        forged.step("x#0", 1, raw)
        forged.message("answer:x#0", plain(raw))
        forged.commit(status="waiting")
        forged._records.clear()
    with Forger(path, "whole") as forged:
        forged.state(raw)
    with Forger(path, "chunked") as forged:
        forged.state(reference("v", len(raw), 0, forged.chunk(raw)))
        forged.step("x#0", 2, reference("v", len(raw), 0, forged.chunk(raw)))


def rewrite(path: Path, run: str, **changes: Any) -> None:
    """Change the row of a run past the backend, which may refuse such values; its check and the manifest are corrected."""
    backend = open_backend(path)
    row = backend.run(run)
    backend.close()
    if row is None:
        raise ValueError(f"there is no run {run!r}")
    after = row.sealed(**changes)
    with closing(apsw.Connection(str(path))) as connection:
        (total,) = connection.execute("SELECT total FROM manifest").fetchone() or (b"",)
        total = shift(bytes(total), [row.check], [after.check])
        for name, value in {**changes, "check": after.check}.items():
            connection.execute(f'UPDATE runs SET "{name}" = ? WHERE id = ?', (value, run))  # noqa: S608 -- our own names
        connection.execute("UPDATE manifest SET total = ?", (total,))
