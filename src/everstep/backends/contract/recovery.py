"""What repair needs of a backend: everything that may be left of a damaged store, and a way to build a new one. The docstrings are the contract.

A wreck hands out candidates, never proof: whoever asks checks every digest. It never changes the source. Asked `deep`, it looks beyond
what the engine finds, at everything that its files still hold, older versions too; then candidates are *live* if they belong to
the store as it is now. The first candidate is the likeliest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from everstep.backends.contract.queues import Task
from everstep.fields import Shape, field
from everstep.records import Base, Letter, Pruned, Record, RunRow, Tag, Tombstone

Entry = tuple[int, int, int]


class Summary(Shape):
    """What a store says about itself; nothing of it is proven."""

    total: bytes | None = None
    places: int = 0
    last: int | None = None
    behind: int = 0
    """How many writes this machine has seen that the store doesn't have."""
    unreadable: int = 0
    """How many bytes the disk did not give."""
    buries: bool = False
    """Whether deleted runs leave tombstones: older formats had none."""


class Feed(Shape):
    """The order of all commits, as far as it proves itself: (place of a run, its first record, how many).

    `entries` is None where a part is missing; `ends` has the newest record of each run that the parts which are there name for certain.
    """

    entries: list[Entry] | None = None
    end: int = 0
    ends: dict[int, int] = field(default_factory=dict)


class Wreck(Protocol):
    """A damaged store. Runs are known by their place in the order of creation."""

    def summary(self, deep: bool) -> Summary:
        """What the store says about itself."""

    def places(self, deep: bool) -> list[int]:
        """The places of all runs that anything tells of."""

    def alive(self, place: int) -> bool:
        """Whether anything that is live tells of a run: one that was deleted has left only what is older."""

    def rows(self, place: int, deep: bool) -> list[tuple[RunRow, bool]]:
        """The row of a run, and whether it is live."""

    def names(self, place: int) -> list[str]:
        """What the id of a run may be."""

    def records(self, place: int, run: str, deep: bool) -> dict[int, list[Record]]:
        """The records of a run by seq. One whose body is gone has the digest ZERO for it."""

    def tags(self, place: int, deep: bool) -> list[Tag]:
        """The tags of a run."""

    def tag_names(self, place: int) -> list[tuple[str, int]]:
        """The names and checkpoints of tags, as an index has them: without proof, to say what is lost."""

    def letters(self, place: int, deep: bool) -> list[Letter]:
        """The letters of a run, only live ones: an older one may have been read since."""

    def pruned(self, place: int, deep: bool) -> list[Pruned]:
        """The prune mark of a run."""

    def bases(self, place: int, deep: bool) -> list[Base]:
        """The added bases of a run, only live ones."""

    def tombstones(self, deep: bool) -> list[Tombstone]:
        """Tombstones."""

    def chunk(self, family: bytes, digest: bytes) -> Iterator[bytes]:
        """Frames that may hold a chunk, also of another family: the digest proves them."""

    def feed(self, deep: bool) -> Feed:
        """The feed."""

    def facts(self, deep: bool) -> dict[str, str]:
        """What the store remembered about itself, only what is live and proves itself."""

    def close(self) -> None:
        """Remove what was made to read the source."""


class Builder(Protocol):
    """A store that is being built. It appears in its place when it is complete, or not at all.

    `private` is how names begin that nobody takes for a store, beside it: for what is needed meanwhile.
    """

    private: str

    def run(
        self, place: int, row: RunRow, records: Sequence[Record], tags: Iterable[Tag], letters: Iterable[Letter], mark: Pruned | None,
        bases: Iterable[Base], task: Task | None = None,
    ) -> None:  # fmt: skip
        """A run, with all that is its own. `task`: it has a place in a queue, unless it has ended; `dedupe` counts for one run only."""

    def chunk(self, family: bytes, digest: bytes, frame: bytes) -> None:
        """A chunk; one that is there already is left alone."""

    def tombstone(self, tombstone: Tombstone) -> None:
        """What is left of a run that is not there."""

    def fact(self, name: str, value: str) -> None:
        """Something that the store remembers about itself."""

    def finish(self, places: int, last: int | None, feed: Iterable[Entry]) -> None:
        """Write what holds all of it together, and put the store in its place. InvalidArgument if something is there by now."""

    def abandon(self) -> None:
        """Remove what was built, unless it is finished."""
