"""A gate with a class as schema takes an instance of it and gives one, live and on replay; stored is plain data."""

import enum
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

import everstep
from everstep.errors import BadAnswer, InvalidArgument


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Inner(pydantic.BaseModel):
    n: int = pydantic.Field(ge=0)


class Model(pydantic.BaseModel):
    name: str
    inner: Inner
    day: date = date(2026, 1, 1)

    @pydantic.field_validator("name")
    @classmethod
    def _short(cls, value: str) -> str:
        if len(value) > 5:
            raise ValueError("too long")
        return value


@dataclass
class Part:
    n: int


@dataclass
class Data:
    name: str
    parts: list[Part] = field(default_factory=list)
    colour: Colour = Colour.RED

    def __post_init__(self) -> None:
        if self.name == "bad":
            raise ValueError("bad name")


class Pack(msgspec.Struct):
    name: str
    colours: list[Colour] = []


class Typed(TypedDict):
    part: Part
    note: str | None


CASES: dict[str, tuple[Any, Any, Any]] = {
    "pydantic": (Model, Model(name="a", inner=Inner(n=1)), {"name": "a", "inner": {"n": 1}, "day": "2026-01-01"}),
    "dataclass": (Data, Data("a", [Part(1)], Colour.BLUE), {"name": "a", "parts": [{"n": 1}], "colour": "blue"}),
    "struct": (Pack, Pack("a", [Colour.BLUE]), {"name": "a", "colours": ["blue"]}),
    "typed dict": (Typed, {"part": Part(1), "note": None}, {"part": {"n": 1}, "note": None}),
    "enum": (Colour, Colour.BLUE, "blue"),
    "list": (list[Model], [Model(name="a", inner=Inner(n=1))], [{"name": "a", "inner": {"n": 1}, "day": "2026-01-01"}]),
    "mapping": (dict[str, Part], {"x": Part(1)}, {"x": {"n": 1}}),
    "optional": (Data | None, Data("a"), {"name": "a", "parts": [], "colour": "red"}),
    "union": (Part | Pack, Pack("a"), {"name": "a", "colours": []}),
    "plain": (int, 3, 3),
}


@pytest.fixture
def store() -> Iterator[everstep.Store]:
    with everstep.open("memory://") as store:
        yield store
        assert store.verify("full").ok


@pytest.fixture(params=["sync", "async"])
def asking(request: pytest.FixtureRequest) -> Callable[..., Any]:
    def make(seen: list[Any], **options: Any) -> Any:
        def flow() -> Any:
            seen.append(everstep.gate("ok", **options))
            everstep.gate("again")

        async def aflow() -> Any:
            seen.append(await everstep.gate("ok", **options))
            await everstep.gate("again")

        return everstep.workflow(name="asks")(flow if request.param == "sync" else aflow)

    return make


@pytest.mark.parametrize("given", ["instance", "plain"])
@pytest.mark.parametrize("case", CASES)
def test_an_answer_becomes_an_instance(store: everstep.Store, asking: Any, case: str, given: str) -> None:
    kind, instance, plain = CASES[case]
    seen: list[Any] = []
    store.start(asking(seen, schema=kind), id="r")
    store.answer("r", "ok", instance if given == "instance" else plain)
    store.resume("r")
    assert store.gates("r")[0].answer == plain
    assert type(store.gates("r")[0].answer) is type(plain)
    store.answer("r", "again", 1)
    store.resume("r").unwrap()
    assert seen == [instance, instance]
    assert type(seen[0]) is type(seen[1]) is type(instance)
    if isinstance(instance, dict):
        assert isinstance(next(iter(seen[1].values())), Part)


@pytest.mark.parametrize("case", [name for name in CASES if name != "plain"])
def test_an_answer_before_the_question_becomes_an_instance(store: everstep.Store, case: str) -> None:
    kind, instance, plain = CASES[case]
    seen: list[Any] = []

    @everstep.workflow(name="early")
    def flow() -> None:
        everstep.current().step("early", lambda: store.answer("r", "ok", plain))
        seen.append(everstep.gate("ok", schema=kind))

    store.start(flow, id="r").unwrap()
    assert seen == [instance]


def test_wrong_answers_are_refused(store: everstep.Store, asking: Any) -> None:
    seen: list[Any] = []
    store.start(asking(seen, schema=Model), id="r")
    for wrong in ({"name": "a"}, {"name": "a", "inner": {"n": -1}}, Part(1), Inner(n=1), 3, None):
        with pytest.raises(BadAnswer):
            store.answer("r", "ok", wrong)
    assert seen == []


@pytest.mark.parametrize(("kind", "wrong", "right"), [(Model, {"name": "too long", "inner": {"n": 1}}, {"name": "a", "inner": {"n": 1}}), (Data, {"name": "bad"}, {"name": "good"})])  # fmt: skip
def test_what_only_the_class_can_tell_is_asked_again(store: everstep.Store, asking: Any, kind: Any, wrong: Any, right: Any) -> None:
    """Another process knows only the JSON Schema. The run finds out, throws the answer away and asks again."""
    seen: list[Any] = []
    store.start(asking(seen, schema=kind), id="r")
    store.answer("r", "ok", wrong)
    out = store.resume("r")
    assert (out.status, seen) == ("waiting", [])
    assert [e.data["gate"] for e in store.events(run="r") if e.name == "answer_refused"] == ["ok#0"]
    store.answer("r", "ok", right)
    store.resume("r")
    assert type(seen[0]) is kind


def test_defaults_and_choices_may_be_instances(store: everstep.Store, asking: Any) -> None:
    from everstep.testing.clock import FakeClock

    seen: list[Any] = []
    with FakeClock() as time:
        store.start(asking(seen, schema=Data, timeout=60, default=Data("a"), choices=[Data("a"), Data("b")]), id="r")
        time.advance(61)
        store.wake()
    assert seen == [Data("a")]


def test_a_gate_still_chooses_by_its_answer(store: everstep.Store) -> None:
    class Vote(enum.Enum):
        YES = "yes"
        NO = "no"

    @everstep.workflow(name="votes")
    def flow() -> Any:
        return everstep.gate("ok", schema=Vote, on_pass="passed", on_fail="failed"), everstep.gate("cond", schema=bool, condition=True)

    store.start(flow, id="r")
    store.answer("r", "ok", Vote.NO)
    assert store.resume("r").unwrap() == ("failed", True)


def test_a_recorded_answer_that_no_longer_fits_says_so(store: everstep.Store) -> None:
    kind: list[Any] = [Data]

    @everstep.workflow(name="changes")
    def flow() -> Any:
        got = everstep.gate("ok", schema=kind[0])
        everstep.gate("again")
        return got

    store.start(flow, id="r")
    store.answer("r", "ok", Data("a"))
    store.resume("r")
    kind[0] = Part
    store.answer("r", "again", 1)
    out = store.resume("r")
    assert isinstance(out.error, BadAnswer)
    assert "ok#0" in str(out.error)


def test_an_answer_of_the_command_line_becomes_an_instance(tmp_path: Path) -> None:
    where = str(tmp_path / "s.db")
    seen: list[Any] = []
    with everstep.open(where) as store:

        @everstep.workflow(name="asks")
        def flow() -> None:
            seen.append(everstep.gate("ok", schema=Model))

        store.start(flow, id="r")
        command = [sys.executable, "-m", "everstep", "answer", "r", "ok", '{"name": "a", "inner": {"n": 1}}', "--store", where]
        subprocess.run(command, check=True, capture_output=True)
        store.resume("r").unwrap()
    assert seen == [Model(name="a", inner=Inner(n=1))]


def test_a_struct_that_json_cannot_hold_is_refused(store: everstep.Store) -> None:
    class Odd(msgspec.Struct):
        x: complex

    with store.run("r") as run, pytest.raises(InvalidArgument):
        run.gate("ok", schema=Odd)
