"""Types whose instances never change, and bytes that only a framework can read."""

import pickle
from dataclasses import dataclass
from typing import Any

import pytest

import everstep
from everstep.codec import kinds
from everstep.errors import InvalidArgument
from everstep.views.stored.values import as_json


@dataclass(frozen=True)
class Message:
    role: str
    content: str


def counted(cls: type, **options: Any) -> list[int]:
    """Register a type whose instances are counted when they are taken apart."""
    calls: list[int] = []

    def taken(message: Any) -> dict[str, Any]:
        calls.append(1)
        return {"role": message.role, "content": message.content}

    everstep.register(cls, name="tests:frozen.Message", encode=taken, decode=lambda f: cls(**f), **options)
    return calls


def test_an_instance_of_a_frozen_type_is_taken_apart_once(places: Any) -> None:
    calls = counted(Message, frozen=True)
    store = places.open()
    line = store.line("r", state={"messages": [Message("user", str(n)) for n in range(200)]})
    line.checkpoint()
    calls.clear()
    for n in range(5):
        line.state["messages"].append(Message("user", f"more {n}"))
        line.checkpoint()
    assert len(calls) <= 10
    assert store.load("r") == line.state
    assert type(store.load("r")["messages"][3]) is Message
    again = store.line("r")
    assert len(again.state["messages"]) == 205
    calls.clear()
    again.state["messages"][0] = Message("user", "replaced")
    again.checkpoint()
    assert len(calls) <= 2
    assert store.load("r")["messages"][0].content == "replaced"
    for made, state in store.states("r"):
        assert state == store.load(made.ref)
    assert store.verify("full").ok
    counted(Message)
    assert Message not in kinds.FROZEN, "registered again without the promise"


def test_opaque_bytes_come_back_and_are_shown_in_short(places: Any) -> None:
    store = places.open()
    value = everstep.Opaque("Send", b"\x00" * 214)
    line = store.line("r", state={"a": value, "b": [everstep.Opaque("X", b"", "an X")]})
    line.checkpoint()
    line.state["a"] = everstep.Opaque("Send", b"\x01" * 1220)
    line.checkpoint()
    assert store.load("r@1") == {"a": value, "b": [everstep.Opaque("X", b"", "an X")]}
    assert as_json(store.load("r")) == {"a": "<Send 1,220 bytes>", "b": ["an X"]}
    (change,) = store.diff("r@1", "r@2")
    assert (change.path, as_json(change.before), as_json(change.after)) == (("a",), "<Send 214 bytes>", "<Send 1,220 bytes>")
    assert pickle.loads(pickle.dumps(value)) == value
    assert hash(value) == hash(everstep.Opaque("Send", b"\x00" * 214))
    with pytest.raises(AttributeError):
        value.data = b""  # type: ignore[misc]
    for wrong in ((1, b""), ("a", "b"), ("a", b"", 3)):
        with pytest.raises(InvalidArgument):
            everstep.Opaque(*wrong)


def test_a_list_that_is_assigned_over_another_is_compared_with_it(places: Any) -> None:
    import random

    texts = [random.Random(n).randbytes(300).hex() for n in range(60)]
    store = places.open()
    with store.run("r", state={"messages": [{"text": text} for text in texts], "d": {"a": {"x": texts[0]}, "b": texts[1]}}) as run:
        run.checkpoint()
        stored = store.get("r").stored_bytes
        for n in range(5):
            run.state["messages"] = [*[{"text": text} for text in texts], {"text": f"more {n}"}]
            run.state["d"] = {"a": {"x": texts[0], "n": n}, "b": texts[1]}
            run.checkpoint()
            assert store.load("r") == run.state
        assert store.get("r").stored_bytes - stored < 4000
        run.state["messages"] = run.state["messages"][1:]
        run.state["messages"][0]["text"] = "changed"
        run.state["d"] = {"b": 1, "a": 2}
        run.checkpoint()
        assert store.load("r") == run.state
        run.state["d"]["b"] = [1]
        run.state["d"] = {"b": [1, 2]}
        run.checkpoint()
        assert store.load("r") == run.state
    assert store.verify("full").ok
