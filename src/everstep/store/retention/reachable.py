"""Find the chunks of a family that are reached from bases, and from results, inputs and edited states in the journal.

Relies on a function that fetches chunks; `snapshot.tree` defines the format of references. Each chunk is fetched once, checked against its
digest, and its references are remembered, so the hundredth base of a run costs only its new parts. Damage is an error: without a complete
list of reached chunks nothing may be freed. Reads only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ormsgpack import unpackb

from everstep.codec.values import Decoder
from everstep.errors import DamagedChunk, DamagedFrame
from everstep.records import Framing, Kind, Record
from everstep.snapshot.loader import Fetch, Loader
from everstep.store.journal.values import contents

_AT_ONCE = 64
_CONTAINER, _BYTES, _VALUE = "c", "b", "v"
_CLASSES = {"l": _CONTAINER, "d": _CONTAINER, "s": _BYTES, "b": _BYTES, "a": _BYTES, "v": _VALUE}
_WITH_RESULTS = (Kind.STEP.value, Kind.START.value, Kind.STATUS.value, Kind.ATTACHED.value)
Node = tuple[str, int, bytes]
"""The target of a reference: the kind of its lowest level, the number of index levels above that, and the digest at the top."""


class Reach:
    """Follows references from one family's bodies to the chunks."""

    def __init__(self, fetch: Fetch, framer: Framing):
        self._loader = Loader(fetch, framer.inner.unwrap)
        self._known: dict[Node, tuple[tuple[bytes, ...], tuple[Node, ...]]] = {}

    def of(self, contents: Iterable[bytes]) -> set[bytes]:
        """Return the digests of all chunks that these contents need."""
        return self.below([node for content in contents for node in _references(content)])

    def below(self, nodes: Sequence[Node]) -> set[bytes]:
        found: set[bytes] = set()
        seen = set(nodes)
        todo = list(seen)
        while todo:
            self._learn([node for node in todo if node not in self._known])
            after: list[Node] = []
            for node in todo:
                digests, inside = self._known[node]
                found.update(digests)
                after += [n for n in inside if n not in seen]
                seen.update(inside)
            todo = list(dict.fromkeys(after))
        return found

    def _learn(self, nodes: list[Node]) -> None:
        """Read chunks that have not been seen before."""
        for node in nodes:
            if node[0] == _VALUE:
                self._known[node] = self._value(node[1], node[2])
        plain = [node for node in nodes if node[0] != _VALUE]
        for start in range(0, len(plain), _AT_ONCE):
            part = plain[start : start + _AT_ONCE]
            for node, content in zip(part, self._loader.contents([node[2] for node in part]), strict=True):
                self._known[node] = ((node[2],), tuple(_inside(node, content)))

    def _value(self, level: int, digest: bytes) -> tuple[tuple[bytes, ...], tuple[Node, ...]]:
        """Read a value in pieces: its references are known only from all pieces together."""
        names: list[bytes] = []
        row = [digest]
        for _ in range(level):
            names += row
            row = [d for top, content in zip(row, self._loader.contents(row), strict=True) for d in _entries(top, content)]
        return (*names, *row), tuple(_references(b"".join(self._loader.contents(row))))


def _inside(node: Node, content: bytes) -> Iterator[Node]:
    what, level, digest = node
    if level:
        return ((what, level - 1, d) for d in _entries(digest, content))
    return iter(_references(content)) if what == _CONTAINER else iter(())


def _entries(digest: bytes, content: bytes) -> list[bytes]:
    """Return the digests in an index."""
    try:
        found = [bytes(entry[0]) for entry in unpackb(content)]
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise DamagedChunk(digest, "it is not an index") from error
    return found


def _references(content: bytes) -> list[Node]:
    """Return every reference inside an encoded value."""
    found: list[Node] = []
    Decoder(_noting(found)).decode(content)
    return found


def _noting(found: list[Node]) -> Callable[[bytes], None]:
    def note(data: bytes) -> None:
        try:
            kind, _, level, digest = unpackb(data)
            what = _CLASSES[kind]
        except (ValueError, TypeError, KeyError) as error:
            raise DamagedFrame("a reference of a kind that this version does not know") from error
        if type(level) is not int or type(digest) is not bytes or level < 0:
            raise DamagedFrame("a reference without level and digest")
        if digest:
            found.append((what, level, digest))

    return note


def contents_of(record: Record) -> list[bytes]:
    """Return the contents of a record's body that may contain references; none if the body was pruned."""
    if record.kind == Kind.BASE:
        return [] if record.body is None else [record.content()]
    if record.kind == Kind.ATTACHED and record.body is None:
        return []
    return contents(record)[1] if record.kind in _WITH_RESULTS else []
