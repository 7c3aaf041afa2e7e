"""What an agent decides after it has thought: actions to take, or an answer. And how that reads from the replies of models.

Replies in the two forms that chat models have in common use (tool_calls with JSON arguments; blocks of type tool_use) are understood
as they are, as dicts or as objects with `model_dump`, so that `think` may return what its client returned. No I/O.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from everstep.errors import InvalidArgument
from everstep.fields import Shape, field

MAX_TEXT = 2_000


class Action(Shape):
    """One call of a tool. `id` is what the model calls it by, if it does; `fault` says why it cannot even be tried."""

    tool: str
    input: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    fault: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.tool, str) or not self.tool:
            raise InvalidArgument(f"{self.tool!r:.60} is no name of a tool")
        if not isinstance(self.input, Mapping):
            raise InvalidArgument(f"the input of {self.tool!r} is {self.input!r:.60}, and no dict", remedy="Give the arguments by name.")


class Decision(Shape):
    """Actions to take, or, where there are none, the answer. `message` is what the model said, and goes into the conversation.

    `parallel`: the actions may be taken at the same time. `tokens` and `cost` are what thinking used. `note` goes on the checkpoint.
    """

    answer: Any = None
    actions: list[Action] = field(default_factory=list)
    message: Any = None
    parallel: bool = False
    tokens: int = 0
    cost: Any = 0.0
    note: str | None = None

    def __post_init__(self) -> None:
        self.actions = [one if isinstance(one, Action) else _action(one) for one in self.actions]

    @classmethod
    def of(cls, value: Any) -> Decision:
        """A decision from whatever `think` returned: a Decision, actions, a reply of a model, or else the answer itself."""
        if isinstance(value, Decision):
            return value
        if isinstance(value, Mapping) and "tool" in value and not _is_action(value):
            strange = ", ".join(sorted(map(str, set(value) - {"tool", "input", "id"})))
            raise InvalidArgument(
                f"an action with {strange} is not understood", remedy="An action is {'tool': ..., 'input': {...}, 'id': ...}."
            )
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
    raise InvalidArgument(f"{given!r:.60} is no action", remedy='Give Action("search", {"query": "x"}), or a dict with tool and input.')


def _from_reply(reply: dict[str, Any]) -> Decision:
    """A chat completion, or the message of one, in either form."""
    message, usage = reply, reply.get("usage") or {}
    if "choices" in reply:
        message = dict(reply["choices"][0]["message"])
    elif "usage" in reply:  # a reply that is its own message
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
            given, fault = {}, f"the arguments are no JSON: {error}"
    if not isinstance(given, dict):
        given, fault = {}, "the arguments are no JSON object"
    return Action(function.get("name") or "?", given, name, fault)


def _is(block: Any, kind: str) -> bool:
    return isinstance(block, Mapping) and block.get("type") == kind


def _text_of(content: Any) -> Any:
    if isinstance(content, list) and all(_is(block, "text") for block in content):
        return "".join(str(block.get("text", "")) for block in content)
    return content


def message_of(decision: Decision) -> Any:
    """What goes into the conversation for a decision: what the model said, or the same in the common form."""
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
    """What goes into the conversation for finished actions and what came of them, in the form in which the model asked for them."""
    pairs = [(action["call"], action["tool"], text_of(result), action["status"] == "succeeded") for action, result in told]
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, list) and any(_is(block, "tool_use") for block in content):
        blocks = [{"type": "tool_result", "tool_use_id": call, "content": text, "is_error": not good} for call, _, text, good in pairs]
        return [{"role": "user", "content": blocks}]
    return [{"role": "tool", "tool_call_id": call, "name": tool, "content": text} for call, tool, text, _ in pairs]


def text_of(result: Any) -> str:
    """A result as a model reads it."""
    if isinstance(result, str):
        return result
    try:
        return json.dumps(result, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(result)


def told_of(error: BaseException) -> str:
    """An error as a model reads it."""
    return f"{type(error).__name__}: {error}"[:MAX_TEXT]
