"""The table: a line for each measurement, with its floor, its limit and whether it was met.

A line of a peer has no limit. A line without a measurement says so in the verdict; it never disappears.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Bar:
    sense: Literal["<=", ">=", "=="]
    limit: float
    unit: str = "x"

    def met(self, value: float) -> bool:
        if self.sense == "==":
            return value == self.limit
        return value <= self.limit if self.sense == "<=" else value >= self.limit

    def __str__(self) -> str:
        return f"{self.sense} {number(self.limit, self.unit)}"


@dataclass
class Line:
    """A line of the table. `value` is compared with the limit: a ratio if the unit is x, else the figure itself."""

    name: str
    figure: str = ""
    floor: str = ""
    value: float | None = None
    bar: Bar | None = None
    note: str = ""
    problem: str = ""
    broken: bool = False
    raw: dict[str, Any] = field(default_factory=dict)

    @property
    def missed(self) -> bool:
        return self.bar is not None and self.value is not None and not self.bar.met(self.value)

    @property
    def failed(self) -> bool:
        return self.missed or self.broken

    def cells(self) -> list[str]:
        unit = self.bar.unit if self.bar else "x"
        ratio = number(self.value, unit) if self.value is not None and unit == "x" else ""
        return [self.name, self.figure, self.floor, ratio, str(self.bar or ""), self.verdict(), self.note]

    def verdict(self) -> str:
        if self.problem:
            return self.problem
        if self.bar is None or self.value is None:
            return ""
        return "MISSED" if self.missed else "ok"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "bar": str(self.bar) if self.bar else None, "verdict": self.verdict()}


HEAD = ["row", "figure", "floor", "ratio", "bar", "", "note"]


def number(value: float, unit: str) -> str:
    shown = f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    return f"{shown}x" if unit == "x" else f"{shown} {unit}".rstrip()


def ms(value: float) -> str:
    return f"{value:.3f} ms" if value < 10 else f"{value:,.1f} ms"


def render(lines: Sequence[Line]) -> str:
    """Format the table as text. The last two columns may be long and are not padded."""
    rows = [HEAD, *(line.cells() for line in lines)]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    widths.append(max(len(row[5]) for row in rows if len(row[5]) <= 8))
    return "\n".join(_row(row, widths) for row in [HEAD, ["-" * width for width in widths], *rows[1:]])


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    name, *rest = (
        cell.rjust(width) if 0 < i < 4 else cell.ljust(width) for i, (cell, width) in enumerate(zip(cells, widths, strict=False))
    )
    return "  ".join([name, *rest, *cells[6:]]).rstrip()
