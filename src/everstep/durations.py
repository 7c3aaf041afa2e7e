"""Durations as programs write them: seconds, a `timedelta`, or a string such as "30s", "15min", "2h", "3d" or "1w". No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from everstep.errors import InvalidArgument

if TYPE_CHECKING:
    from datetime import timedelta

Duration: TypeAlias = "float | timedelta | str"
"""Quoted: nothing is imported for it."""

_SECONDS = {
    "ms": 0.001, "s": 1, "sec": 1, "second": 1, "seconds": 1, "m": 60, "min": 60, "minute": 60, "minutes": 60, "h": 3_600, "hour": 3_600,
    "hours": 3_600, "d": 86_400, "day": 86_400, "days": 86_400, "w": 604_800, "week": 604_800, "weeks": 604_800,
}  # fmt: skip


def to_seconds(given: Any, what: str) -> Any:
    """Return a duration in seconds; anything that is not a string or a timedelta as it is, for the caller to check."""
    kind = type(given)
    if kind is float or kind is int or given is None:
        return given
    if isinstance(given, str):
        return _parsed(given, what)
    total = getattr(given, "total_seconds", None)  # without an import of datetime
    return given if total is None else total()


def _parsed(text: str, what: str) -> float:
    import re

    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", text)
    if found is None or found[2] not in _SECONDS:
        raise InvalidArgument(
            f'{what} must be a number of seconds, a timedelta, or a string such as "30s", got {text!r:.60}',
            remedy='Units: ms, s, min, h, d and w, as in "1.5h".',
        )
    return float(found[1]) * _SECONDS[found[2]]
