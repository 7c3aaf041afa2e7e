"""Waiting for what another thread or process does, in tests: as short as it can be, and not for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 60.0
"""Seconds after which a test fails for which something does not happen. Nothing waits that long unless it hangs."""


def until(condition: Callable[[], T], what: str = "") -> T:
    """Wait for something that must come; give it."""
    limit = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < limit, f"it did not happen: {what or condition}"
        time.sleep(0.003)
    return found
