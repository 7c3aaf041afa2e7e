"""The program's own types: registered, versioned, upgraded, unknown."""

import enum
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest

import everstep
from everstep.codec import kinds
from everstep.codec.values import decode, encode
from everstep.errors import EverstepError, InvalidArgument, NewerFormat, TypeConflict, Unstorable


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "_by_name", {})
    monkeypatch.setattr(kinds, "_by_type", {})


def forgotten() -> None:
    """As if another process read."""
    kinds._by_name.clear()
    kinds._by_type.clear()


@dataclass
class Point:
    x: int
    y: Any = 0


class Plain:
    def __init__(self, n: int):
        self.n = n


def test_a_type_with_a_name_is_stored_under_it() -> None:
    everstep.register(Point, name="geo.point")
    raw = encode(Point(1, 2))
    forgotten()
    assert decode(raw) == everstep.Unknown("geo.point", 1, {"x": 1, "y": 2})
    everstep.register(Point, name="geo.point")
    assert decode(raw) == Point(1, 2)


def test_register_is_a_decorator_with_and_without_options() -> None:
    @everstep.register
    @dataclass
    class One:
        a: int

    @everstep.register(name="two", version=3)
    @dataclass
    class Two:
        b: int

    assert decode(encode([One(1), Two(2)])) == [One(1), Two(2)]
    raw = encode(Two(2))
    forgotten()
    assert decode(raw) == everstep.Unknown("two", 3, {"b": 2})


def test_a_type_of_any_shape_is_stored_through_its_two_functions() -> None:
    everstep.register(Plain, encode=lambda p: {"n": p.n}, decode=lambda f: Plain(f["n"]))
    back = decode(encode({"p": [Plain(3)]}))["p"][0]
    assert type(back) is Plain
    assert back.n == 3


def test_an_unregistered_plain_class_is_refused() -> None:
    with pytest.raises(Unstorable, match="is a Plain, which cannot be stored"):
        encode(Plain(1))


@pytest.mark.parametrize("returned", [None, [1], {1: 2}])
def test_an_encode_function_that_returns_no_fields_is_refused(returned: Any) -> None:
    everstep.register(Plain, encode=lambda p: returned, decode=lambda f: Plain(1))
    with pytest.raises(Unstorable, match="did not return a dict"):
        encode({"p": Plain(1)})


def test_upgrades_run_one_after_the_other() -> None:
    everstep.register(Point, name="p", version=1)
    raw = encode(Point(1, 2))
    forgotten()
    everstep.register(Point, name="p", version=3, upgrades={1: lambda f: {**f, "x": f["x"] * 10}, 2: lambda f: {**f, "y": f"was {f['y']}"}})
    assert decode(raw) == Point(10, "was 2")
    assert decode(encode(Point(5, 6))) == Point(5, 6)


def test_a_missing_upgrade_says_which() -> None:
    everstep.register(Point, name="p", version=1)
    raw = encode(Point(1, 2))
    forgotten()
    everstep.register(Point, name="p", version=3, upgrades={2: lambda f: f})
    with pytest.raises(TypeConflict, match="version 1, and there is no upgrade to version 2") as caught:
        decode(raw)
    assert "upgrades={1: function}" in caught.value.remedy


def test_a_newer_version_than_the_program_knows_is_refused() -> None:
    everstep.register(Point, name="p", version=2)
    raw = encode(Point(1, 2))
    forgotten()
    everstep.register(Point, name="p", version=1)
    with pytest.raises(NewerFormat, match="has version 2, but this program supports at most version 1"):
        decode(raw)


def test_two_types_under_one_name_are_a_conflict() -> None:
    everstep.register(Point, name="p")
    with pytest.raises(TypeConflict, match="'p'"):
        everstep.register(Plain, name="p", encode=vars, decode=lambda f: Plain(**f))
    assert decode(encode(Point(1))) == Point(1)


def test_the_same_type_may_be_registered_again() -> None:
    everstep.register(Point, name="p")
    everstep.register(Point, name="p", version=2)
    assert decode(encode(Point(1))) == Point(1)


def test_a_reloaded_class_takes_the_place_of_the_old_one() -> None:
    def define() -> Any:
        @everstep.register
        @dataclass
        class Again:
            n: int

        return Again

    define()
    newer = define()
    assert type(decode(encode(newer(1)))) is newer


@pytest.mark.parametrize(("arguments", "words"), [
    ({"cls": 5}, "takes a class, got 5"),
    ({"cls": Plain}, "is not a dataclass"),
    ({"cls": Plain, "encode": vars}, "only one of encode and decode"),
])  # fmt: skip
def test_register_refuses_what_makes_no_sense(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        everstep.register(**arguments)


class Shade(enum.Enum):
    DARK = 1


class Duo(NamedTuple):
    a: Any


class Form(pydantic.BaseModel):
    a: Any = None


class Rec(msgspec.Struct):
    a: Any = None


@pytest.mark.parametrize(
    "value", [Point(1, [2, (3,)]), Shade.DARK, Duo({1, 2}), Form(a=b"x"), Rec(a=Point(1))], ids=lambda v: type(v).__name__
)
def test_an_unknown_value_is_inert_and_saved_again_byte_for_byte(value: Any) -> None:
    raw = encode({"k": [value], "n": (value,)})
    forgotten()
    back = decode(raw)
    assert isinstance(back["k"][0], everstep.Unknown)
    assert encode(back) == raw
    assert encode(decode(encode(back))) == raw
    assert back["k"][0] == back["n"][0]
    assert type(value).__name__ in repr(back["k"][0])


def test_an_unknown_value_can_be_a_key_and_a_set_member() -> None:
    raw = encode({Shade.DARK: 1, "s": {Shade.DARK, Duo(1)}})
    forgotten()
    assert encode(decode(raw)) == raw


def test_a_name_found_in_data_is_never_imported() -> None:
    raw = encode(everstep.Unknown("antigravity:Evil", 1, {"a": 1}))
    back = decode(raw)
    assert back == everstep.Unknown("antigravity:Evil", 1, {"a": 1})
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(("cls", "fields"), [(Duo, {"gone": 1}), (Rec, {"gone": 1}), (Shade, {"name": "LIGHT", "value": 9}), (Shade, {})])
def test_stored_fields_that_do_not_fit_the_type_any_more_are_a_conflict_that_names_it(cls: Any, fields: dict[str, Any]) -> None:
    everstep.register(cls, name="t")
    with pytest.raises(TypeConflict, match=f"a stored t of version 1 does not fit {cls.__name__}") as caught:
        decode(encode(everstep.Unknown("t", 1, fields)))
    assert "upgrades" in caught.value.remedy


def test_an_upgrade_that_raises_is_a_conflict_that_names_it() -> None:
    everstep.register(Point, name="p", version=2, upgrades={1: lambda f: {"x": f["gone"]}})
    with pytest.raises(TypeConflict, match="the upgrade of a stored p from version 1 failed: KeyError: 'gone'") as caught:
        decode(encode(everstep.Unknown("p", 1, {"x": 1})))
    assert "upgrades[1]" in caught.value.remedy
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_upgrade_that_returns_no_fields_is_a_conflict() -> None:
    everstep.register(Point, name="p", version=2, upgrades={1: lambda f: f.update(y=2)})  # type: ignore[dict-item, return-value]
    with pytest.raises(TypeConflict, match="from version 1 must return a dict of fields, got None"):
        decode(encode(everstep.Unknown("p", 1, {"x": 1})))


class Refused(Exception):
    """Its args are not the parameters of its constructor, as so often."""

    def __init__(self, code: int, why: str):
        self.code = code
        self.why = why
        super().__init__(f"{code}: {why}")


class Lost(OSError):
    def __init__(self, path: str):
        super().__init__(2, "it is gone", path)


class Strict(ValueError):
    def __new__(cls, word: str, *, must: int) -> "Strict":
        return super().__new__(cls, word)

    def __init__(self, word: str, *, must: int):
        super().__init__(word)
        self.must = must


@dataclass(frozen=True)
class Frozen(Exception):
    point: Point


@pytest.mark.parametrize(
    "error",
    [
        Refused(7, "no"),
        Lost("a.txt"),
        Strict("x", must=3),
        Frozen(Point(1)),
        KeyError("k"),
        ImportError("m", name="n", path="p"),
        UnicodeDecodeError("utf-8", b"ab", 0, 1, "bad"),
        SystemExit(3),
        EverstepError("message", remedy="remedy", written="unknown"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_a_registered_exception_comes_back_with_its_args_and_attributes(error: BaseException) -> None:
    everstep.register(type(error))
    object.__setattr__(error, "__notes__", ["a note"])
    back = decode(encode([error]))[0]
    assert type(back) is type(error)
    assert (back.args, str(back), repr(back), back.__notes__) == (error.args, str(error), repr(error), ["a note"])
    for name in ("code", "why", "errno", "filename", "must", "point", "name", "path", "object", "remedy", "written"):
        assert getattr(back, name, None) == getattr(error, name, None)


def test_a_group_of_registered_exceptions_comes_back() -> None:
    everstep.register(ExceptionGroup)
    everstep.register(Refused)
    back = decode(encode(ExceptionGroup("both", [Refused(1, "a"), Refused(2, "b")])))
    assert [(type(e), e.code) for e in back.exceptions] == [(Refused, 1), (Refused, 2)]


def test_an_exception_keeps_neither_its_traceback_nor_its_cause_nor_marks_of_others() -> None:
    everstep.register(Refused)
    try:
        raise Refused(1, "a") from ValueError("unstorable")
    except Refused as error:
        error.__someones_mark__ = object()  # type: ignore[attr-defined]
        back = decode(encode(error))
    assert (back.__traceback__, back.__cause__, hasattr(back, "__someones_mark__")) == (None, None, False)


def test_an_exception_that_nobody_registered_is_refused_even_if_it_is_a_dataclass() -> None:
    for error in (Refused(1, "a"), Frozen(Point(1))):
        with pytest.raises(Unstorable, match=f"is a {type(error).__name__}, which cannot be stored"):
            encode(error)


def test_an_exception_with_an_attribute_that_cannot_be_stored_is_refused_with_the_path() -> None:
    everstep.register(Refused)
    error = Refused(1, "a")
    error.why = Plain(1)  # type: ignore[assignment]
    with pytest.raises(Unstorable) as caught:
        encode(error)
    assert caught.value.path == "state.attributes['why']"


def test_an_exception_where_it_is_not_registered_is_inert_and_saved_again_unchanged() -> None:
    everstep.register(Refused, name="refused")
    raw = encode(Refused(7, "no"))
    forgotten()
    back = decode(raw)
    assert back == everstep.Unknown("refused", 1, {"args": ("7: no",), "attributes": {"code": 7, "why": "no"}})
    assert encode(back) == raw


def test_an_exception_has_versions_and_upgrades() -> None:
    def renamed(fields: dict[str, Any]) -> dict[str, Any]:
        return {"args": fields["args"], "attributes": {"code": fields["attributes"]["number"], "why": "?"}}

    everstep.register(Refused, name="refused", version=2, upgrades={1: renamed})
    back = decode(encode(everstep.Unknown("refused", 1, {"args": ("old",), "attributes": {"number": 5}})))
    assert (back.code, back.why, str(back)) == (5, "?", "old")


@pytest.mark.parametrize("fields", [
    {}, {"args": 5}, {"args": ("x",), "more": 1}, {"args": ("x",), "attributes": {"__class__": "evil"}}, {"args": (), "attributes": 3},
])  # fmt: skip
def test_stored_fields_that_are_no_exception_are_a_conflict(fields: dict[str, Any]) -> None:
    everstep.register(Refused, name="refused")
    with pytest.raises(TypeConflict, match="a stored refused of version 1 does not fit Refused"):
        decode(encode(everstep.Unknown("refused", 1, fields)))
