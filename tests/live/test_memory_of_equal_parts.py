"""Loading a state takes about as much memory as the state took, and whatever can be saved can be loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everstep
from everstep.errors import LimitExceeded
from everstep.snapshot import loader

LOAD = """
import sys, tracemalloc, everstep
store = everstep.open(sys.argv[1])
tracemalloc.start()
state = store.load("r")
print(tracemalloc.get_traced_memory()[1] // 1024)
"""
MB = 1024


def loaded(path: Path) -> int:
    """How many KB a load takes, in a process of its own."""
    paths = os.pathsep.join(filter(None, [str(Path(everstep.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(path)], env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize(
    "state",
    [
        {"texts": ["ü€😀" + "x" * 60_000] * 800},
        {"bytes": [os.urandom(60_000)] * 800},
        {"short": ["x" * 5_000] * 10_000},
        {"dicts": [{"text": "x" * 5_000, "n": 1}] * 8_000},
        {"keys": {str(n): "y" * 60_000 for n in range(800)}},
    ],
    ids=lambda state: next(iter(state)),
)
def test_equal_texts_become_one_object(tmp_path: Path, state: Any) -> None:
    path = tmp_path / "s.db"
    with everstep.open(path) as store, store.run("r", state=state) as run:
        run.checkpoint()
    assert loaded(path) < 25 * MB
    with everstep.open(path) as store:
        assert store.load("r") == state


def test_equal_containers_stay_apart() -> None:
    """Only what can't be changed is shared: a list that occurs twice is two lists after a load."""
    store = everstep.open("memory://")
    row = {"text": "x" * 3_000, "inner": [1, [2]], "set": {1}, "pair": (1, [2])}
    with store.run("r", state={"rows": [row] * 500, "twins": [[row] * 100, [row] * 100]}) as run:
        run.checkpoint()
    state = store.load("r")
    for rows in (state["rows"], *state["twins"]):
        assert len({id(one) for one in rows}) == len(rows)
        assert len({id(one["inner"]) for one in rows}) == len({id(one["inner"][1]) for one in rows}) == len(rows)
        assert len({id(one["set"]) for one in rows}) == len({id(one["pair"][1]) for one in rows}) == len(rows)
    state["rows"][0]["inner"][1].append(3)
    state["twins"][0][0]["inner"].append(4)
    assert state["rows"][1] == state["twins"][1][0] == row


def test_a_state_that_no_load_would_take_is_refused_with_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is written. The limits are low here, so that the test is quick."""
    for name, limit in (("DOUBTLESS", 1_000), ("LIGHT", 1 << 16), ("HEAVY", 10)):
        monkeypatch.setattr(loader, name, limit)
    with everstep.open(tmp_path / "s.db") as store:
        with store.run("r", state={"n": 1}) as run:
            run.checkpoint()
        before = store.stats()["chunks"]

        def save() -> None:
            with store.run("r") as run:
                run.state["deep"] = {"ok": [1] * 10, "rows": [[0] * 3_000] * 120}
                try:
                    run.checkpoint()
                finally:
                    del run.state["deep"]

        with pytest.raises(LimitExceeded, match=r"state\['deep'\]\['rows'\] repeats one small part") as refused:
            save()
        assert refused.value.written == "no"
        assert store.stats()["chunks"] == before
        assert store.load("r@1") == {"n": 1}


leaves = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from(["", "a", "ü" * 9_000, "x" * 70_000, b"y" * 20_000]))
parts = st.recursive(
    leaves, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)), max_leaves=6
)


@settings(max_examples=30, deadline=None)
@given(part=parts, times=st.sampled_from([1, 2, 40, 150]), nested=st.booleans())
def test_whatever_can_be_saved_can_be_loaded(part: Any, times: int, nested: bool) -> None:
    state = {"many": [[part] * times, part] if nested else [part] * times}
    store = everstep.open("memory://")
    with store.run("r", state=state) as run:
        try:
            run.checkpoint()
        except LimitExceeded:
            run.state.clear()
            return
    assert store.load("r") == state
