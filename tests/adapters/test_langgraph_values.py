"""Values of every kind come back equal and of the same type, also in another process; other types are refused before anything is written."""

from __future__ import annotations

import ipaddress
import re
import sys
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("langgraph", reason="pip install 'everstep[langgraph,dev-adapters]'")

import warm
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.types import Command, Interrupt, Overwrite, Send
from pydantic import BaseModel, PrivateAttr

from everstep.adapters.langgraph import Saver
from everstep.errors import InvalidArgument, Unstorable


class Colour(Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


@dataclass(frozen=True)
class Order:
    id: int
    lines: list[Any] = field(default_factory=list)


class Profile(BaseModel):
    name: str
    friends: list[str] = []
    _seen: int = PrivateAttr(default=0)


class Stranger(BaseModel):
    name: str


TYPES = [Colour, Point, Order, Profile]


def everything() -> dict[str, Any]:
    profile = Profile(name="Ada")
    profile._seen = 3
    calls = [{"name": "search", "args": {"q": "x", "n": 1}, "id": "c1", "type": "tool_call"}]
    usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    return {
        "plain": [None, True, False, 0, 1, -(2**70), 1.0, 1.5, "text", b"bytes", {"a": {"b": []}}],
        "containers": [(1, 2), {1, 2}, frozenset({"a"}), deque([1], 3), OrderedDict(b=1, a=2), Counter("aab"), bytearray(b"x"), range(3)],
        "keys": {1: "int", (1, "a"): "tuple", None: "none"},
        "times": [
            datetime(2026, 1, 2, tzinfo=UTC),
            datetime.fromisoformat("2026-01-02T03:00"),
            date(2026, 1, 2),
            time(3, 4),
            timedelta(1, 2),
        ],
        "numbers": [Decimal("1.50"), Fraction(1, 3), 1 + 2j, UUID(int=7), Path("/tmp/x")],
        "messages": [
            HumanMessage("hi", id="1", name="ada"),
            AIMessage("", id="2", tool_calls=calls, usage_metadata=usage, response_metadata={"model": "m"}),
            AIMessage([{"type": "text", "text": "part"}], additional_kwargs={"k": {"deep": [1]}}),
            ToolMessage("found", tool_call_id="c1", status="error", artifact={"raw": (1, 2)}),
            SystemMessage("be kind"),
            ChatMessage("x", role="critic"),
            FunctionMessage("y", name="f"),
            RemoveMessage(id="1"),
            AIMessageChunk("chunk", id="3"),
            HumanMessage("extra", colour="red"),
        ],
        "objects": [Colour.RED, Point(1, 2), Order(1, [HumanMessage("in an order"), Colour.RED]), profile, {Colour.RED, Point(3, 4)}],
        "langgraph": [Send("node", {"m": HumanMessage("sent")}), Interrupt("why?", id="a" * 32), Command(update={"a": 1}), Overwrite([1])],
        "documents": [Document("page", metadata={"n": 1})],
        "opaque": [re.compile("a+", re.IGNORECASE), ipaddress.ip_address("::1"), ZoneInfo("Europe/Berlin")],
        "looks_like_ours": [{"@": "human", "content": "not a message"}, {"@": {"@": 1}}],
        "__start__": {"messages": [HumanMessage("in")]},
        "branch:to:node": None,
    }


def put(saver: Saver, values: dict[str, Any], thread: str = "t", parent: str | None = None) -> str:
    checkpoint = {**empty_checkpoint(), "channel_values": values, "channel_versions": dict.fromkeys(values, 1)}
    config = {"configurable": {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": parent}}
    saver.put(config, checkpoint, {"source": "update", "step": 1, "parents": {}}, dict.fromkeys(values, 1))  # type: ignore[typeddict-item]
    return str(checkpoint["id"])


def got(saver: Saver, thread: str = "t") -> Any:
    found = saver.get_tuple({"configurable": {"thread_id": thread}})
    return found and found.checkpoint["channel_values"]


def types_of(value: Any) -> Any:
    if isinstance(value, dict):
        return type(value), {key: types_of(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, deque)):
        return type(value), [types_of(item) for item in value]
    inside = getattr(value, "__dict__", None)
    return (type(value), types_of(inside)) if inside and not isinstance(value, Enum) else type(value)


def test_every_kind_of_value_comes_back(places: Any) -> None:
    store = places.open()
    values = everything()
    put(Saver(store, types=TYPES), values)
    back = got(Saver(store, types=TYPES))
    assert back == values
    assert types_of(back) == types_of(values)
    assert back["objects"][3]._seen == 3
    assert store.verify("full").ok


def test_another_process_reads_them(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    with Saver(url, types=TYPES) as saver:
        put(saver, everything())
    program = (
        "import sys, test_langgraph_values as t\n"
        f"saver = t.Saver({url!r}, types=t.TYPES)\n"
        "assert t.got(saver) == t.everything() and t.types_of(t.got(saver)) == t.types_of(t.everything())\n"
    )
    environment = {"PYTHONPATH": ":".join([str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path])}
    done = warm.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_type_that_is_not_allowed_is_refused_before_anything_is_written(places: Any) -> None:
    saver = Saver(places.open())
    with pytest.raises(Unstorable, match=r"who\.deep\[0\] is of type .*Stranger.*\n?.*") as problem:
        put(saver, {"n": 1, "who": {"deep": [Stranger(name="x")]}})
    assert "Saver(types=[Stranger])" in str(problem.value.remedy)
    assert got(saver) is None
    first = put(saver, {"n": 1})
    with pytest.raises(Unstorable):
        put(saver, {"n": 2, "f": lambda: 1}, parent=first)
    assert got(saver) == {"n": 1}, "the state before is untouched"


def test_a_reader_without_the_type_gets_an_error_and_imports_nothing(places: Any) -> None:
    store = places.open()
    put(Saver(store, types=TYPES), {"p": Profile(name="x")})
    with pytest.raises(InvalidArgument, match="Profile"):
        got(Saver(store))


@pytest.mark.parametrize("types", [["app.Order"], [int], [lambda: 1]])
def test_types_must_be_classes_that_can_be_taken_apart(types: Any) -> None:
    with pytest.raises(InvalidArgument, match="types must be classes"):
        Saver("memory://", types=types)


def test_lists_of_messages_are_edited_and_not_written_again(places: Any) -> None:
    store = places.open()
    saver = Saver(store)
    messages = [HumanMessage(f"{i} " * 50, id=str(i)) for i in range(20)]
    last = put(saver, {"messages": list(messages)})
    steps: list[list[Any]] = [
        [*messages, AIMessage("new")],
        [*messages[:5], AIMessage("instead"), *messages[6:]],
        [*messages[:3], *messages[10:]],
        [*messages[:3], AIMessage("x"), *messages[15:]],
        [],
        list(messages),
    ]
    for values in steps:
        last = put(saver, {"messages": values}, parent=last)
        assert got(Saver(store)) == {"messages": values}
    messages[4].additional_kwargs["changed in place"] = True
    messages[7].content = "also"
    put(saver, {"messages": messages}, parent=last)
    assert got(Saver(store))["messages"] == messages
    assert got(Saver(store))["messages"][4].additional_kwargs == {"changed in place": True}


def test_lists_of_dicts_changed_in_place_are_saved(places: Any) -> None:
    store = places.open()
    saver = Saver(store)
    items: list[Any] = [{"role": "user", "parts": [i]} for i in range(10)]
    last = put(saver, {"items": list(items)})
    items[3]["parts"].append("more")
    items[5]["new"] = HumanMessage("x")
    last = put(saver, {"items": list(items)}, parent=last)
    assert got(Saver(store))["items"] == items
    del items[2]
    items[0]["role"] = "system"
    items[4]["new"].content = "changed inside"
    put(saver, {"items": [*items, {"last": True}]}, parent=last)
    assert got(Saver(store))["items"] == [*items, {"last": True}]
