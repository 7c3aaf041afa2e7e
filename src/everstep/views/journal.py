"""The timeline of a run: its events, paged by a cursor that is the place in its journal. Relies on `store.events`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from everstep.fields import Shape
from everstep.store.events.event import Event
from everstep.store.lookup import journal_length
from everstep.views.json import Beside, Stored
from everstep.views.masking import Masking

if TYPE_CHECKING:
    from everstep.api import Store

PAGE = 1_000


class EventView(Shape, frozen=True):
    """Something that happened to a run, masked. `position` is its place in the journal of the run."""

    name: str
    run: str
    at: datetime
    position: int | None
    seq: int | None
    attempt: int | None
    data: Stored


class TimelinePage(Shape, frozen=True):
    """Some events of a run. `next` is the cursor to read on after; `more`: there are events beyond this page already."""

    run: str
    events: tuple[EventView, ...]
    next: Beside[int] = 0
    more: Beside[bool] = False


def event_view(event: Event, mask: Masking) -> EventView:
    """An event, masked."""
    return EventView(event.name, event.run, event.at, event.position, event.seq, event.attempt, mask(event.data))


def timeline(store: Store, mask: Masking, run: str, after: int = 0, limit: int = PAGE) -> TimelinePage:
    """The events of a run beyond a place in its journal."""
    page = store.events(after, run=run, limit=limit)
    return TimelinePage(
        run, tuple(event_view(event, mask) for event in page), after if page.next is None else int(page.next), len(page) >= limit
    )


def newest(store: Store, run: str, count: int) -> int:
    """The cursor after which the newest `count` events of a run come."""
    return max(0, journal_length(store, run) - count)


def whole_timeline(store: Store, mask: Masking, run: str, after: int = 0) -> Iterator[EventView]:
    """All events of a run beyond a place, read page by page."""
    while True:
        page = timeline(store, mask, run, after)
        yield from page.events
        if not page.more:
            return
        after = page.next
