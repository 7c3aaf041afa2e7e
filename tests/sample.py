"""Which variants of a test a push runs: all of a test that is cheap, some of one that is not, others on each day. Knows nothing of pytest's files.

A family is a test function with all its parameters. A push spends about BUDGET seconds on one family, and runs at least two of its variants. They are
taken from a fixed order in which neighbours differ in as many parameters as possible, and the window moves on each day, so that all variants run within a
few days. PostgreSQL variants of tests for every store are a family of their own, of which at most a third runs.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

BUDGET = 0.5
THIRDS = 3
LEAST = 2
_MANY = 200


@dataclass(frozen=True)
class Variant:
    """One test: its name, and the value of each parameter."""

    name: str
    values: tuple[tuple[str, Hashable], ...] = ()


def third_of(name: str) -> int:
    """The third that a test belongs to: always the same for the same name."""
    return zlib.crc32(name.encode()) % THIRDS


def size(variants: int, seconds: float, *, third: bool = False) -> int:
    """How many of so many variants run on a push, each of which takes so many seconds."""
    most = -(-variants // THIRDS) if third else variants
    return most if seconds <= 0 else min(most, max(LEAST, int(BUDGET / seconds)))


def taken(family: Sequence[Variant], seconds: float, day: int, *, third: bool = False) -> list[Variant]:
    """The variants of a family that run on a day."""
    if third and len(family) == 1:
        return [one for one in family if third_of(one.name) == day % THIRDS]
    wanted = size(len(family), seconds, third=third)
    if wanted >= len(family):
        return list(family)
    order = spread(family)
    start = day * wanted % len(order)
    return (order + order)[start : start + wanted]


def spread(family: Iterable[Variant]) -> list[Variant]:
    """A fixed order that seems random, in which few neighbours already have every value of every parameter."""
    left = sorted(family, key=lambda one: (zlib.crc32(one.name.encode()), one.name))
    if len(left) > _MANY:
        return left
    order: list[Variant] = []
    seen: set[tuple[str, Hashable]] = set()
    while left:
        best = max(left, key=lambda one: len(set(one.values) - seen))  # the first of the best
        if not set(best.values) - seen:
            seen.clear()
            best = left[0]
        seen |= set(best.values)
        left.remove(best)
        order.append(best)
    return order
