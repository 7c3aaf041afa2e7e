"""Every storable type comes back as the same type with the same value, wherever it stands."""

# ruff: noqa: C901, DTZ001, DTZ901 -- naive times are values too; one long choice

import datetime as dt
import enum
import math
from collections import Counter, OrderedDict, deque, namedtuple
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.codec.values import decode, encode


class Color(enum.Enum):
    RED = "r"
    BLUE = (1, 2)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10**30


class Word(enum.StrEnum):
    ONE = "one"


class Rights(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
    RUN = enum.auto()


@dataclass
class Box:
    content: Any
    label: str = "box"


@dataclass(frozen=True, slots=True)
class Frozen:
    x: Any
    derived: int = field(init=False, default=7)


class Pair(NamedTuple):
    left: Any
    right: Any = None


Old = namedtuple("Old", "a b")


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow", arbitrary_types_allowed=True)
    content: Any = None
    count: int = 0
    _secret: Any = pydantic.PrivateAttr(default=None)


class Ice(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    n: int


class Struct(msgspec.Struct):
    content: Any = None


class FrozenStruct(msgspec.Struct, frozen=True):
    n: int


def same(a: Any, b: Any) -> bool:
    """Equal and of the same types throughout, with NaN equal to itself and -0.0 unlike 0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, Decimal):
        return a.as_tuple() == b.as_tuple()
    if isinstance(a, (dt.datetime, dt.time)):
        return (a.replace(tzinfo=None), a.fold, str(a.tzinfo)) == (b.replace(tzinfo=None), b.fold, str(b.tzinfo)) and type(
            a.tzinfo
        ) is type(b.tzinfo)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() and a.flags.fnc == b.flags.fnc
    if isinstance(a, np.generic):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return len(a) == len(b) and all(same(x, y) and same(a[x], b[y]) for x, y in zip(a, b, strict=True))
    if isinstance(a, deque):
        return a.maxlen == b.maxlen and same(list(a), list(b))
    if isinstance(a, (set, frozenset)):
        return len(a) == len(b) and all(any(same(x, y) for y in b) for x in a)
    if isinstance(a, enum.Enum):
        return a is b
    if isinstance(a, (Box, Frozen)):
        return all(same(getattr(a, n), getattr(b, n)) for n in a.__dataclass_fields__)
    if isinstance(a, msgspec.Struct):
        return all(same(getattr(a, n), getattr(b, n)) for n in a.__struct_fields__)
    if isinstance(a, pydantic.BaseModel):
        return same(a.__dict__, b.__dict__) and a.model_fields_set == b.model_fields_set and same(a.model_extra, b.model_extra)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


HASHABLE: dict[str, Any] = {
    "none": None,
    "true": True,
    "false": False,
    "zero": 0,
    "one": 1,
    "int 64": -(2**63),
    "uint 64": 2**64 - 1,
    "int just beyond": 2**64,
    "int below": -(2**63) - 1,
    "big int": 7**5000,
    "negative big int": -(7**5000),
    "float": 0.1,
    "minus zero": -0.0,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "nan": math.nan,
    "smallest float": 5e-324,
    "str": "naïve ☃ \U0001f600 \x00",
    "empty str": "",
    "bytes": b"\x00\xff\xc4",
    "empty bytes": b"",
    "tuple": (1, "a", (2,)),
    "empty tuple": (),
    "frozenset": frozenset({1, "a", (2, 3)}),
    "datetime": dt.datetime(2024, 2, 29, 23, 59, 59, 999999),
    "datetime utc": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    "datetime offset": dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=-5, minutes=-30, microseconds=3))),
    "datetime named offset": dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1), "CET")),
    "datetime zone": dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    "datetime fold": dt.datetime(2024, 10, 27, 2, 30, fold=1),
    "datetime min": dt.datetime.min,
    "datetime max": dt.datetime.max,
    "date": dt.date(1, 1, 1),
    "time": dt.time(1, 2, 3, 4),
    "time fold": dt.time(1, 2, 3, 4, fold=1, tzinfo=dt.UTC),
    "timedelta": dt.timedelta(days=-1, microseconds=1),
    "uuid": UUID(int=2**128 - 1),
    "decimal": Decimal("-1.50"),
    "decimal exponent": Decimal("1E+400"),
    "decimal nan": Decimal("NaN123"),
    "decimal infinity": Decimal("-Infinity"),
    "decimal minus zero": Decimal("-0.00"),
    "fraction": Fraction(7**100, 3),
    "complex": complex(-0.0, math.nan),
    "range": range(10**20, -5, -3),
    "path": Path("/a/b c/ü"),
    "pure path": PurePosixPath("a/../b"),
    "windows path": PureWindowsPath("C:\\a\\b"),
    "enum": Color.RED,
    "enum with tuple": Color.BLUE,
    "int enum": Level.LOW,
    "big int enum": Level.HIGH,
    "str enum": Word.ONE,
    "flag": Rights.READ | Rights.RUN,
    "no flag": Rights(0),
    "frozen dataclass": Frozen((1, 2)),
    "named tuple": Pair(1, (2,)),
    "old named tuple": Old(1, "x"),
    "frozen model": Ice(n=3),
    "frozen struct": FrozenStruct(4),
    "numpy float": np.float64(0.1),
    "numpy float32": np.float32(0.1),
    "numpy int8": np.int8(-3),
    "numpy bool": np.bool_(True),
    "numpy datetime": np.datetime64("2024-01-01T00:00", "s"),
    "numpy str": np.str_("ab"),
    "numpy complex": np.complex64(1 + 2j),
}
UNHASHABLE: dict[str, Any] = {
    "list": [1, [2, [3]]],
    "empty list": [],
    "dict": {"a": {"b": 1}},
    "dict of mixed keys": {1: "int", "1": "str", 1.5: "float", None: 0, (1, (2,)): "tuple", b"1": "bytes"},
    "dict with bool key": {True: 1},
    "dict with int key": {1: 1},
    "dict with float key": {1.0: 1},
    "dict with enum keys": {Color.RED: 1, Level.LOW: 2},
    "dict in odd order": {"z": 1, "a": 2, "m": 3},
    "dict with big int key": {2**70: 1},
    "set": {1, 2.5, "a", (1,), None},
    "empty set": set(),
    "set of bool": {True},
    "bytearray": bytearray(b"\x00\xff"),
    "empty bytearray": bytearray(),
    "decimal snan": Decimal("sNaN"),
    "ordered dict": OrderedDict([("b", 1), (2, "a")]),
    "counter": Counter("hello"),
    "deque": deque([1, [2]], maxlen=5),
    "endless deque": deque([1, 2]),
    "dataclass": Box([1, {"a": (1,)}]),
    "named tuple with list": Pair([1]),
    "model": Model(content=[1], count=2, more={"x": (1,)}),
    "struct": Struct({"a": [1]}),
    "array": np.arange(6, dtype="<f4").reshape(2, 3),
    "fortran array": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "big endian array": np.array([1, 2], dtype=">i4"),
    "array without dimensions": np.array(1.5),
    "empty array": np.zeros((0, 3)),
    "bool array": np.array([True, False]),
    "text array": np.array(["a", "bcd"]),
    "record array": np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
    "date array": np.array(["2024-01-01"], dtype="M8[D]"),
    "strided array": np.arange(10)[::3],
}
ALL = HASHABLE | UNHASHABLE
WRAPPINGS: dict[str, Any] = {
    "alone": lambda v: v,
    "in a list": lambda v: [v, v],
    "in a list of lists": lambda v: [[[v]]],
    "as a value": lambda v: {"k": v},
    "as a value under an int": lambda v: {1: {2: v}},
    "in a tuple": lambda v: (v, 1),
    "in a tuple in a dict in a list": lambda v: [{"a": ({"b": v},)}],
    "in a dataclass": lambda v: Box(v),
    "in a frozen dataclass": lambda v: Frozen(v),
    "in a model": lambda v: Model(content=v),
    "as an extra field of a model": lambda v: Model(extra=v),
    "in a struct": lambda v: Struct(v),
    "in a named tuple": lambda v: Pair(v, v),
    "in a deque": lambda v: deque([v]),
    "in an ordered dict": lambda v: OrderedDict(a=v),
}
HASH_WRAPPINGS: dict[str, Any] = {
    "as a key": lambda v: {v: 1, "other": 2},
    "as a key deep down": lambda v: [{"a": {v: [v]}}],
    "as a set member": lambda v: {v},
    "as a frozenset member": lambda v: frozenset({v, "x"}),
    "as a key in a tuple": lambda v: {(v, 1): v},
    "as a counted thing": lambda v: Counter({v: 3}),
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("where", WRAPPINGS)
def test_comes_back_as_the_same_type_and_value(name: str, where: str) -> None:
    value = WRAPPINGS[where](ALL[name])
    raw = encode(value)
    back = decode(raw)
    assert same(back, value), (back, value)
    assert encode(back) == raw


@pytest.mark.parametrize("name", HASHABLE)
@pytest.mark.parametrize("where", HASH_WRAPPINGS)
def test_comes_back_from_where_only_hashable_things_stand(name: str, where: str) -> None:
    value = HASH_WRAPPINGS[where](HASHABLE[name])
    back = decode(encode(value))
    assert same(back, value), (back, value)
    assert encode(back) == encode(value)


def test_the_table_of_types_has_every_type_that_the_design_lists() -> None:
    covered = {type(value) for value in ALL.values()}
    listed = {
        type(None), bool, int, float, str, bytes, list, tuple, dict, set, frozenset, dt.datetime, dt.date, dt.time, dt.timedelta, UUID,
        Decimal, Fraction, complex, range, type(Path()), Color, Box, Pair, Model, Struct, np.ndarray,
    }  # fmt: skip
    assert listed <= covered


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (True, 1), (1, 1.0), (0.0, -0.0), ((1,), [1]), (b"a", bytearray(b"a")), ("a", b"a"), ({1}, frozenset({1})), ({1: 0}, {True: 0}),
        ({1: 0}, {"1": 0}), (Level.LOW, 1), (Word.ONE, "one"), (Pair(1), (1, None)), (OrderedDict(a=1), {"a": 1}), (Counter(a=1), {"a": 1}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (Decimal("1.0"), Decimal("1.00")), (np.float64(1), 1.0), (np.int32(1), np.int64(1)),
        (deque([1]), deque([1], 3)), (dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, fold=1)), (dt.datetime(2024, 1, 1), dt.date(2024, 1, 1)),
        (Path("a"), PurePosixPath("a")), (Path("a"), "a"), (range(0), range(1, 1)), (Model(), Model(content=None)),
        (np.zeros((2, 2)), np.asfortranarray(np.zeros((2, 2)))), (np.zeros(2), [0.0, 0.0]),
    ],
)  # fmt: skip
def test_values_that_are_not_the_same_are_stored_as_other_bytes(one: Any, other: Any) -> None:
    assert encode(one) != encode(other)


def test_sets_are_stored_alike_whatever_the_order_of_their_members() -> None:
    assert encode({"a", "b", "c", 1, 2}) == encode({2, "c", 1, "b", "a"})
    words = [f"w{i}" for i in range(50)]
    assert encode(set(words)) == encode({words[-1 - i] for i in range(50)})


def test_a_zone_stays_the_zone_and_not_an_offset() -> None:
    back = decode(encode(dt.datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("America/New_York"))))
    assert back.tzinfo is ZoneInfo("America/New_York")
    assert (back + dt.timedelta(days=180)).utcoffset() == dt.timedelta(hours=-5)


def test_utc_is_the_singleton() -> None:
    assert decode(encode(dt.datetime(2024, 1, 1, tzinfo=dt.UTC))).tzinfo is dt.UTC


def test_an_array_that_comes_back_can_be_written() -> None:
    back = decode(encode({"a": np.arange(3)}))
    back["a"][0] = 9
    assert back["a"].tolist() == [9, 1, 2]


def test_an_ordered_dict_keeps_the_order_that_it_was_brought_into() -> None:
    value = OrderedDict(a=1, b=2, c=3)
    value.move_to_end("a")
    value.move_to_end("c", last=False)
    back = decode(encode({"k": value}))["k"]
    assert back == value
    assert list(back) == ["c", "b", "a"]


def test_a_model_keeps_private_fields_and_which_fields_were_set() -> None:
    model = Model(content=1)
    model._secret = [1, 2]
    back = decode(encode(model))
    assert back._secret == [1, 2]
    assert back == model
    assert back.model_fields_set == {"content"}
    assert back.model_dump() == model.model_dump()
    back.count = 5
    assert back.model_fields_set == {"content", "count"}


def test_a_dataclass_comes_back_without_running_its_constructor() -> None:
    @dataclass
    class Fussy:
        n: int

        def __post_init__(self) -> None:
            if self.n > 1:
                raise ValueError("too big")

    value = Fussy(1)
    value.n = 5
    assert decode(encode(value)) == value


def test_decoded_containers_are_fresh_each_time() -> None:
    raw = encode({"a": [1]})
    first, second = decode(raw), decode(raw)
    first["a"].append(2)
    assert second == {"a": [1]}


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(2**300), 2**300), st.floats(), st.text(), st.binary(), st.complex_numbers(),
    st.datetimes(timezones=st.none() | st.just(dt.UTC)), st.dates(), st.times(), st.timedeltas(), st.uuids(), st.fractions(),
    st.decimals(allow_nan=False), st.just(Decimal("NaN")), st.sampled_from([Color.RED, Level.HIGH, Rights.READ, Path("a/b"), range(3)]),
)  # fmt: skip
KEYS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3), st.builds(Pair, inner, inner)),
    max_leaves=4,
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS | st.binary().map(bytearray),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=5), inner, max_size=5),
        st.dictionaries(KEYS, inner, max_size=4),
        st.sets(KEYS, max_size=4),
        st.frozensets(KEYS, max_size=3),
        st.lists(inner, max_size=3).map(deque),
        st.dictionaries(KEYS, inner, max_size=3).map(OrderedDict),
        st.builds(Box, inner),
        st.builds(Pair, inner, inner),
        st.builds(Struct, inner),
        st.builds(Model, content=inner, count=st.integers()),
    ),
    max_leaves=25,
)


@given(VALUES)
def test_any_value_comes_back_with_its_types(value: Any) -> None:
    raw = encode(value)
    back = decode(raw)
    assert same(back, value), (back, value)
    assert encode(back) == raw


def test_the_strict_comparison_of_these_tests_tells_types_apart() -> None:
    assert not same(True, 1)
    assert not same(0.0, -0.0)
    assert not same([1], (1,))
    assert not same({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert not same(np.zeros((2, 2)), np.asfortranarray(np.zeros((2, 2))))
    assert same(math.nan, math.nan)
