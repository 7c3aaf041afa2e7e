"""The methods that repair needs: read everything that may be left of a damaged store, and build a new one. The docstrings are the contract.

A damaged store (`DamagedStore`) returns candidates, never proof: the caller checks every digest. It never changes the source. With `deep`, it
also reads rows that the engine does not find, from everything that its files still hold, including older versions. A candidate is then
*live* if it belongs to the store as it is now. The first candidate is the most likely one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from everstep.backends.contract.queues import Task
from everstep.fields import Shape, field
from everstep.records import Base, Message, Pruned, Record, RunRow, Seal, Tag, Tombstone

Entry = tuple[int, int, int]


class Summary(Shape):
    """The store's data about itself; none of it is proven."""

    total: bytes | None = None
    created: int = 0
    last: int | None = None
    behind: int = 0
    """How many writes this machine has seen that the store doesn't have."""
    unreadable: int = 0
    """How many bytes could not be read from the disk."""
    buries: bool = False
    """Whether deleted runs leave tombstones; in older formats they did not."""


class Feed(Shape):
    """The order of all commits, as far as it is proven: (position of a run, its first record, how many).

    `entries` is None if a part is missing; `ends` has the newest record of each run that the remaining parts name for certain.
    """

    entries: list[Entry] | None = None
    end: int = 0
    ends: dict[int, int] = field(default_factory=dict)


class DamagedStore(Protocol):
    """A damaged store. Runs are identified by their position in the order of creation."""

    def summary(self, deep: bool) -> Summary:
        """Return the store's data about itself."""

    def pks(self, deep: bool) -> list[int]:
        """Return the positions of all runs of which any trace is left."""

    def alive(self, pk: int) -> bool:
        """Return whether a live row mentions a run. A deleted run has left only older rows."""

    def rows(self, pk: int, deep: bool) -> list[tuple[RunRow, bool]]:
        """Return the candidates for the row of a run, each with whether it is live."""

    def names(self, pk: int) -> list[str]:
        """Return the possible ids of a run."""

    def records(self, pk: int, run: str, deep: bool) -> dict[int, list[Record]]:
        """Return the records of a run by seq. A record whose body is missing has the digest ZERO for it."""

    def tags(self, pk: int, deep: bool) -> list[Tag]:
        """Return the tags of a run."""

    def tag_names(self, pk: int) -> list[tuple[str, int]]:
        """Return the names and checkpoints of tags as an index has them: without proof, to report what is lost."""

    def messages(self, pk: int, deep: bool) -> list[Message]:
        """Return the messages of a run, only live ones: the run may have read an older one since."""

    def pruned(self, pk: int, deep: bool) -> list[Pruned]:
        """Return the candidates for the prune mark of a run."""

    def bases(self, pk: int, deep: bool) -> list[Base]:
        """Return the added bases of a run, only live ones."""

    def tombstones(self, deep: bool) -> list[Tombstone]:
        """Return the tombstones."""

    def chunk(self, family: bytes, digest: bytes) -> Iterator[bytes]:
        """Yield frames that may hold a chunk, also from other families: the digest proves them."""

    def feed(self, deep: bool) -> Feed:
        """Return the feed."""

    def properties(self, deep: bool) -> dict[str, str]:
        """Return the properties of the store, only those that are live and match their digests."""

    def keys(self) -> dict[bytes, list[bytes]]:
        """Return the candidates for the wrapped key of each family; none if the store is not encrypted."""

    def set_seal(self, seal: Seal) -> None:
        """Prove properties with another seal from now on: that of the store's key."""

    def close(self) -> None:
        """Remove the copies that were made to read the source."""


class Builder(Protocol):
    """A store that is being built. It appears at its target when it is complete, or not at all.

    `private` is a prefix for names beside the target that are never taken for a store, for temporary files.
    """

    private: str

    def run(
        self, pk: int, row: RunRow, records: Sequence[Record], tags: Iterable[Tag], messages: Iterable[Message], mark: Pruned | None,
        bases: Iterable[Base], task: Task | None = None,
    ) -> None:  # fmt: skip
        """Add a run with all its rows. With `task` it gets a queue entry, unless it has ended; a `dedupe` counts for one run only."""

    def chunk(self, family: bytes, digest: bytes, frame: bytes) -> None:
        """Add a chunk; an existing one stays unchanged."""

    def tombstone(self, tombstone: Tombstone) -> None:
        """Add the tombstone of a deleted or lost run."""

    def add_property(self, name: str, value: str) -> None:
        """Add a property of the store."""

    def add_key(self, family: bytes, wrapped: bytes) -> None:
        """Add the wrapped key of a family."""

    def set_seal(self, seal: Seal) -> None:
        """Seal properties with another seal from now on: that of the store's key."""

    def finish(self, created: int, last: int | None, feed: Iterable[Entry]) -> None:
        """Write the rows that cover the whole store, and move it to its target. InvalidArgument if something exists there by now."""

    def abandon(self) -> None:
        """Remove everything that was built, unless it is finished."""
