"""What proving a store came to: what was looked at, how far, and what is wrong. Plain data; `verify` fills it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal

from everstep.fields import Shape, field

Depth = Literal["quick", "records", "full"]


class Problem(Shape, frozen=True):
    """One thing that is wrong, and where."""

    code: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what} [{self.code}]"


class Report(Shape):
    """What was looked at and what is wrong with it. With `complete` False the time was over: the rest was not looked at."""

    depth: Depth
    problems: list[Problem] = field(default_factory=list)
    runs: int = 0
    records: int = 0
    chunks: int = 0
    unreachable: int = 0
    """Chunks that nothing refers to any more, and the bytes of their frames: `store.gc()` frees them."""
    unreachable_bytes: int = 0
    seconds: float = 0.0
    complete: bool = True
    reached: str = ""
    """How far it came, in words."""
    not_recorded: str | None = None
    """Why the store does not remember this result, or None if it does."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with what was looked at."""
        return not self.problems

    def add(self, problems: Iterable[Problem]) -> None:
        """Each problem is named once, however many ways lead to it."""
        if new := list(problems):
            self.problems = list(dict.fromkeys([*self.problems, *new]))

    def to_json(self, at: int) -> str:
        """What the store remembers of it; `at` is the time in µs."""
        said: dict[str, Any] = {"at": at, "ok": self.ok, "complete": self.complete, "problems": len(self.problems)}
        said |= {name: getattr(self, name) for name in ("runs", "records", "chunks", "unreachable", "unreachable_bytes")}
        return json.dumps(said | {"seconds": round(self.seconds, 3)})

    def __str__(self) -> str:
        head = f"verify {self.depth}: {self.runs} runs, {self.records} records, {self.chunks} chunks: "
        found = "all good" if self.ok else f"{len(self.problems)} problems"
        lines = [head + found, *map(str, self.problems)]
        if self.unreachable:
            lines.append(f"{self.unreachable} chunks that nothing refers to, {self.unreachable_bytes:,} bytes: store.gc() frees them")
        if not self.complete:
            lines.append(f"not all was looked at: {self.reached}")
        return "\n".join(lines)
