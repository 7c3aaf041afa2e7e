"""Copies of a run: the whole history under a new id, that stays complete when the first one is deleted."""

from typing import Any

import pytest

import everstep
from everstep.errors import LeaseHeld, NotFound, RunExists


def filled(store: everstep.Store) -> None:
    line = store.line("r", workflow="w", session="s", tags="t", meta={"a": 1}, state={"items": []})
    for n in range(70):
        line.state["items"].append({"n": n, "text": "x" * 200})
        line.checkpoint(f"note {n}", tags=f"t{n}", meta={"n": n})
    line.attach(3, "small", 1)
    line.attach(3, "big", ["y" * 300] * 100)
    line.ask("go", "Go?")
    store.tag("r@5", "late")


def same(store: everstep.Store, other: str) -> None:
    for number in (1, 30, 49, 70):
        assert store.load(f"{other}@{number}") == store.load(f"r@{number}")
    pairs = zip(store.checkpoints("r"), store.checkpoints(other), strict=True)
    assert all((a.number, a.note, a.tags, a.meta, a.at, a.pruned) == (b.number, b.note, b.tags, b.meta, b.at, b.pruned) for a, b in pairs)
    assert [(a.number, a.name, a.value, a.at) for a in store.attached("r")] == [
        (a.number, a.name, a.value, a.at) for a in store.attached(other)
    ]


def test_a_copy_has_everything_and_outlives_the_first_one(places: Any) -> None:
    store: everstep.Store = places.open()
    filled(store)
    chunks = store.stats()["chunks"]
    made = store.copy("r", "copy")
    assert (made.id, made.status, made.workflow, made.session, made.tags, made.meta, made.parent) == (
        "copy", "waiting", "w", "s", ("t",), {"a": 1}, "r",
    )  # fmt: skip
    assert store.stats()["chunks"] == chunks
    same(store, "copy")
    assert store.checkpoint("copy@late").number == 5
    assert [c.run for c in store.find(meta={"n": 7})] == ["copy", "r"]
    assert [gate.name for gate in store.gates("copy")] == ["go"]
    line = store.line("copy")
    line.state["items"].append("mine")
    line.checkpoint()
    assert line.attach(3, "small", 2) is False
    assert store.load("r")["items"][-1] != "mine"
    assert store.verify("full").ok
    store.delete("r")
    store.gc()
    assert store.load("copy@3")["items"][2]["n"] == 2
    assert [one.name for one in store.attached("copy", 3)] == ["small", "big"]
    assert store.verify("full").ok


def test_a_copy_of_a_pruned_run_is_pruned(places: Any) -> None:
    store: everstep.Store = places.open()
    filled(store)
    store.prune(everstep.Retention(keep_last=2, keep_tagged=["t29", "t48", "t0"]), run="r")
    store.copy("r", "copy")
    same(store, "copy")
    assert store.verify("full").ok


def test_copies_that_cannot_be_made(places: Any) -> None:
    store: everstep.Store = places.open()
    filled(store)
    with pytest.raises(RunExists):
        store.copy("r", "r")
    with pytest.raises(NotFound):
        store.copy("nobody")
    with places.open().run("r"), pytest.raises(LeaseHeld):
        store.copy("r")
    assert store.copy("r").id.startswith("r-")


def test_a_copied_workflow_can_be_resumed(places: Any) -> None:
    store: everstep.Store = places.open()

    @everstep.workflow(name="copies.flow")
    def flow() -> Any:
        first = everstep.current().step("first", lambda: 1)
        return first, everstep.gate("go")

    store.start(flow, id="w")
    store.copy("w", "copy")
    store.answer("w", "go", "a")
    store.answer("copy", "go", "b")
    assert (store.resume("w").result, store.resume("copy").result) == ((1, "a"), (1, "b"))
