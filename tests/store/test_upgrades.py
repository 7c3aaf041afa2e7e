"""Versions of stored types: applied whenever something is loaded, and tried over a whole store without writing."""

from collections import Counter, OrderedDict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest

import everstep
from everstep import Unknown
from everstep.codec import kinds
from everstep.errors import NewerFormat, StoreClosed, TypeConflict
from everstep.store.upgrades import Upgrade, each_upgrade, upgrades


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "_by_name", {})
    monkeypatch.setattr(kinds, "_by_type", {})


@dataclass
class Plan:
    goal: str
    stops: list[Any] = field(default_factory=list)


class Gone(Exception):
    pass


def renamed(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 1 called the goal an aim."""
    return {"goal": fields["aim"], "stops": fields.get("stops", [])}


def known(version: int = 2) -> None:
    everstep.register(Plan, name="plan", version=version, upgrades={1: renamed} if version > 1 else None)


def old(aim: Any = "Rome", **more: Any) -> Unknown:
    return Unknown("plan", 1, {"aim": aim, **more})


def saved(store: everstep.Store, run_id: str, *states: Any) -> None:
    with store.run(run_id) as run:
        for state in states:
            run.checkpoint(state=state)


def listed(store: everstep.Store, **options: Any) -> list[tuple[Any, ...]]:
    return [(u.run, u.number, u.where, u.name, u.stored, u.here, u.outcome) for u in upgrades(store.backend, **options)]


def test_a_store_without_types_has_nothing_to_upgrade(store: everstep.Store) -> None:
    assert upgrades(store.backend) == []
    saved(store, "r", {"messages": [{"role": "user"}], "t": (1, {2})})
    with store.run("empty"):
        pass
    assert upgrades(store.backend) == []


def test_a_state_comes_back_upgraded(store: everstep.Store) -> None:
    saved(store, "r", {"plan": old(), "all": [old("Paris", stops=[1])]})
    known()
    assert store.load("r") == {"plan": Plan("Rome"), "all": [Plan("Paris", [1])]}
    with store.run("r") as run:
        assert run.state["plan"] == Plan("Rome")
        run.checkpoint()
    assert upgrades(store.backend) == []


def test_each_kind_of_outcome_is_told_apart(store: everstep.Store) -> None:
    saved(
        store,
        "r",
        {
            "old": old(),
            "same": Unknown("plan", 2, {"goal": "x", "stops": []}),
            "strange": Unknown("who", 7, {"a": 1}),
            "newer": Unknown("plan", 3, {"goal": "x"}),
            "bad": Unknown("plan", 1, {"target": "x"}),
            "unfit": Unknown("plan", 2, {"goal": "x", "extra": 1}),
        },
    )
    known()
    found = {u.where: u for u in upgrades(store.backend)}
    assert {where: u.outcome for where, u in found.items()} == {
        "state['old']": "upgrade",
        "state['strange']": "unknown",
        "state['newer']": "newer",
        "state['bad']": "fails",
        "state['unfit']": "fails",
    }
    assert found["state['old']"] == Upgrade("r", 1, "state['old']", "plan", 1, 2, "upgrade")
    assert found["state['strange']"] == Upgrade("r", 1, "state['strange']", "who", 7, None, "unknown")
    assert found["state['newer']"] == Upgrade("r", 1, "state['newer']", "plan", 3, 2, "newer")
    assert "upgrade of a stored plan from version 1 failed: KeyError: 'aim'" in str(found["state['bad']"].error)
    assert "does not fit Plan: it has no field 'extra'" in str(found["state['unfit']"].error)


def test_the_list_reads_well(store: everstep.Store) -> None:
    saved(store, "r", [old(), Unknown("who", 7, {}), Unknown("plan", 3, {}), Unknown("plan", 2, {})])
    known()
    assert [str(u).partition("; ")[0] for u in upgrades(store.backend)] == [
        "r@1 state[0]: plan 1 -> 2",
        "r@1 state[1]: who 7 is not registered here",
        "r@1 state[2]: plan 3 is newer than 2",
        "r@1 state[3]: fails: a stored plan of version 2 does not fit Plan: field 'goal' is missing",
    ]


def test_a_missing_upgrade_is_listed_with_its_version(store: everstep.Store) -> None:
    saved(store, "r", {"plan": old()})
    everstep.register(Plan, name="plan", version=3, upgrades={2: lambda f: f})
    (found,) = upgrades(store.backend)
    assert (found.outcome, found.stored, found.here) == ("fails", 1, 3)
    assert "there is no upgrade to version 2" in str(found.error)
    with pytest.raises(TypeConflict, match="there is no upgrade"):
        store.load("r")


def test_what_the_list_refuses_a_load_refuses_too(store: everstep.Store) -> None:
    known()
    saved(store, "newer", {"plan": Unknown("plan", 3, {})})
    assert listed(store) == [("newer", 1, "state['plan']", "plan", 3, 2, "newer")]
    with pytest.raises(NewerFormat):
        store.load("newer")
    with pytest.raises(NewerFormat), store.run("newer"):
        pass


def test_objects_are_found_wherever_they_stand(store: everstep.Store) -> None:
    known()
    state = {
        "list": [0, old()],
        "tuple": (old(),),
        "deque": deque([old()], 5),
        "ordered": OrderedDict(a=old()),
        "set": {Unknown("word", 1, {"text": "w"})},
        Unknown("word", 1, {"text": "k"}): 1,
        "inside": Unknown("plan", 2, {"goal": "x", "stops": [{"next": old()}]}),
        "counted": Counter(a=1),
    }
    saved(store, "r", state)
    assert sorted((u.where, u.outcome) for u in upgrades(store.backend)) == [
        ("state (key Unknown('word', 1, {'text': 'k'}))", "unknown"),
        ("state['deque'][0]", "upgrade"),
        ("state['inside'].stops[0]['next']", "upgrade"),
        ("state['list'][1]", "upgrade"),
        ("state['ordered']['a']", "upgrade"),
        ("state['set'] (member Unknown('word', 1, {'text': 'w'}))", "unknown"),
        ("state['tuple'][0]", "upgrade"),
    ]


def test_an_upgrade_sees_what_is_inside_already_upgraded_as_at_a_load(store: everstep.Store) -> None:
    seen: list[Any] = []

    def look(fields: dict[str, Any]) -> dict[str, Any]:
        seen.append(fields["plan"])
        return {"goal": fields["plan"].goal, "stops": []}

    saved(store, "r", {"outer": Unknown("outer", 1, {"plan": old("Oslo")})})
    known()

    @dataclass
    class Outer(Plan):
        pass

    everstep.register(Outer, name="outer", version=2, upgrades={1: look})
    assert listed(store) == [
        ("r", 1, "state['outer'].plan", "plan", 1, 2, "upgrade"),
        ("r", 1, "state['outer']", "outer", 1, 2, "upgrade"),
    ]
    assert store.load("r") == {"outer": Outer("Oslo")}
    assert seen == [Plan("Oslo"), Plan("Oslo")]


def test_only_heads_are_looked_at_unless_all_checkpoints_are_asked_for(store: everstep.Store) -> None:
    saved(store, "a", {"p": old("1")}, {"p": old("2")}, {"p": None})
    saved(store, "b", {"p": old("3")})
    known()
    assert listed(store) == [("b", 1, "state['p']", "plan", 1, 2, "upgrade")]
    assert [(u[0], u[1]) for u in listed(store, all_checkpoints=True)] == [("a", 1), ("a", 2), ("b", 1)]


def test_nothing_is_written(places: Any) -> None:
    store = places.open()
    for n in range(3):
        saved(store, f"r{n}", {"p": old()})
    known()

    def stored() -> object:
        return store.backend.manifest(), {
            name: value for name, value in store.stats().items() if name != "file_bytes"
        }  # the log grows later

    before = stored()
    assert len(upgrades(store.backend, all_checkpoints=True)) == 3
    assert stored() == before


def test_a_run_that_is_open_for_writing_is_read_too(store: everstep.Store) -> None:
    with store.run("r") as run:
        run.checkpoint(state={"p": old()})
        known()
        assert [u[-1] for u in listed(store)] == ["upgrade"]


def test_a_type_that_raises_anything_is_listed_and_the_rest_too(store: everstep.Store) -> None:
    class Odd:
        pass

    def explode(fields: dict[str, Any]) -> Odd:
        raise RuntimeError("odd")

    saved(store, "r", [Unknown("odd", 1, {}), old()])
    saved(store, "s", [old()])
    everstep.register(Odd, name="odd", encode=vars, decode=explode)
    known()
    assert [(u.run, u.outcome, u.error) for u in upgrades(store.backend)] == [
        ("r", "fails", "RuntimeError: odd"),
        ("r", "upgrade", None),
        ("s", "upgrade", None),
    ]


def test_a_type_that_cannot_be_a_key_any_more_is_listed(store: everstep.Store) -> None:
    saved(store, "r", {Unknown("plan", 2, {"goal": "x", "stops": []}): 1})
    saved(store, "s", [old()])
    known()
    assert [(u.run, u.where, u.outcome) for u in upgrades(store.backend)] == [("r", "state", "fails"), ("s", "state[0]", "upgrade")]
    assert "unhashable" in str(upgrades(store.backend)[0].error)


def test_a_closed_store_is_an_error(places: Any) -> None:
    store = places.open()
    saved(store, "r", [old()])
    store.close()
    with pytest.raises(StoreClosed):
        upgrades(store.backend)


def test_a_deleted_run_is_no_damage(store: everstep.Store) -> None:
    for name in ("a", "b", "c"):
        saved(store, name, [old()])
    known()
    found = each_upgrade(store.backend)
    assert next(found).run == "a"
    store.delete("b")
    assert [(u.run, u.outcome) for u in found] == [("c", "upgrade")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed store with three runs of three checkpoints."""
    file = tmp_path / "s.db"
    with everstep.open(file) as store:
        for name in ("a", "b", "c"):
            saved(store, name, {"p": old("1")}, {"p": old("2")}, {"p": old("3")})
    known()
    return file


def tamper(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    assert connection.changes() > 0
    connection.close()


def outcomes(path: Path, **options: Any) -> list[tuple[str, int | None, str]]:
    with everstep.open(path) as store:
        return [(u.run, u.number, u.outcome) for u in upgrades(store.backend, **options)]


def test_a_damaged_head_is_listed_and_the_other_runs_too(path: Path) -> None:
    tamper(path, "UPDATE records SET body = x'0100' WHERE id >> 31 = 2 AND number = 3 AND kind = 'checkpoint'")
    assert outcomes(path) == [("a", 3, "upgrade"), ("b", 3, "damaged"), ("c", 3, "upgrade")]
    assert outcomes(path, all_checkpoints=True)[3:6] == [("b", 1, "upgrade"), ("b", 2, "upgrade"), ("b", 3, "damaged")]
    with everstep.open(path) as store:
        (bad,) = [u for u in upgrades(store.backend) if u.outcome == "damaged"]
    assert (bad.name, bad.stored, bad.here, bad.where) == (None, None, None, "state")
    assert "the newest undamaged one is b@2" in str(bad)


def test_a_run_row_that_does_not_match_its_digest_is_listed(path: Path) -> None:
    tamper(path, "UPDATE runs SET checkpoints = 2 WHERE id = 'b'")
    assert outcomes(path) == [("a", 3, "upgrade"), ("b", None, "damaged"), ("c", 3, "upgrade")]


def test_a_run_row_that_cannot_even_be_read_hides_no_other_run(path: Path) -> None:
    tamper(path, "UPDATE runs SET tags = 'no list' WHERE id = 'b'")
    assert sorted(outcomes(path), key=str) == [("", None, "damaged"), ("a", 3, "upgrade"), ("c", 3, "upgrade")]


def broken_off(store: everstep.Store, **steps: Any) -> None:
    """A run whose program ended after these steps, without a checkpoint."""
    with suppress(Gone), store.run("r") as run:
        for name, function in steps.items():
            run.step(name, function)
        raise Gone("the program, not a step")


def test_a_step_result_comes_back_upgraded_and_is_part_of_the_list(places: Any) -> None:
    store = places.open()
    broken_off(store, small=lambda: old(), large=lambda: [old("x" * 50_000)])
    known()
    assert [u[2:] for u in listed(store)] == [
        ("result of small#0", "plan", 1, 2, "upgrade"),
        ("result of large#0[0]", "plan", 1, 2, "upgrade"),
    ]
    never: list[int] = []
    with store.run("r") as run:
        assert run.step("small", lambda: never.append(1)) == Plan("Rome")
        assert run.step("large", lambda: never.append(2)) == [Plan("x" * 50_000)]
    assert never == []
    assert store.steps("r")[0].result == Plan("Rome")


def test_a_newer_step_result_is_refused_and_listed(places: Any) -> None:
    store = places.open()
    broken_off(store, plan=lambda: Unknown("plan", 3, {"goal": "x"}))
    known()
    assert [u[-1] for u in listed(store)] == ["newer"]
    with pytest.raises(NewerFormat), store.run("r") as run:
        run.step("plan", lambda: None)


def test_the_recorded_error_of_a_step_comes_back_and_is_part_of_the_list(places: Any) -> None:
    store = places.open()
    everstep.register(Gone, name="gone")

    def fail() -> None:
        raise Gone("away")

    def caught(run: everstep.Run) -> Any:
        try:
            run.step("fail", fail)
        except Gone as error:
            return error

    with suppress(ZeroDivisionError), store.run("r") as run:
        caught(run)
        run.step("on", int)  # the program went on after it
        1 / 0
    kinds._by_name.clear()
    kinds._by_type.clear()
    everstep.register(Gone, name="gone", version=2, upgrades={1: lambda fields: {"args": ("far " + fields["args"][0],)}})
    assert [u[2:] for u in listed(store)] == [("error of fail#0", "gone", 1, 2, "upgrade")]
    with store.run("r") as run:
        assert caught(run).args == ("far away",)


def test_an_upgraded_object_that_is_changed_is_saved_as_what_it_is_now(store: everstep.Store) -> None:
    """The next delta must not reach into the fields of the older version, which are still what is stored."""
    saved(store, "r", {"plan": old(), "all": [old("Paris")], "n": 1})
    known()
    with store.run("r") as run:
        run.state["plan"].goal = "Oslo"
        run.state["all"][0].stops.append("Lyon")
        run.checkpoint()
        run.state["plan"].stops.append("Bergen")
        run.checkpoint()
    assert store.load("r@2") == {"plan": Plan("Oslo"), "all": [Plan("Paris", ["Lyon"])], "n": 1}
    assert store.load("r") == {"plan": Plan("Oslo", ["Bergen"]), "all": [Plan("Paris", ["Lyon"])], "n": 1}
    assert store.verify("full").ok


def test_a_field_that_came_later_can_be_changed_in_place(store: everstep.Store) -> None:
    saved(store, "r", {"plan": Unknown("plan", 1, {"goal": "Rome"})})
    known(version=1)
    with store.run("r") as run:
        run.state["plan"].stops.append("Pisa")
        run.checkpoint()
    assert store.load("r") == {"plan": Plan("Rome", ["Pisa"])}
