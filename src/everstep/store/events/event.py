"""What happened, as others see it: every record of a journal is an event. No I/O.

An event that was read from a store has a position: its place in the order in which the store committed. One that
only hooks of this process see has none.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from everstep.fields import Shape, field


class Event(Shape, frozen=True):
    """Something that happened to a run. `replayed` marks one that is published once more."""

    name: str
    run: str
    at: datetime
    data: dict[str, Any] = field(default_factory=dict)
    position: int | None = None
    seq: int | None = None
    replayed: bool = False
    attempt: int | None = None
    """Which attempt at the run it belongs to, counted by the leases that were taken; None if it is not read from the journal."""
