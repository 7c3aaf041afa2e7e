"""The count of one harness. Holds numbers and a few sentences; decides only whether they are good."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

MOST_NOTES = 20


@dataclass(slots=True)
class Count:
    """How often a fault fired, and its results."""

    harness: str
    tried: int = 0
    """Faults that really fired."""
    held: int = 0
    """Everything was as promised."""
    detected: int = 0
    """An error said what is damaged, or that the operation did not happen."""
    lost: int = 0
    """An acknowledged save was gone."""
    wrong: int = 0
    """A read returned something that was never saved at that place."""
    missing: int = 0
    """A run was missing, and nothing said so."""
    leftovers: int = 0
    """Files stayed after the next open."""
    canary: str = ""
    """The defect that was made on purpose, and "caught" or "NOT CAUGHT"."""
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    """The first failures, each with enough to reproduce it."""

    @property
    def bad(self) -> int:
        return self.lost + self.wrong + self.missing + self.leftovers

    @property
    def ok(self) -> bool:
        """Whether the promises held, and the harness could have detected otherwise."""
        return self.tried > 0 and self.bad == 0 and not self.notes and self.canary_caught

    @property
    def canary_caught(self) -> bool:
        return "caught" in self.canary and "NOT CAUGHT" not in self.canary

    def note(self, sentence: str) -> None:
        """Keep a failure. The first ones are enough to investigate."""
        if len(self.notes) < MOST_NOTES:
            self.notes.append(sentence)

    def tell_canary(self, what: str, caught: bool) -> None:
        """Add a canary. One that is not caught makes the whole count invalid."""
        said = f"{what}: {'caught' if caught else 'NOT CAUGHT'}"
        self.canary = f"{self.canary}; {said}" if self.canary else said

    @contextmanager
    def timed(self) -> Iterator[Count]:
        began = time.monotonic()
        try:
            yield self
        finally:
            self.seconds += time.monotonic() - began

    def __str__(self) -> str:
        said = f"{self.harness}: {self.tried} faults, {self.held} held, {self.detected} detected, {self.lost} lost, {self.wrong} wrong, "
        said += f"{self.missing} missing, {self.leftovers} leftovers; canary: {self.canary or 'none'}; {self.seconds:.1f} s"
        return "\n  ".join([said, *self.notes])


Progress = Callable[[Count], None] | None
"""Receives the count of a harness while it grows."""
