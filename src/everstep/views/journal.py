"""The timeline of a run: its events, paged by a cursor that is the position in its journal. Relies on `store.events`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from everstep.fields import Shape
from everstep.store.events.event import Event
from everstep.store.lookup import feed_before as position_before
from everstep.store.lookup import journal_length
from everstep.views.json import Beside, Stored
from everstep.views.masking import Masking

if TYPE_CHECKING:
    from everstep.api import Store

PAGE = 1_000


class EventView(Shape, frozen=True):
    """An event of a run, masked. `position` is its position in the journal of the run."""

    name: str
    run: str
    at: datetime
    position: int | None
    seq: int | None
    attempt: int | None
    data: Stored


class TimelinePage(Shape, frozen=True):
    """A page of events of a run. `next` is the cursor of the next page; `more`: that page already has events."""

    run: str
    events: tuple[EventView, ...]
    next: Beside[int] = 0
    more: Beside[bool] = False


def event_view(event: Event, mask: Masking) -> EventView:
    """Return an event, masked."""
    return EventView(event.name, event.run, event.at, event.position, event.seq, event.attempt, mask(event.data))


def timeline(store: Store, mask: Masking, run: str, after: int = 0, limit: int = PAGE) -> TimelinePage:
    """Return a page of the events of a run after a position in its journal."""
    page = store.events(after, run=run, limit=limit)
    return TimelinePage(
        run, tuple(event_view(event, mask) for event in page), after if page.next is None else int(page.next), len(page) >= limit
    )


def newest(store: Store, run: str, count: int) -> int:
    """Return the cursor before the newest `count` events of a run."""
    return max(0, journal_length(store, run) - count)


def whole_timeline(store: Store, mask: Masking, run: str, after: int = 0) -> Iterator[EventView]:
    """Yield all events of a run after a position, read page by page."""
    while True:
        page = timeline(store, mask, run, after)
        yield from page.events
        if not page.more:
            return
        after = page.next


class FeedPage(Shape, frozen=True):
    """Events of all runs in commit order. `next` is the position after the last one, a text that can be kept."""

    events: tuple[EventView, ...]
    next: str


def feed(store: Store, mask: Masking, after: int | str, names: Collection[str] = ()) -> FeedPage:
    """Return all events of a store after a position, only those with these names if any are given."""
    found: list[EventView] = []
    while True:
        page = store.events(after, limit=PAGE)
        found += [event_view(event, mask) for event in page if not names or event.name in names]
        after = str(page.next)
        if len(page) < PAGE:
            return FeedPage(tuple(found), after)


def feed_before(store: Store, count: int) -> int:
    """Return a position in the feed of all runs with at most `count` events after it."""
    return position_before(store, count)
