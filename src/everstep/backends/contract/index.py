"""Finding checkpoints by tags and filters. The docstrings are the contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from everstep.backends.contract.types import Query
from everstep.records import Record, Tag


class Index(Protocol):
    """Keeps tags, and lists checkpoints without reading their bodies."""

    def tag(self, tag: Tag, run: str) -> None:
        """Add a tag to a checkpoint; one that is there already is left alone. Needs no lease. NotFound if the run is gone."""

    def tags(self, run: str, first: int | None = None, last: int | None = None) -> list[Tag]:
        """All tags of a run, or those of checkpoints `first`..`last`, by (name, number)."""

    def checkpoints(self, run: str, query: Query) -> list[Record]:
        """Checkpoint records that fit, without bodies (body None, body_digest kept), newest first unless told otherwise. Where tags are asked for, tag rows count, also those given later; `tags` are those of the record itself."""

    def digests(self, run: str, seqs: Sequence[int]) -> dict[int, bytes]:
        """The digests of those records that exist, by seq."""
