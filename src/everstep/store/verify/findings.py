"""The findings of `Store.doctor`, each with a level, a sentence and a remedy. Plain data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from everstep.fields import Shape, field

Level = Literal["ok", "warn", "bad"]
_LEVELS: tuple[Level, ...] = ("ok", "warn", "bad")


class Finding(Shape, frozen=True):
    """The result of one check. `remedy` is None if there is nothing to do."""

    level: Level
    name: str
    sentence: str
    remedy: str | None = None

    def __str__(self) -> str:
        return f"{self.level:<5}{self.name}: {self.sentence}" + (f" -> {self.remedy}" if self.remedy else "")


class Checkup(Shape):
    """All findings about a store."""

    findings: list[Finding] = field(default_factory=list)

    @property
    def level(self) -> Level:
        """The level of the worst finding."""
        return max((finding.level for finding in self.findings), key=_LEVELS.index, default="ok")

    @property
    def ok(self) -> bool:
        return self.level == "ok"

    def __getitem__(self, name: str) -> Finding:
        return next(finding for finding in self.findings if finding.name == name)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings))
