"""Budgets: what a run may use (time, steps, tokens, cost), and what it has used.

A budget is checked before a step begins; it never interrupts a running step. No I/O, no clock: the caller measures.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everstep.codec.explain import shown
from everstep.durations import to_seconds
from everstep.errors import InvalidArgument
from everstep.fields import Shape
from everstep.runtime.limits.checks import check_keys, check_number

_ROUNDING = 1e-9  # ten costs of 0.1 add up to 0.9999999999999999, which must use up a budget of 1


class Used(Shape):
    """The amounts that a run has used. Not thread-safe."""

    seconds: float = 0.0
    steps: int = 0
    tokens: int = 0
    cost: float = 0.0

    def add(self, *, seconds: float = 0.0, steps: int = 0, tokens: int = 0, cost: float = 0.0) -> None:
        """Add to the figures; all four are checked before any is added. Each must be 0 or more."""
        for name, value in (("seconds", seconds), ("cost", cost)):
            check_number(value, name)
        for name, value in (("steps", steps), ("tokens", tokens)):
            check_number(value, name, whole=True)
        self.seconds += seconds
        self.steps += steps
        self.tokens += tokens
        self.cost += cost

    def as_list(self) -> list[float]:
        return [round(self.seconds, 3), self.steps, self.tokens, self.cost]


class Budget(Shape, frozen=True):
    """The amounts that a run may use, over all its attempts; None means no limit.

    When a limit is reached, no further step begins: with `steps=5` there is no sixth step, with `tokens=1000` none begins once 1,000 are
    used. A step's use is known only when it ends, so the sum of tokens, cost or seconds can exceed its limit by the use of the running steps.
    The use of children counts, too. `cost` is in whatever unit you report with `run.usage`.
    """

    seconds: Any = None  # a number; given as any duration
    steps: int | None = None
    tokens: int | None = None
    cost: float | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None:
            object.__setattr__(self, "seconds", to_seconds(self.seconds, "seconds"))
        for name in ("seconds", "cost"):
            if getattr(self, name) is not None:
                check_number(getattr(self, name), name, above=True)
        for name in ("steps", "tokens"):
            if getattr(self, name) is not None:
                check_number(getattr(self, name), name, least=1, whole=True)

    def exceeded(self, used: Used) -> str | None:
        """Return which limit is used up, as text such as "budget: 1,200 tokens of 1,000"; None if none is."""
        for name in _NAMES:
            limit, spent = getattr(self, name), getattr(used, name)
            if limit is not None and spent >= limit * (1 - _ROUNDING):
                amount = f"cost {_text(spent)}" if name == "cost" else f"{_text(spent)} {name}"
                return f"budget: {amount} of {_text(limit)}"
        return None

    @classmethod
    def parse(cls, given: Budget | Mapping[str, Any]) -> Budget:
        """Make a budget from a configuration: `{"tokens": 50000, "cost": 2.5}`. Unknown names are refused."""
        if isinstance(given, Budget):
            return given
        if not isinstance(given, Mapping):
            raise InvalidArgument(f"budget must be a mapping, got {shown(given)}", remedy=f"Give a mapping with {', '.join(_NAMES)}.")
        check_keys(given, _NAMES, "a budget")
        return cls(**given)


_NAMES = tuple(Budget._fields)


def _text(number: float) -> str:
    """Return a number for people: thousands separators, at most four decimals, no trailing zeros."""
    text = f"{number:,.4f}".rstrip("0").rstrip(".")
    return text if number == 0 or text != "0" else f"{number:.2g}"
