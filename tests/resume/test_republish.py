"""Republishing tells hooks of the program's own events, too."""

from collections.abc import Iterator
from typing import Any

import pytest

import everstep


@pytest.fixture
def store() -> Iterator[everstep.Store]:
    with everstep.open("memory://") as store:
        yield store


@pytest.mark.parametrize("finished", [True, False])
def test_republish_tells_events_of_the_program(store: everstep.Store, finished: bool) -> None:
    heard: list[Any] = []
    for name in ("custom:priced", "custom:milestone", "after_step", "error", "interrupt"):
        store.on(name, lambda e, name=name: heard.append((name, e.name, e.data.get("total") or e.data.get("milestone"), e.replayed)))

    @everstep.workflow(name="tells")
    def flow() -> None:
        run = everstep.current()
        run.now()
        run.step("a", lambda: 1)
        run.emit("priced", total=12)
        run.milestone("half")
        if not finished:
            run.gate("ok")

    store.start(flow, id="r")
    live = [(hook, total) for hook, _, total, _ in heard]
    assert live == [("after_step", None), ("custom:priced", 12), ("custom:milestone", "half")]
    heard.clear()
    store.resume("r", replay="republish")
    assert [(hook, total) for hook, _, total, _ in heard] == live
    assert all(replayed for *_, replayed in heard)
    assert [name for hook, name, *_ in heard if hook.startswith("custom")] == ["custom:priced", "custom:milestone"]


def test_republish_tells_failures(store: everstep.Store) -> None:
    heard: list[Any] = []
    store.on("error", lambda e: heard.append((e.data["step"], e.replayed)))

    def fail() -> None:
        raise ValueError("no")

    @everstep.workflow(name="fails")
    def flow() -> None:
        run = everstep.current()
        try:
            run.step("bad", fail)
        except ValueError:
            run.step("good", int)

    store.start(flow, id="r").unwrap()
    store.resume("r", replay="republish")
    assert heard == [("bad#0", False), ("bad#0", True)]
