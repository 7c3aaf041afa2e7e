"""The contract of ADK's session services, from its documentation: ours on every kind of store, and ADK's own. Differences are named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import everstep

pytest.importorskip("google.adk", reason="google-adk is not installed: pip install 'everstep[dev-adapters]'")

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions import BaseSessionService, DatabaseSessionService, InMemorySessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from everstep.adapters.adk import SessionService

OURS = ["memory", "sqlite", "postgres"]
THEIRS = ["InMemory", "Sqlite", "Database"]
Make = Callable[[], Any]
ANN = {"app_name": "shop", "user_id": "ann@example.com"}


@pytest.fixture(params=[*OURS, *THEIRS])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes services that share their sessions, as processes would."""
    if kind == "InMemory":
        one = InMemorySessionService()
        yield lambda: one
    elif kind == "Sqlite":
        yield lambda: SqliteSessionService(str(tmp_path / "t.db"))
    elif kind == "Database":
        yield lambda: DatabaseSessionService(f"sqlite+aiosqlite:///{tmp_path / 'd.db'}")
    else:
        url = {"memory": "memory://", "sqlite": str(tmp_path / "s.db")}.get(kind) or request.getfixturevalue("place")
        with everstep.open(url, checking=True) as store:
            yield lambda: SessionService(store)
            assert store.verify("full").ok


@pytest.fixture
def service(make: Make) -> Any:
    return make()


def said(text: str, author: str = "user", at: float = 1.0, **delta: Any) -> Event:
    content = types.Content(role="user" if author == "user" else "model", parts=[types.Part(text=text)])
    return Event(author=author, content=content, timestamp=at, invocation_id="i", actions=EventActions(state_delta=delta))


def texts(session: Any) -> list[str]:
    return [event.content.parts[0].text for event in session.events]


async def newest(service: Any, id: str, config: GetSessionConfig | None = None, **who: str) -> Any:
    return await service.get_session(**(ANN | who), session_id=id, config=config)


async def test_a_session_is_created_read_listed_and_deleted(service: Any) -> None:
    assert isinstance(service, BaseSessionService)
    assert await newest(service, "7") is None
    made = await service.create_session(**ANN, session_id="7", state={"n": 1})
    assert (made.id, made.app_name, made.user_id, made.state, made.events) == ("7", "shop", "ann@example.com", {"n": 1}, [])
    assert made.last_update_time > 1_000_000_000
    other = await service.create_session(**ANN)
    assert other.id not in ("", "7")
    assert other.state == {}
    read = await newest(service, "7")
    assert (read.id, read.state, read.events) == ("7", {"n": 1}, [])
    assert read.last_update_time == pytest.approx(made.last_update_time, abs=1e-3)
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**ANN, session_id="7")
    await service.delete_session(**ANN, session_id="7")
    await service.delete_session(**ANN, session_id="7")
    assert await newest(service, "7") is None
    assert [one.id for one in (await service.list_sessions(**ANN)).sessions] == [other.id]
    await service.create_session(**ANN, session_id="7")
    assert (await newest(service, "7")).state == {}
    await service.flush()


async def test_sessions_belong_to_a_user_of_an_app(service: Any) -> None:
    names = [("a/b", "c", "d"), ("a", "b/c", "d"), ("a", "b", "c/d"), ("a%2Fb", "c", "d"), ("ä ~", "@", "%"), ("a", "b", "d")]
    for n, (app, user, id) in enumerate(names):
        await service.create_session(app_name=app, user_id=user, session_id=id, state={"n": n, "user:n": n})
    for n, (app, user, id) in enumerate(names):
        found = await service.get_session(app_name=app, user_id=user, session_id=id)
        assert (found.app_name, found.user_id, found.id, found.state["n"]) == (app, user, id, n)
    assert [one.id for one in (await service.list_sessions(app_name="a", user_id="b")).sessions] == ["c/d", "d"]
    assert {one.user_id for one in (await service.list_sessions(app_name="a")).sessions} == {"b/c", "b"}
    assert (await service.list_sessions(app_name="none")).sessions == []


async def test_sessions_are_listed_by_their_last_update_without_events(service: Any) -> None:
    sessions = [await service.create_session(**ANN, session_id=id, state={"app:a": 1, id: 1}) for id in "xyz"]
    bob = await service.create_session(app_name="shop", user_id="bob", session_id="x", state={"user:b": 2})
    base = sessions[-1].last_update_time + 1_000
    for n, one in enumerate((sessions[1], bob, sessions[0], sessions[2])):
        await service.append_event(one, said("hi", at=base + n))
    listed = (await service.list_sessions(app_name="shop")).sessions
    assert [(one.user_id[:3], one.id) for one in listed] == [("ann", "y"), ("bob", "x"), ("ann", "x"), ("ann", "z")]
    assert all(one.events == [] for one in listed)
    assert (listed[1].state, listed[3].state) == ({"app:a": 1, "user:b": 2}, {"app:a": 1, "z": 1})


async def test_state_has_three_scopes_and_temp_is_not_stored(make: Make) -> None:
    one = make()
    first = await one.create_session(**ANN, session_id="1", state={"s": 1, "app:a": 1, "user:u": 1, "temp:t": 1})
    assert first.state == {"s": 1, "app:a": 1, "user:u": 1}
    second = await one.create_session(**ANN, session_id="2")
    assert second.state == {"app:a": 1, "user:u": 1}
    bob = await one.create_session(app_name="shop", user_id="bob", session_id="1")
    assert bob.state == {"app:a": 1}
    event = said("hi", **{"s": 2, "app:a": 2, "user:u": [2], "temp:t": 2, "new": None})
    event.timestamp = first.last_update_time + 1
    assert await one.append_event(first, event) is event
    assert first.state == {"s": 2, "app:a": 2, "user:u": [2], "temp:t": 2, "new": None}
    assert event.actions.state_delta == {"s": 2, "app:a": 2, "user:u": [2], "new": None}
    later = make()
    read = await newest(later, "1")
    assert read.state == {"s": 2, "app:a": 2, "user:u": [2], "new": None}
    assert (await newest(later, "2")).state == {"app:a": 2, "user:u": [2]}
    assert (await newest(later, "1", user_id="bob")).state == {"app:a": 2}
    assert await later.get_user_state(**ANN) == {"u": [2]}
    assert await later.get_user_state(app_name="shop", user_id="bob") == {}
    await later.delete_session(**ANN, session_id="1")
    assert (await newest(later, "2")).state == {"app:a": 2, "user:u": [2]}  # outlives the session


async def test_events_come_back_in_order_and_partial_ones_are_not_stored(make: Make) -> None:
    one = make()
    session = await one.create_session(**ANN, session_id="1")
    base = session.last_update_time + 1
    for n in range(5):
        await one.append_event(session, said(f"{n}", author="user" if n % 2 else "clerk", at=base + n))
    partial = said("no", at=base + 9, s=1)
    partial.partial = True
    assert await one.append_event(session, partial) is partial
    assert texts(session) == ["0", "1", "2", "3", "4"]
    read = await newest(make(), "1")
    assert read.events == session.events
    assert read.last_update_time == pytest.approx(base + 4, abs=1e-3)
    assert read.state == {}


async def test_recent_events(make: Make) -> None:
    one = make()
    session = await one.create_session(**ANN, session_id="1")
    base = session.last_update_time + 1
    for n in range(6):
        await one.append_event(session, said(f"{n}", at=base + n, n=n))
    for service in (one, make()):
        for config, expected in [
            (GetSessionConfig(num_recent_events=2), "45"),
            (GetSessionConfig(num_recent_events=9), "012345"),
            (GetSessionConfig(num_recent_events=0), ""),
            (GetSessionConfig(after_timestamp=base + 3), "345"),
            (GetSessionConfig(after_timestamp=base + 2.5, num_recent_events=2), "45"),
            (GetSessionConfig(after_timestamp=base + 4.5, num_recent_events=3), "5"),
            (GetSessionConfig(after_timestamp=base + 99), ""),
        ]:
            found = await newest(service, "1", config)
            assert ("".join(texts(found)), found.state) == (expected, {"n": 5}), config


async def test_a_session_with_recent_events_can_be_continued(make: Make) -> None:
    one = make()
    session = await one.create_session(**ANN, session_id="1")
    base = session.last_update_time + 1
    for n in range(3):
        await one.append_event(session, said(f"{n}", at=base + n))
    short = await newest(make(), "1", GetSessionConfig(num_recent_events=1))
    await one.append_event(short, said("3", at=base + 3))
    assert texts(short) == ["2", "3"]
    assert texts(await newest(make(), "1")) == ["0", "1", "2", "3"]


async def test_appends_of_one_session_object_may_be_concurrent(service: Any, kind: str) -> None:
    if kind == "Sqlite":
        pytest.skip("difference: SqliteSessionService does not order appends of one session object; some are refused as stale")
    session = await service.create_session(**ANN, session_id="1")
    base = session.last_update_time + 1
    await asyncio.gather(*(service.append_event(session, said(f"{n}", at=base + n, **{f"user:{n}": n})) for n in range(8)))
    assert texts(session) == texts(await newest(service, "1")) == [f"{n}" for n in range(8)]
    assert len(await service.get_user_state(**ANN)) == 8


async def test_an_unknown_session_is_refused(service: Any) -> None:
    session = await service.create_session(**ANN, session_id="1")
    await service.delete_session(**ANN, session_id="1")
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, said("x", s=1, **{"app:a": 1, "user:u": 1}))
    assert await newest(service, "1") is None
    assert await service.get_user_state(**ANN) == {}


async def test_what_a_caller_changes_is_not_stored(service: Any, kind: str) -> None:
    given = {"list": [1]}
    session = await service.create_session(**ANN, session_id="1", state=given)
    given["list"].append(2)
    session.state["list"] = "changed"
    event = said("hi", at=session.last_update_time + 1, other={"x": 1})
    await service.append_event(session, event)
    event.content.parts[0].text = "changed"
    event.actions.state_delta["other"]["x"] = 2
    read = await newest(service, "1")
    if kind == "InMemory":  # difference: it stores the objects that it is given
        assert read.state["list"] == [1, 2]
        assert texts(read) == ["changed"]
    else:
        assert read.state == {"list": [1], "other": {"x": 1}}
        assert texts(read) == ["hi"]


async def test_a_stale_session_is_refused(make: Make, kind: str) -> None:
    one, two = make(), make()
    mine = await one.create_session(**ANN, session_id="1")
    theirs = await newest(two, "1")
    at = mine.last_update_time + 1
    await one.append_event(mine, said("mine", at=at))
    if kind == "InMemory":  # difference: it has no revisions; both events are kept, the session object of each has one
        await two.append_event(theirs, said("theirs", at=at + 1))
        assert texts(await newest(two, "1")) == ["mine", "theirs"]
        return
    with pytest.raises(StaleSessionError):
        await two.append_event(theirs, said("theirs", at=at + 1, **{"s": 1, "app:a": 1, "user:u": 1}))
    read = await newest(two, "1")
    assert (texts(read), read.state) == (["mine"], {})
    await two.append_event(read, said("theirs", at=at + 2))
    assert texts(await newest(one, "1")) == ["mine", "theirs"]


async def test_a_stale_session_is_recognised_if_times_are_equal_or_go_back(make: Make, kind: str) -> None:
    one, two = make(), make()
    mine = await one.create_session(**ANN, session_id="1")
    await one.append_event(mine, said("first", at=mine.last_update_time))
    theirs = await newest(two, "1")
    await one.append_event(mine, said("same time", at=mine.last_update_time))
    if kind in THEIRS:  # difference: they compare times, or a time as text; the stale one is accepted
        await two.append_event(theirs, said("stale", at=mine.last_update_time))
        assert len((await newest(two, "1")).events) == 3
        return
    with pytest.raises(StaleSessionError, match=r"checkpoint 3.*get_session"):
        await two.append_event(theirs, said("stale", at=mine.last_update_time))
    await one.append_event(mine, said("the clock was set back", at=mine.last_update_time - 500))
    assert texts(await newest(two, "1")) == ["first", "same time", "the clock was set back"]  # in the order of appending
    after = await newest(two, "1", GetSessionConfig(after_timestamp=mine.last_update_time + 100))
    assert texts(after) == ["first", "same time"]


async def test_an_event_that_is_delivered_again_is_not_stored_twice(make: Make, kind: str) -> None:
    if kind in ("Sqlite", "Database"):
        pytest.skip("difference: they raise an IntegrityError of the database")
    one = make()
    session = await one.create_session(**ANN, session_id="1", state={"n": 0})
    stale = session.model_copy(deep=True)
    event = said("hi", at=session.last_update_time + 1, n=1)
    await one.append_event(session, event)
    await one.append_event(session, event)
    await one.append_event(stale, event.model_copy(deep=True))  # by a caller who did not learn that it was stored
    assert texts(await newest(make(), "1")) == texts(session) == ["hi"]
    if kind != "InMemory":  # difference: there, the caller's session object does not learn it
        assert (texts(stale), stale.state) == (["hi"], {"n": 1})
        await one.append_event(stale, said("next", at=session.last_update_time + 1))


async def test_a_session_object_from_elsewhere(make: Make, kind: str) -> None:
    if kind in THEIRS:
        pytest.skip("difference: they go by the time of the session object")
    one = make()
    session = await one.create_session(**ANN, session_id="1")
    await one.append_event(session, said("a"))
    copy = type(session).model_validate(session.model_dump())  # for example through a web page
    assert copy._storage_update_marker is None
    await one.append_event(copy, said("b"))
    with pytest.raises(StaleSessionError):
        await one.append_event(type(session).model_validate(session.model_dump()), said("c"))
    assert texts(await newest(one, "1")) == ["a", "b"]
