"""Wrong input meets the same refusal on every backend, and leaves nothing behind."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest

import everstep
from everstep.codec.kinds import _by_name, _by_type
from everstep.errors import InvalidArgument, NotFound, RunBusy, TypeConflict
from everstep.runtime.engine import journal_writer


@pytest.mark.parametrize("label", ["workflow", "session"])
@pytest.mark.parametrize("value", [5, True, b"x", ["x"], "a\x00b", "\ud800", "x" * 1001])
def test_a_label_that_is_no_short_text_is_refused_and_the_store_stays_whole(store: everstep.Store, label: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=label):
        store.run("bad", **{label: value})
    assert store.runs() == []
    assert store.verify("full").ok


@pytest.mark.parametrize(
    "filters",
    [{"limit": 1.5}, {"limit": "5"}, {"limit": True}, {"after": "junk"}, {"tag": 5}, {"tag": {"a": 1}}, {"meta": "x"}, {"note": 5},
     {"since": float("nan")}, {"oldest_first": "yes"}, {"workflow": 5}, {"prefix": 5}, {"meta": {"a": float("nan")}}, {"odd": 1}],
)  # fmt: skip
def test_a_filter_of_the_wrong_type_is_an_argument_error_and_never_damage(store: everstep.Store, filters: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        store.runs(**filters)


@pytest.mark.parametrize("options", [{"level": 99}, {"level": "x"}, {"compression": "gzip", "level": 50}, {"threshold": "a"}, {"threshold": -1},
                                     {"lease_seconds": 0}, {"lease_seconds": 1e12}, {"lease_seconds": float("nan")}, {"lease_seconds": "x"}])  # fmt: skip
def test_an_option_that_makes_no_sense_is_refused_at_open(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        everstep.open("memory://", **options)


@pytest.mark.parametrize("url", [":memory:", "memory", "memory:", "sqlite:", "file:x.db"])
def test_what_only_looks_like_an_address_makes_no_file(url: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match="looks like an address"):
        everstep.open(url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", " ", "@", 5, None])
def test_what_is_no_id_is_no_beginning_of_one_either(store: everstep.Store, name: Any) -> None:
    with store.run("only") as run:
        run.checkpoint()
    for look in (store.get, store.checkpoints, store.delete):
        with pytest.raises(InvalidArgument):
            look(name)


def test_delete_and_load_want_the_whole_id(store: everstep.Store) -> None:
    with store.run("order-12", state={"n": 1}) as run:
        run.checkpoint()
    for call in (store.load, store.delete):
        with pytest.raises(NotFound, match="order-12"):
            call("order-1")
    store.delete("order-12")
    assert store.runs() == []


def test_blame_counts_from_the_end_and_looks_no_further_than_its_ref(store: everstep.Store) -> None:
    with store.run("r", state={"items": [], "n": 0}) as run:
        for i in range(10):
            run.state["items"].append(i)
            run.state["n"] = i
            run.checkpoint()
    assert store.blame("r", ["items", -1]).number == 10
    assert store.blame("r", ["items", -10]).number == 1
    assert store.blame("r@5", "n").number == 5
    assert store.blame("r@5", ["items", 2]).number == 3
    for path in (["items", -11], ["items", 20], ["gone"]):
        with pytest.raises(NotFound):
            store.blame("r@5", path)
    with pytest.raises(InvalidArgument, match="path must be"):
        store.blame("r", 5)  # type: ignore[arg-type]


def test_a_failed_run_tells_why(store: everstep.Store) -> None:
    def fail() -> None:
        with store.run("r") as run:
            run.checkpoint()
            raise ZeroDivisionError("division by zero")

    with pytest.raises(ZeroDivisionError):
        fail()
    error = store.get("r").error
    assert error is not None
    assert (error["type"], error["message"]) == ("ZeroDivisionError", "division by zero")
    assert "in fail" in error["traceback"]
    with store.run("r"):
        pass
    assert store.get("r").error is None


def test_two_threads_in_one_handle_are_told_so(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.run("r", state={"n": 0}) as run:
        inside, resume = threading.Event(), threading.Event()
        build = journal_writer.checkpoint_commit

        def slow(*args: Any) -> Any:
            inside.set()
            resume.wait(10)
            return build(*args)

        monkeypatch.setattr(journal_writer, "checkpoint_commit", slow)
        other = threading.Thread(target=run.checkpoint)
        other.start()
        assert inside.wait(10)
        with pytest.raises(RunBusy):
            run.checkpoint()
        resume.set()
        other.join()
    assert len(store.checkpoints("r")) == 1


def test_a_class_whose_fields_changed_is_a_conflict_and_not_half_an_object(store: everstep.Store) -> None:
    @dataclass
    class Plan:
        goal: str
        steps: int

    everstep.register(Plan, name="test:plan")
    with store.run("r", state={"plan": Plan("a", 2)}) as run:
        run.checkpoint()
    del _by_name["test:plan"], _by_type[Plan]

    @dataclass
    class Grown:
        goal: str
        steps: int
        done: bool = False

    everstep.register(Grown, name="test:plan")
    assert store.load("r")["plan"] == Grown("a", 2, False)
    del _by_name["test:plan"], _by_type[Grown]

    @dataclass
    class Other:
        goal: str
        other: int

    everstep.register(Other, name="test:plan")
    with pytest.raises(TypeConflict, match="no field 'steps'"):
        store.load("r")
    del _by_name["test:plan"], _by_type[Other]


def test_a_type_that_was_not_registered_is_announced_once(store: everstep.Store) -> None:
    @dataclass
    class Forgotten:
        n: int

    with store.run("r") as run:
        run.state["x"] = Forgotten(1)
        with pytest.warns(UserWarning, match="Forgotten is saved without everstep.register"):
            run.checkpoint()
