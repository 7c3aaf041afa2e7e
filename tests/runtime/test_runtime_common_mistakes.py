"""What a newcomer runs into: slips of the pen, odd orders, and what is printed."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

import everstep
from everstep.errors import AlreadyAnswered, IllegalTransition, InvalidArgument, RunClosed
from everstep.runtime.engine import context


def test_catching_everything_around_a_gate_does_not_get_past_it(store: everstep.Store) -> None:
    @everstep.workflow
    def greedy() -> str:
        with suppress(BaseException):
            everstep.gate("boss")
        return "done"

    out = store.start(greedy, id="r")
    assert (out.status, out.result) == ("waiting", None)
    store.answer("r", "boss", "yes")
    assert store.resume("r").result == "done"


def test_runs_left_in_another_order_than_they_were_opened_in_leave_nothing_behind(store: everstep.Store) -> None:
    one, two = store.run("one"), store.run("two")
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    assert everstep.current() is two
    two.__exit__(None, None, None)
    with pytest.raises(RunClosed):
        everstep.current()


def test_a_step_in_a_thread_that_knows_no_run_is_warned_about(store: everstep.Store) -> None:
    @everstep.step
    def stray(i: int) -> int:
        return i

    context._warned.clear()
    with store.run("r"), ThreadPoolExecutor(1) as pool, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert list(pool.map(stray, [1, 2])) == [1, 2]
    assert len(seen) == 1
    assert "run.map" in str(seen[0].message)


def test_the_options_of_a_workflow_are_looked_at_when_it_is_defined() -> None:
    for options in ({"retry": 5}, {"budget": 5}, {"timeout": "5"}):
        with pytest.raises(InvalidArgument):
            everstep.workflow(**options)(lambda: None)


def test_a_name_to_ignore_must_be_a_parameter() -> None:
    with pytest.raises(InvalidArgument, match="clint"):

        @everstep.step(ignore=("clint",))
        def call(client: Any) -> None: ...


def test_a_second_answer_is_told_how_to_try_another_one(store: everstep.Store) -> None:
    @everstep.workflow
    def ask() -> Any:
        return everstep.gate("boss")

    store.start(ask, id="r")
    store.answer("r", "boss", 1)
    with pytest.raises(AlreadyAnswered) as caught:
        store.answer("r", "boss", 2)
    assert "store.resume('r', from_step='boss#0')" in caught.value.remedy
    store.resume("r")
    fork = store.resume("r", from_step="boss#0")
    store.answer(fork.run, "boss", 2)
    assert store.resume(fork.run).result == 2


def test_a_step_of_a_run_that_is_over_is_not_skipped(store: everstep.Store) -> None:
    store.start(everstep.workflow(name="short")(lambda: 1), id="r")
    with pytest.raises(IllegalTransition):
        store.skip("r", "zzz")


def test_an_outcome_says_in_one_line_what_came_of_it(store: everstep.Store) -> None:
    @everstep.workflow
    def broken() -> float:
        return 1 / 0

    assert str(store.start(broken, id="r")) == "r: failed: ZeroDivisionError: division by zero; retry with store.resume('r')"
    assert "(recorded before)" in str(store.start(broken, id="r"))


def test_an_unknown_value_says_what_is_missing() -> None:
    with pytest.raises(AttributeError, match=r"everstep\.register"):
        everstep.Unknown("app:P", 1, {"n": 1}).n


def test_odd_arguments_of_an_operator_are_refused_with_a_remedy(store: everstep.Store) -> None:
    store.start(everstep.workflow(name="asks")(lambda: everstep.gate("boss")), id="r")
    for act in (lambda: store.wake("x"), lambda: store.skip("r", None), lambda: store.retry("r", 3)):  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument):
            act()


def test_a_damaged_journal_is_a_reason_not_to_resume(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        store.start(everstep.workflow(name="asks")(lambda: everstep.gate("boss")), id="r")
    connection = apsw.Connection(str(tmp_path / "s.db"))
    connection.execute("UPDATE records SET body = x'0102030405' WHERE kind = 'gate'")
    connection.close()
    with everstep.open(tmp_path / "s.db") as store:
        found = store.can_resume("r")
        assert not found
        assert "damaged" in str(found)
