"""What `think` may return: replies of models as they are, actions in any form, or an answer."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest

import everstep
from everstep import AgentLoop, AgentState
from everstep.agents.loop import Action, Decision
from everstep.errors import InvalidArgument

TOOL_CALL = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}
ASKS = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}
SAYS = {"role": "assistant", "content": "It is x."}
BLOCKS = [{"type": "text", "text": "Let me look."}, {"type": "tool_use", "id": "tu_1", "name": "search", "input": {"q": "x"}}]


def completion(message: dict[str, Any]) -> dict[str, Any]:
    usage = {"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100}
    return {"id": "c", "model": "m", "choices": [{"index": 0, "finish_reason": "stop", "message": message}], "usage": usage}


def blocks(content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": "m", "type": "message", "role": "assistant", "content": content, "usage": {"input_tokens": 90, "output_tokens": 10}}


def test_a_message_with_tool_calls_is_actions() -> None:
    made = Decision.of(ASKS)
    assert (made.actions, made.answer, made.message, made.tokens) == ([Action("search", {"q": "x"}, "call_1")], None, ASKS, 0)


def test_a_message_without_is_the_answer() -> None:
    made = Decision.of(SAYS)
    assert (made.actions, made.answer, made.message) == ([], "It is x.", SAYS)


@pytest.mark.parametrize("message", [ASKS, SAYS])
def test_a_whole_completion_counts_its_tokens(message: dict[str, Any]) -> None:
    made = Decision.of(completion(message))
    assert (made.message, made.tokens) == (message, 100)
    assert (made.actions, made.answer) == (Decision.of(message).actions, Decision.of(message).answer)


def test_blocks_of_tool_use_are_actions() -> None:
    made = Decision.of(blocks(BLOCKS))
    assert (made.actions, made.answer, made.tokens) == ([Action("search", {"q": "x"}, "tu_1")], None, 100)
    assert made.message == {"role": "assistant", "content": BLOCKS}


def test_blocks_of_text_are_the_answer() -> None:
    assert Decision.of(blocks([{"type": "text", "text": "It "}, {"type": "text", "text": "is x."}])).answer == "It is x."


class Message(pydantic.BaseModel):
    role: str
    content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    refusal: str | None = None


def test_objects_of_a_client_are_understood_and_kept_as_plain_data() -> None:
    made = Decision.of(Message(role="assistant", tool_calls=[TOOL_CALL]))
    assert made.actions == [Action("search", {"q": "x"}, "call_1")]
    assert made.message == {"role": "assistant", "tool_calls": [TOOL_CALL]}


@pytest.mark.parametrize(
    ("arguments", "fault"), [("{q: x}", "the arguments are not valid JSON:"), ("[1]", "the arguments must be a JSON object")]
)
def test_arguments_that_are_no_json_are_told_to_the_model(arguments: str, fault: str, store: everstep.Store) -> None:
    bad = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "search", "arguments": arguments}}]}
    assert str(Decision.of(bad).actions[0].fault).startswith(fault)
    called: list[str] = []
    loop = AgentLoop(lambda s: bad if s.turn == 0 else s.messages[-1]["content"], tools={"search": lambda q: called.append(q)})
    assert str(loop.run(store, "a", "t").result).startswith(fault)
    assert called == []


@pytest.mark.parametrize("arguments", ["", None, {}, "{}"])
def test_no_arguments_are_no_fault(arguments: Any) -> None:
    call = {"id": "c", "function": {"name": "now", "arguments": arguments}}
    assert Decision.of({"role": "assistant", "tool_calls": [call]}).actions == [Action("now", {}, "c")]


@pytest.mark.parametrize("given", [
    Action("search", {"q": "x"}),
    [Action("search", {"q": "x"})],
    (Action("search", {"q": "x"}),),
    {"tool": "search", "input": {"q": "x"}},
    [{"tool": "search", "input": {"q": "x"}}],
    Decision(actions=[{"tool": "search", "input": {"q": "x"}}]),  # type: ignore[list-item]
])  # fmt: skip
def test_actions_may_be_given_in_any_form(given: Any) -> None:
    assert Decision.of(given).actions == [Action("search", {"q": "x"})]


class Person(pydantic.BaseModel):
    role: str = "pilot"


@pytest.mark.parametrize("answer", [
    "text", "", None, 5, {"total": 3}, {"role": "pilot"}, {"choices": ["a"]}, {"choices": 3}, [], [1, 2], ["a"],
    Person(), Message,
])  # fmt: skip
def test_all_else_is_the_answer(answer: Any) -> None:
    made = Decision.of(answer)
    assert (made.answer, made.actions) == (answer, [])


@pytest.mark.parametrize("bad", [{"tool": ""}, {"tool": 5}, {"tool": "x", "input": [1]}])
def test_an_action_that_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidArgument):
        Decision.of(bad)
    with pytest.raises(InvalidArgument):
        Decision(actions=[bad])


def test_what_is_no_action_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="an action must be an Action or a dict with tool and input, got 'search'"):
        Decision(actions=["search"])  # type: ignore[list-item]


def conversation(store: everstep.Store, *lines: Any) -> list[Any]:
    loop = AgentLoop(lambda state: lines[state.turn], tools={"search": lambda q: {"hit": q}})
    loop.run(store, "a", "t")
    return AgentState(store.load("a")).messages


def test_results_are_told_in_the_form_of_tool_calls(store: everstep.Store) -> None:
    messages = conversation(store, completion(ASKS), SAYS)
    assert messages == [
        {"role": "user", "content": "t"},
        ASKS,
        {"role": "tool", "tool_call_id": "call_1", "name": "search", "content": '{"hit": "x"}'},
        SAYS,
    ]


def test_results_are_told_in_the_form_of_blocks_all_in_one_message(store: everstep.Store) -> None:
    both = [*BLOCKS, {"type": "tool_use", "id": "tu_2", "name": "nothing", "input": {}}]
    messages = conversation(store, blocks(both), "done")
    assert messages[1] == {"role": "assistant", "content": both}
    assert messages[2]["role"] == "user"
    assert [(b["type"], b["tool_use_id"], b["is_error"]) for b in messages[2]["content"]] == [
        ("tool_result", "tu_1", False),
        ("tool_result", "tu_2", True),
    ]
    assert len(messages) == 4


def test_an_answer_that_is_no_text_is_a_message_of_text(store: everstep.Store) -> None:
    assert conversation(store, {"total": 3})[-1] == {"role": "assistant", "content": '{"total": 3}'}
    assert AgentState(store.load("a")).answer == {"total": 3}


def test_actions_that_are_no_list_are_refused_by_name() -> None:
    with pytest.raises(InvalidArgument, match="actions must be a list of actions, got 3"):
        Decision(actions=3)  # type: ignore[arg-type]
