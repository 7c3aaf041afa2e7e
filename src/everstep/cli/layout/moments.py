"""Formats times for people: local and short. The nearer a time is, the shorter it is written. No I/O but the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_MINUTE, _HOUR = 60, 3_600


def short(then: datetime, now: datetime | None = None) -> str:
    """Format a time: `12 s ago`, `3 min ago`, `14:16:25`, `yesterday 14:16`, `12 Nov 14:16`, `2025-11-12`; and the same for times to come."""
    now = datetime.now(UTC) if now is None else now
    seconds = (now - then).total_seconds()
    if abs(seconds) < 1:
        return "now"
    if abs(seconds) < _HOUR:
        amount = f"{abs(seconds):.0f} s" if abs(seconds) < _MINUTE - 0.5 else f"{max(1, int(abs(seconds) // _MINUTE))} min"
        return f"{amount} ago" if seconds > 0 else f"in {amount}"
    zone = None if now.tzinfo is UTC else now.tzinfo
    local, today = then.astimezone(zone), now.astimezone(zone).date()
    day = local.date()
    if day == today:
        return f"{local:%H:%M:%S}"
    for days, name in ((-1, "yesterday"), (1, "tomorrow")):
        if day == today + timedelta(days=days):
            return f"{name} {local:%H:%M}"
    return f"{local.day} {local:%b %H:%M}" if abs((day - today).days) < 300 else f"{local:%Y-%m-%d}"
