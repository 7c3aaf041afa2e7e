"""Which checkpoints stay, and why: a pure function over light records. No I/O, no clock, no bodies.

A checkpoint stays if any rule of a `Retention` keeps it, or if it must stay whatever the rules say: the head, what others stand on
(`pinned` says why), a protected tag, the newest good one, the `minimum`. Without any rule nothing goes. Order is that of the numbers, newest
first; times are labels, which say only on which day a checkpoint was made and how old it is. The same records give the same decisions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import inf
from operator import attrgetter
from typing import Any, Literal, NamedTuple, get_args

from everstep.codec.explain import shown
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
    """What is kept of a run: all that any of the `keep_` rules names. Without any of them, everything.

    `keep_last`: so many of the newest. `keep_within`: those not older (a timedelta, or seconds). `keep_daily`, `keep_weekly`: the newest
    one of each of so many days or weeks (UTC) that have any. `keep_tagged`: True for every tag, or the names. `keep_kinds`: the kinds
    of `Checkpoint.kind`. `max_bytes`: beyond so many bytes the oldest go, too. `completed`: what stays of a run that has ended: "all" that the
    rules keep, the "final" checkpoint, or nothing ("delete") once it ended longer ago than `keep_within`. `minimum`: so many of the
    newest stay in any case.
    """

    keep_last: int | None = None
    keep_within: timedelta | float | None = None
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
            raise InvalidArgument(f"completed={shown(self.completed)} is no choice", remedy='Use "all", "final" or "delete".')
        # What is frozen sets its fields so; equal policies must be equal however they were written.
        object.__setattr__(self, "keep_within", _span(self.keep_within))
        object.__setattr__(self, "keep_tagged", _tags(self.keep_tagged))
        object.__setattr__(self, "keep_kinds", _kinds(self.keep_kinds))
        if self.completed == "delete" and self.keep_within is None:
            raise InvalidArgument(
                'completed="delete" needs to know how long a run stays after it has ended', remedy="Give keep_within; 0 means not at all."
            )

    @property
    def within_us(self) -> int | None:
        """`keep_within` in microseconds."""
        return self.keep_within // timedelta(microseconds=1) if isinstance(self.keep_within, timedelta) else None

    @property
    def rules(self) -> list[str]:
        """The `keep_` rules that are given, as text."""
        return [f"{name}={_value(getattr(self, name))}" for name in _RULES if getattr(self, name) is not None]

    def to_dict(self) -> dict[str, Any]:
        """What was chosen, as JSON can hold it; `parse` reads it."""
        usual = Retention()
        given = {name: value for name, value in as_dict(self).items() if value != getattr(usual, name)}
        if "keep_within" in given:
            given["keep_within"] = given["keep_within"].total_seconds()
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}

    @classmethod
    def parse(cls, given: Retention | Mapping[str, Any]) -> Retention:
        """A policy from a configuration: `{"keep_last": 10, "keep_within": 86400}`. Unknown names are refused."""
        if isinstance(given, Retention):
            return given
        names = list(cls._fields)
        if not isinstance(given, Mapping):
            raise InvalidArgument(f"{shown(given)} is no retention", remedy="Give everstep.Retention(...), or a mapping of its names.")
        for name in given:
            if name not in names:
                raise InvalidArgument(f"a retention has no {shown(name)}", remedy=f"Use {', '.join(names)}.")
        return cls(**given)


class Point(Shape, frozen=True):
    """What has to be known of a checkpoint. `bytes` are those of its own bodies; `good` is False if it is known that it can't be loaded."""

    number: int
    at: int
    kind: str = "manual"
    tags: tuple[str, ...] = ()
    bytes: int = 0
    good: bool = True


class Decision(NamedTuple):
    """Whether a checkpoint stays, and why. `firm`: whatever any rule or limit says."""

    number: int
    kept: bool
    reason: str
    bytes: int
    firm: bool = False

    def __str__(self) -> str:
        return f"{self.number} {'stays' if self.kept else 'goes'}: {self.reason} ({self.bytes:,} bytes)"


def decide(
    points: Sequence[Point],
    retention: Retention,
    now_us: int,
    *,
    pinned: Mapping[int, str] | None = None,
    protected: Collection[str] = PROTECTED,
    ended: bool = False,
) -> list[Decision]:
    """One decision for each checkpoint of a run, by number. `ended`: nothing more will be done with the run."""
    newest_first = sorted(points, key=attrgetter("number"), reverse=True)
    firm = _firm(newest_first, retention.minimum, pinned or {}, frozenset(protected))
    rules = _Rules(retention, now_us)
    only_final = ended and retention.completed == "final"
    gone = 'the run has ended, and completed="final"' if only_final else f"not kept by {', '.join(retention.rules)}"
    out = []
    for place, point in enumerate(newest_first):
        # Each one is asked, also if it stays anyway: of a day that it is the newest of, no second one is needed.
        by_rule = None if only_final else rules.reason(place, point)
        must = firm.get(point.number)
        reason = must or by_rule
        out.append(Decision(point.number, reason is not None, reason or gone, point.bytes, must is not None))
    out.reverse()
    return out


def _firm(newest_first: list[Point], minimum: int, pinned: Mapping[int, str], protected: frozenset[str]) -> dict[int, str]:
    """Why some stay in any case."""
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
    """The rules of one policy; asked about the checkpoints of one run, newest first."""

    def __init__(self, retention: Retention, now_us: int):
        r = self._r = retention
        self._last = r.keep_last or 0
        self._oldest = inf if r.within_us is None else now_us - r.within_us
        self._days: set[int] | None = None if r.keep_daily is None else set()
        self._weeks: set[int] | None = None if r.keep_weekly is None else set()
        self._texts = (f"keep_last={r.keep_last}", f"keep_within={_value(r.keep_within)}")
        self._none = not r.rules

    def reason(self, place: int, point: Point) -> str | None:
        """Why a checkpoint stays; `place` counts from the newest, 0."""
        r, day = self._r, point.at // _DAY
        daily = self._days is not None and _first_of(day, self._days, r.keep_daily)
        weekly = self._weeks is not None and _first_of((day + 3) // 7, self._weeks, r.keep_weekly)  # 1970 began on a Thursday
        if self._none:
            return "no rule drops it"
        if place < self._last:
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
    """Whether this is the newest of a day or week, and one of as many days or weeks as are kept."""
    if period in seen or len(seen) >= (most or 0):
        return False
    seen.add(period)
    return True


def fewest(weights: Iterable[tuple[int | None, int]], most: int, limit: int) -> int:
    """How many of `most` things have to go, one after the other, until what is left weighs no more than `limit`.

    `weights` are (place, bytes): bytes that are free once so many things have gone; None: never. All of them, if that is not enough.
    """
    free = [0] * (most + 1)
    left = 0
    for place, size in weights:
        left += size
        if place is not None:
            free[min(place, most)] += size
    for gone, size in enumerate(free):
        left -= size
        if left <= limit:
            return gone
    return most


def _date(day: int, form: str) -> str:
    try:
        return (_EPOCH + timedelta(days=day)).strftime(form)
    except OverflowError:  # a label from a clock that was far off
        return f"day {day}"


def _value(value: Any) -> str:
    if isinstance(value, timedelta) and value and not value % timedelta(days=1):
        return f"{value.days} day{'s' if value.days > 1 else ''}"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _check_count(value: Any, what: str, least: int) -> None:
    if type(value) is not int or not least <= value < 2**63:
        raise InvalidArgument(f"{what}={shown(value)} is no whole number of at least {least}")


def _span(value: Any) -> timedelta | None:
    if value is None:
        return None
    try:
        span = value if isinstance(value, timedelta) else timedelta(seconds=value) if type(value) in (int, float) else None
    except (OverflowError, ValueError):  # too long, or NaN
        span = None
    if span is None or span < timedelta(0):
        raise InvalidArgument(f"keep_within={shown(value)} is no length of time", remedy="Give a timedelta, or seconds.")
    return span


def _tags(value: Any) -> bool | tuple[str, ...] | None:
    if value is None or isinstance(value, bool):
        return value or None
    return _names(value, "keep_tagged", "a tag", check_tag)


def _kinds(value: Any) -> tuple[str, ...] | None:
    return None if value is None else _names(value, "keep_kinds", "a kind of checkpoint", _check_kind)


def _names(value: Any, what: str, one: str, check: Any) -> tuple[str, ...] | None:
    """Several names in order, each once; none at all is no rule, or an empty list in a configuration would drop everything."""
    if not isinstance(value, (str, tuple, list, set, frozenset)):
        raise InvalidArgument(f"{what}={shown(value)} is neither {one} nor several", remedy="Give text, or a list of texts.")
    return tuple(sorted({check(name) for name in ((value,) if isinstance(value, str) else value)})) or None


def _check_kind(name: Any) -> str:
    if name not in KINDS:
        raise InvalidArgument(f"{shown(name)} is no kind of checkpoint", remedy=f"Use {', '.join(KINDS)}.")
    return str(name)
