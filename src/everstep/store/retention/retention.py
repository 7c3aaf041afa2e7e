"""Decide which checkpoints are kept, and why: a pure function over light records. No I/O, no clock, no bodies.

A checkpoint is kept if any rule of a `Retention` matches, or regardless of the rules: the head, checkpoints that others depend on (`pinned`
says why), a protected tag, the newest good one, the `minimum`. With no rules, all are kept. The numbers give the order, newest first; times
are labels, which only say on which day a checkpoint was made and how old it is. The same records give the same decisions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import inf
from operator import attrgetter
from typing import Any, Literal, NamedTuple, get_args

from everstep.codec.explain import shown
from everstep.durations import to_seconds
from everstep.errors import InvalidArgument
from everstep.fields import Shape, as_dict
from everstep.ids import check_tag

Completed = Literal["all", "final", "delete"]
PROTECTED = ("milestone", "release", "backup")
KINDS = ("manual", "automatic", "pre_step", "post_step", "gate", "error", "final", "interrupt")
_DAY = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COUNTS = ("keep_last", "keep_daily", "keep_weekly")
_RULES = (*_COUNTS, "keep_within", "keep_tagged", "keep_kinds")


class Retention(Shape, frozen=True):
    """The rules for what to keep of a run. A checkpoint is kept if any `keep_` rule matches; with no rules, all are kept.

    `keep_last`: this many of the newest. `keep_within`: those not older than this (a timedelta, or seconds). `keep_daily`, `keep_weekly`:
    the newest one of each of this many days or weeks (UTC) that have any. `keep_tagged`: True for every tag, or the names. `keep_kinds`:
    values of `Checkpoint.kind`. `max_bytes`: above this size the oldest are dropped, too. `completed`: what to keep of a run that has
    ended: "all" that the rules keep, the "final" checkpoint, or nothing ("delete") once it ended longer ago than `keep_within`, unless it
    failed. `minimum`: this many of the newest are always kept.
    """

    keep_last: int | None = None
    keep_within: timedelta | float | str | None = None
    keep_daily: int | None = None
    keep_weekly: int | None = None
    keep_tagged: bool | Collection[str] | None = None
    keep_kinds: Collection[str] | None = None
    max_bytes: int | None = None
    completed: Completed = "all"
    minimum: int = 1

    def __post_init__(self) -> None:
        for name in _COUNTS:
            if getattr(self, name) is not None:
                _check_count(getattr(self, name), name, 1)
        _check_count(self.minimum, "minimum", 1)
        if self.max_bytes is not None:
            _check_count(self.max_bytes, "max_bytes", 0)
        if self.completed not in get_args(Completed):
            raise InvalidArgument(f'completed must be "all", "final" or "delete", got {shown(self.completed)}')
        # The class is frozen, so set the fields this way; equal policies must compare equal however they were written.
        object.__setattr__(self, "keep_within", _span(self.keep_within))
        object.__setattr__(self, "keep_tagged", _tags(self.keep_tagged))
        object.__setattr__(self, "keep_kinds", _kinds(self.keep_kinds))
        if self.completed == "delete" and self.keep_within is None:
            raise InvalidArgument(
                'completed="delete" needs keep_within: how long to keep a run after it has ended',
                remedy="Give keep_within; 0 deletes at once.",
            )

    @property
    def within_us(self) -> int | None:
        """The value of `keep_within` in microseconds."""
        return self.keep_within // timedelta(microseconds=1) if isinstance(self.keep_within, timedelta) else None

    @property
    def rules(self) -> list[str]:
        """The given `keep_` rules, as text."""
        return [f"{name}={_value(getattr(self, name))}" for name in _RULES if getattr(self, name) is not None]

    def to_dict(self) -> dict[str, Any]:
        """Return the chosen fields as JSON data; `parse` reads it."""
        usual = Retention()
        given = {name: value for name, value in as_dict(self).items() if value != getattr(usual, name)}
        if "keep_within" in given:
            given["keep_within"] = given["keep_within"].total_seconds()
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}

    @classmethod
    def parse(cls, given: Retention | Mapping[str, Any]) -> Retention:
        """Make a policy from a configuration: `{"keep_last": 10, "keep_within": 86400}`. Unknown names are rejected."""
        if isinstance(given, Retention):
            return given
        names = list(cls._fields)
        if not isinstance(given, Mapping):
            raise InvalidArgument(
                f"retention must be a Retention or a mapping of its fields, got {shown(given)}",
                remedy="Use everstep.Retention(...), or a mapping such as {'keep_last': 10}.",
            )
        for name in given:
            if name not in names:
                raise InvalidArgument(f"a retention has no field {shown(name)}", remedy=f"Use {', '.join(names)}.")
        return cls(**given)


class Point(Shape, frozen=True):
    """The data about a checkpoint that decisions need. `bytes` are those of its own bodies; `good` is False if it is known not to load."""

    number: int
    at: int
    kind: str = "manual"
    tags: tuple[str, ...] = ()
    bytes: int = 0
    good: bool = True


class Decision(NamedTuple):
    """Whether a checkpoint is kept, and why. `firm`: no rule or limit can change it."""

    number: int
    kept: bool
    reason: str
    bytes: int
    firm: bool = False

    def __str__(self) -> str:
        return f"{'keep' if self.kept else 'drop'} {self.number}: {self.reason} ({self.bytes:,} bytes)"


def decide(
    points: Sequence[Point],
    retention: Retention,
    now_us: int,
    *,
    pinned: Mapping[int, str] | None = None,
    protected: Collection[str] = PROTECTED,
    ended: bool = False,
) -> list[Decision]:
    """Return one decision for each checkpoint of a run, by number. `ended`: the run will not continue."""
    newest_first = sorted(points, key=attrgetter("number"), reverse=True)
    firm = _firm(newest_first, retention.minimum, pinned or {}, frozenset(protected))
    rules = _Rules(retention, now_us)
    only_final = ended and retention.completed == "final"
    gone = 'the run has ended and completed="final"' if only_final else f"not kept by {', '.join(retention.rules)}"
    out = []
    for index, point in enumerate(newest_first):
        # Ask the rules about each one, even if it is kept anyway: as the newest of its day it uses up that day.
        by_rule = None if only_final else rules.reason(index, point)
        must = firm.get(point.number)
        reason = must or by_rule
        out.append(Decision(point.number, reason is not None, reason or gone, point.bytes, must is not None))
    out.reverse()
    return out


def _firm(newest_first: list[Point], minimum: int, pinned: Mapping[int, str], protected: frozenset[str]) -> dict[int, str]:
    """Return the checkpoints that are always kept, and why."""
    firm = {point.number: "head" for point in newest_first[:1]}
    for number, why in pinned.items():
        firm.setdefault(number, why)
    for point in newest_first:
        if point.tags and (found := sorted(protected.intersection(point.tags))):
            firm.setdefault(point.number, f"protected tag {found[0]}")
    good = next((point.number for point in newest_first if point.good), None)
    if good is not None:
        firm.setdefault(good, "the newest good one")
    for point in newest_first[:minimum]:
        firm.setdefault(point.number, f"minimum={minimum}")
    return firm


class _Rules:
    """The rules of one policy, applied to the checkpoints of one run, newest first."""

    def __init__(self, retention: Retention, now_us: int):
        r = self._r = retention
        self._last = r.keep_last or 0
        self._oldest = inf if r.within_us is None else now_us - r.within_us
        self._days: set[int] | None = None if r.keep_daily is None else set()
        self._weeks: set[int] | None = None if r.keep_weekly is None else set()
        self._texts = (f"keep_last={r.keep_last}", f"keep_within={_value(r.keep_within)}")
        self._none = not r.rules

    def reason(self, index: int, point: Point) -> str | None:
        """Return why a checkpoint is kept, or None; `index` counts from the newest, 0."""
        r, day = self._r, point.at // _DAY
        daily = self._days is not None and _first_of(day, self._days, r.keep_daily)
        weekly = self._weeks is not None and _first_of((day + 3) // 7, self._weeks, r.keep_weekly)  # 1 January 1970 was a Thursday
        if self._none:
            return "no rule drops it"
        if index < self._last:
            return self._texts[0]
        if point.at >= self._oldest:
            return self._texts[1]
        if daily:
            return f"daily {_date(day, '%Y-%m-%d')}"
        if weekly:
            return f"weekly {_date(day, '%G-W%V')}"
        if r.keep_tagged and point.tags and (found := [t for t in point.tags if r.keep_tagged is True or t in r.keep_tagged]):
            return f"tagged {found[0]}"
        if r.keep_kinds and point.kind in r.keep_kinds:
            return f"kind {point.kind}"
        return None


def _first_of(period: int, seen: set[int], most: int | None) -> bool:
    """Whether this is the newest of a day or week, and within the number of days or weeks to keep."""
    if period in seen or len(seen) >= (most or 0):
        return False
    seen.add(period)
    return True


def fewest(weights: Iterable[tuple[int | None, int]], most: int, limit: int) -> int:
    """Return how many of `most` things must be dropped, in order, until the rest weighs at most `limit`; `most` if that is not enough.

    `weights` are (rank, bytes): bytes that become free once that many things were dropped; rank None: never.
    """
    free = [0] * (most + 1)
    left = 0
    for index, size in weights:
        left += size
        if index is not None:
            free[min(index, most)] += size
    for gone, size in enumerate(free):
        left -= size
        if left <= limit:
            return gone
    return most


def _date(day: int, form: str) -> str:
    try:
        return (_EPOCH + timedelta(days=day)).strftime(form)
    except OverflowError:  # a label from a wrong clock
        return f"day {day}"


def _value(value: Any) -> str:
    if isinstance(value, timedelta) and value and not value % timedelta(days=1):
        return f"{value.days} day{'s' if value.days > 1 else ''}"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _check_count(value: Any, what: str, least: int) -> None:
    if type(value) is not int or not least <= value < 2**63:
        raise InvalidArgument(f"{what} must be an integer of at least {least}, got {shown(value)}")


def _span(value: Any) -> timedelta | None:
    if value is None:
        return None
    if isinstance(value, str):
        value = to_seconds(value, "keep_within")
    try:
        span = value if isinstance(value, timedelta) else timedelta(seconds=value) if type(value) in (int, float) else None
    except (OverflowError, ValueError):  # too long, or NaN
        span = None
    if span is None or span < timedelta(0):
        raise InvalidArgument(f"keep_within must be a timedelta or a number of seconds of at least 0, got {shown(value)}")
    return span


def _tags(value: Any) -> bool | tuple[str, ...] | None:
    if value is None or isinstance(value, bool):
        return value or None
    return _names(value, "keep_tagged", "a tag", check_tag)


def _kinds(value: Any) -> tuple[str, ...] | None:
    return None if value is None else _names(value, "keep_kinds", "a kind of checkpoint", _check_kind)


def _names(value: Any, what: str, one: str, check: Any) -> tuple[str, ...] | None:
    """Return names in order, each once. An empty list means no rule: otherwise an empty list in a configuration would drop everything."""
    if not isinstance(value, (str, tuple, list, set, frozenset)):
        raise InvalidArgument(f"{what} must be {one} or a list of them, got {shown(value)}")
    return tuple(sorted({check(name) for name in ((value,) if isinstance(value, str) else value)})) or None


def _check_kind(name: Any) -> str:
    if name not in KINDS:
        raise InvalidArgument(f"keep_kinds must be one of {', '.join(KINDS)}, got {shown(name)}")
    return str(name)
