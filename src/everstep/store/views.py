"""Information about runs and checkpoints that the store returns: plain, immutable, without bytes. No I/O."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar, cast

from everstep.errors import DamagedFrame
from everstep.fields import Shape
from everstep.records import CHILD, Record, RunRow

T = TypeVar("T")
_ABOUT_RUN = ("status", "workflow", "session", "tags", "note", "meta", "parent", "created_at", "updated_at", "checkpoints")
_ABOUT_CHECKPOINT = ("kind", "at", "step", "tags", "note", "meta", "used")


class Listed(list[T]):
    """A list that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        from everstep.notebook import listed

        return listed(self)


class Page(Listed[T], Generic[T]):
    """One page of a listing; `next` is the cursor for `after=` of the next page, None if this is the last."""

    next: int | None = None


class RunInfo(Shape, frozen=True):
    """The current state of a run."""

    id: str
    status: str
    workflow: str | None
    session: str | None
    tags: tuple[str, ...]
    note: str | None
    meta: dict[str, Any]
    parent: str | None
    parent_number: int | None
    created_at: datetime
    updated_at: datetime
    checkpoints: int
    stored_bytes: int
    open: bool
    child: bool = False
    """Whether the parent called this run; otherwise this run was forked from the parent."""
    error: dict[str, str] | None = None
    """Of a failed run: type, message and traceback. Only `store.get` reads it."""

    def __repr__(self) -> str:
        about = f", workflow {self.workflow!r}" if self.workflow else ""
        return f"<everstep.RunInfo {self.id!r} {self.status}{about}, checkpoints: {self.checkpoints}>"

    def _repr_html_(self) -> str:
        from everstep.notebook import pairs

        return pairs(f"run {self.id}", [(name, getattr(self, name)) for name in _ABOUT_RUN])

    @classmethod
    def of(cls, row: RunRow, error: dict[str, str] | None = None) -> RunInfo:
        """Make one from the row of a run."""
        return cls(
            id=row.id,
            status=row.status,
            workflow=row.workflow,
            session=row.session,
            tags=row.tags,
            note=row.note,
            meta=from_meta(row.meta),
            parent=row.parent,
            parent_number=row.parent_number if row.parent is not None and row.parent_number > 0 else None,
            created_at=when(row.created_at),
            updated_at=when(row.updated_at),
            checkpoints=row.checkpoints,
            stored_bytes=row.stored,
            open=row.worker is not None,
            child=row.parent is not None and row.parent_number == CHILD,
            error=error,
        )


class Checkpoint:
    """The record of a snapshot at one moment of a run."""

    __slots__ = ("_pruned", "_record")

    def __init__(self, record: Record, pruned: bool = False):
        self._record = record
        self._pruned = pruned

    @property
    def run(self) -> str:
        """The id of its run."""
        return self._record.run

    @property
    def number(self) -> int:
        """The number in its run: 1, 2, 3, …"""
        return self._record.number

    @property
    def at(self) -> datetime:
        """The time at which it was made."""
        return when(self._record.at)

    @property
    def note(self) -> str | None:
        """The note that the program gave it."""
        return self._record.shown()[0]

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags on it."""
        return self._record.shown()[1]

    @property
    def meta(self) -> dict[str, Any]:
        """The metadata that the program gave it."""
        return from_meta(self._record.shown()[2])

    @property
    def kind(self) -> str:
        """The reason why it was made: manual, automatic, pre_step, post_step, gate, error, final or interrupt."""
        return str(self._header.get("kind", "manual"))

    @property
    def trigger(self) -> str | None:
        """The part of the policy that triggered an automatic one."""
        return self._header.get("trigger")

    @property
    def step(self) -> str | None:
        """The address of the newest step recorded by then."""
        return self._header.get("step")

    @property
    def progress(self) -> tuple[float, float] | None:
        """The amount done and the total, as reported by the program or the plan of the workflow."""
        found = self._header.get("progress")
        return (found[0], found[1]) if found else None

    @property
    def percent(self) -> float | None:
        """The progress in percent."""
        return None if self.progress is None or not self.progress[1] else 100 * self.progress[0] / self.progress[1]

    @property
    def used(self) -> dict[str, float]:
        """The seconds, steps, tokens and cost of the run up to then."""
        return dict(zip(("seconds", "steps", "tokens", "cost"), self._header.get("used", (0.0, 0, 0, 0.0)), strict=True))

    @property
    def _header(self) -> dict[str, Any]:
        return header_of(self._record.own)

    @property
    def digest(self) -> str:
        """The digest that proves this checkpoint and all before it."""
        return self._record.digest.hex()

    @property
    def pruned(self) -> bool:
        """Whether retention dropped its state; the record is kept."""
        return self._pruned

    @property
    def ref(self) -> str:
        """The ref that names it: RUN@NUMBER."""
        return f"{self.run}@{self.number}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and self._record.digest == other._record.digest

    def __hash__(self) -> int:
        return hash(self._record.digest)

    def __repr__(self) -> str:
        return f"Checkpoint({self.ref!r}, note={self.note!r}, tags={self.tags!r})"

    def _repr_html_(self) -> str:
        from everstep.notebook import pairs

        return pairs(f"checkpoint {self.ref}", [(name, getattr(self, name)) for name in _ABOUT_CHECKPOINT])


def when(us: int) -> datetime:
    try:
        return datetime.fromtimestamp(us / 1_000_000, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise DamagedFrame(f"a time of {us} µs is out of range") from error


_UNUSED = (0.0, 0, 0, 0.0)


def from_meta(text: str | None) -> dict[str, Any]:
    """Return the metadata that the program set."""
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise DamagedFrame("metadata that is not JSON") from error
    if not isinstance(found, dict):
        raise DamagedFrame("metadata that is not a JSON object")
    return found


def header_of(text: str | None) -> dict[str, Any]:
    """Return the runtime's header of a checkpoint; `text` is the column `own`."""
    if not text:
        return {}
    try:
        header = json.loads(text)
        used, counts, base = header.get("used", _UNUSED), header.get("counts") or {}, header.get("base", 0)
        good = len(used) == 4 and all(isinstance(n, (int, float)) for n in (*used, *counts.values())) and isinstance(base, int)
    except (AttributeError, TypeError, ValueError, RecursionError):
        good = False
    if not good:
        raise DamagedFrame("a checkpoint has an invalid header")
    return cast(dict[str, Any], header)


def asked_for(text: str | None) -> bool:
    """Whether the program asked for a checkpoint, so that its own loop can resume there; `text` is the column `own`."""
    header = header_of(text)
    return header.get("kind", "manual") in ("manual", "final") or bool(header.get("safe"))


def own_text(header: dict[str, Any]) -> str | None:
    """Return the header of a checkpoint as it is stored."""
    return json.dumps(header, ensure_ascii=False, separators=(",", ":")) if header else None
