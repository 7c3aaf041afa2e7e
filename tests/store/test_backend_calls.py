"""How often a store asks its backend, at most: each call is a round trip where the backend is a server."""

from collections.abc import Callable
from typing import Any

import pytest

import everstep
from everstep.backends.wrap import Counted
from everstep.errors import PrunedCheckpoint

CHECKPOINTS, STEPS = 1000, 3
LOAD, DIFF, DIFF_ACROSS_RUNS, REOPEN = 4, 6, 8, 6


def long_run(store: everstep.Store, name: str, checkpoints: int = CHECKPOINTS, texts: bool = True) -> None:
    """A run of three steps for each checkpoint, whose state has a long list and a few plain values. `texts`: with long texts in it, each a chunk."""
    with store.run(name, durability="exit") as run:
        for i in range(checkpoints):
            for _ in range(STEPS):
                run.step("work", int, i)
            run.state["i"] = i
            if i % (10 if texts else 100) == 0:
                run.state.setdefault("messages", []).append({"role": "user", "content": f"{i} " * (400 if texts else 20)})
            run.checkpoint()


def calls(store: everstep.Store, work: Callable[[], Any]) -> Counted:
    """What the backend is asked for meanwhile."""
    backend = store.backend
    counted = Counted(backend)
    store.backend = counted  # type: ignore[assignment]
    try:
        work()
    finally:
        store.backend = backend
    return counted


@pytest.fixture
def long_store(store: everstep.Store) -> everstep.Store:
    long_run(store, "r")
    long_run(store, "other", 50)
    long_run(store, "plain", texts=False)
    return store


def test_a_store_asks_its_backend_only_a_few_times(long_store: everstep.Store) -> None:
    store = long_store
    for ref in ("r", "r@1", "r@2", "r@499", "r@500", "r@999", "r@1000"):
        found = calls(store, lambda ref=ref: store.load(ref))  # type: ignore[misc]
        assert found.calls.total() <= LOAD, (ref, found.calls)
    for a, b in (("r@500", "r@501"), ("r@3", "r"), ("r", "r")):
        found = calls(store, lambda a=a, b=b: store.diff(a, b))  # type: ignore[misc]
        assert found.calls.total() <= DIFF, (a, b, found.calls)
    found = calls(store, lambda: store.diff("r@700", "other@7"))
    assert found.calls.total() <= DIFF_ACROSS_RUNS, found.calls
    reopen(store, "plain")
    reopen(store, "r")


def reopen(store: everstep.Store, name: str) -> None:
    run = store.run(name)
    found = calls(store, run.__enter__)
    assert run.state["i"] == CHECKPOINTS - 1
    run.__exit__(None, None, None)
    assert found.calls.total() <= REOPEN, found.calls
    assert found.calls["acquire"] == 1, "the wrapper sees leases, too"


def test_a_pruned_run_is_asked_for_as_seldom(long_store: everstep.Store) -> None:
    store = long_store
    store.prune(everstep.Retention(keep_last=3, keep_daily=1), run="r")
    loaded = 0
    for number in (1, 2, 500, 900, 998, 999, 1000):
        try:
            found = calls(store, lambda number=number: store.load(f"r@{number}"))  # type: ignore[misc]
        except PrunedCheckpoint:
            continue
        loaded += 1
        assert found.calls.total() <= LOAD, (number, found.calls)
    assert 3 <= loaded < 7
    assert calls(store, lambda: store.diff("r@998", "r@1000")).calls.total() <= DIFF
    store.prune(everstep.Retention(keep_last=3), run="plain")
    reopen(store, "plain")


def test_a_checkpoint_is_found_where_the_records_say(long_store: everstep.Store) -> None:
    """`locate` agrees with a search through all records."""
    backend = long_store.backend
    row = backend.run("r")
    assert row is not None
    records = backend.records("r", 1, row.head_seq)
    places = {record.number: record.seq for record in records if record.kind == "checkpoint"}
    bases = [(record.number, record.seq) for record in records if record.kind == "base"]
    for number in (1, 2, 17, 500, 999, 1000):
        found = backend.locate("r", number)
        assert found is not None
        assert found.seq == places[number]
        assert found.base == max((seq for n, seq in bases if n <= number), default=0)
        assert found.records == ()
        whole = backend.locate("r", number, 0)
        assert whole is not None
        assert list(whole.records) == records[found.first - 1 : max(found.seq, found.base)]
    assert backend.locate("r", 1001) is None
    assert backend.locate("nobody", 1) is None
