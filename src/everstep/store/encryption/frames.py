"""The frames of a run, wherever they are stored: what each is bound to. In an encrypted store a frame can be opened in its place only.

record       ("record", seq, kind)       by `chain.Chain` and `Record.content`
added base   ("base", number)
message      ("message", name)
chunk        its family and its name     by `Frames.stored` and `Frames.fetcher`
schedule     ("schedule", name)          of the store
order        ("order", id of the run)    of the store
result       ("result", address)         of a transactional step, in the user's database
"""

from __future__ import annotations

from functools import partial
from typing import Any

from everstep.backends.contract.core import Backend
from everstep.codec.values import decode, encode
from everstep.fields import replace
from everstep.records import Base, Fetch, Frames, Framing, Message, Place, RunRow

_LABELS: Place = ("labels",)


def frames_of(backend: Backend, row: RunRow) -> Frames:
    """Return the frames of a run."""
    return backend.framer.of(row.family, row.key)


def need_key(framer: Framing) -> None:
    """Raise `MissingKey` if the store is encrypted, and was opened without its key."""
    if framer.locked:
        framer.store()


def sealed_row(framer: Framing, row: RunRow) -> RunRow:
    """Return the row of a new run as it is stored, given one with the labels of the program. In an encrypted store this makes its key."""
    if not framer.encrypted:
        return row
    if row.family == row.key:
        framer.new_family(row.family)
    note, tags, meta = framer.of(row.family, row.key).seal_labels((row.note, row.tags, row.meta), _LABELS)
    return replace(row, note=note, tags=tags, meta=meta)


def shown_row(backend: Backend, row: RunRow) -> RunRow:
    """Return the row of a run with its labels as the program gave them."""
    if not backend.framer.encrypted or (row.note is None and not row.tags and row.meta is None):
        return row
    note, tags, meta = frames_of(backend, row).open_labels((row.note, row.tags, row.meta), _LABELS)
    return replace(row, note=note, tags=tags, meta=meta)


def fetch_of(backend: Backend, family: bytes) -> Fetch:
    """Return a function from digests to the inner frames of a family's chunks, which `backend.framer.inner` opens."""
    return backend.framer.of(family, family).fetcher(partial(backend.chunks, family))


def new_message(backend: Backend, row: RunRow, name: str, due: int | None, at: int, content: Any = None, what: str = "value") -> Message:
    """Return a message to a run. `what` names the content in an error."""
    body = frames_of(backend, row).wrap(encode(content, what), ("message", name))
    return Message.make(row.key, name, due, at, body, backend.seal)


def content_of_message(backend: Backend, row: RunRow, message: Message) -> Any:
    """Return what a message to a run says."""
    return decode(frames_of(backend, row).unwrap(message.body, ("message", message.name)))


def new_base(backend: Backend, row: RunRow, number: int, at: int, content: bytes) -> Base:
    """Return a base that is added for a checkpoint."""
    return Base.make(row.key, number, at, frames_of(backend, row).wrap(content, ("base", number)), backend.seal)


def content_of_base(frames: Frames, base: Base) -> bytes:
    """Return the content of an added base."""
    return frames.unwrap(base.body, ("base", base.number))
