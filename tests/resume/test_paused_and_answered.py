"""What `can_resume` and an outcome say of a run that is paused, and of one whose gate has its answer."""

import asyncio
from typing import Any

import everstep


@everstep.workflow(name="f3-ask")
def ask() -> Any:
    return everstep.gate("ok")


@everstep.workflow(name="f3-parent")
async def parent() -> Any:
    return await asyncio.gather(ask_async(1), ask_async(2))


@everstep.workflow(name="f3-child")
async def ask_async(n: int) -> Any:
    return await everstep.gate("ok")


def test_F3_a_paused_run_says_that_it_is_paused(store: everstep.Store) -> None:
    store.start(ask, id="r")
    store.pause("r", "lunch")
    assert store.wait("r", 0).reason == "pause: lunch"
    assert store.can_resume("r").reasons == ["it waits for an answer at ok#0"], "a resume lifts the pause, and waits again"
    assert [gate.address for gate in store.wait("r", 0).gates] == ["ok#0"]


def test_F3_a_paused_run_whose_gate_is_answered_can_be_resumed(store: everstep.Store) -> None:
    for before in (True, False):
        run = f"r{before}"
        store.start(ask, id=run)
        if before:
            store.pause(run)
        store.answer(run, "ok", "yes")
        if not before:
            store.pause(run)
        assert store.can_resume(run), store.can_resume(run)
        out = store.wait(run, 0)
        assert (out.status, out.reason, out.gates) == ("waiting", "pause", [])
        assert store.due() == []
        assert store.resume(run).result == "yes"


def test_F3_an_answered_gate_is_not_among_those_that_a_run_waits_for(store: everstep.Store) -> None:
    store.start(ask, id="r")
    store.answer("r", "ok", 1)
    out = store.wait("r", 0)
    assert out.gates == []
    assert out.reason == "the answer at gate 'ok#0' has arrived"
    assert store.can_resume("r")


def test_F3_a_caller_can_be_resumed_when_a_child_has_its_answer(store: everstep.Store) -> None:
    store.start(parent, id="p")
    assert len(store.wait("p", 0).gates) == 2
    (reason,) = store.can_resume("p").reasons
    assert reason.startswith("it waits for an answer at ok#0 of run p.f3-child.")
    assert {"p.f3-child.0", "p.f3-child.1"} <= set(reason.replace(",", "").split())
    store.answer("p.f3-child.1", "ok", "b")
    assert store.can_resume("p")
    assert [gate.run for gate in store.wait("p", 0).gates] == ["p.f3-child.0"]
    store.pause("p", "lunch")
    assert store.can_resume("p")
    assert store.wait("p", 0).reason == "pause: lunch"
    store.answer("p.f3-child.0", "ok", "a")
    assert store.resume("p").result == ["a", "b"]
