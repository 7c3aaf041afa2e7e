"""Values of every kind come back equal and of the same type, also in another process and in the framework's own storages."""

from __future__ import annotations

import enum
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import UUID

import pytest

pytest.importorskip("agent_framework", reason="agent-framework-core is not installed: pip install 'everstep[dev-adapters]'")

import agent_framework as af
import warm
from agent_framework import Content, Message, WorkflowCheckpoint, WorkflowMessage, register_checkpoint_type
from pydantic import BaseModel, PrivateAttr

import everstep
from everstep.adapters.agent_framework import CheckpointStorage
from everstep.errors import SaveFailed, Unstorable


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntFlag):
    LOW = 1
    HIGH = 2


class Point(NamedTuple):
    x: int
    y: int


@dataclass(frozen=True)
class Order:
    id: int
    lines: tuple[Any, ...] = ()


@dataclass(slots=True)
class Slim:
    name: str
    tags: set[str] = field(default_factory=set)


class Profile(BaseModel):
    name: str
    friends: list[str] = []
    _seen: int = PrivateAttr(default=0)


class Bag(BaseModel, extra="allow"):
    n: int = 1


class Basket:
    def __init__(self, owner: str):
        self.owner, self.items = owner, [1, 2]


class Names(dict[str, int]):
    pass


class Money(float):
    pass


class Stranger:
    pass


TYPES = [Colour, Level, Point, Order, Slim, Profile, Bag, Basket, Names, Money]
CALL = {"call_id": "c1", "name": "search", "arguments": {"q": "x", "n": [1, None]}}


def contents() -> list[Content]:
    call = Content.from_function_call(**CALL)
    request = Content.from_function_approval_request("r1", call)
    return [
        Content.from_text("hi"),
        Content.from_text(""),
        Content.from_text_reasoning(text="because"),
        Content.from_data(b"\x00\xff", "image/png"),
        Content.from_uri("https://example.com/a.png", media_type="image/png"),
        Content.from_error(message="broken", error_code="E1"),
        call,
        Content.from_function_result("c1", result={"found": (1, 2)}),
        request,
        request.to_function_approval_response(True),
        Content.from_usage({"input_token_count": 3, "output_token_count": 4}),
        Content.from_hosted_file("f1"),
        Content.from_text("with annotations", annotations=[{"type": "citation", "title": "t", "url": "u"}]),
        Content.from_text("with more", additional_properties={"k": [1, {"deep": True}]}),
    ]


def objects() -> dict[str, Any]:
    profile = Profile(name="Ada")
    profile._seen = 3
    return {
        "enums": [Colour.RED, Level.LOW | Level.HIGH],
        "point": Point(1, Order(2)),
        "order": Order(1, (Colour.RED, Message("user", ["hi"]))),
    } | {
        "slim": Slim("s", {"a"}),
        "models": [profile, Bag(n=2, more=[1])],
        "basket": Basket("ann"),
        "subclasses": [Names(a=1), Money(1.5)],
    }


def everything() -> dict[str, Any]:
    aware = [datetime(2026, 1, 2, 3, tzinfo=tz) for tz in (UTC, timezone(timedelta(hours=2)), timezone(timedelta(hours=-3), "BRT"))]
    counted: Any = defaultdict(list, {"a": [1]})
    return {
        "plain": [None, True, False, 0, -(2**70), 1.5, float("inf"), -0.0, "", "ä\u2028\x00", b"\x00\xff", {"a": {"b": []}}],
        "containers": [
            (1, (2,)),
            {1, "a"},
            frozenset({(1, 2)}),
            deque([1], 3),
            OrderedDict(b=1, a=2),
            Counter("aab"),
            counted,
            bytearray(b"x"),
            range(3),
        ],
        "keys": {1: "int", (1, "a"): "tuple", None: "none", 1.5: "float", "": "empty"},
        "times": [*aware, datetime.fromisoformat("2026-01-02T03:04"), date(2026, 1, 2), time(3, 4, tzinfo=UTC), timedelta(1, 2, 3)],
        "timezones": [UTC, timezone(timedelta(hours=2))],
        "numbers": [Fraction(1, 3), Path("a"), Decimal("1.50"), Decimal("NaN"), 1 + 2j, UUID(int=7), slice(1, None, 2)],
        "types": [str, list, dict[str, int], int | None, Literal["a", 1], tuple[int, ...], Message],
        "messages": [
            Message("user", ["hi"], author_name="ann", message_id="m1"),
            Message("assistant", contents()),
            Message("critic", ["no"]),
        ],
        "contents": contents(),
        "responses": [
            af.ChatResponse(messages=[Message("assistant", ["hi"])], response_id="r", model="m", usage_details={"total_token_count": 7}),
            af.AgentResponse(messages=[Message("assistant", ["hi"])], additional_properties={"k": 1}),
            af.AgentExecutorRequest(messages=[Message("user", ["x"])], should_respond=False),
            af.AgentExecutorResponse("e", af.AgentResponse(messages=[]), [Message("user", ["x"])]),
            af.AgentSession(session_id="s1"),
        ],
        "looks like ours": [{"@": "user", "content": "no message"}, {"@": {"@": 1}}, {"$": 1}, {"__pickled__x": 1}],
        "nested": {"a": [{"b": ({"c": Message("user", ["deep"])},)}]},
    }


def checkpoint(state: dict[str, Any], **more: Any) -> WorkflowCheckpoint:
    return WorkflowCheckpoint("flow", "hash", checkpoint_id="c1", state=state, **{"timestamp": "2026-01-01T00:00:00+00:00", **more})


def full() -> WorkflowCheckpoint:
    """A checkpoint that has something in each of its fields."""
    requests = {
        id: af.WorkflowEvent.request_info(request_id=id, source_executor_id="asker", request_data=data, response_type=kind)
        for id, data, kind in (
            ("r1", "why?", bool),
            ("r2", Order(1), Order),
            ("r3", contents()[8], Content),
            ("r4", {"a": 1}, dict[str, int] | None),
        )
    }
    answer = WorkflowMessage(
        True, "internal:asker", "asker", af._workflows._runner_context.MessageType.RESPONSE, original_request_info_event=requests["r1"]
    )
    sent = WorkflowMessage(Order(7), "a", "b", trace_contexts=[{"traceparent": "00-1"}], source_span_ids=["s1"])
    executors = {"quiet": {}, "a": {"seen": [Message("user", ["hi"])], "profile": Profile(name="x")}}
    return checkpoint(
        {**everything(), **objects(), "_executor_state": executors, "_edge_state": {"g": {"buffer": [sent]}}},
        messages={"a": [sent, WorkflowMessage(None, "a")], "internal:asker": [answer]},
        pending_request_info_events=requests,
        previous_checkpoint_id="c0",
        iteration_count=3,
        metadata={"superstep": 3, "tuple": (1, 2)},
        version="1.0",
    )


def shape(value: Any) -> Any:
    """Return a value as something that is equal only for equal values of the same types: the framework's classes cannot be compared."""
    cls = type(value)
    if isinstance(value, (enum.Enum, type)):
        return cls, str(value)
    if isinstance(value, dict):
        factory = getattr(value, "default_factory", None)
        return cls, factory, [(shape(key), shape(item)) for key, item in value.items()], shape(getattr(value, "__dict__", None))
    if isinstance(value, (set, frozenset)):
        return cls, sorted(repr(shape(item)) for item in value)
    if isinstance(value, (list, tuple, deque)):
        return cls, getattr(value, "maxlen", None), [shape(item) for item in value]
    if isinstance(value, BaseModel):
        return (
            cls,
            shape(value.__dict__),
            shape(value.__pydantic_private__),
            shape(value.__pydantic_extra__),
            sorted(value.model_fields_set),
        )
    fields = {name: getattr(value, name) for name in getattr(cls, "__dataclass_fields__", ())} or dict(
        sorted(getattr(value, "__dict__", {}).items())
    )
    return (cls, shape(fields)) if fields else (cls, repr(value))


def test_the_comparison_sees_types_and_fields() -> None:
    pairs = [(1, True), (1, 1.0), ([1], (1,)), ({"a": 1}, OrderedDict(a=1)), (Basket("a"), Basket("b")), (Slim("a"), Slim("b"))]
    pairs += [(Content.from_text("a"), Content.from_text("b")), (deque([1]), deque([1], 3)), (Colour.RED, "red"), (Bag(n=1), Bag())]
    assert all(shape(one) != shape(other) for one, other in pairs)
    assert shape(full()) == shape(full())


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "in memory", "files"])
async def test_every_field_of_a_checkpoint_comes_back(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if kind in ("in memory", "files"):
        allowed = [f"{cls.__module__}:{cls.__qualname__}" for cls in TYPES]
        own = (
            af.InMemoryCheckpointStorage() if kind == "in memory" else af.FileCheckpointStorage(tmp_path, allowed_checkpoint_types=allowed)
        )
        one = full()
        if kind == "files":  # what the framework's files do not store
            for name in ("keys", "types"):
                del one.state[name]
            one.state["numbers"] = one.state["numbers"][2:]
            one.state["enums"] = one.state["enums"][:1]
            del one.pending_request_info_events["r4"]
        await own.save(one)
        found = await own.load("c1")
        lost = ["state.subclasses"] if kind == "files" else []  # they come back as dict and float
        assert [name for name, value in parts(found).items() if value != parts(one)[name]] == lost
        return
    url = {"memory": "memory://", "sqlite": str(tmp_path / "s.db")}.get(kind) or request.getfixturevalue("place")
    with everstep.open(url) as store:
        await CheckpointStorage(store, types=TYPES).save(full())
        for storage in (CheckpointStorage(store, types=TYPES), CheckpointStorage(store, types=list(reversed(TYPES)))):
            found = await storage.load("c1")
            assert parts(found).keys() == parts(full()).keys()
            for name, value in parts(full()).items():
                assert parts(found)[name] == value, name
            assert shape(await storage.get_latest(workflow_name="flow")) == shape(found)
            assert shape(await storage.list_checkpoints(workflow_name="flow")) == shape([found])
        assert store.verify("full").ok


def parts(one: WorkflowCheckpoint) -> dict[str, Any]:
    """Return the shapes of all fields, and of each value of the state."""
    fields = one.to_dict()
    return {name: shape(value) for name, value in (fields | {f"state.{key}": item for key, item in fields.pop("state").items()}).items()}


def test_another_process_reads_every_value(tmp_path: Path) -> None:
    import asyncio

    url = str(tmp_path / "s.db")
    with everstep.open(url) as store:
        asyncio.run(CheckpointStorage(store, types=TYPES).save(full()))
    program = (
        "import asyncio, sys, test_agent_framework_values as t\n"
        f"storage = t.CheckpointStorage({url!r}, types=t.TYPES)\n"
        "assert t.parts(asyncio.run(storage.load('c1'))) == t.parts(t.full())\n"
        "storage.close()\n"
    )
    environment = {"PYTHONPATH": ":".join([str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path])}
    done = warm.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def lambda_() -> Any:
    return lambda: 1


LOOP: list[Any] = []
LOOP.append(LOOP)
BAD: list[tuple[Any, str]] = [
    (Stranger(), "state.x is of type .*Stranger, which this storage does not restore"),
    ({"deep": [Stranger()]}, r"state.x.deep\[0\] is of type .*Stranger"),
    (lambda_(), "state.x is of type builtins.function"),
    (open, "state.x is of type"),
    (sys, "state.x is of type builtins.module"),
    (Stranger, "state.x is the type .*Stranger, which is not allowed"),
    (LOOP, "state.x contains itself, or is nested too deeply"),
    ("lone \ud800", "is text with a lone surrogate"),
    ({Colour.RED: 1}, "state.x has a key of type .*Colour"),
    (Order(1, (Stranger(),)), r"state.x.lines\[0\] is of type .*Stranger"),
    (ValueError("x"), "state.x is of type builtins.ValueError"),
    (defaultdict(lambda_()), "state.x.default_factory is of type builtins.function"),
    (iter([1]), "state.x is of type builtins.list_iterator"),
]


@pytest.mark.parametrize(("value", "message"), BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_value_that_cannot_be_stored_is_refused_and_nothing_is_written(kind: str, value: Any, message: str, tmp_path: Path) -> None:
    with everstep.open("memory://" if kind == "memory" else tmp_path / "s.db") as store:
        storage = CheckpointStorage(store, types=TYPES)
        with pytest.raises(SaveFailed) as caught:
            await storage.save(checkpoint({"x": value}))
        assert isinstance(caught.value.error, Unstorable)
        assert storage.failed is caught.value.error
        with pytest.raises(Unstorable, match=message):
            raise caught.value.error
        assert not store.runs()
        await storage.save(checkpoint({"x": 1}))
        assert storage.failed is None
        with pytest.raises(SaveFailed):
            await storage.save(
                WorkflowCheckpoint("flow", "hash", previous_checkpoint_id="c1", messages={"a": [WorkflowMessage(value, "a")]})
            )
        assert await storage.list_checkpoint_ids(workflow_name="flow") == ["c1"]
        assert (await storage.load("c1")).state == {"x": 1}
        assert store.verify("full").ok


async def test_types_that_the_framework_was_told_of_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    from agent_framework._workflows import _checkpoint_encoding

    monkeypatch.setattr(_checkpoint_encoding, "_REGISTERED_CHECKPOINT_TYPE_KEYS", set())
    store = everstep.open("memory://")
    storage = CheckpointStorage(store)
    with pytest.raises(SaveFailed):
        await storage.save(checkpoint({"x": Order(1)}))
    register_checkpoint_type(Order)
    await storage.save(checkpoint({"x": Order(1)}))
    assert (await CheckpointStorage(store).load("c1")).state == {"x": Order(1)}
    monkeypatch.setattr(_checkpoint_encoding, "_REGISTERED_CHECKPOINT_TYPE_KEYS", set())
    with pytest.raises(af.WorkflowCheckpointException, match="allow it"):
        await CheckpointStorage(store).load("c1")
