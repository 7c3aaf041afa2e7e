"""States that are few bytes many times over: what can be saved can be loaded, and what nobody would believe is never made."""

from __future__ import annotations

from typing import Any

import pytest

import everstep
from everstep.errors import LimitExceeded
from everstep.snapshot import loader


@pytest.fixture(autouse=True)
def suspicious(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small states are doubted, so that the tests are quick."""
    monkeypatch.setattr(loader, "DOUBTLESS", 10_000)


@pytest.mark.parametrize(
    "state",
    [
        {"zeros": [0] * 150_000},
        {"bytes": bytes(300_000)},
        {"text": "x" * 300_000},
        {"rows": [{"a": 1, "b": [1, 2, 3]}] * 6_000},
        {"nested": [[["same"] * 1000] * 10] * 5},
        {"first": [0] * 90_000, "then": [str(n) for n in range(3_000)]},
    ],
    ids=lambda state: next(iter(state)),
)
def test_equal_parts_come_back(state: Any) -> None:
    store = everstep.open("memory://")
    with store.run("r", state=state) as run:
        run.checkpoint()
        run.state["more"] = 1
        run.checkpoint()
    assert store.load("r@1") == state
    assert store.load("r") == {**state, "more": 1}


def test_what_nobody_would_believe_is_stored_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "LIGHT", 100_000)
    monkeypatch.setattr(loader, "HEAVY", 300)
    store = everstep.open("memory://")
    with store.run("r", state={"zeros": [0] * 300_000}) as run:
        run.checkpoint()
        assert store.load("r") == {"zeros": [0] * 300_000}
        monkeypatch.setattr(loader, "HEAVY", 2)
        run.state["zeros"] = [1] * 300_000
        with pytest.raises(LimitExceeded, match="many thousands of times"):
            run.checkpoint()
        run.state["zeros"] = [2]
        run.checkpoint()
    assert store.load("r") == {"zeros": [2]}
