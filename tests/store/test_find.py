"""Look-ups over all runs: checkpoints by metadata and tags, and a tag of a ref by an index."""

from typing import Any

import pytest

import everstep
from everstep.errors import InvalidArgument


def test_checkpoints_of_all_runs_are_found_by_metadata_and_tags(places: Any) -> None:
    store: everstep.Store = places.open()
    for name in ("a", "b"):
        line = store.line(name)
        for n in range(3):
            line.checkpoint(meta={"n": n, "id": f"{name}-{n}", "long": "x" * 9000}, tags=["odd"] if n % 2 else [])
    with store.run("c") as run:
        run.checkpoint(meta={"n": 1})
    store.tag("a@1", "late")
    assert [c.ref for c in store.find(meta={"id": "a-1"})] == ["a@2"]
    assert [c.ref for c in store.find(meta={"n": 1})] == ["c@1", "b@2", "a@2"]
    assert [c.ref for c in store.find(meta={"n": 1}, tags="odd")] == ["b@2", "a@2"]
    assert [c.ref for c in store.find(tags=["late"])] == ["a@1"]
    assert [c.ref for c in store.find(meta={"long": "x" * 9000, "n": 2})] == ["b@3", "a@3"]
    assert store.find(meta={"id": "nobody"}) == [] == store.find(tags="nobody")
    page = store.find(meta={"n": 1}, limit=2)
    assert [c.ref for c in page] == ["c@1", "b@2"]
    assert [c.ref for c in store.find(meta={"n": 1}, limit=2, after=page.next)] == ["a@2"]
    (found,) = store.find(tags="late")
    assert (found.tags, found.meta["id"]) == (("late",), "a-0")
    store.delete("b")
    assert [c.ref for c in store.find(meta={"n": 1})] == ["c@1", "a@2"]
    for wrong in ({}, {"meta": {}}, {"meta": {"a": []}}, {"meta": {"a": 1}, "limit": 0}):
        with pytest.raises(InvalidArgument):
            store.find(**wrong)


def test_the_newest_of_several_checkpoints_with_a_tag_is_meant(places: Any) -> None:
    store: everstep.Store = places.open()
    line = store.line("r")
    for n in range(5):
        line.checkpoint(tags=["x" if n % 2 else "y", f"t{n}"])
    assert [store.checkpoint(f"r@{tag}").number for tag in ("x", "y", "t0")] == [4, 5, 1]
