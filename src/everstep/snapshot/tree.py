"""Bases: a snapshot as a tree of content-addressed chunks. Builds them; `loader` reads them. No I/O of its own.

A value with a short encoding is stored inline. A longer list or dict is cut into *segments* of about TARGET bytes, a longer text
or bytes into pieces, at points that the content determines. Each becomes a chunk named by the SHA-256 of its content, and a
reference (extension 30) replaces the value:

    [kind, count, level, digest]    kind "l" list, "d" dict, "s" text, "b" bytes, "a" bytearray, "v" any other value
                                    count of items, keys or bytes; level 0: the digest is that of the only segment,
                                    level n: that of an index, an array of [digest, count] of level n - 1

    list segment    MessagePack array of items                 text, bytes piece    the bytes (UTF-8)
    dict segment    array [key, value, key, value, …]          value piece          bytes of the encoded value

A checksum of an item's bytes decides whether it ends its segment, so equal items are cut alike at any position: whatever edits
led to a list, almost all its segments are the same. A container keeps an *image* of its last cut, and only segments near a change
are cut again.

A base refers only to chunks that it writes itself or that the base before it reaches. gc may free all others at any time.

Uses the underscored attributes of tracked containers for the reason that `delta_builder` gives.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import accumulate
from typing import Any, NamedTuple
from zlib import crc32

from ormsgpack import Ext, Fragment, packb

from everstep.codec.kinds import kind_of
from everstep.codec.values import FROZEN, OBJECT, REFERENCE, hook, keep, pack
from everstep.snapshot.loader import SHARED
from everstep.snapshot.tracked import Strayed, TrackedDict, TrackedList, Tracker

INLINE = 8 * 1024
TARGET = 32 * 1024
MOST = 4 * TARGET
FANOUT = 32
PIECE_LEAST, PIECE_MOST = 8 * 1024, 64 * 1024
# Three characters of a small set, at some distance: in text and in random bytes, about one position in ten thousand matches.
_CUT = re.compile(rb"[a-c\x40-\x4c\x80-\x8f](?s:.{3})[d-f\x00-\x0b\x90-\x9f](?s:.{5})[g-i\x10-\x1b\xa0-\xaf]")
_TRACKED: frozenset[Any] = frozenset({TrackedDict, TrackedList})
Refs = Sequence[bytes]


class Segment:
    """A run of items that makes one chunk; `digest` is None while it has to be written. A dict's segment knows its keys."""

    __slots__ = ("count", "digest", "keys", "natural", "size")

    def __init__(self, count: int, digest: bytes | None, size: int, natural: bool, keys: dict[Any, None] | None = None):
        self.count = count
        self.digest = digest
        self.size = size
        self.natural = natural  # ended by the bytes of its last item; otherwise by its length, or by the end of the container
        self.keys = keys


class Node(NamedTuple):
    """A chunk: its references, with repetitions, the bytes of its content, the bytes of its frame, and whether equal ones become one object
    when they are loaded.
    """

    refs: Refs
    size: int
    stored: int
    shared: bool = False


class Builder:
    """Writes one base: collects the chunks that the base before it does not reach. `known` has those that it reaches."""

    def __init__(self, known: Mapping[bytes, Node], wrap: Callable[[bytes], bytes], tracker: Tracker, weigh: Callable[[bytes], int] = len):
        self.known = known
        self.tracker = tracker
        self.wrap = wrap
        self._weigh = weigh
        self.chunks: dict[bytes, bytes] = {}
        self._used: dict[bytes, Node] = {}
        self._refs: list[bytes] = []  # the references of the value that is being built

    def add(self, content: bytes, refs: Refs = (), flat: bool = False, shared: bool = False) -> bytes:
        """Add a chunk. A flat one is text or bytes, and takes no more memory than its length; a shared one takes it only once."""
        digest = sha256(content).digest()
        if digest not in self._used:
            node = self.known.get(digest)
            if node is None:
                frame = self.chunks[digest] = self.wrap(content)
                node = Node(refs, len(content) if flat else self._weigh(content), len(frame), shared)
            self._used[digest] = node
        return digest

    def reuse(self, digest: bytes | None) -> bool:
        """Whether this base can reuse a chunk of an earlier base. Not if the last base did without it: gc may have freed it."""
        return digest is not None and (digest in self._used or digest in self.known)

    def reached(self) -> dict[bytes, Node]:
        """Return all chunks that this base reaches."""
        out: dict[bytes, Node] = {}
        todo = list(self._refs)
        while todo:
            digest = todo.pop()
            if digest not in out:
                out[digest] = self._used[digest] if digest in self._used else self.known[digest]
                todo.extend(out[digest].refs)
        return out

    def unfolded(self, reached: dict[bytes, Node]) -> int:
        """Return the bytes of the base when every reference is followed: equal parts are stored once, but count each time, unless a load
        shares them.
        """
        sizes: dict[bytes, int] = {}
        todo = list(self._refs)
        while todo:
            node = reached[todo[-1]]
            missing = [digest for digest in node.refs if digest not in sizes]
            if missing:
                todo += missing
            else:
                sizes[todo.pop()] = (0 if node.shared else node.size) + sum(sizes[digest] for digest in node.refs)
        return sum(sizes[digest] for digest in self._refs) + sum(node.size for node in reached.values() if node.shared)

    def part(self, value: Any) -> tuple[bytes, Refs]:
        """Return the encoding of a part, and its references."""
        if value.__class__ in FROZEN:
            data = pack(value, hook)
            if len(data) <= INLINE:
                return data, ()
        outer, self._refs = self._refs, []
        data = self.build(value)
        refs, self._refs = self._refs, outer
        return data, refs or ()

    def build(self, value: Any) -> bytes:
        """Encode a value, with every long part replaced by a reference."""
        known = len(self._refs)
        raw = pack(value, self._hook)
        if len(raw) <= INLINE:
            return raw
        del self._refs[known:]  # its parts add their references again
        cls = value.__class__
        if cls is TrackedList or cls is list:
            return self._list(value)
        if cls is TrackedDict or cls is dict:
            return self._dict(value)
        if cls is str:
            return self._pieces("s", value.encode())
        if cls is bytes or cls is bytearray:
            return self._pieces("b" if cls is bytes else "a", bytes(value))
        kind = kind_of(cls) if cls not in FROZEN else None
        if kind is None:
            return self._pieces("v", raw)
        fields = {name: Fragment(self.build(field)) for name, field in kind.take(value).items()}
        return packb(Ext(OBJECT, packb([kind.name, kind.version, fields])))

    def _hook(self, value: Any) -> Any:
        try:
            if value.__class__ in _TRACKED:
                self._refuse_strayed(value)
                if value._image is not None and self._follows(value):
                    return value._image.reference(value, self)
        except BaseException as failure:
            keep(failure)
            raise
        return hook(value)

    def _refuse_strayed(self, value: Any) -> None:
        """Raise `Strayed` if a container differs from the sum of its deltas."""
        if value._strayed() and self._follows(value):
            raise Strayed

    def _follows(self, value: Any) -> bool:
        """Whether an image of a value receives its changes: not if the value belongs to another state, or is only inside a plain part."""
        return value.__class__ in _TRACKED and value._tracker is self.tracker and bool(value._attached())

    def _list(self, value: Any) -> bytes:
        parts = [self.part(item) for item in list.__iter__(value)]
        if sum(len(item) for item, _ in parts) <= INLINE:
            self._refs += [ref for _, refs in parts for ref in refs]
            return packb([Fragment(item) for item, _ in parts])
        image = ListImage(list(_segments(parts, self.add)))
        if self._follows(value):
            value._image = image
        return packb(image.top(self))

    def _dict(self, value: Any) -> bytes:
        pairs = {k: self.pair(k, v) for k, v in dict.items(value)}
        if sum(len(item) for item, _ in pairs.values()) <= INLINE:
            self._refs += [ref for _, refs in pairs.values() for ref in refs]
            items = [item for item, _ in pairs.values()]
            if all(k.__class__ is str for k in pairs):
                return _header(0x80, 0xDE, 0xDF, len(pairs)) + b"".join(items)
            return packb(Ext(4, array(len(pairs) * 2, items)))
        image = DictImage(list(_key_segments(pairs, self.add)))
        if self._follows(value):
            value._image = image
        return packb(image.top(self))

    def pair(self, key: Any, value: Any) -> tuple[bytes, Refs]:
        data, refs = self.part(value)
        return pack(key, hook) + data, refs

    def _pieces(self, kind: str, data: bytes) -> bytes:
        entries = [(self.add(piece, (), kind != "v", kind in SHARED), len(piece)) for piece in cut(data)]
        return packb(self.reference(kind, len(data), entries))

    def reference(self, kind: str, count: int, entries: list[tuple[bytes, int]]) -> Ext:
        """Build indexes over the entries until one is left, and refer to it."""
        level = 0
        while len(entries) > 1:
            level += 1
            entries = [(self._index(group), sum(n for _, n in group)) for group in _groups(entries)]
        self._refs += [digest for digest, _ in entries]
        return Ext(REFERENCE, packb([kind, count, level, entries[0][0] if entries else b""]))

    def _index(self, group: list[tuple[bytes, int]]) -> bytes:
        return self.add(packb([list(entry) for entry in group]), tuple(digest for digest, _ in group))


class ListImage:
    """How the last base cut a list."""

    __slots__ = ("count", "segments")

    def __init__(self, segments: list[Segment]):
        self.segments = segments
        self.count = sum(s.count for s in segments)

    def touch(self, at: int) -> None:
        """Note a change inside the item at a position."""
        self.splice(at, 1, 1)

    def splice(self, at: int, deleted: int, inserted: int) -> None:
        segments = self.segments
        self.count += inserted - deleted
        if not segments:
            segments.append(Segment(inserted, None, 0, False))
            return
        if at == self.count - inserted and not deleted:  # at the end, the most common case
            segments[-1].count += inserted
            segments[-1].digest = None
            return
        ends = list(accumulate(s.count for s in segments))
        first = min(bisect_right(ends, at), len(segments) - 1)  # one past the end belongs to the last
        segments[first].digest = None
        take = min(deleted, ends[first] - at)
        segments[first].count += inserted - take
        deleted -= take
        k = first + 1
        while deleted and k < len(segments):
            take = min(deleted, segments[k].count)
            segments[k].count -= take
            segments[k].digest = None
            deleted -= take
            k += 1
        segments[first:k] = [s for s in segments[first:k] if s.count]

    def reference(self, value: Any, builder: Builder) -> Any:
        """Cut the changed parts again, and refer to the whole; a list that has become short is inline again."""
        at = 0
        gathering: list[tuple[bytes, Refs]] = []
        out: list[Segment] = []
        for segment in self.segments:
            if (not gathering or _ends(gathering[-1][0])) and builder.reuse(segment.digest):
                out.extend(_segments(gathering, builder.add))
                gathering = []
                out.append(segment)
                at += segment.count
            else:
                start, at = at, at + segment.count
                gathering += [builder.part(item) for item in list.__getitem__(value, slice(start, at))]
        out.extend(_segments(gathering, builder.add))
        self.segments = out
        if sum(s.size for s in out) <= INLINE // 2:
            value._image = None
            return list.copy(value)
        return self.top(builder)

    def top(self, builder: Builder) -> Ext:
        entries = [(s.digest or b"", s.count) for s in self.segments]
        return builder.reference("l", self.count, entries)


class DictImage:
    """How the last base cut a dict: segments in the order of the keys, and for each key its segment."""

    __slots__ = ("segments", "where")

    def __init__(self, segments: list[Segment]):
        self.segments = segments
        self.where = {k: s for s in segments for k in s.keys or ()}

    def touch(self, key: Any) -> None:
        self.where[key].digest = None

    def add(self, key: Any) -> None:
        last = self.segments[-1] if self.segments else Segment(0, None, 0, False, {})
        if not self.segments or last.natural:
            last = Segment(0, None, 0, False, {})
            self.segments.append(last)
        assert last.keys is not None
        last.keys[key] = None
        last.count += 1
        last.digest = None
        self.where[key] = last

    def remove(self, key: Any) -> None:
        segment = self.where.pop(key)
        assert segment.keys is not None
        del segment.keys[key]
        segment.count -= 1
        segment.digest = None

    def reference(self, value: Any, builder: Builder) -> Any:
        """Cut the changed parts again, and refer to the whole; a dict that has become short is inline again."""
        gathering: dict[Any, tuple[bytes, Refs]] = {}
        last = b""
        out: list[Segment] = []
        for segment in self.segments:
            if (not gathering or _ends(last)) and builder.reuse(segment.digest):
                out.extend(self._own(_key_segments(gathering, builder.add)))
                gathering = {}
                out.append(segment)
            else:
                for key in segment.keys or ():
                    gathering[key] = builder.pair(key, dict.__getitem__(value, key))
                    last = gathering[key][0]
        out.extend(self._own(_key_segments(gathering, builder.add)))
        self.segments = out
        if sum(s.size for s in out) <= INLINE // 2:
            value._image = None
            return hook(value)
        return self.top(builder)

    def _own(self, segments: Iterator[Segment]) -> Iterator[Segment]:
        for segment in segments:
            for key in segment.keys or ():
                self.where[key] = segment
            yield segment

    def top(self, builder: Builder) -> Ext:
        entries = [(s.digest or b"", s.count) for s in self.segments]
        return builder.reference("d", sum(s.count for s in self.segments), entries)


def _header(small: int, medium: int, large: int, n: int) -> bytes:
    """Return the head of a MessagePack array or map of n entries."""
    if n < 16:
        return bytes((small | n,))
    return bytes((medium,)) + n.to_bytes(2) if n < 65536 else bytes((large,)) + n.to_bytes(4)


def array(n: int, items: Iterable[bytes]) -> bytes:
    return _header(0x90, 0xDC, 0xDD, n) + b"".join(items)


def _ends(item: bytes) -> bool:
    """Whether an item ends its segment: depends on its bytes alone, and is more likely for a longer item."""
    return crc32(item) * TARGET < len(item) << 32


def _runs(parts: Sequence[tuple[bytes, Refs]]) -> Iterator[tuple[int, int, int, bool]]:
    """Yield the segments: start, stop, bytes, and whether the last item ended it."""
    start = size = 0
    for i, (item, _) in enumerate(parts):
        size += len(item)
        natural = _ends(item)
        if natural or size >= MOST:
            yield start, i + 1, size, natural
            start, size = i + 1, 0
    if start < len(parts):
        yield start, len(parts), size, False


Add = Callable[[bytes, Refs], bytes]


def _segments(parts: list[tuple[bytes, Refs]], add: Add) -> Iterator[Segment]:
    for start, stop, size, natural in _runs(parts):
        yield Segment(stop - start, _add(stop - start, parts[start:stop], add), size, natural)


def _key_segments(pairs: dict[Any, tuple[bytes, Refs]], add: Add) -> Iterator[Segment]:
    keys, parts = list(pairs), list(pairs.values())
    for start, stop, size, natural in _runs(parts):
        n = stop - start
        yield Segment(n, _add(n * 2, parts[start:stop], add), size, natural, dict.fromkeys(keys[start:stop]))


def _add(n: int, parts: Sequence[tuple[bytes, Refs]], add: Add) -> bytes:
    return add(array(n, [item for item, _ in parts]), tuple(ref for _, refs in parts for ref in refs))


def _groups(entries: list[tuple[bytes, int]]) -> Iterator[list[tuple[bytes, int]]]:
    """Split the entries of an index where a digest says so; at least two together, so that each level is shorter."""
    group: list[tuple[bytes, int]] = []
    for entry in entries:
        group.append(entry)
        if len(group) > 1 and (entry[0][0] < 256 // FANOUT or len(group) == FANOUT * 4):
            yield group
            group = []
    if group:
        yield group


def cut(data: bytes) -> Iterator[bytes]:
    """Split bytes into pieces where the content says so."""
    at = 0
    while at < len(data):
        found = _CUT.search(data, at + PIECE_LEAST, at + PIECE_MOST)
        stop = found.end() if found else min(at + PIECE_MOST, len(data))
        yield data[at:stop]
        at = stop
