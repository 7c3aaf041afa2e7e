"""The decision of an agent after it has thought: actions to take, or an answer. Also reads it from the replies of models.

Replies in the two common forms of chat models (tool_calls with JSON arguments; blocks of type tool_use) are accepted unchanged, as dicts or
as objects with `model_dump`, so `think` may return the reply of its client. No I/O.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from everstep.errors import InvalidArgument
from everstep.fields import Shape, field

MAX_TEXT = 2_000


class Action(Shape):
    """One call of a tool. `id` is the model's id of the call, if it has one; `fault` says why the call cannot be tried."""

    tool: str
    input: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    fault: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.tool, str) or not self.tool:
            raise InvalidArgument(f"the name of a tool must be a string that is not empty, got {self.tool!r:.60}")
        if not isinstance(self.input, Mapping):
            raise InvalidArgument(
                f"the input of {self.tool!r} must be a dict, got {self.input!r:.60}", remedy="Pass the arguments by name."
            )


class Decision(Shape):
    """The actions to take or, if there are none, the answer. `message` is the model's reply, which is added to the conversation.

    `parallel`: the actions may be taken at the same time. `tokens` and `cost` are the usage of thinking. `note` becomes the note of the
    checkpoint.
    """

    answer: Any = None
    actions: list[Action] = field(default_factory=list)
    message: Any = None
    parallel: bool = False
    tokens: int = 0
    cost: Any = 0.0
    note: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.actions, Iterable):
            raise InvalidArgument(f"actions must be a list of actions, got {self.actions!r:.60}")
        self.actions = [one if isinstance(one, Action) else _action(one) for one in self.actions]

    @classmethod
    def of(cls, value: Any) -> Decision:
        """Convert the return value of `think`: a Decision, actions, a reply of a model, or else the answer itself."""
        if isinstance(value, Decision):
            return value
        if isinstance(value, Mapping) and "tool" in value and not _is_action(value):
            strange = ", ".join(sorted(map(str, set(value) - {"tool", "input", "id"})))
            raise InvalidArgument(f"an action has unknown keys: {strange}", remedy="An action is {'tool': ..., 'input': {...}, 'id': ...}.")
        if _is_action(value):
            return cls(actions=[value])
        if isinstance(value, (list, tuple)) and value and all(map(_is_action, value)):
            return cls(actions=list(value))
        dump = getattr(value, "model_dump", None) if not isinstance(value, type) else None
        reply = dump(exclude_none=True) if callable(dump) else value
        return _from_reply(dict(reply)) if _is_reply(reply) else cls(answer=value)


def _is_action(value: Any) -> bool:
    return isinstance(value, Action) or (isinstance(value, Mapping) and "tool" in value and set(value) <= {"tool", "input", "id"})


def _is_reply(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    choices = value.get("choices")
    return value.get("role") == "assistant" or (isinstance(choices, (list, tuple)) and bool(choices) and "message" in choices[0])


def _action(given: Any) -> Action:
    if _is_action(given):
        return Action(**given)
    raise InvalidArgument(
        f"an action must be an Action or a dict with tool and input, got {given!r:.60}",
        remedy='Pass Action("search", {"query": "x"}), or a dict with tool and input.',
    )


def _from_reply(reply: dict[str, Any]) -> Decision:
    """Read a chat completion, or the message of one, in either form."""
    message, usage = reply, reply.get("usage") or {}
    if "choices" in reply:
        message = dict(reply["choices"][0]["message"])
    elif "usage" in reply:  # the reply itself is the message
        message = {"role": reply["role"], "content": reply.get("content")}
    tokens = usage.get("total_tokens") or sum(usage.get(name) or 0 for name in ("input_tokens", "output_tokens"))
    blocks = message.get("content")
    actions = [_from_call(call) for call in message.get("tool_calls") or ()]
    if isinstance(blocks, list):
        actions += [Action(b["name"], b.get("input") or {}, b.get("id") or "") for b in blocks if _is(b, "tool_use")]
    answer = None if actions else _text_of(blocks)
    return Decision(answer, actions, message, parallel=False, tokens=tokens)


def _from_call(call: Mapping[str, Any]) -> Action:
    function, name = call.get("function") or {}, call.get("id") or ""
    given = function.get("arguments") or {}
    fault = None
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError as error:
            given, fault = {}, f"the arguments are not valid JSON: {error}"
    if not isinstance(given, dict):
        given, fault = {}, "the arguments must be a JSON object"
    return Action(function.get("name") or "?", given, name, fault)


def _is(block: Any, kind: str) -> bool:
    return isinstance(block, Mapping) and block.get("type") == kind


def _text_of(content: Any) -> Any:
    if isinstance(content, list) and all(_is(block, "text") for block in content):
        return "".join(str(block.get("text", "")) for block in content)
    return content


def message_of(decision: Decision) -> Any:
    """Return the message of a decision for the conversation: the model's reply, or a reply in the common form."""
    if decision.message is not None:
        return decision.message
    if not decision.actions:
        return {"role": "assistant", "content": text_of(decision.answer)}
    calls = [
        {"id": a.id, "type": "function", "function": {"name": a.tool, "arguments": json.dumps(a.input, default=str)}}
        for a in decision.actions
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def replies(message: Any, told: Iterable[tuple[dict[str, Any], Any]]) -> list[dict[str, Any]]:
    """Return the messages that report finished actions and their results, in the form in which the model requested the actions."""
    pairs = [(action["call"], action["tool"], text_of(result), action["status"] == "succeeded") for action, result in told]
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, list) and any(_is(block, "tool_use") for block in content):
        blocks = [{"type": "tool_result", "tool_use_id": call, "content": text, "is_error": not good} for call, _, text, good in pairs]
        return [{"role": "user", "content": blocks}]
    return [{"role": "tool", "tool_call_id": call, "name": tool, "content": text} for call, tool, text, _ in pairs]


def text_of(result: Any) -> str:
    """Format a result for a model."""
    if isinstance(result, str):
        return result
    try:
        return json.dumps(result, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(result)


def told_of(error: BaseException) -> str:
    """Format an error for a model."""
    return f"{type(error).__name__}: {error}"[:MAX_TEXT]
