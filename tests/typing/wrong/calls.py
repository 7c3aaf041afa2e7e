"""Mistakes in calls of workflows and steps."""

from __future__ import annotations

import everstep


@everstep.step
def price(item: str, count: int = 1) -> int:
    return len(item) * count


@everstep.workflow
def order(item: str, count: int = 1) -> int:
    return price(5)  # error


@everstep.workflow(name="other")
def other() -> None:
    order("tea", "two")  # error
    order()  # error


def main(store: everstep.Store) -> None:
    store.start(order, 5)  # error
    store.start(order)  # error
    store.start(order, "tea", cuont=1)  # error
    store.start(order, 5, id="o1")  # error
    store.start(order, "tea", "two", id="o1")  # error
    store.start(order, "tea", 2, 3, id="o1")  # error
    store.start(order, "tea", id=7)  # error
    outcome = store.start(order, "tea", id="o1")
    outcome.reslut  # error
    outcome.unwrap().upper()  # error
    outcome.result + 1  # error
    text: str = outcome.unwrap()  # error
    print(text)
    store.runz()  # error
    store.runs(statsu="failed")  # error
    store.commit(None)  # error
    store.enqueue(order, "tea").wait().unwrap().upper()  # error
    with store.run("r") as run:
        run.sate["n"] = 1  # error
        run.step("price", price, 5)  # error
        run.step(price, "tea", count="2")  # error
        run.step("price")  # error
        run.step(price, "tea").upper()  # error
        run.map(price, [1, 2])  # error
        run.checkpoint(5)  # error
        run.checkpoint(tgas=["a"])  # error
        await_me = run.step(price, "tea")
        await_me.upper()  # error
    everstep.current().stpe(price, "tea")  # error
    everstep.open(polcy="manual", url=5)  # error


@everstep.step(retrys=3)  # error
def misspelt() -> None: ...


@everstep.workflow(polcy="manual")  # error
def misspelt_too() -> None: ...


def only_pyright(store: everstep.Store) -> None:
    """A call with options of its own: mypy checks its first positional arguments."""
    store.start(order, id="o1")  # error in pyright
    store.start(order, "tea", cuont=1, id="o1")  # error in pyright
    store.enqueue(order, 5)  # error in pyright
    with store.run("r") as run:
        run.step(price, 5, retry=3)  # error in pyright
