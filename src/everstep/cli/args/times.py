"""Parses times and spans that a person types: `2h`, `3d`, `2026-11-15`, `2026-11-15T08:30`, `yesterday`. No I/O but the clock."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|sec|m|min|h|d|w)")
_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def span(text: str) -> float:
    """Parse a time span; return seconds."""
    if text.strip() == "0":
        return 0.0
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"must be a time span such as 30s, 15min, 2h, 3d or 1w, got {text!r}")
    return float(found[1]) * _SECONDS[found[2]]


def moment(text: str) -> datetime:
    """Parse a moment. Without a time zone it is local; a span counts back from now."""
    now = datetime.now(UTC)
    if text in ("today", "yesterday"):
        midnight = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
        return midnight - timedelta(days=text == "yesterday")
    if _SPAN.fullmatch(text.strip()):
        try:
            return now - timedelta(seconds=span(text))
        except OverflowError:
            raise ValueError(f"must be a time since year 1, got {text!r} ago") from None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        raise ValueError(f"must be a time such as 2h, 3d, yesterday, 2026-11-15 or 2026-11-15T08:30, got {text!r}") from None


class MomentType(click.ParamType[datetime]):
    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            return moment(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class SpanType(click.ParamType[float]):
    name = "span"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return span(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


MOMENT, SPAN = MomentType(), SpanType()
