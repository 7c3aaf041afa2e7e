"""Events and states come back equal, of the same types, from plain data that people can read; what cannot be stored is refused by its path."""

from __future__ import annotations

import dataclasses
import enum
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import everstep
from everstep.errors import InvalidArgument, Unstorable

pytest.importorskip("google.adk", reason="google-adk is not installed: pip install 'everstep[dev-adapters]'")

from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_tool import AuthConfig
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types
from pydantic import BaseModel

from everstep.adapters.adk import SessionService
from everstep.adapters.adk.events import describe, to_event, to_message

ME = {"app_name": "a", "user_id": "u", "session_id": "s"}


class Order(BaseModel):
    total: int = 0
    note: str | None = None


@dataclasses.dataclass
class Point:
    x: int


class Color(enum.Enum):
    RED = "red"


def part(**fields: Any) -> types.Part:
    return types.Part(**fields)


def call(**fields: Any) -> types.Part:
    return types.Part(function_call=types.FunctionCall(**fields))


def result(**fields: Any) -> types.Part:
    return types.Part(function_response=types.FunctionResponse(**fields))


CONTENTS = [
    None,
    types.Content(),
    types.Content(role="user", parts=[]),
    types.UserContent("hi"),
    types.ModelContent([part(text="a"), part(text="b")]),
    types.Content(role=None, parts=[part(text="no role")]),
    types.Content(role="model", parts=[part(text="")]),
    types.Content(role="model", parts=[part(text="think", thought=True, thought_signature=b"\x00\xff"), part(text="say")]),
    types.Content(role="model", parts=[part(text="so"), call(id="1", name="f", args={"n": 1, "@": "x"}), call(name="g", args={})]),
    types.Content(role="model", parts=[call(id="1", name="f"), part(text="after a call")]),
    types.Content(role="model", parts=[part(text="x"), call(id="1", name="f"), part(text="y"), call(id="2", name="g", args={"part": 1})]),
    types.Content(role="user", parts=[result(id="1", name="f", response={"result": [1, None, {"deep": b"\x00"}]})]),
    types.Content(role="user", parts=[result(id="1", name=None, response=None, will_continue=True)]),
    types.Content(role="tool", parts=[result(name="f", response={"@": "x"})]),
    types.Content(role="user", parts=[result(id="1", name="f", response={}), result(id="2", name="g", response={"a": 1})]),
    types.Content(role="user", parts=[part(inline_data=types.Blob(data=b"\x89PNG\x00\xff", mime_type="image/png")), part(text="see")]),
    types.Content(role="user", parts=[part(file_data=types.FileData(file_uri="gs://x/y", mime_type="a/b"))]),
    types.Content(role="model", parts=[part(executable_code=types.ExecutableCode(code="1+1", language=types.Language.PYTHON))]),
    types.Content(
        role="model", parts=[part(code_execution_result=types.CodeExecutionResult(outcome=types.Outcome.OUTCOME_OK, output="2"))]
    ),
]
EVENTS = [
    Event(author="bot", finish_reason=types.FinishReason.STOP, usage_metadata=types.GenerateContentResponseUsageMetadata(total_token_count=0)),
    Event(author="bot", partial=False, turn_complete=False, interrupted=True, error_code="X", error_message="", custom_metadata={"a": [1, (2,)]}),
    Event(author="bot", branch="a.b", invocation_id="i", long_running_tool_ids={"1", "2"}, output={"k": None}, node_path="wf/a@1"),
    Event(author="", id="fixed", timestamp=0.0),
    Event(author="bot", actions=EventActions(state_delta={"n": 1, "none": None, "app:t": (1, 2), "user:at": datetime(2026, 1, 2, tzinfo=UTC)})),
    Event(author="bot", actions=EventActions(transfer_to_agent="x", escalate=False, artifact_delta={"f.txt": 0}, skip_summarization=True, end_of_agent=True)),
    Event(author="bot", actions=EventActions(agent_state={"a": {"b": []}}, route=["x", 1, True], rewind_before_invocation_id="i")),
    Event(author="bot", actions=EventActions(requested_tool_confirmations={"c": ToolConfirmation(hint="sure?", payload={"n": 1})})),
    Event(author="bot", actions=EventActions(compaction=EventCompaction(start_timestamp=0, end_timestamp=1, compacted_content=types.ModelContent("short")))),
    Event(author="bot", grounding_metadata=types.GroundingMetadata(web_search_queries=["q"]), citation_metadata=types.CitationMetadata(citations=[types.Citation(uri="u")])),
    Event(author="bot", logprobs_result=types.LogprobsResult(chosen_candidates=[types.LogprobsResultCandidate(token="t", log_probability=-0.5)]), avg_logprobs=-0.5),
]  # fmt: skip


def stored(event: Event) -> Any:
    """What another process reads: the data after it was in a store."""
    with everstep.open("memory://") as store:
        line = store.line("r", state={"events": []})
        line.state["events"].append(to_message(event))
        line.checkpoint()
        return store.load("r")["events"][0]


@pytest.mark.parametrize("author", ["user", "bot"])
@pytest.mark.parametrize("n", range(len(CONTENTS)))
def test_contents_come_back_equal(n: int, author: str) -> None:
    event = Event(author=author, content=CONTENTS[n])
    back = to_event(stored(event))
    assert back == event
    assert type(back.content) is type(event.content)
    assert back.model_dump_json() == event.model_dump_json()


@pytest.mark.parametrize("n", range(len(EVENTS)))
def test_events_come_back_equal(n: int) -> None:
    back = to_event(stored(EVENTS[n]))
    if EVENTS[n].actions.compaction is not None:
        back.actions.compaction.compacted_content = types.ModelContent(back.actions.compaction.compacted_content.parts)  # a plain Content
    assert back == EVENTS[n]
    assert back.model_dump_json() == EVENTS[n].model_dump_json()
    assert str(back.actions.state_delta) == str(EVENTS[n].actions.state_delta)


def test_no_field_of_an_event_is_forgotten() -> None:
    """Every field of this version is stored, whatever it is: fields that are new in a later one, too."""
    event = Event(author="bot", message="hi")
    for name in Event.model_fields:
        if name not in ("content", "author"):
            object.__getattribute__(event, "__dict__")[name] = f"value of {name}"
    assert set(to_message(event)["event"]) == set(Event.model_fields) - {"content", "author"}


def test_a_request_for_credentials_comes_back() -> None:
    from fastapi.openapi.models import APIKey, APIKeyIn, OAuth2, OAuthFlowAuthorizationCode, OAuthFlows

    for scheme in (
        APIKey(**{"in": APIKeyIn.header, "name": "X-Key"}),
        OAuth2(
            flows=OAuthFlows(
                authorizationCode=OAuthFlowAuthorizationCode(authorizationUrl="https://a/b", tokenUrl="https://a/t", scopes={"s": ""})
            )
        ),
    ):
        raw = AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=OAuth2Auth(client_id="id", client_secret="x"))
        event = Event(
            author="bot", actions=EventActions(requested_auth_configs={"c": AuthConfig(auth_scheme=scheme, raw_auth_credential=raw)})
        )
        back = to_event(stored(event))
        assert type(back.actions.requested_auth_configs["c"].auth_scheme) is type(scheme)
        assert back == event


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(exclude_categories=["Cs"])) | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(["@", "items", "$x"]), inner)
    | st.tuples(inner, inner),
    max_leaves=12,
)  # fmt: skip


@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), PLAIN, max_size=4), st.text(), st.sampled_from(["user", "bot", ""])
)
def test_any_plain_data_comes_back_equal(data: dict[str, Any], text: str, author: str) -> None:
    content = types.Content(role="model", parts=[part(text=text), call(id="c", name="f", args=data)])
    event = Event(author=author, content=content, actions=EventActions(state_delta=dict(data)), output=data, custom_metadata=data)
    back = to_event(to_message(event))
    assert back == event
    assert repr(back.output) == repr(event.output)  # 1 and True and 1.0 are told apart


async def test_types_of_states_come_back_from_another_service(tmp_path: Path) -> None:
    rich = {
        "at": datetime(2026, 1, 2, 3, tzinfo=UTC), "day": date(2026, 1, 2), "long": timedelta(1), "money": Decimal("1.10"), "bytes": b"\x00\xff",
        "tuple": (1, [2]), "set": {1, 2}, "id": UUID(int=7), "numbers": {1: "a"}, "@": {"@": "x"}, "$money": 1, "big": 2**80, "text": "x" * 200_000,
    }  # fmt: skip
    async with SessionService(tmp_path / "s.db") as one:
        session = await one.create_session(**ME, state={"n": 1, **{f"user:{key}": value for key, value in rich.items()}})
        event = Event(author="user", message="y" * 300_000, state=rich, timestamp=session.last_update_time)
        await one.append_event(session, event)
    for config in (None, {"num_recent_events": 1}):
        async with SessionService(str(tmp_path / "s.db")) as two:
            from google.adk.sessions.base_session_service import GetSessionConfig

            read = await two.get_session(**ME, config=None if config is None else GetSessionConfig(**config))
            assert read.events == [event]
            assert {key: read.state[key] for key in rich} == rich == await two.get_user_state(app_name="a", user_id="u")
            assert repr(read.state["tuple"]) == "(1, [2])"
            assert all(type(read.state[key]) is type(value) for key, value in rich.items())
            (listed,) = (await two.list_sessions(app_name="a")).sessions
            assert listed.state == read.state


async def test_objects_become_plain_data_and_others_are_refused(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        one = SessionService(store)
        session = await one.create_session(**ME, state={"order": Order(total=0), "point": Point(1), "color": Color.RED})
        await one.append_event(session, Event(author="bot", output=Order(), message="m", state={"o": Order(total=1)}))
        read = await SessionService(store).get_session(**ME)
        assert read.state == {"order": {"total": 0, "note": None}, "point": {"x": 1}, "color": "red", "o": {"total": 1, "note": None}}
        assert read.events[0].output == {"total": 0, "note": None}
        for wrong, path in (
            ({"f": print}, "state['f']"),
            ({"user:f": [1, object()]}, "state['user:f'][1]"),
            ({"d": {Point: 1}}, "state['d']"),
        ):
            with pytest.raises(Unstorable) as refused:
                await one.append_event(session, Event(author="bot", message="no", state={"fine": 1, "app:fine": 1, **wrong}))
            assert str(refused.value).startswith(path)
            assert refused.value.remedy
        with pytest.raises(everstep.EverstepError):
            await one.append_event(session, Event(author="bot", message="\ud800", state={"app:fine": 1, "user:fine": 1}))
        with pytest.raises(everstep.EverstepError):
            await one.create_session(app_name="a", user_id="u", session_id="t", state={"app:fine": 1, "s": "\ud800"})
        assert [run.id for run in store.runs()] == ["a/u/s"]  # nothing else was written
        assert store.get("a/u/s").checkpoints == 2
        after = await one.get_session(**ME)
        await one.append_event(after, Event(author="bot", message="yes"))
        assert len((await one.get_session(**ME)).events) == 2


def test_damaged_and_newer_messages_are_named() -> None:
    good = to_message(Event(author="user", message="hi"))
    for wrong in (
        {},
        {**good, "event": {**good["event"], "actions": 7}},
        {"@": "human"},
        {**good, "@": "other"},
        {**good, "type": "x"},
        None,
    ):
        with pytest.raises(InvalidArgument):
            to_event(wrong)


def test_notes_say_who_did_what() -> None:
    said = {
        "user": Event(author="user", message="hi"),
        "bot calls f, g": Event(author="bot", content=types.ModelContent([call(name="f"), call(name="g")])),
        "f returned": Event(author="bot", content=types.UserContent([result(name="f", response={})])),
        "user answers f": Event(author="user", content=types.UserContent([result(name="f", response={})])),
        "bot changes the state": Event(author="bot", state={"n": 1}),
    }
    assert [describe(event) for event in said.values()] == list(said)
