"""A row whose record the journal lacks: it is taken as it is, or not at all."""

from collections.abc import Callable
from typing import Any

import pytest
from transactional_helpers import World

import everstep
from everstep.errors import Damaged, NonDeterminism
from everstep.runtime.steps.in_thread import InThread

BESIDE = ["sqlite", "sqlite beside postgres", "postgres beside sqlite"]
beside = pytest.mark.parametrize("world", BESIDE, indirect=True)


class Lost(Exception):
    """Stands for a death between the transaction and the record."""


@pytest.fixture
def lose(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run a step up to where its row is committed, and no further; gives the step."""

    def run_and_lose(result: Any) -> Any:
        @everstep.step(transactional=world.place)
        def add(sql: Any, amount: int) -> Any:
            sql.execute(f"UPDATE totals SET n = n + {amount}")
            return result

        async def fail(*args: Any) -> None:
            raise Lost

        with monkeypatch.context() as patched, everstep.open(world.url) as store:
            patched.setattr(InThread, "commit", staticmethod(fail))
            with pytest.raises(Lost), store.run("r"):
                add(5)
            assert store.steps("r") == []
        assert (world.total(), world.rows()) == (5, 1)
        return add

    return run_and_lose


@beside
@pytest.mark.parametrize(
    "result", [None, 7, {"a": [1, (2, 3)]}, [f"line {i}" for i in range(20_000)]], ids=["none", "small", "dict", "big"]
)
def test_a_row_is_taken_for_the_step_that_it_is_of(world: World, lose: Callable[..., Any], result: Any) -> None:
    add = lose(result)
    with world.open() as store:
        with store.run("r") as run:
            assert add(5) == result
            assert (run.report.kept, run.report.executed) == (1, 0)
            assert add(6) == result
        assert [(step.address, step.result) for step in store.steps("r")] == [("add#0", result), ("add#1", result)]
    assert (world.total(), world.rows()) == (11, 0)
    world.verify()


@beside
def test_a_row_of_another_input_is_refused_unless_it_is_accepted(world: World, lose: Callable[..., Any]) -> None:
    add = lose(7)
    with world.open() as store:
        with pytest.raises(NonDeterminism, match="add#0"), store.run("r"):
            add(6)
        assert store.steps("r") == []
        with store.run("r", accept=["add#0"]):
            assert add(6) == 7
    assert world.total() == 5


@beside
def test_a_row_that_was_changed_is_refused(world: World, lose: Callable[..., Any]) -> None:
    add = lose(7)
    world.execute("UPDATE everstep_steps SET digest = content")
    with world.open() as store:
        with store.run("r"), pytest.raises(Damaged, match="does not match its digest"):
            add(5)
        assert store.steps("r") == []
    assert world.total() == 5


@beside
def test_a_row_belongs_to_its_run_and_to_no_other_of_the_same_name(world: World, lose: Callable[..., Any]) -> None:
    add = lose(7)
    with world.open() as store:
        store.delete("r")
        with store.run("r") as run:
            assert add(5) == 7
            assert run.report.executed == 1
    assert world.total() == 10


@beside
def test_a_fork_runs_its_steps_itself(world: World) -> None:
    @everstep.step(transactional=world.place)
    def add(sql: Any, amount: int) -> int:
        sql.execute(f"UPDATE totals SET n = n + {amount}")
        return amount

    @everstep.workflow
    def flow() -> int:
        return int(add(1)) + int(add(2))

    with world.open() as store:
        assert store.start(flow, id="r").result == 3
        assert store.resume("r", from_step="add#1").result == 3
    assert world.total() == 5
