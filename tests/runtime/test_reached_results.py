"""Results can be reached: the outcome of a run and one step of it, at any time, from another handle or process, sync and async."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
import warm

import everstep
from everstep.errors import InvalidArgument, NotFound
from everstep.store.journal.results import Arguments


class OutOfStock(Exception):
    pass


@everstep.step
def price(item: str, count: int = 1) -> int:
    return len(item) * count


@everstep.workflow(name="reached-order")
def order(item: str, count: int = 1) -> int:
    total = price(item, count=count)
    if item == "none":
        raise OutOfStock(item)
    if item == "gated":
        everstep.gate("boss")
    return total


@pytest.mark.parametrize(("item", "status", "result"), [("tea", "succeeded", 6), ("none", "failed", None), ("gated", "waiting", None)])
def test_the_outcome_of_a_run_is_there_without_running_it(places: Any, item: str, status: str, result: int | None) -> None:
    here = places.open()
    done = here.start(order, item, count=2, id="o")
    assert done.input == Arguments((item,), {"count": 2})
    other = places.open()
    found = other.outcome("o")
    assert (found.run, found.status, found.result) == ("o", status, result)
    assert found.input == Arguments((item,), {"count": 2})
    assert str(found.input) == f"({item!r}, count=2)"
    assert type(found.error) is (OutOfStock if item == "none" else type(None))
    assert [gate.name for gate in found.gates] == (["boss"] if item == "gated" else [])
    assert found.report.executed == 0


def test_a_run_of_a_loop_has_an_outcome_without_input(store: everstep.Store) -> None:
    with store.run("loop") as run:
        run.checkpoint()
        assert store.outcome("loop").status == "running"
    found = store.outcome("loop")
    assert (found.status, found.result, found.input) == ("succeeded", None, None)


def test_a_queued_run_has_its_input(store: everstep.Store) -> None:
    store.enqueue(order, "tea", id="q")
    assert store.outcome("q").status == "queued"
    assert store.outcome("q").input == Arguments(("tea",), {})


def test_a_fork_has_the_input_of_its_run(store: everstep.Store) -> None:
    store.start(order, "tea", id="o")
    fork = store.resume("o", from_step="price#0")
    assert store.outcome(fork.run).input == Arguments(("tea",), {})
    assert store.step(fork.run, "price").output == 3


def test_an_unknown_run_is_not_found(store: everstep.Store) -> None:
    with pytest.raises(NotFound):
        store.outcome("nobody")
    with pytest.raises(NotFound):
        store.step("nobody", "a#0")


def test_every_way_to_an_outcome_has_the_input(store: everstep.Store) -> None:
    given = Arguments(("tea",), {})
    assert store.start(order, "tea", id="o").input == given
    assert store.start(order, "tea", id="o").input == given
    assert store.resume("o").input == given
    assert store.resume("o", replay="validate").input == given
    with everstep.open(enabled=False) as off:
        assert off.start(order, "tea").input == given


def test_a_step_has_input_output_error_and_attempts(places: Any) -> None:
    calls = []

    def flaky(text: str, times: int) -> str:
        calls.append(text)
        if len(calls) < 3:
            raise OutOfStock(f"attempt {len(calls)}")
        return text * times

    here = places.open()
    with here.run("r") as run:
        run.step(flaky, "ab", times=2, retry=everstep.Retry(attempts=3, delay=0))
        run.step("long", len, "x" * 1_000)
        run.step("none", dict)
    found = places.open().step("r", "flaky#0")
    assert (found.run, found.address, found.name, found.status, found.output) == ("r", "flaky#0", "flaky", "succeeded", "abab")
    assert found.arguments == Arguments(("ab",), {"times": 2})
    assert found.input == "('ab', times=2)"
    assert found.error is None
    assert [(one.attempt, one.status) for one in found.attempts] == [(1, "failed"), (2, "failed"), (3, "succeeded")]
    assert [one.error and one.error["message"] for one in found.attempts] == ["attempt 1", "attempt 2", None]
    assert repr(found) == "<everstep.StepDetail r flaky#0 succeeded, attempts=3>"
    long = here.step("r", "long")
    assert (long.arguments, long.output) == (None, 1_000)
    assert long.input.endswith(" of 1,004 bytes")
    assert here.step("r", "none").output == {}


def test_a_failed_step_has_its_error_as_its_own_class(store: everstep.Store) -> None:
    def fails(what: str) -> None:
        raise OutOfStock(what)

    with store.run("r") as run, pytest.raises(OutOfStock):
        run.step(fails, "tea")
    found = store.step("r", "fails")
    assert isinstance(found.error, OutOfStock)
    assert (found.status, found.output, str(found.error)) == ("failed", None, "tea")


def test_a_step_inside_a_step_and_one_with_a_key_have_their_addresses(store: everstep.Store) -> None:
    with store.run("r") as run:
        run.step("outer", lambda: run.step("inner", len, "abc"))
        run.step("keyed", len, "ab", key="k")
    assert store.step("r", "outer#0/inner#0").output == 3
    assert store.step("r", "outer#0/inner").output == 3
    assert store.step("r", "keyed@k").output == 2


def test_a_name_alone_means_the_first_use_also_of_steps_with_keys(store: everstep.Store) -> None:
    with store.run("r") as run:
        run.step("find", str.upper, "a", key="1.c1")
        run.step("find", str.upper, "b", key="2.c1")
        run.step("outer", lambda: run.step("inner", len, "abc", key="k"))
        run.step("both", str.upper, "c", key="k")
        run.step("both", str.upper, "d")
        run.step("around", lambda: run.step("under", len, "abcd", key="k"), key="k")
    assert store.step("r", "find").address == "find@1.c1"
    assert store.step("r", "find@2.c1").output == "B"
    assert store.step("r", "outer#0/inner").output == 3
    assert store.step("r", "both").address == "both#0"
    assert store.step("r", "around@k/under").output == 4
    assert store.step("r", "around").address == "around@k"
    for missing in ("inner", "fin", "under"):
        with pytest.raises(NotFound, match=f"no recorded step '{missing}#0'"):
            store.step("r", missing)


@everstep.workflow
def keyed_flow() -> str:
    run = everstep.current()
    return str(run.step("load", str.upper, "a", key="x")) + str(run.step("load", str.upper, "b", key="y"))


def test_from_step_and_accept_take_a_name_alone(store: everstep.Store) -> None:
    assert store.start(keyed_flow, id="k").result == "AB"
    assert store.resume("k", from_step="load").run != "k"
    assert store.resume("k", accept=["load"]).result == "AB"
    with pytest.raises(NotFound, match="no recorded step 'lod#0'"):
        store.resume("k", from_step="lod")
    with pytest.raises(InvalidArgument, match="got 'lod'"):
        store.resume("k", accept=["lod"])


def test_retry_and_skip_take_the_name_of_a_step_with_a_key(store: everstep.Store) -> None:
    def fails() -> None:
        raise OutOfStock("tea")

    with pytest.raises(OutOfStock), store.run("r") as run:
        run.step("pay", fails, key="k")
    store.retry("r", "pay")
    assert [message.name for message in store.backend.messages("r")] == ["again:pay@k"]


def test_a_misspelt_step_is_named_with_the_nearest_one(store: everstep.Store) -> None:
    with store.run("r") as run:
        run.step("price", len, "abc")
    with pytest.raises(NotFound, match=r"Did you mean price#0\?"):
        store.step("r", "prise")
    with pytest.raises(NotFound, match="lists its steps"):
        store.step("r", "quite another#7")
    with pytest.raises(InvalidArgument, match="step must be a name or an address"):
        store.step("r", "")


def test_an_async_store_awaits_both(places: Any) -> None:
    async def main() -> None:
        async with places.open() as store:
            await store.start(order, "tea", id="o")
            assert (await store.outcome("o")).result == 3
            assert (await store.step("o", "price")).output == 3

    asyncio.run(main())


def test_another_process_reads_the_outcome_and_the_step(tmp_path: Any) -> None:
    with everstep.open(tmp_path / "store.db") as store:
        store.start(order, "none", id="o")
    program = (
        "import everstep, sys\nstore = everstep.open(sys.argv[1])\nfound = store.outcome('o')\n"
        "print(found.status, type(found.error).__name__, found.error.type_name, found.input, store.step('o', 'price').output)"
    )
    done = warm.run([sys.executable, "-c", program, str(tmp_path / "store.db")], capture_output=True, text=True, timeout=60)
    assert done.stdout == "failed StepFailed test_reached_results.OutOfStock ('none') 4\n", done.stderr
