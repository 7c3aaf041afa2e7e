"""Events as readers see them: every record of a journal is an event. No I/O.

An event that was read from a store has a position in the commit order of the store. One that only hooks of this process see has none.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from everstep.fields import Shape, field


class Event(Shape, frozen=True):
    """Something that happened to a run. `replayed` marks an event that is published again."""

    name: str
    run: str
    at: datetime
    data: dict[str, Any] = field(default_factory=dict)
    position: int | None = None
    seq: int | None = None
    replayed: bool = False
    attempt: int | None = None
    """The attempt of the run that it belongs to, counted by leases; None if it was not read from the journal."""
