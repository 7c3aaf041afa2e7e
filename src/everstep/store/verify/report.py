"""The result of a verification: how much was checked, and what is wrong. Plain data; `verify` fills it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from everstep.fields import Shape, field

if TYPE_CHECKING:
    from everstep.store.verify.against import Compared

Depth = Literal["quick", "records", "full"]


class Problem(Shape, frozen=True):
    """One fault, and where it is."""

    code: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what} [{self.code}]"


class Report(Shape):
    """The amount of data checked, and the problems found. If `complete` is False, the time ran out before everything was checked."""

    depth: Depth
    problems: list[Problem] = field(default_factory=list)
    runs: int = 0
    records: int = 0
    chunks: int = 0
    unreachable: int = 0
    """The number of chunks that nothing refers to any more, and the bytes of their frames: `store.gc()` frees them."""
    unreachable_bytes: int = 0
    seconds: float = 0.0
    complete: bool = True
    reached: str = ""
    """How far the check came, in words."""
    not_recorded: str | None = None
    """Why the store did not record this result; None if it did."""
    against: Compared | None = None
    """The comparison with signed heads, if there was one."""

    @property
    def ok(self) -> bool:
        """Whether no problem was found in what was checked."""
        return not self.problems

    def add(self, problems: Iterable[Problem]) -> None:
        """Add problems; each is listed once, even if several paths lead to it."""
        if new := list(problems):
            self.problems = list(dict.fromkeys([*self.problems, *new]))

    def to_json(self, at: int) -> str:
        """Return the text that the store records about this result; `at` is the time in µs."""
        said: dict[str, Any] = {"at": at, "ok": self.ok, "complete": self.complete, "problems": len(self.problems)}
        said |= {name: getattr(self, name) for name in ("runs", "records", "chunks", "unreachable", "unreachable_bytes")}
        return json.dumps(said | {"seconds": round(self.seconds, 3)})

    def __str__(self) -> str:
        head = f"verify {self.depth}: {_count(self.runs, 'run')}, {_count(self.records, 'record')}, {_count(self.chunks, 'chunk')}: "
        found = "all good" if self.ok else _count(len(self.problems), "problem")
        lines = [head + found, *map(str, self.problems)]
        if self.against is not None:
            lines += [str(self.against), *map(str, self.against.deleted)]
        if self.unreachable:
            lines.append(
                f"{_count(self.unreachable, 'chunk')} that nothing refers to, {self.unreachable_bytes:,} bytes: store.gc() frees them"
            )
        if not self.complete:
            lines.append(f"incomplete, the time ran out: checked {self.reached}")
        return "\n".join(lines)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
