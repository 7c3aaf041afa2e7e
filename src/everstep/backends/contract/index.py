"""Tags and lists of checkpoints. The docstrings are the contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from everstep.backends.contract.types import Query
from everstep.records import Record, Tag


class Index(Protocol):
    """Keeps tags, and finds checkpoints and the entries that are attached to them."""

    def tag(self, tag: Tag, run: str) -> None:
        """Add a tag to a checkpoint; an existing one stays unchanged. Needs no lease. NotFound if the run was deleted."""

    def tags(self, run: str, first: int | None = None, last: int | None = None, name: str | None = None) -> list[Tag]:
        """Return all tags of a run, or those of checkpoints `first`..`last`, or those of a name, by (name, number)."""

    def find(
        self, tags: Sequence[str], meta: dict[str, Any], after: int | None = None, limit: int | None = None
    ) -> list[tuple[int, Record]]:
        """Return the checkpoints of all runs that have all these tags and metadata, of which there is at least one, with their cursors.

        Newest first: by the creation of the run, then by seq; `after` leaves out those down to a cursor. Without bodies, as `checkpoints`
        returns them. Found by an index. A few may be returned that do not have the metadata: the caller compares.
        """

    def checkpoints(self, run: str, query: Query) -> list[Record]:
        """Return matching checkpoint records without bodies (body None, body_digest kept); newest first unless `oldest_first` is set.

        A query for tags matches tag rows, including those added later; the `tags` of a returned record are those of the record itself.
        """

    def digests(self, run: str, seqs: Sequence[int]) -> dict[int, bytes]:
        """Return the digests of those records that exist, by seq."""

    def gates(self, run: str) -> list[Record]:
        """Return the records of the kinds `gate` and `answer` of a run, in order of seq, with bodies. Found by an index."""

    def unanswered(self, workflow: str | None = None, after: int = 0, limit: int | None = None) -> list[tuple[int, Record]]:
        """Return the gate records of waiting runs, or of those of a workflow, that have no answer record with the same note, with cursors.

        A cursor grows with the creation of the run, then with the seq; `after` leaves out those up to one. Found by an index.
        """

    def attached(self, run: str, address: str = "") -> list[Record]:
        """Return the records of the kind `attached` whose note begins with `address`, in order of seq, with bodies. Found by an index."""
