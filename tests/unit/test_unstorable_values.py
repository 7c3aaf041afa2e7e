"""What cannot be stored is refused with the exact path to it."""

import socket
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pydantic
import pytest

from everstep.codec.values import MAX_DEPTH, MAX_NESTED, decode, encode
from everstep.errors import LimitExceeded, Unstorable


@dataclass
class Tool:
    client: Any


@dataclass(frozen=True)
class Token:
    inner: Any


class Slot(NamedTuple):
    thing: Any


class Form(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True, extra="allow")
    item: Any = None


class Text(str):
    __slots__ = ()


class Numbers(list[Any]):
    pass


class Opaque:
    def __repr__(self) -> str:
        return "<opaque>"


def generator() -> Any:
    yield 1


OPAQUE = Opaque()
CASES: list[tuple[str, Any, str]] = [
    ("an object", OPAQUE, "state"),
    ("an object in a list", {"tools": [1, 2, Tool(OPAQUE)]}, "state['tools'][2].client"),
    ("an object as a value", {"a": {"b": OPAQUE}}, "state['a']['b']"),
    ("an object under an int", {3: [OPAQUE]}, "state[3][0]"),
    ("an object in a tuple", {"t": (1, (2, OPAQUE))}, "state['t'][1][1]"),
    ("an object in a named tuple", [Slot(OPAQUE)], "state[0].thing"),
    ("an object in a model", {"f": Form(item=[OPAQUE])}, "state['f'].item[0]"),
    ("an object in a dict key", {"d": {(1, Token(OPAQUE)): 2}}, "state['d'] (key (1, Token(inner=<opaque>)))[1].inner"),
    ("an object in a set", {"s": {Token(OPAQUE)}}, "state['s'] (member Token(inner=<opaque>)).inner"),
    ("a lambda", {"f": [lambda: 0]}, "state['f'][0]"),
    ("a generator", {"g": generator()}, "state['g']"),
    ("a class", {"c": int}, "state['c']"),
    ("a module", {"m": socket}, "state['m']"),
    ("a default dict", {"d": defaultdict(list)}, "state['d']"),
    ("a memoryview", {"m": [memoryview(b"x")]}, "state['m'][0]"),
    ("a memoryview beside other keys", {"m": {1: memoryview(b"x")}}, "state['m'][1]"),
    ("a subclass of str", {"t": Text("x")}, "state['t']"),
    ("a subclass of list", {"t": Numbers([1])}, "state['t']"),
    ("a lone surrogate", {"t": ["ok", "\ud800"]}, "state['t'][1]"),
    ("a lone surrogate in a tuple", {"t": ("\ud800",)}, "state['t'][0]"),
    ("a bound method", {"m": [].append}, "state['m']"),
    ("an array of objects", {"a": np.array([object()])}, "state['a']"),
    ("an exception", {"e": ValueError("x")}, "state['e']"),
]


@pytest.mark.parametrize(("name", "value", "path"), CASES, ids=[name for name, _, _ in CASES])
def test_refuses_with_the_path_to(name: str, value: Any, path: str) -> None:
    with pytest.raises(Unstorable) as caught:
        encode(value)
    assert caught.value.path == path
    assert str(caught.value).startswith(path + " ")
    assert caught.value.written == "no"


def test_refuses_an_open_socket_by_its_type() -> None:
    with socket.socket() as open_socket, pytest.raises(Unstorable, match=r"state\['tools'\]\[2\]\.client is a socket"):
        encode({"tools": [0, 1, Tool(open_socket)]})


def test_refuses_a_surrogate_as_a_key() -> None:
    with pytest.raises(Unstorable) as caught:
        encode({"a": {"\ud800": 1}})
    assert caught.value.path.startswith("state['a'] (key ")


def test_refuses_cycles_of_every_kind() -> None:
    in_list: list[Any] = [1]
    in_list.append(in_list)
    in_dict: dict[str, Any] = {}
    in_dict["me"] = {"deep": [in_dict]}
    in_object = Tool(None)
    in_object.client = {"a": in_object}
    in_tuple: tuple[Any, ...] = ([],)
    in_tuple[0].append(in_tuple)
    for value, path in [(in_list, "x[1]"), (in_dict, "x['me']['deep'][0]"), (in_object, "x.client['a']"), (in_tuple, "x[0][0]")]:
        with pytest.raises(Unstorable, match="contains itself") as caught:
            encode(value, "x")
        assert caught.value.path == path


def test_the_same_object_twice_is_no_cycle() -> None:
    shared = [1]
    assert decode(encode({"a": shared, "b": (shared, shared)})) == {"a": [1], "b": ([1], [1])}


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: {"k": v}, lambda v: {1: v}], ids=["lists", "dicts", "int dicts"])
def test_nesting_beyond_the_limit_is_refused_and_up_to_it_comes_back(wrap: Any) -> None:
    value: Any = 1
    for _ in range(MAX_NESTED // 2):
        value = wrap(value)
    assert decode(encode(value)) == value
    for _ in range(5000):
        value = wrap(value)
    with pytest.raises(LimitExceeded):
        encode(value)


def test_lists_may_nest_to_the_stated_depth_and_tuples_to_theirs() -> None:
    value: Any = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    assert decode(encode(value)) == value
    nested: Any = 1
    for _ in range(MAX_NESTED):
        nested = (nested,)
    assert decode(encode(nested)) == nested
    for _ in range(10):
        nested = (nested,)
    with pytest.raises(LimitExceeded):
        encode(nested)


@pytest.mark.parametrize("wrap", [lambda v: (v,), lambda v: Tool(v), lambda v: frozenset({v})], ids=["tuples", "objects", "frozensets"])
def test_deep_extensions_are_refused_and_not_a_crash(wrap: Any) -> None:
    value: Any = 1
    for _ in range(600):
        value = wrap(value)
    with pytest.raises(LimitExceeded):
        encode(value)


def test_a_path_names_only_what_is_at_fault() -> None:
    with pytest.raises(Unstorable) as caught:
        encode({"fine": [1] * 1000, "also": {"fine": (1, 2)}, "bad": {"here": OPAQUE}})
    assert caught.value.path == "state['bad']['here']"
    assert "Opaque" in caught.value.message
    assert "everstep.register" in caught.value.remedy
