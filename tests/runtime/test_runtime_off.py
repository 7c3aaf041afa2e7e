"""Everstep switched off: the same program, plain calls, no file."""

import asyncio
import inspect
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from runtime_driver import Driver

import everstep
from everstep.errors import Waiting
from everstep.runtime.aio import AsyncRun
from everstep.runtime.disabled import AsyncOffRun, OffRun
from everstep.runtime.run import Run


@pytest.fixture(params=["enabled", "policy"])
def off_store(request: pytest.FixtureRequest, tmp_path: Path) -> everstep.Store:
    options: dict[str, Any] = {"enabled": False} if request.param == "enabled" else {"policy": everstep.off}
    return everstep.open(tmp_path / "never" / "store.db", **options)


def program(d: Driver, ran: list[Any]) -> Any:
    add = d.step(lambda a, b=1: ran.append("add") or a + b, name="add", retry=everstep.Retry(attempts=3))

    @d.workflow(name="switched-off-child")
    async def child(x: int) -> int:
        return await add(x)

    @d.workflow(name="switched-off")
    async def work(x: int) -> dict[str, Any]:
        run = d.run
        run.state["x"] = x
        got = {
            "decorated": await add(x, b=2),
            "inline": await run.step("inline", d.plain(lambda v: v * 2), x),
            "function": await run.step(add.raw, 5),
            "none": await run.step("show", d.plain(lambda v: repr(v)), None),
            "mapped": await run.map(d.plain(lambda v: v + 1), [1, 2]),
            "child": await d.child(child, 7),
            "gate": await d.gate("ok", default="yes"),
            "condition": await d.gate("good", condition=lambda: True),
            "key": await run.step("key", d.plain(lambda: bool(everstep.current().step_key))),
            "attempt": await run.step("attempt", d.plain(lambda: everstep.current().step_attempt)),
        }
        run.now(), run.random(), run.uuid()
        run.progress(1, 2)
        run.emit("ping", n=1)
        run.milestone("half")
        await run.checkpoint("note", tags=["t"])
        await d.sleep(0)
        await d.sleep(until=time.time() + 0.01)
        await d.sleep(until=datetime.now(UTC) + timedelta(seconds=0.01))
        return got

    return work


EXPECTED = {
    "decorated": 3, "inline": 2, "function": 6, "none": "None", "mapped": [2, 3], "child": 8, "gate": "yes", "condition": True, "key": True,
    "attempt": 1,
}  # fmt: skip


def test_a_workflow_runs_the_same_with_everstep_switched_off_and_leaves_no_file(
    off_store: everstep.Store, d: Driver, tmp_path: Path
) -> None:
    ran: list[Any] = []
    out = off_store.start(program(d, ran), 1, id="r")
    assert out.status == "succeeded", out.error
    assert out.result == EXPECTED
    assert ran == ["add"] * 3
    assert list(tmp_path.iterdir()) == []
    assert off_store.runs() == []


def test_the_same_program_gives_the_same_with_everstep_switched_on(store: everstep.Store, d: Driver) -> None:
    @d.workflow(name="with-default")
    async def work() -> Any:
        return await d.gate("ok", default="yes", condition=True)

    assert store.start(work).unwrap() is True


def test_a_loop_of_ones_own_runs_the_same_switched_off(off_store: everstep.Store, d: Driver, tmp_path: Path) -> None:
    async def body(run: Any) -> Any:
        add = d.step(lambda a: a + 1, name="add")
        for i in range(3):
            run.state["got"].append(await run.step("s", d.plain(lambda v: v * 2), i))
            run.state["got"].append(await add(i))
            await run.checkpoint()
        await run.flush()
        return list(run.state["got"])

    for _ in range(2):
        assert d.loop(off_store, "r", body, state={"got": []}) == [0, 1, 2, 2, 4, 3]
    assert list(tmp_path.iterdir()) == []


def test_a_policy_of_off_switches_off_one_run_alone(store: everstep.Store, d: Driver) -> None:
    async def body(run: Any) -> int:
        return await run.step("s", d.plain(lambda: 5))

    assert d.loop(store, "silent", body, policy=everstep.off) == 5
    assert store.runs() == []
    assert d.loop(store, "loud", body) == 5
    assert [r.id for r in store.runs()] == ["loud"]


def test_errors_pass_through_and_a_gate_without_a_default_says_why_it_cannot_be_asked(off_store: everstep.Store, d: Driver) -> None:
    @d.workflow
    async def fails() -> None:
        raise ValueError("x")

    out = off_store.start(fails)
    assert (out.status, type(out.error)) == ("failed", ValueError)

    async def body(run: Any) -> None:
        await run.gate("ok")

    with pytest.raises(Waiting, match="nothing is recorded"):
        d.loop(off_store, "r", body)


def _public(handle: Any) -> set[str]:
    return {name for name in dir(handle) if not name.startswith("_")}


def _same_shape(real: Any, off: Any, kind: type, off_kind: type) -> None:
    """Every public name of a handle that records exists on one that doesn't, with the same parameters, and awaited where that is."""
    for name in _public(kind) - {"enter", "leave"}:
        assert hasattr(off, name), f"{off_kind.__name__} has no {name}"
        found, other = (
            inspect.getattr_static(kind, name),
            inspect.getattr_static(off_kind, name, inspect.getattr_static(OffRun, name, None)),
        )
        if not inspect.isfunction(found):
            continue
        assert inspect.isfunction(other), name
        assert list(inspect.signature(found).parameters) == list(inspect.signature(other).parameters), name
        if name != "step":  # one gives an awaitable, the other is async
            assert inspect.iscoroutinefunction(found) == inspect.iscoroutinefunction(other), name
    for name in ("id", "state", "number", "report", "used"):
        assert type(getattr(off, name)) in (type(getattr(real, name)), dict), name
    assert off.used.keys() == real.used.keys()


def test_a_run_that_is_not_recorded_has_every_public_name_of_one_that_is(off_store: everstep.Store) -> None:
    with everstep.open("memory://") as store, store.run("a") as real, off_store.run("a") as off:
        _same_shape(real, off, Run, OffRun)

    async def main() -> None:
        with everstep.open("memory://") as store:
            async with store.run("a") as real, off_store.run("a") as off:
                _same_shape(real, off, AsyncRun, AsyncOffRun)

    asyncio.run(main())


def test_used_counts_where_nothing_is_recorded(off_store: everstep.Store, d: Driver) -> None:
    @d.workflow(name="spends")
    async def spends() -> dict[str, Any]:
        run = d.run
        await run.step("ask", d.plain(lambda: everstep.current().usage(tokens=7, cost=0.5)))
        await run.map(d.plain(lambda v: v), [1, 2])
        return dict(run.used)

    used = off_store.start(spends).result
    assert used == {"seconds": used["seconds"], "steps": 3, "tokens": 7, "cost": 0.5}
    assert used["seconds"] >= 0


def test_an_async_condition_is_asked_where_nothing_is_recorded(off_store: everstep.Store) -> None:
    async def no() -> bool:
        return False

    async def main() -> None:
        async with off_store.run("a") as run:
            assert await run.gate("g", condition=no) is False

    asyncio.run(main())
