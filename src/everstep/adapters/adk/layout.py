"""The state of a session's run: what an event changes in it, and which events are asked for. No I/O.

    {"events": [messages], "state": {…}, "$adk": {"made": …, "updated": …, "asked": {call: {"gate": …, …}}}}

`made` tells a session from one that was deleted and had its id; `asked` has the calls that wait for a person.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.state import State

from everstep.adapters.adk.events import LATEST, latest_of, time_of, to_event
from everstep.adapters.adk.questions import Asked
from everstep.adapters.adk.runs import ABOUT
from everstep.adapters.adk.values import from_plain, to_plain


class Scopes(NamedTuple):
    """A change of the state, as plain data, by its scope."""

    app: dict[str, Any]
    user: dict[str, Any]
    session: dict[str, Any]


NOTHING = Scopes({}, {}, {})


class Appended(NamedTuple):
    """An event that is to be appended, as plain data, and what belongs to it."""

    message: dict[str, Any]
    delta: Scopes
    note: str
    asked: list[Asked]
    answered: dict[str, Any]  # the answers to calls, by their ids


def split(state: Mapping[str, Any] | None) -> Scopes:
    """Return a change of the state by scope; `temp:` values are left out."""
    out = Scopes({}, {}, {})
    for key, value in (state or {}).items():
        if key.startswith(State.APP_PREFIX):
            out.app[key.removeprefix(State.APP_PREFIX)] = to_plain(value, f"state[{key!r}]")
        elif key.startswith(State.USER_PREFIX):
            out.user[key.removeprefix(State.USER_PREFIX)] = to_plain(value, f"state[{key!r}]")
        elif not key.startswith(State.TEMP_PREFIX):
            out.session[key] = to_plain(value, f"state[{key!r}]")
    return out


def values_of(state: Any) -> dict[str, Any]:
    """Return the values that the run of a session, a user or an app has, by their keys. A key may be any text, also `@`."""
    return {key: from_plain(value) for key, value in state["state"].items()}


def marker_of(state: Any, number: int) -> str:
    """Return what tells the states of a session apart: which creation of it, and the number of its newest checkpoint."""
    return f"{state[ABOUT]['made']}:{number}"


def chosen(events: Any, config: GetSessionConfig | None) -> list[Any]:
    """Return the stored events that a configuration asks for; older ones are not read."""
    least = 0
    if config is not None and config.num_recent_events is not None:
        least = max(0, len(events) - config.num_recent_events)
    after = None if config is None else config.after_timestamp
    found = []
    for n in reversed(range(least, len(events))):
        if after is not None and latest_of(events[n]) < after:
            break
        if after is None or time_of(events[n]) >= after:
            found.append(events[n])
    return found[::-1]


def last_id(state: Any) -> str | None:
    events = state["events"]
    return events[len(events) - 1]["event"]["id"] if len(events) else None


def is_repeated(state: Any, number: int, marker: str | None, event: Appended) -> bool:
    """Whether the newest event is this one, and the caller knew the session just before it: it does not know that its append was made."""
    events = state["events"]
    if marker != marker_of(state, number - 1) or not len(events):
        return False
    return bool(to_event(events[len(events) - 1]) == to_event(event.message))


def apply(state: Any, event: Appended) -> dict[str, Any]:
    """Change the live state; return the responses to gates, by their names."""
    events, about = state["events"], state[ABOUT]
    message = event.message
    if len(events) and latest_of(events[len(events) - 1]) > time_of(message):
        message = {**message, LATEST: latest_of(events[len(events) - 1])}
    events.append(message)
    for key, value in event.delta.session.items():
        state["state"][key] = value
    about["updated"] = time_of(message)
    closed = {}
    for call, response in event.answered.items():
        if call in about["asked"]:
            closed[about["asked"][call]["gate"]] = response
            del about["asked"][call]
    for one in event.asked:
        about["asked"][one.call] = one.stored
    return closed
