"""Correct single flipped bits by trying them all: the digest proves which one it was, so a correction is as certain as undamaged data.

Pure and bounded: values above a few kilobytes are not tried, and the total cost of all tries is limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, Protocol, TypeVar

from everstep.codec.frame import Framer
from everstep.fields import replace
from everstep.records import Framing, Record, Seal, chain, unkeyed

_LONGEST = 16 * 1024
_MOST_BYTES = 1 << 30  # of rows and records to hash in total: some seconds
_MOST_FRAMES = 1 << 30  # of contents to unwrap and hash in total: about as long
_LARGEST = 128 * 1024  # no chunk that Everstep writes is larger
_HEAD = 6  # version, flags and length of a frame
_ABOUT = 300  # cost of one try, in bytes
_HEADER = ("kind", "epoch", "at", "number", "note", "tags", "meta", "own", "labels")


class Checked(Protocol):
    """A row with its own digest."""

    @property
    def key(self) -> bytes: ...

    @property
    def check(self) -> bytes: ...

    def digest(self, seal: Seal = unkeyed) -> bytes: ...


T = TypeVar("T")


class Healer:
    """Corrects flipped bits within its limits. `healed` counts the corrections."""

    def __init__(
        self, most: int = _MOST_BYTES, most_frames: int = _MOST_FRAMES, seal: Seal = unkeyed, framer: Framing | None = None
    ) -> None:
        self.seal = seal
        self.framer = framer or Framer()
        self._left = most
        self._frames_left = most_frames
        self.healed = 0

    def _may_try(self, size: int = 0) -> bool:
        self._left -= _ABOUT + size
        return self._left >= 0

    def _found(self, thing: T) -> T:
        self.healed += 1
        return thing

    def row(self, thing: Any) -> Any | None:
        """Return a row as it was before one of its bits flipped, or None. Works for anything with a digest and a check."""
        digest = thing.digest(self.seal)
        if _one_bit_apart(digest, thing.check):
            return self._found(replace(thing, check=digest))
        for name in (name for name in thing._fields if name != "check"):
            for value in _variants(getattr(thing, name)):
                if not self._may_try():
                    return None
                other = replace(thing, **{name: value})
                if other.digest(self.seal) == thing.check:
                    return self._found(other)
        return None

    def record(self, key: bytes, record: Record, before: bytes, digest: bytes) -> Record | None:
        """Correct a record of the run with a key, given the digest of the record before it and its own."""

        def fits(other: Record) -> bool:
            return chain(before, key, other, self.seal) == digest

        for other in self._headers(record):
            if fits(other):
                return self._found(replace(other, digest=digest))
        made = chain(before, key, record, self.seal)
        if _one_bit_apart(made, digest):
            return self._found(replace(record, digest=made))
        if record.body is None:
            hollow = (replace(record, body_digest=value, digest=digest) for value in _variants(record.body_digest))
            good = next(filter(fits, hollow), None)
            return None if good is None else self._found(good)
        for body in _variants(record.body):
            if not self._may_try(len(body)):
                return None
            other = replace(record, body=body, body_digest=sha256(body).digest(), digest=digest)
            if fits(other):
                return self._found(other)
        return None

    def _headers(self, record: Record) -> Iterator[Record]:
        for name in _HEADER:
            for value in _variants(getattr(record, name)):
                if not self._may_try():
                    return
                yield replace(record, **{name: value})

    def frame(self, frame: bytes, holds: Callable[[bytes], bool]) -> bytes | None:
        """Correct the frame of a chunk, given what tells whether a frame has the right content."""
        size = max(len(frame), int.from_bytes(frame[2:_HEAD]) if frame[1:2] != b"\0" else 0)
        head = size > _LARGEST  # too large for a chunk of ours, unless the length itself is damaged
        other: bytes
        for other in ((bits + frame[_HEAD:]) for bits in _variants(frame[:_HEAD])) if head else _variants(frame):
            self._frames_left -= _ABOUT + min(size, _LARGEST)
            if self._frames_left < 0:
                return None
            if holds(other):
                return self._found(other)
        return None


def _one_bit_apart(a: bytes, b: bytes) -> bool:
    return len(a) == len(b) and (int.from_bytes(a) ^ int.from_bytes(b)).bit_count() == 1


def _variants(value: Any) -> Iterator[Any]:
    """Yield a value with each of its bits flipped in turn, if the result is still a value of its type."""
    if isinstance(value, bytes):
        if len(value) <= _LONGEST:
            data = bytearray(value)
            for bit in range(8 * len(value)):
                data[bit >> 3] ^= 1 << (bit & 7)
                yield bytes(data)
                data[bit >> 3] ^= 1 << (bit & 7)
    elif isinstance(value, str):
        for data in _variants(value.encode()):
            try:
                yield data.decode()
            except UnicodeDecodeError:
                continue
    elif type(value) is int:
        yield from (value ^ 1 << bit for bit in range(63))
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from ((*value[:index], other, *value[index + 1 :]) for other in _variants(item))
