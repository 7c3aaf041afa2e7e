"""What the hooks of the tests call."""

from __future__ import annotations

from typing import Any

HEARD: list[str] = []


def heard(event: Any) -> None:
    HEARD.append(event.name)


def other(event: Any) -> None:
    HEARD.append(f"other {event.name}")


NO_FUNCTION = 5
