"""Sessions in a store. An append is one commit: the event, the state of the session, and the state of its user and app.

A session object is stale if its number is not the newest of the run. Changes of `app:` and `user:` state by others are merged key by key.
Blocks: called in threads. Threads may share it; locks are taken in the order session, user, app.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar
from uuid import uuid4

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session
from google.adk.sessions.state import State
from google.genai.types import Part

import everstep
from everstep.adapters.adk import owed, questions
from everstep.adapters.adk.events import to_event
from everstep.adapters.adk.layout import NOTHING, Appended, Scopes, apply, chosen, is_repeated, last_id, marker_of, values_of
from everstep.adapters.adk.runs import ABOUT, Kept, Place, Runs, label_of, place_of, prefix_of
from everstep.adapters.adk.values import from_plain
from everstep.errors import Conflict, InvalidArgument, LeaseHeld, NotFound, RunDeleted

T = TypeVar("T")
Changes = list[tuple[Kept, dict[str, Any]]]
_TRIES = 100  # each one follows an append of another writer


class Sessions:
    """The sessions of a store."""

    def __init__(self, store: everstep.Store):
        self.store = store
        self._runs = Runs(store)

    def create(self, place: Place, delta: Scopes, now: float) -> Session:
        """Create a session."""
        kept, taken = self._runs.session(place), f"Session with id {place.session} already exists."
        about = {"made": uuid4().hex, "updated": now, "asked": {}}
        with kept.lock:
            for scope in (self._runs.user(place), self._runs.app(place)):
                self._scope(scope)  # a run that can't be read, or belongs to something else, is named before anything is written
            with self._scopes(place, delta) as scopes:

                def save() -> tuple[Any, Any]:
                    if kept.fresh() is not None:
                        raise AlreadyExistsError(taken)
                    line = kept.created({"events": [], "state": dict(delta.session), ABOUT: dict(about)})
                    self._together(
                        line, [_changed(scope, values) for scope, values in scopes], lambda: line.checkpoint(note="session created")
                    )
                    return line, kept.state()

                line, state = self._repeated(kept, scopes, save)
            return self._session(place, line.number, state, [])

    def get(self, place: Place, config: GetSessionConfig | None) -> Session | None:
        """Return a session, or None. The state of its user and app has at least the changes of its own events."""
        kept = self._runs.session(place)
        with kept.lock:
            while (line := kept.fresh()) is not None:
                number = line.number
                limited = config is not None and (config.num_recent_events is not None or config.after_timestamp is not None)
                try:
                    state = _checked(kept, self.store.view(kept.run, at=number) if limited and not kept.is_loaded else kept.state())
                    self._pay(place, line, state)
                    session = self._session(place, number, state, chosen(state["events"], config))
                except (NotFound, RunDeleted):
                    continue  # deleted meanwhile
                line = kept.fresh()
                if line is not None and line.number == number:
                    return session
        return None

    def listed(self, app: str, user: str | None) -> list[Session]:
        """Return all sessions of an app or a user, without their events; the one that was updated last is the last one."""
        found: list[Session] = []
        for info in self.store.runs(workflow=label_of(app), prefix=prefix_of(app, user)):
            place = place_of(info.id)
            if place is None or place.app != app:
                continue
            try:
                state = self.store.view(info.id)
                found.append(self._session(place, info.checkpoints, state, []))
            except (NotFound, RunDeleted):
                continue  # deleted meanwhile
        return sorted(found, key=lambda one: (one.last_update_time, one.user_id, one.id))

    def delete(self, place: Place) -> None:
        """Delete a session, if it exists. The state of its user and app stays."""
        kept = self._runs.session(place)
        with kept.lock:
            if kept.fresh() is not None:
                kept.forget()
                with suppress(NotFound, RunDeleted):  # another process was faster
                    self.store.delete(place.run)

    def user_state(self, place: Place) -> dict[str, Any]:
        """Return the state of a user, without prefixes."""
        return self._scope(self._runs.user(place))

    def append(self, place: Place, marker: str | None, last: str | None, event: Appended) -> str:
        """Append an event to a session that the caller knows by its marker, or by the id of its last event; return the new marker."""
        kept, driven = self._runs.session(place), owed.is_driven(place.run)
        with kept.lock:
            self._pay(place, self._found(place, kept), kept.state())
            with self._scopes(place, NOTHING if driven else event.delta) as scopes:

                def save() -> str:
                    line = self._found(place, kept)
                    state, number = _checked(kept, kept.state()), line.number
                    current = marker_of(state, number)
                    if (marker is None and last != last_id(state)) or (marker is not None and marker != current):
                        if is_repeated(state, number, marker, event):
                            return current
                        raise _stale(place, number)
                    closed = apply(state, event)
                    owed.note(state, event.delta if driven else NOTHING)

                    def checkpoint() -> None:
                        line.checkpoint(note=event.note)
                        questions.ask(line, event.asked)

                    self._together(line, [_changed(scope, values) for scope, values in scopes], checkpoint)
                    questions.close(self.store, line, closed)
                    return marker_of(state, line.number)

                try:
                    saved = self._repeated(kept, scopes, save)
                except RunDeleted:
                    raise SessionNotFoundError(f"Session {place.session} not found: it was deleted meanwhile.") from None
            self._pay(place, self._found(place, kept), kept.state())
            return saved

    def answers(self, place: Place) -> list[Part]:
        """Return the responses to the calls of a session that wait for a person and have an answer."""
        kept = self._runs.session(place)
        with kept.lock:
            line = self._found(place, kept)
            return questions.answers(self.store, line, self._asked(kept))

    def waits(self, place: Place) -> bool:
        """Whether a session waits for a person."""
        kept = self._runs.session(place)
        with kept.lock:
            self._found(place, kept)
            return bool(self._asked(kept))

    def _asked(self, kept: Kept) -> Any:
        return from_plain(_checked(kept, kept.state())[ABOUT]["asked"])

    def _found(self, place: Place, kept: Kept) -> Any:
        line = kept.fresh()
        if line is None:
            raise SessionNotFoundError(f"Session {place.session} not found.")
        return line

    def _repeated(self, kept: Kept | None, scopes: Changes, save: Callable[[], T]) -> T:
        """Save; if another writer was faster, read everything and save again.

        `save` compares the session with what its caller knows. So it is only repeated if others have changed the state of the user or the app, or
        have attached an entry: a line drops its unsaved changes then, and the event has to be applied again.
        """
        for _ in range(_TRIES):
            try:
                return save()
            except BaseException as error:
                for one in (*([kept] if kept else ()), *(scope for scope, _ in scopes)):
                    one.forget()  # what was not saved must not be saved by the next append
                if not isinstance(error, Conflict):
                    raise
                last = error
        raise last

    def _pay(self, place: Place, line: Any, state: Any) -> None:
        """Change the state of the user and the app as the newest event of a driver says, if that was not done yet."""
        found = owed.noted(state)
        if found is None:
            return
        id, delta = found
        with self._scopes(place, delta) as scopes:

            def save() -> None:
                changed = [_changed(scope, values) for scope, values in scopes]
                if owed.is_paid(self.store, line.id, line.number, id):  # if another process pays after this look, the commit is refused
                    for scope, _ in scopes:
                        scope.forget()
                else:
                    self._together(line, changed, lambda: None, owed.meta(id))

            self._repeated(None, scopes, save)
        with suppress(LeaseHeld):  # its driver records it
            owed.paid(line, line.number)

    def _together(self, line: Any, changed: list[Any], checkpoint: Callable[[], Any], meta: Mapping[str, Any] | None = None) -> None:
        """Save a session and the state of its user and app in one commit."""
        with self.store.together():
            checkpoint()
            for one in changed:
                one.checkpoint(note=f"set by {everstep.unquote(line.id)}"[:200], meta=meta)

    @contextmanager
    def _scopes(self, place: Place, delta: Scopes) -> Iterator[Changes]:
        """Lock the runs of a user's and an app's state that a change touches. Inside, no other lock may be taken: two threads would wait for each other."""
        found = [(self._runs.user(place), delta.user)] if delta.user else []
        found += [(self._runs.app(place), delta.app)] if delta.app else []
        with ExitStack() as stack:
            for kept, _ in found:
                stack.enter_context(kept.lock)
            yield found

    def _scope(self, kept: Kept) -> dict[str, Any]:
        with kept.lock:
            while kept.fresh() is not None:
                try:
                    return values_of(kept.state())
                except RunDeleted:
                    kept.forget()
        return {}

    def _session(self, place: Place, number: int, state: Any, events: list[Any]) -> Session:
        values = values_of(state)
        values.update({State.APP_PREFIX + key: value for key, value in self._scope(self._runs.app(place)).items()})
        values.update({State.USER_PREFIX + key: value for key, value in self._scope(self._runs.user(place)).items()})
        session = Session(
            id=place.session, app_name=place.app, user_id=place.user, state=values, events=[to_event(one) for one in events],
            last_update_time=float(state[ABOUT]["updated"]),
        )  # fmt: skip
        session._storage_update_marker = marker_of(state, number)
        return session


def _checked(kept: Kept, state: Any) -> Any:
    if not isinstance(state, Mapping) or not {"events", "state", ABOUT} <= state.keys():
        raise InvalidArgument(f"run {kept.run!r} is not a session of ADK", remedy="Choose another session id.")
    return state


def _changed(scope: Kept, delta: dict[str, Any]) -> Any:
    """Return the line of a user's or an app's run, with a change that is not saved yet."""
    line = scope.fresh()
    if line is None:
        return scope.created({"state": dict(delta)})
    values = scope.state()["state"]
    for key, value in delta.items():
        values[key] = value
    return line


def _stale(place: Place, number: int | None) -> StaleSessionError:
    return StaleSessionError(
        f"session {place.session!r} has moved on to checkpoint {number} since this session object was read; nothing was written. "
        "Read it again with get_session, and append to that."
    )
