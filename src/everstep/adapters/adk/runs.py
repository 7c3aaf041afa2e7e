"""The runs of an app: one for each session, one for the state of each user, one for the state of the app; and their open lines.

    workflow  run
    adk:shop  shop/ann/7     {"events": […], "state": {…}, "$adk": {…}}
    adk-user  user:shop/ann  {"state": {…}}
    adk-app   app:shop       {"state": {…}}

A `/` or `%` in a name is escaped, so two sessions never have the same run. Lines hold no lease; several processes may have one of the same run.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, NamedTuple

import everstep
from everstep.errors import InvalidArgument, RunDeleted

USER, APP = "adk-user", "adk-app"
META = {"adapter": "adk"}
ABOUT = "$adk"
_MOST_LIVE = 64  # runs whose state is held


class Place(NamedTuple):
    """Which session of which user of which app."""

    app: str
    user: str
    session: str

    @property
    def run(self) -> str:
        return everstep.quote("/".join(_escaped(name) for name in self))

    @property
    def user_run(self) -> str:
        return everstep.quote(f"user:{_escaped(self.app)}/{_escaped(self.user)}")

    @property
    def app_run(self) -> str:
        return everstep.quote(f"app:{_escaped(self.app)}")


def label_of(app: str) -> str:
    """Return the workflow label of an app's sessions: a worker takes only those of apps that it can drive."""
    return f"adk:{app}"


def prefix_of(app: str, user: str | None) -> str:
    """Return how the ids of an app's or a user's sessions begin."""
    return everstep.quote("/".join(_escaped(name) for name in ((app,) if user is None else (app, user))) + "/")


def place_of(run: str) -> Place | None:
    """Return the session that a run keeps; None if its id is not that of a session."""
    names = [name.replace("%2F", "/").replace("%25", "%") for name in everstep.unquote(run).split("/")]
    return Place(*names) if len(names) == 3 else None


class Kept:
    """One run, open for appending. `lock` is held by the thread that uses it."""

    def __init__(self, store: everstep.Store, run: str, workflow: str):
        self.run = run
        self.lock = threading.RLock()
        self.is_loaded = False
        self._store = store
        self._workflow = workflow
        self._line: Any = None

    def fresh(self) -> Any:
        """Return the line, caught up with other writers; None if the run does not exist."""
        if self._line is not None:
            try:
                self._line.refresh()
            except RunDeleted:
                self.forget()
        if self._line is None:
            line = self._store.line(self.run, workflow=self._workflow, meta=META)
            if not line.exists:
                return None
            self._refuse_foreign()
            self._line = line
        return self._line

    def created(self, state: dict[str, Any]) -> Any:
        """Return the line of a run whose first checkpoint is to be made with this state."""
        self.forget()
        line = self._store.line(self.run, state=state, workflow=self._workflow, meta=META)
        self._line, self.is_loaded = line, True
        return line

    def state(self) -> Any:
        """Return the live state of the run, which exists."""
        state = self._line.state
        self.is_loaded = True
        return state

    def forget(self) -> None:
        """Drop the live state: what was not saved must not be saved by the next call."""
        if self._line is not None:
            self._line.close()
        self._line, self.is_loaded = None, False

    def _refuse_foreign(self) -> None:
        about = self._store.get(self.run)
        if about.workflow != self._workflow:
            what = "has no workflow" if about.workflow is None else f"belongs to {about.workflow!r}"
            raise InvalidArgument(
                f"run {self.run!r} was not made by ADK's sessions: it {what}",
                remedy="Choose another session id or app name, or another store.",
            )


class Runs:
    """The runs that a service has open. Those that were not used for long are closed."""

    def __init__(self, store: everstep.Store):
        self.store = store
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._lock = threading.Lock()

    def session(self, place: Place) -> Kept:
        return self._of(place.run, label_of(place.app))

    def user(self, place: Place) -> Kept:
        return self._of(place.user_run, USER)

    def app(self, place: Place) -> Kept:
        return self._of(place.app_run, APP)

    def _of(self, run: str, workflow: str) -> Kept:
        with self._lock:
            found = self._kept.get(run)
            if found is None:
                found = self._kept[run] = Kept(self.store, run, workflow)
                if len(self._kept) > _MOST_LIVE:
                    self._make_room()
            self._kept.move_to_end(run)
            return found

    def _make_room(self) -> None:
        for run in list(self._kept)[:-_MOST_LIVE]:
            kept = self._kept[run]
            if kept.lock.acquire(blocking=False):
                try:
                    del self._kept[run]  # a thread that has it meanwhile is compared by the store, as another process is
                    kept.forget()
                finally:
                    kept.lock.release()


def _escaped(name: str) -> str:
    if not isinstance(name, str):
        raise InvalidArgument(f"app_name, user_id and session_id must be texts, got {name!r:.60}")
    return name.replace("%", "%25").replace("/", "%2F")
