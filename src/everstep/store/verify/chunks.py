"""The chunks of one family. Each is read, unwrapped, hashed and decoded once, no matter how many bases share it.

References are proved from the top down: indexes must name chunks whose counts add up, segments must be lists or pairs, and everything that
these refer to is proved in the same way. A proved node is not checked again. A second read of anything is paid from an allowance that grows
with every proved byte, so total work and memory stay in proportion to the bytes stored, even if an attacker makes a few chunks represent a
huge value. Relies on a backend for frames and on `snapshot.loader` for their meaning. Reports damage, never repairs it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any

from everstep.backends.contract.core import Backend
from everstep.codec.frame import weight
from everstep.codec.values import Decoder
from everstep.errors import Damaged, DamagedChunk, DamagedFrame
from everstep.records import Inner
from everstep.snapshot.loader import Entry, entries_of, parse_reference
from everstep.store.encryption.frames import fetch_of
from everstep.store.progress import Pace

Node = tuple[str, int, bytes]  # kind of the reference above it, level, digest
Wanted = tuple[Node, int]  # plus the number of items, keys or bytes expected below it
_KINDS = frozenset("ldsbav")
_WAVE = 64
_RECENT_BYTES = 16 * 1024 * 1024
_FREE_BYTES = 4 * 1024 * 1024
_MOST_INDEXES = 4096
_ENTRY_COST = 32  # of one index entry, in bytes of the allowance
_LIGHTER = 64  # this many bytes of memory count as one byte read


class TooDear(Exception):
    """Raised when a second read would cost more than the allowance has left."""


class Allowance:
    """The budget for reading things a second time, in stored bytes. A small store never exhausts it."""

    def __init__(self) -> None:
        self._left = _FREE_BYTES

    def earn(self, size: int) -> None:
        self._left += size

    def spend(self, size: int) -> None:
        if size > self._left:
            raise TooDear
        self._left -= size


class Recent:
    """The most recently read contents, of any family: the same digest means the same content."""

    def __init__(self) -> None:
        self._contents: OrderedDict[bytes, bytes] = OrderedDict()
        self._bytes = 0

    def get(self, digest: bytes) -> bytes | None:
        return self._contents.get(digest)

    def add(self, digest: bytes, content: bytes) -> None:
        if digest not in self._contents:
            self._contents[digest] = content
            self._bytes += len(content)
            while self._bytes > _RECENT_BYTES:
                self._bytes -= len(self._contents.popitem(last=False)[1])


class Chunks:
    """The chunks of one family, and what has been proved about them so far."""

    def __init__(self, backend: Backend, family: bytes, pace: Pace, allowance: Allowance, recent: Recent):
        self._backend = backend
        self._family = family
        self._pace = pace
        self._allowance = allowance
        self._recent = recent
        # Read before anything is proved, so that chunks that others write from now on do not count as unreachable.
        self._frames = backend.framer.of(family, family)
        self._fetch = fetch_of(backend, family)
        self._sizes = backend.chunk_sizes(family)  # by stored name
        self._proved: dict[Node, int] = {}
        self._reached: set[bytes] = set()
        self._joined: set[Node] = set()  # texts and values in pieces that have been decoded as a whole
        self._pieces: list[Wanted] = []  # texts and values that still have to be
        self._costs: dict[bytes, int] = {}  # of keeping the value of a chunk in memory
        self._indexes: dict[bytes, list[Entry]] = {}
        self.certain = True  # whether every reachable chunk was found

    def prove(self, root: bytes) -> list[Damaged]:
        """Prove everything that a base, or a result in chunks, refers to and that was not proved before; return the faults."""
        faults: list[Damaged] = []
        try:
            waiting = self._references(root)
            while waiting:
                self._descend(waiting, faults)
                waiting = self._join() if not faults else []
        except Damaged as error:
            faults.append(error)
        self._pieces.clear()
        self.certain = self.certain and not faults
        return faults

    def _descend(self, waiting: list[Wanted], faults: list[Damaged]) -> None:
        """Prove nodes and everything below them; a damaged node does not stop the others."""
        above: dict[Node, list[Node]] = {}
        bad: set[Node] = set()  # check each once: an attacker can name a bad node a million times
        while waiting:
            wave = waiting[-_WAVE:]
            del waiting[-_WAVE:]
            new = dict.fromkeys(node for node, _ in wave if node not in self._proved and node not in bad)
            frames = self._read({digest for _, _, digest in new}) if new else {}
            for node in new:
                try:
                    self._proved[node], below = self._look(node, frames.get(node[2]))
                except Damaged as error:
                    faults.append(error)
                    self._doubt(node, above, bad)
                else:
                    waiting += below
                    for one, _ in below:
                        above.setdefault(one, []).append(node)
            for node, n in wave:
                if self._proved.get(node, n) != n:
                    faults.append(_miscounted(node, n))
                    self._doubt(node, above, bad)

    def _doubt(self, node: Node, above: dict[Node, list[Node]], bad: set[Node]) -> None:
        """Drop the proof of all nodes above a damaged one, so that every base that reaches it is reported."""
        doubtful = [node]
        while doubtful:
            one = doubtful.pop()
            bad.add(one)
            self._proved.pop(one, None)
            doubtful += above.pop(one, ())

    def _look(self, node: Node, frame: bytes | None) -> tuple[int, list[Wanted]]:
        """Return the amount of content below a node, and the nodes there."""
        kind, level, digest = node
        content = self._content(digest, frame)
        if level:
            entries = _entries(digest, content)
            return sum(n for _, n in entries), [((kind, level - 1, below), n) for below, n in entries]
        if kind not in "ld":
            return len(content), []
        try:
            items, wanted = self._decoded(content)
            if type(items) is not list:
                raise DamagedChunk(digest, "it is not a segment")
            return len(items if kind == "l" else dict(zip(items[::2], items[1::2], strict=True))), wanted
        except (DamagedFrame, TypeError, ValueError) as error:
            raise DamagedChunk(digest, f"it is not a segment: {error}") from error

    def _content(self, digest: bytes, frame: bytes | None) -> bytes:
        if frame is not None and digest not in self._reached:
            self._reached.add(digest)  # even if it turns out to be damaged
            self._allowance.earn(len(frame))
        content = checked_content(digest, frame, self._backend.framer.inner)
        self._recent.add(digest, content)
        return content

    def _read(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        frames = self._fetch(list(digests))
        self._pace.on(sum(len(frame) for digest, frame in frames.items() if digest not in self._reached), "chunks")
        return frames

    def _references(self, content: bytes) -> list[Wanted]:
        return self._decoded(content)[1]

    def _decoded(self, content: bytes) -> tuple[Any, list[Wanted]]:
        """Return a value without its references, and the references."""
        wanted: list[Wanted] = []

        def note(data: bytes) -> None:
            kind, count, level, digest = parse_reference(data)
            if kind not in _KINDS:
                raise DamagedFrame(f"reference kind {kind!r} is unknown to this program")
            if digest:
                wanted.append(((kind, level, digest), count))
                if kind in "sv" and (kind, level, digest) not in self._joined:
                    self._pieces.append(wanted[-1])

        return Decoder(note).decode(content), wanted

    def _join(self) -> list[Wanted]:
        """Decode texts and values whose pieces are all proved, as a whole: a cut may fall inside a character. Return their references."""
        wanted: list[Wanted] = []
        while self._pieces:
            node, count = self._pieces.pop()
            if node in self._joined:
                continue
            try:
                data = b"".join(self.again([digest for digest, _ in self.leaves(count, *node[1:])]))
            except TooDear:  # its bytes are proved anyway
                self.certain = self.certain and node[0] == "s"
                continue
            if node[0] == "v":
                wanted += self._references(data)
            else:
                _text(node[2], data)
            self._joined.add(node)
        return wanted

    def leaves(self, count: int, level: int, digest: bytes) -> list[Entry]:
        """Return the entries of the lowest level below a proved reference."""
        entries: list[Entry] = [(digest, count)] if digest else []
        for _ in range(level):
            below: list[Entry] = []
            for one, _ in entries:
                found = self._indexes.get(one)
                if found is None:
                    if len(self._indexes) >= _MOST_INDEXES:
                        self._indexes.clear()
                    found = self._indexes[one] = _entries(one, self.again([one])[0])
                self._allowance.spend(_ENTRY_COST * len(found))
                below += found
            entries = below
        return entries

    def again(self, digests: Sequence[bytes]) -> list[bytes]:
        """Return the contents of proved chunks. Raises `TooDear` if the allowance does not cover them."""
        found = {digest: content for digest in digests if (content := self._recent.get(digest)) is not None}
        if missing := [digest for digest in dict.fromkeys(digests) if digest not in found]:
            self._allowance.spend(sum(self._sizes.get(self._frames.chunk_name(digest), 0) for digest in missing))
            frames = self._fetch(missing)
            for digest in missing:
                found[digest] = checked_content(digest, frames.get(digest), self._backend.framer.inner)
                self._recent.add(digest, found[digest])
        for digest, content in found.items():
            if digest not in self._costs:
                self._costs[digest] = weight(content) // _LIGHTER
        self._allowance.spend(sum(self._costs[digest] for digest in digests))
        return [found[digest] for digest in digests]

    @property
    def count(self) -> int:
        """The number of chunks that were checked."""
        return len(self._reached)

    def unreachable(self) -> dict[bytes, int]:
        """Return the stored names of the chunks that nothing refers to, with their sizes in bytes."""
        reached = {self._frames.chunk_name(digest) for digest in self._reached}
        return {name: size for name, size in self._sizes.items() if name not in reached}

    def prove_alone(self, names: Iterable[bytes]) -> Iterator[DamagedChunk]:
        """Check frames and names of chunks that nothing refers to. A chunk that is missing by now was freed by gc."""
        left = iter(names)
        while wave := list(islice(left, _WAVE)):
            found = self._backend.chunks(self._family, wave)
            self._pace.on(sum(map(len, found.values())), "chunks")
            for name, frame in found.items():
                try:
                    content = self._backend.framer.inner.unwrap(self._frames.open_chunk(name, frame))
                except DamagedFrame as error:
                    yield DamagedChunk(name, error.message)
                else:
                    if self._frames.chunk_name(sha256(content).digest()) != name:
                        yield DamagedChunk(name, "its content does not match its name")


def checked_content(digest: bytes, frame: bytes | None, inner: Inner) -> bytes:
    """Return the content of a chunk after checking it against its digest."""
    if frame is None:
        raise DamagedChunk(digest, "it is not stored")
    try:
        content = inner.unwrap(frame)
    except DamagedFrame as error:
        raise DamagedChunk(digest, error.message) from error
    if sha256(content).digest() != digest:
        raise DamagedChunk(digest, "its content does not match its name")
    return content


def _entries(digest: bytes, content: bytes) -> list[Entry]:
    """The entries of an index."""
    try:
        return entries_of(content)
    except DamagedFrame as error:
        raise DamagedChunk(digest, f"it is not an index: {error.message}") from error


def _text(digest: bytes, data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise DamagedChunk(digest, f"the text below it is not UTF-8: {error}") from error


def _miscounted(node: Node, n: int) -> DamagedChunk:
    return DamagedChunk(node[2], f"its reference counts {n} items, keys or bytes, its content has another number")
