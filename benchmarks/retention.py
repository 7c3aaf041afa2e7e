"""Decides which of 100,000 checkpoints of one run to keep, with every rule at once. The decision is a pure function: nothing is stored or
read.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from statistics import median

from benchmarks.options import Options
from benchmarks.table import Bar, Line
from benchmarks.timing import settle, timed
from everstep.store.retention.retention import KINDS, Point, Retention, decide

START = 1_700_000_000_000_000
MINUTE = 60_000_000
EVERY_RULE = Retention(
    keep_last=100, keep_within=timedelta(days=1), keep_daily=30, keep_weekly=52, keep_tagged=("kept",), keep_kinds=("final", "gate")
)


def lines(options: Options) -> Iterator[Line]:
    count = options.decided
    points = [_point(number) for number in range(1, count + 1)]
    now = START + count * MINUTE
    settle()
    took = median(timed(lambda _: decide(points, EVERY_RULE, now), i) for i in range(options.rounds)) / 1e9
    stay = sum(decision.kept for decision in decide(points, EVERY_RULE, now))
    note = f"{stay:,} stay; all rules at once, one checkpoint a minute, median of {options.rounds}"
    yield Line(f"deciding retention of {count:,} checkpoints", f"{took:.2f} s", "", took, Bar("<=", 1, "s"), note)


def _point(number: int) -> Point:
    tags = ("kept",) if number % 1000 == 0 else ("milestone",) if number % 1500 == 0 else ()
    return Point(number, START + number * MINUTE, KINDS[number % len(KINDS) if number % 50 == 0 else 0], tags, 1_200)
