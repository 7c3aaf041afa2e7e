"""Waits for another thread or process in tests: as short as possible, and not forever."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 60.0
"""Seconds after which a wait fails the test. Only a hanging test waits that long."""


def until(condition: Callable[[], T], what: str = "") -> T:
    """Wait until a condition is true; return its value."""
    limit = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < limit, f"it did not happen: {what or condition}"
        time.sleep(0.003)
    return found
