"""Every method of a live dict and list does what the same call does to a plain one: result, return value, exception, saved state."""

# ruff: noqa: RUF005, B023 -- concatenation itself is tested; loop variables are bound by a call

import copy
import operator
from collections.abc import Callable
from typing import Any

import pytest
from live_helpers import opened, save

from everstep.codec.values import encode

D: dict[Any, Any] = {"a": 1, "b": [1, 2], "c": {"x": 1}, 5: "five"}
L: list[Any] = [3, 1, 2, [9], {"k": 1}, 3]
NUMBERS: list[Any] = [3, 1, 2, 5, 4, 1]


def setting(key: Any, value: Any) -> Callable[[Any], Any]:
    return lambda x: operator.setitem(x, key, value)


def deleting(key: Any) -> Callable[[Any], Any]:
    return lambda x: operator.delitem(x, key)


class Index:
    def __index__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "an index"


DICT_CALLS: dict[str, Callable[[Any], Any]] = {
    "set new": setting("n", [1]),
    "set old": setting("a", 2),
    "set same": setting("a", 1),
    "set unhashable": setting([], 1),
    "del": deleting("b"),
    "del missing": deleting("zz"),
    "get": lambda d: (d.get("a"), d.get("zz"), d.get("zz", 7), d.get("b")),
    "getitem missing": lambda d: d["zz"],
    "pop": lambda d: d.pop("b"),
    "pop missing": lambda d: d.pop("zz"),
    "pop default": lambda d: (d.pop("zz", 1), d.pop("zz", None)),
    "pop nothing": lambda d: d.pop(),
    "pop too many": lambda d: d.pop("zz", 1, 2),
    "popitem": lambda d: d.popitem(),
    "popitem till empty": lambda d: [d.popitem() for _ in range(9)],
    "clear": lambda d: d.clear(),
    "update dict": lambda d: d.update({"a": 9, "n": {}}),
    "update pairs": lambda d: d.update([("a", 9), ("n", [])]),
    "update keywords": lambda d: d.update(a=9, n=[]),
    "update both": lambda d: d.update({"a": 9}, a=10, z=1),
    "update nothing": lambda d: d.update(),
    "update itself": lambda d: d.update(d),
    "update number": lambda d: d.update(5),
    "update bad pairs": lambda d: d.update([("a", 9), (1,)]),
    "update two": lambda d: d.update({}, {}),
    "update none": lambda d: d.update(None),
    "setdefault old": lambda d: d.setdefault("a", 5),
    "setdefault new": lambda d: d.setdefault("n", []),
    "setdefault and append": lambda d: d.setdefault("n", []).append(1),
    "setdefault none": lambda d: d.setdefault("n"),
    "|=": lambda d: operator.ior(d, {"a": 2, "n": 3}),
    "|= pairs": lambda d: operator.ior(d, [("a", 2)]),
    "|= number": lambda d: operator.ior(d, 5),
    "|": lambda d: d | {"a": 2},
    "| list": lambda d: d | [("a", 2)],
    "reversed |": lambda d: {"z": 1, "a": 0} | d,
    "again at the end": lambda d: operator.setitem(d, "a", d.pop("a")),
    "del and set": lambda d: (operator.delitem(d, "a"), operator.setitem(d, "a", 1)),
    "keys": lambda d: list(d.keys()),
    "values": lambda d: list(d.values()),
    "items": lambda d: list(d.items()),
    "reversed": lambda d: list(reversed(d)),
    "reversed keys": lambda d: list(reversed(d.keys())),
    "reversed values": lambda d: list(reversed(d.values())),
    "reversed items": lambda d: list(reversed(d.items())),
    "views": lambda d: (
        len(d.values()),
        len(d.items()),
        1 in d.values(),
        ("a", 1) in d.items(),
        "a" in d.keys(),
        d.keys() & {"a"},
        d.keys() | {"z"},
    ),
    "items as a set": lambda d: dict.fromkeys("ab", 1).items() & {k: v for k, v in d.items() if isinstance(v, int)}.items(),
    "len bool contains": lambda d: (len(d), bool(d), "a" in d, "zz" in d, 5.0 in d),
    "compare": lambda d: (d == dict(d), d != {}, d == 5, d == {**d, "a": True}),
    "order": lambda d: d < {},
    "hash": hash,
    "fromkeys": lambda d: type(d).fromkeys("ab", 1),
    "format": lambda d: "{a} {b}".format_map(d),
    "inner": lambda d: (d["b"].append(3), d["c"].update(y=2), d["b"]),
    "key of another type": setting(5.0, "float"),
    "unknown attribute": lambda d: d.nothing,
}

LIST_CALLS: dict[str, Callable[[Any], Any]] = {
    "append": lambda x: x.append([1]),
    "append nothing": lambda x: x.append(),
    "extend": lambda x: x.extend([1, {}]),
    "extend one": lambda x: x.extend([1]),
    "extend empty": lambda x: x.extend([]),
    "extend generator": lambda x: x.extend(i for i in range(3)),
    "extend itself": lambda x: x.extend(x),
    "extend number": lambda x: x.extend(5),
    "extend none": lambda x: x.extend(None),
    "+=": lambda x: operator.iadd(x, "ab"),
    "+= number": lambda x: operator.iadd(x, 5),
    "+": lambda x: x + [1],
    "+ tuple": lambda x: x + (1,),
    "reversed +": lambda x: [0] + x,
    "*": lambda x: x * 2,
    "reversed *": lambda x: 2 * x,
    "* text": lambda x: x * "a",
    "*= 3": lambda x: operator.imul(x, 3),
    "*= 1": lambda x: operator.imul(x, 1),
    "*= 0": lambda x: operator.imul(x, 0),
    "*= -2": lambda x: operator.imul(x, -2),
    "*= text": lambda x: operator.imul(x, "a"),
    "*= 1.5": lambda x: operator.imul(x, 1.5),
    **{f"insert {i!r}": (lambda i: lambda x: x.insert(i, "new"))(i) for i in (0, 1, 3, 6, 99, -1, -6, -99, True, Index())},
    "insert text": lambda x: x.insert("a", 1),
    "insert float": lambda x: x.insert(1.0, 1),
    **{f"pop {i!r}": (lambda i: lambda x: x.pop(i))(i) for i in (0, 1, -1, 5, -6, 6, -7, 99, Index())},
    "pop": lambda x: x.pop(),
    "pop text": lambda x: x.pop("a"),
    "pop till empty": lambda x: [x.pop() for _ in range(10)],
    "pop(0) till empty": lambda x: [x.pop(0) for _ in range(6)],
    "remove": lambda x: x.remove(3),
    "remove missing": lambda x: x.remove("zz"),
    "remove container": lambda x: x.remove([9]),
    "clear": lambda x: x.clear(),
    "reverse": lambda x: x.reverse(),
    "sort by key": lambda x: x.sort(key=str),
    "sort by key down": lambda x: x.sort(key=str, reverse=True),
    "sort positional": lambda x: x.sort(str),
    "index": lambda x: (x.index(2), x.index(3, 1), x.index([9])),
    "index missing": lambda x: x.index("zz"),
    "count": lambda x: (x.count(3), x.count("zz")),
    **{f"set {i!r}": (lambda i: setting(i, "new"))(i) for i in (0, -1, 5, -6, 6, -7, Index())},
    "set text": setting("a", 1),
    "set float": setting(1.0, 1),
    "set none": setting(None, 1),
    **{f"del {i!r}": (lambda i: deleting(i))(i) for i in (0, -1, 5, -6, 6, -7, Index())},
    "del text": deleting("a"),
    "get text": lambda x: x["a"],
    "get beyond": lambda x: x[6],
    **{
        f"set slice {s.start}:{s.stop}:{s.step} to {new!r}": (lambda s, new: setting(s, new))(s, new)
        for s in (
            slice(None),
            slice(1, 3),
            slice(3, 1),
            slice(2, 2),
            slice(-2, None),
            slice(99, None),
            slice(None, None, 2),
            slice(None, None, -1),
            slice(4, 1, -2),
            slice(5, 0, -1),
            slice(0, 0, 2),
            slice(-99, 99, 3),
        )
        for new in ([], ["a"], ["a", "b", "c"], "xyz", ("t", "u"), range(6))
    },
    "set slice to number": setting(slice(0, 1), 5),
    "set slice to generator": lambda x: operator.setitem(x, slice(0, 2), (i for i in range(4))),
    "set slice to itself": lambda x: operator.setitem(x, slice(None), x),
    "set inner slice to itself": lambda x: operator.setitem(x, slice(1, 1), x),
    "set slice step 0": setting(slice(None, None, 0), [1]),
    **{
        f"del slice {s.start}:{s.stop}:{s.step}": (lambda s: deleting(s))(s)
        for s in (
            slice(None),
            slice(1, 3),
            slice(3, 1),
            slice(-2, None),
            slice(99, None),
            slice(None, None, 2),
            slice(None, None, -1),
            slice(4, 1, -2),
            slice(0, 0),
            slice(1, None, 3),
        )
    },
    "del slice step 0": deleting(slice(None, None, 0)),
    "slices": lambda x: (x[1:3], x[::-1], x[::2], x[5:1:-2], x[99:], x[:]),
    "iterate": lambda x: (list(x), list(reversed(x)), list(enumerate(x)), tuple(x)),
    "len bool contains": lambda x: (len(x), bool(x), 3 in x, [9] in x, "zz" in x),
    "compare": lambda x: (x == list(x), x != [], x == 5, x < [4], x >= [3]),
    "hash": hash,
    "inner": lambda x: (x[3].append(1), x[4].update(z=1)),
    "swap": lambda x: operator.setitem(x, slice(0, 2), [x[1], x[0]]),
    "swap ends": lambda x: (operator.setitem(x, 0, x[-1]), operator.setitem(x, -1, x[1])),
    "many at once": lambda x: [x.insert(i % 3, i) or x.pop(-1) for i in range(20)],
    "unknown attribute": lambda x: x.nothing,
}

NUMBER_CALLS: dict[str, Callable[[Any], Any]] = {
    "sort": lambda x: x.sort(),
    "sort down": lambda x: x.sort(reverse=True),
    "sort key": lambda x: x.sort(key=lambda v: -v),
    "sort key none": lambda x: x.sort(key=None, reverse=False),
    "sum max min": lambda x: (sum(x), max(x), min(x), sorted(x)),
}


def outcome(call: Callable[[Any], Any], target: Any) -> tuple[str, Any]:
    try:
        return "returned", call(target)
    except Exception as error:
        return "raised", type(error)


def agree(call: Callable[[Any], Any], initial: Any) -> None:
    plain = copy.deepcopy(initial)
    run = opened({"before": 0, "x": copy.deepcopy(initial), "deep": [{"x": copy.deepcopy(initial)}]})
    save(run)
    expected = outcome(call, plain)
    for live in (run.state["x"], run.state["deep"][0]["x"]):
        kind, value = outcome(call, live)
        if value is live:
            value = plain if expected[1] is plain else value
        assert (kind, value) == expected
        if kind == "returned" and value is not plain:
            assert encode(value) == encode(expected[1]) if storable(value) else repr(value) == repr(expected[1])
        assert encode(live) == encode(plain)
        stored = save(run)
    assert encode(stored["x"]) == encode(stored["deep"][0]["x"]) == encode(plain)
    live.clear()
    live.extend([1]) if isinstance(live, list) else live.update(a=1)
    save(run)


def storable(value: Any) -> bool:
    try:
        encode(value)
    except Exception:
        return False
    return True


@pytest.mark.parametrize("name", DICT_CALLS)
def test_a_live_dict_does_as_a_plain_one(name: str) -> None:
    agree(DICT_CALLS[name], D)
    agree(DICT_CALLS[name], {})


@pytest.mark.parametrize("name", LIST_CALLS)
def test_a_live_list_does_as_a_plain_one(name: str) -> None:
    agree(LIST_CALLS[name], L)
    if name != "pop text":  # an empty list may say either that it is empty or that text is no index
        agree(LIST_CALLS[name], [])


@pytest.mark.parametrize("name", NUMBER_CALLS)
def test_a_live_list_of_numbers_does_as_a_plain_one(name: str) -> None:
    agree(NUMBER_CALLS[name], NUMBERS)


def test_a_sort_that_fails_leaves_the_list_as_it_was() -> None:
    run = opened({"x": copy.deepcopy(L)})
    save(run)
    with pytest.raises(TypeError):
        run.state["x"].sort()
    assert run.state["x"] == L
    assert save(run)["x"] == L


@pytest.mark.parametrize("cls", [dict, list])
def test_no_mutating_method_is_left_out(cls: type) -> None:
    from everstep.snapshot.tracked import TrackedDict, TrackedList

    live = TrackedDict if cls is dict else TrackedList
    mutating = {
        dict: {"__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"},
        list: {
            "__setitem__",
            "__delitem__",
            "__iadd__",
            "__imul__",
            "append",
            "clear",
            "extend",
            "insert",
            "pop",
            "remove",
            "reverse",
            "sort",
        },
    }[cls]
    harmless = {
        dict: {"__contains__", "__eq__", "__ge__", "__gt__", "__le__", "__lt__", "__ne__", "__len__", "__repr__", "__reversed__", "__sizeof__", "__class_getitem__", "__getattribute__", "__hash__", "__doc__", "fromkeys", "keys"},
        list: {"__contains__", "__eq__", "__ge__", "__gt__", "__le__", "__lt__", "__ne__", "__len__", "__repr__", "__sizeof__", "__class_getitem__", "__getattribute__", "__hash__", "__doc__", "index", "count"},
    }[cls]  # fmt: skip
    for name in vars(cls):
        assert name in vars(live) or name in harmless, f"{cls.__name__}.{name} is neither overridden nor known to be harmless"
    assert mutating <= set(vars(live))


def test_calling_init_again_changes_nothing_unnoticed() -> None:
    run = opened({"l": [1, 2], "d": {"a": 1}})
    save(run)
    run.state["l"].__init__([7, 8, 9])
    assert run.state["l"] == [7, 8, 9]
    save(run)
    run.state["d"].__init__(a=5, z=6)
    assert run.state["d"] == {"a": 5, "z": 6}
    save(run)
