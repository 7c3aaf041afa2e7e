"""Workflows and steps, started, resumed, enqueued, and called as children."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

import everstep
from everstep import Outcome, Run, Store, Waiting


@everstep.step
def price(item: str, count: int = 1) -> int:
    return len(item) * count


@everstep.step(name="pay", retry=3, timeout="30s", kind="tool", ignore="note")
def pay(total: int, note: str = "") -> bool:
    return total > 0


@everstep.workflow
def order(item: str, count: int = 1) -> int:
    total = price(item, count=count)
    assert_type(total, int)
    assert_type(pay(total), bool)
    return total


@everstep.workflow(name="two-orders", retry=everstep.Retry(attempts=5, delay="2s"), timeout=timedelta(minutes=5), policy="every 5 steps")
def both(first: str, second: str) -> list[int]:
    run = everstep.current()
    assert_type(run.id, str)
    return [order(first), order(second, count=2)]


def main(store: Store) -> None:
    outcome = store.start(order, "tea", id="o1")
    assert_type(outcome, Outcome[int])
    assert_type(outcome.unwrap(), int)
    assert_type(outcome.result, int | None)
    assert_type(store.start(order, "tea"), Outcome[int])
    assert_type(store.start(order, "tea", count=2), Outcome[int])
    assert_type(store.start(order, item="tea", count=2, id="o2"), Outcome[int])
    assert_type(store.start(both, "tea", "milk", id="o3").unwrap(), list[int])
    assert_type(store.enqueue(order, "tea", delay="5min", queue="slow").wait("1h").unwrap(), int)
    assert_type(store.enqueue(order, "tea").id, str)
    named = store.enqueue("order", "tea")
    print(named.wait(timeout=timedelta(seconds=5)).status)
    print(store.resume("o1", timeout="10s").status, store.outcome("o1").input, store.wait("o1", timeout=5).result)
    detail = store.step("o1", "price")
    print(detail.input, detail.output, [attempt.error for attempt in detail.attempts])
    for run in store.runs(status="failed", tag=["a", "b"], limit=10):
        print(run.id, run.error)
    for point in store.checkpoints("o1", since=0.0):
        print(point.ref)


def loop(store: Store) -> Run[dict[str, int]]:
    state: dict[str, int] = {"n": 0}
    handle = store.run("r", state=state)
    try:
        with store.run("r") as run:
            run.state["messages"] = []
            run.checkpoint("begun", tag="first")
            assert_type(run.step("price", price, "tea", count=2), int)
            assert_type(run.step(price, "tea"), int)
            assert_type(run.step(price, "tea", retry=3, timeout="5s"), int)
            assert_type(run.step("again", price, "tea", key="k"), int)
            assert_type(run.map(price, ["a", "b"], concurrency=2, name="prices", retry=2, timeout="5s"), list[int])
            run.sleep("1ms")
            everstep.sleep(0.001)
    except Waiting as waiting:
        print(waiting.run, waiting.what)
    print(handle)
    return everstep.open("memory://").run("s", state=state)


@everstep.workflow
def empty() -> None:
    everstep.sleep(1)


def nothing(store: Store) -> None:
    assert_type(store.start(empty, id="e"), Outcome[None])
    assert_type(store.start(empty), Outcome[None])
