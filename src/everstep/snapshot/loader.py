"""Reads bases: fetches the chunks that references name, checks them, and builds the values. `tree` has their format. No I/O of its own.

Stored data may come from an attacker, who can make correct digests. So nothing is trusted: levels, counts and types are checked, and the
unfolded size of a base is compared with its stored size. Equal parts are stored once, so a few bytes may legitimately represent many. If
they represent more than DOUBTFUL times as many, the memory of the value is estimated: LIGHT bytes are always allowed, and beyond that HEAVY
times the stored size. `saver` only stores bases that pass.

Equal parts share immutable values: a text or bytes that is referred to many times becomes one object, and a repeated segment gets new lists
and dicts around the same texts and numbers. So a loaded state takes about as much memory as it took when it was saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any

from ormsgpack import unpackb

from everstep.codec.frame import weight
from everstep.codec.values import Decoder
from everstep.errors import DamagedChunk, DamagedFrame

MOST_LEVELS = 64
MOST_ITEMS = 1 << 48
DOUBTLESS, DOUBTFUL = 1 << 20, 16
LIGHT, HEAVY = 160 << 20, 64_000
Fetch = Callable[[Sequence[bytes]], dict[bytes, bytes]]
Entry = tuple[bytes, int]
Part = tuple[str, int, bytes]
_MARK = b"\x1e\x94\xa1"  # in every reference: extension type 30, a list of four, a text of one letter
_HOLDING = frozenset("ldv")  # the kinds of references whose chunks may hold others
SHARED = frozenset("sb")
"""The kinds of references that become one object, however often they occur."""
_UNCHANGEABLE = frozenset({str, bytes, int, float, bool, type(None)})


@contextmanager
def nonsense() -> Iterator[None]:
    """Turn every error about values that don't fit together into damage."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise DamagedFrame(f"a base contains an invalid value: {error!r:.200}") from error


def parse_reference(data: bytes) -> tuple[str, int, int, bytes]:
    """Return kind, count, level and digest of a reference."""
    with nonsense():
        kind, count, level, digest = unpackb(data)
    if type(kind) is not str or type(digest) is not bytes or not _is_count(count) or type(level) is not int:
        raise DamagedFrame("a reference has no kind, count, level or digest")
    if not 0 <= level <= MOST_LEVELS or len(digest) not in (0, 32) or (not digest and (count or level)):
        raise DamagedFrame(f"a reference of level {level} to {count} items is invalid")
    return kind, count, level, digest


def references_in(content: bytes) -> list[Part]:
    """Return kind, level and digest of each reference in a content, without repeats. Content that can't be decoded has none here; the
    caller that needs it finds the damage.
    """
    if not _has_mark(content):  # decoding every segment twice would be slow
        return []
    found: list[tuple[str, int, int, bytes]] = []
    with suppress(DamagedFrame):
        Decoder(lambda data: found.append(parse_reference(data))).decode(content)
    return list(dict.fromkeys((kind, level, digest) for kind, _, level, digest in found if digest))


def _has_mark(content: bytes) -> bool:
    """Whether the content may hold a reference. One byte is found 50 times as fast as three, and is rarely there."""
    at = content.find(_MARK[0])
    for _ in range(8):
        if at < 0 or content.startswith(_MARK, at):
            return at >= 0
        at = content.find(_MARK[0], at + 1)
    return _MARK in content


def _is_count(n: Any) -> bool:
    return type(n) is int and 0 <= n <= MOST_ITEMS


def entries_of(content: bytes) -> list[Entry]:
    """Return the entries of an index."""
    with nonsense():
        found = [(digest, count) for digest, count in unpackb(content)]
    if any(type(digest) is not bytes or len(digest) != 32 or not _is_count(count) or not count for digest, count in found):
        raise DamagedFrame("an entry of an index names no chunk")
    return found


class Loader:
    """Reads one base."""

    def __init__(self, fetch: Fetch, unwrap: Callable[[bytes], bytes], ahead: dict[bytes, bytes] | None = None):
        self._fetch = fetch
        self._unwrap = unwrap
        self.decoder = Decoder(self._reference)
        self._root: bytes | None = None
        self._unfolded = self._stored = 0
        self._seen: set[bytes] = set()
        self._whole: dict[bytes, str | bytes] = {}  # by reference
        self._was_ahead = False
        self._ahead = {} if ahead is None else ahead  # frames that were fetched ahead
        self._opened: dict[bytes, bytes] = {}  # contents that were searched for further references
        self._segments: dict[bytes, tuple[Any, int]] = {}  # by the name of the chunk: its items, and the unfolded size below them

    def load(self, root: bytes) -> Any:
        self._root = root
        try:
            if not self._was_ahead:
                self.read_ahead(root)
            return self.decoder.decode(root)
        finally:
            self._whole.clear()
            self._segments.clear()
            self._ahead, self._was_ahead = {}, False
            self._opened.clear()

    def read_ahead(self, *roots: bytes) -> None:
        """Fetch the chunks of bases one level at a time, not one reference at a time: each fetch from a server takes a round trip."""
        self._was_ahead = True
        parts = dict.fromkeys(part for root in roots for part in references_in(root))
        wanted = [part for part in parts if part[2] not in self._ahead]
        while wanted:
            frames = self._fetch([digest for _, _, digest in wanted])
            self._ahead.update(frames)
            below = dict.fromkeys(part for kind, level, digest in wanted if digest in frames for part in self._below(kind, level, digest))
            wanted = [part for part in below if part[2] not in self._ahead]

    def _below(self, kind: str, level: int, digest: bytes) -> list[Part]:
        """Return the references of a chunk. Damage is reported by the caller that decodes it."""
        if not level and kind not in _HOLDING:
            return []
        try:
            content = self._opened[digest] = self._content(digest, self._ahead[digest])
            return [(kind, level - 1, below) for below, _ in entries_of(content)] if level else references_in(content)
        except (DamagedChunk, DamagedFrame):
            return []

    def contents(self, digests: Sequence[bytes]) -> list[bytes]:
        """Return the contents of chunks, each checked against its name."""
        frames = self._ahead if all(digest in self._ahead for digest in digests) else self._fetch(digests)
        known = {digest: self._opened_or_read(digest, frames) for digest in dict.fromkeys(digests)}
        if self._root is not None:
            self._count(digests, frames, known)
        return [known[digest] for digest in digests]

    def _opened_or_read(self, digest: bytes, frames: dict[bytes, bytes]) -> bytes:
        return self._opened.pop(digest) if digest in self._opened else self._content(digest, frames.get(digest))

    def _content(self, digest: bytes, frame: bytes | None) -> bytes:
        if frame is None:
            raise DamagedChunk(digest, "it is not stored")
        try:
            content = self._unwrap(frame)
        except DamagedFrame as error:
            raise DamagedChunk(digest, error.message) from error
        if sha256(content).digest() != digest:
            raise DamagedChunk(digest, "its content does not match its name")
        return content

    def _count(self, digests: Sequence[bytes], frames: dict[bytes, bytes], known: dict[bytes, bytes]) -> None:
        """Compare the unfolded size with the stored size. The equal parts may be at the beginning of a base, so all of it is checked."""
        new = known.keys() - self._seen
        self._seen |= new
        self._stored += sum(len(frames[digest]) for digest in new)
        self._unfold(sum(len(known[digest]) for digest in digests))

    def _unfold(self, size: int) -> None:
        self._unfolded += size
        if self._root is not None and doubtful(self._unfolded, self._stored):
            root, self._root = self._root, None
            heavy, stored = Unfolding(self).of(root)
            if too_heavy(heavy, stored):
                raise DamagedFrame(f"{stored:,} stored bytes claim to be a value that takes {heavy:,} bytes of memory")

    def leaves(self, count: int, level: int, digest: bytes) -> list[Entry]:
        """Return the entries of the lowest level below a reference; they add up to its count."""
        entries: list[Entry] = [(digest, count)] if digest else []
        for _ in range(level):
            below: list[Entry] = []
            for (_, n), content in zip(entries, self.contents([d for d, _ in entries]), strict=True):
                found = entries_of(content)
                if sum(m for _, m in found) != n:
                    raise DamagedFrame("the counts in an index do not add up to the count of its reference")
                below += found
            entries = below
        return entries

    def _reference(self, data: bytes) -> Any:
        known = self._whole.get(data)
        if known is not None:
            return known
        kind, count, level, digest = parse_reference(data)
        entries = self.leaves(count, level, digest)
        contents = self.contents([d for d, _ in entries])
        if kind == "l":
            parts = zip(entries, contents, strict=True)
            return [item for (d, n), content in parts for item in counted(self._items(d, content), n)]
        if kind == "d":
            return pairs_of((self._items(d, content) for (d, _), content in zip(entries, contents, strict=True)), count)
        value = whole(kind, b"".join(contents), count, self.decoder)
        if kind in SHARED:
            self._whole[data] = value
        return value

    def _items(self, digest: bytes, content: bytes) -> Any:
        """Return the items of a segment; a repeated segment gets new containers around the same texts and numbers."""
        known = self._segments.get(digest)
        if known is not None:
            items, below = known
            self._unfold(below)  # before the copy: segments that contain each other several times grow without limit
            try:
                return fresh(items)
            except TypeError:
                return self.decoder.decode(content)
        before = self._unfolded
        items = self.decoder.decode(content)
        self._segments[digest] = items, self._unfolded - before
        return items


def fresh(value: Any) -> Any:
    """Copy lists and dicts around the same values. Raises TypeError for other mutable values."""
    cls = value.__class__
    if cls in _UNCHANGEABLE:
        return value
    if cls is list:
        return [item if item.__class__ in _UNCHANGEABLE else fresh(item) for item in value]
    if cls is dict:
        return {key: item if item.__class__ in _UNCHANGEABLE else fresh(item) for key, item in value.items()}
    raise TypeError(f"{cls.__name__} is decoded again")


def counted(items: Any, count: int) -> list[Any]:
    """Return the items of a list segment, after checking their number."""
    if type(items) is not list or len(items) != count:
        raise DamagedFrame("the number of items in a segment does not match its entry")
    return items


def pairs_of(segments: Iterable[Any], count: int) -> dict[Any, Any]:
    """Build a dict from its segments."""
    found: dict[Any, Any] = {}
    for flat in segments:
        if type(flat) is not list:
            raise DamagedFrame("a segment of a dict must be a list of keys and values")
        with nonsense():
            found.update(zip(flat[::2], flat[1::2], strict=True))
    if len(found) != count:
        raise DamagedFrame("the number of keys in a dict does not match its reference")
    return found


def whole(kind: str, data: bytes, count: int, decoder: Decoder) -> Any:
    """Build a value that was stored in pieces of bytes."""
    if len(data) != count:
        raise DamagedFrame("the number of bytes of a value does not match its reference")
    if kind == "s":
        with nonsense():
            return data.decode()
    if kind == "b":
        return data
    if kind == "a":
        return bytearray(data)
    if kind == "v":
        return decoder.decode(data)
    raise DamagedFrame(f"reference kind {kind!r} is unknown to this program")


def doubtful(unfolded: int, stored: int) -> bool:
    return unfolded > DOUBTLESS + DOUBTFUL * stored


def too_heavy(heavy: int, stored: int) -> bool:
    return heavy > LIGHT + HEAVY * stored


class Unfolding:
    """Estimates the memory that a base takes, without unfolding it: each chunk is visited once. Parts that a load shares count once."""

    def __init__(self, loader: Loader):
        self._loader = loader
        self._known: dict[tuple[str, int, bytes], int] = {}
        self._stored: dict[bytes, int] = {}
        self._shared = 0

    def of(self, root: bytes) -> tuple[int, int]:
        """Return the bytes of memory, and the bytes stored for them."""
        return self._inside(root) + self._shared, sum(self._stored.values())

    def _inside(self, content: bytes) -> int:
        found: list[tuple[str, int, int, bytes]] = []
        Decoder(lambda data: found.append(parse_reference(data))).decode(content)
        return sum(self._below(kind, count, level, digest) for kind, count, level, digest in found if digest)

    def _below(self, kind: str, count: int, level: int, digest: bytes) -> int:
        known = self._known.get((kind, level, digest))
        if known is not None:
            return known
        self._known[kind, level, digest] = 0  # a chunk that refers to itself cannot exist; if it did, the recursion would end here
        frames = self._loader._fetch([digest])
        content = self._loader._content(digest, frames.get(digest))
        self._stored[digest] = len(frames[digest])
        size = len(content) if kind in "sba" else weight(content)
        if level:
            size += sum(self._below(kind, n, level - 1, d) for d, n in entries_of(content))
        elif kind in "ld":
            size += self._inside(content)
        if kind in SHARED:
            self._shared += size
            return 0
        self._known[kind, level, digest] = size
        return size
