"""Results and inputs in the journal: how they are stored, loaded and shown. Relies on `snapshot` for large results; reads chunks, never
records.

A result has a form: none, encoded in place, or the root of a tree of chunks. An input is kept whole if it is short, otherwise described in
words: a person has to recognise it, and its digest decides.
"""

from __future__ import annotations

from collections.abc import Callable
from reprlib import Repr
from typing import Any, NamedTuple

from everstep.backends.contract.core import Backend
from everstep.codec.values import decode, encode, revived
from everstep.errors import EverstepError
from everstep.snapshot.loader import Loader
from everstep.snapshot.saver import Saver
from everstep.store.encryption.frames import fetch_of
from everstep.store.journal.entries import CHUNKED, INLINE, NOTHING

BIG_RESULT = 16 * 1024
SHORT_INPUT = 200
Chunks = list[tuple[bytes, bytes]]

_shape = Repr()
_shape.maxstring = _shape.maxother = 60
_shape.maxlist = _shape.maxdict = _shape.maxtuple = 4
_shape.maxlevel = 3


class Arguments(NamedTuple):
    """The input of a call: its positional and its named arguments. `str(arguments)` is the call as one would write it."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __str__(self) -> str:
        return f"({', '.join([*map(repr, self.args), *(f'{name}={value!r}' for name, value in self.kwargs.items())])})"


StoredResult = tuple[int, bytes | None, Chunks]
"""The form of a result, its data, and the chunks that it needs."""


def result_body(result: Any, path: str, wrap: Callable[[bytes], bytes]) -> StoredResult:
    """Encode a result. `path` names it in errors."""
    if result is None:
        return NOTHING, None, []
    data = encode(result, path)
    if len(data) < BIG_RESULT:
        return INLINE, data, []
    saver = Saver(wrap)
    saver.begin(decode(data))
    saved = saver.build(whole=True)
    return CHUNKED, saved.base, saved.chunks


def load_result(backend: Backend, family: bytes, form: int, data: bytes | None) -> Any:
    """Decode a stored result; reads its chunks if it has any."""
    if form == NOTHING or data is None:
        return None
    if form == INLINE:
        return decode(data)
    loader = Loader(fetch_of(backend, family), backend.framer.inner.unwrap)
    value = loader.load(data)
    return revived(value) if loader.decoder.objects else value


def input_of(address: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Return the bytes that identify an input."""
    data = encode(list(args), f"{address}: args")
    return data + encode(dict(sorted(kwargs.items())), f"{address}: kwargs") if kwargs else data


def preview(data: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes | str:
    """Return the part of an input to keep so that a person can recognise it."""
    if len(data) <= SHORT_INPUT:
        return data
    shown = [_shape.repr(a) for a in args] + [f"{k}={_shape.repr(v)}" for k, v in kwargs.items()]
    text = f"({', '.join(shown)})"[:400] + f" of {len(data):,} bytes"
    return text.encode("utf-8", "replace").decode()


def show_input(kept: Any) -> str:
    """Return an input in words."""
    if isinstance(kept, str):
        return kept
    if not isinstance(kept, bytes) or not kept:
        return "(not kept)"
    found = kept_arguments(kept)
    return f"{len(kept)} bytes" if found is None else str(found)


def kept_arguments(kept: Any) -> Arguments | None:
    """Return an input that was kept whole; None if it was long and only described, or cannot be decoded."""
    if not isinstance(kept, bytes) or not kept:
        return None
    try:
        args = decode(kept)
        rest = kept[len(encode(args)) :]  # named arguments follow the others
        kwargs = decode(rest) if rest else {}
    except EverstepError:
        return None
    return Arguments(tuple(args), kwargs) if isinstance(args, list) and isinstance(kwargs, dict) else None
