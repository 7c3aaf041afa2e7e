"""Budgets: when something is used up, and how that is said."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.errors import InvalidArgument
from everstep.runtime.limits.budget import Budget, Used

amounts = st.floats(0, 1e9)
counts = st.integers(0, 10**9)


@pytest.mark.parametrize(("budget", "used", "text"), [
    (Budget(tokens=1000), Used(tokens=1200), "budget: 1,200 tokens of 1,000"), (Budget(tokens=1000), Used(tokens=1000), "budget: 1,000 tokens of 1,000"), (Budget(tokens=1000), Used(tokens=999), None),
    (Budget(steps=5), Used(steps=5), "budget: 5 steps of 5"), (Budget(steps=5), Used(steps=4), None), (Budget(seconds=60), Used(seconds=61.25), "budget: 61.25 seconds of 60"), (Budget(seconds=60), Used(seconds=59.9), None),
    (Budget(cost=2.5), Used(cost=2.6), "budget: cost 2.6 of 2.5"), (Budget(cost=2.5), Used(cost=2.4), None), (Budget(cost=0.00001), Used(cost=0.00002), "budget: cost 2e-05 of 1e-05"),
    (Budget(), Used(1e9, 10**9, 10**9, 1e9), None), (Budget(tokens=10), Used(seconds=99, steps=99, cost=99), None), (Budget(seconds=1, tokens=1), Used(tokens=2), "budget: 2 tokens of 1"),
])  # fmt: skip
def test_a_limit_that_is_reached_is_used_up(budget: Budget, used: Used, text: str | None) -> None:
    assert budget.exceeded(used) == text


def test_costs_that_add_up_to_the_limit_reach_it_in_spite_of_rounding() -> None:
    used = Used()
    for _ in range(10):
        assert Budget(cost=1).exceeded(used) is None
        used.add(cost=0.1)
    assert used.cost < 1
    assert Budget(cost=1).exceeded(used) == "budget: cost 1 of 1"


@given(st.lists(st.tuples(amounts, counts, counts, amounts), max_size=5))
def test_what_is_used_adds_up(uses: list[tuple[float, int, int, float]]) -> None:
    used = Used()
    for seconds, steps, tokens, cost in uses:
        used.add(seconds=seconds, steps=steps, tokens=tokens, cost=cost)
    assert used.steps == sum(use[1] for use in uses)
    assert used.tokens == sum(use[2] for use in uses)
    assert used.seconds == pytest.approx(sum(use[0] for use in uses))
    assert used.cost == pytest.approx(sum(use[3] for use in uses))


@given(st.integers(1, 10**9), counts, counts)
def test_more_use_never_frees_a_budget(limit: int, used: int, more: int) -> None:
    budget = Budget(steps=limit)
    if budget.exceeded(Used(steps=used)):
        assert budget.exceeded(Used(steps=used + more))
    assert (budget.exceeded(Used(steps=used)) is None) == (used < limit)


@pytest.mark.parametrize(
    "use",
    [
        {"tokens": -1},
        {"tokens": 1.5},
        {"tokens": True},
        {"steps": "1"},
        {"cost": float("nan")},
        {"cost": float("inf")},
        {"cost": -0.1},
        {"seconds": None},
    ],
)
def test_a_use_that_makes_no_sense_is_refused_and_nothing_is_added(use: dict[str, Any]) -> None:
    used = Used()
    with pytest.raises(InvalidArgument, match=f"{next(iter(use))} must be"):
        used.add(**{"seconds": 1, "steps": 1, "tokens": 1, "cost": 1, **use})
    assert used == Used()


@pytest.mark.parametrize(
    ("given", "budget"),
    [
        ({}, Budget()),
        ({"tokens": 50_000, "cost": 2.5}, Budget(tokens=50_000, cost=2.5)),
        ({"seconds": 60, "steps": None}, Budget(60)),
        (Budget(1), Budget(1)),
    ],
)
def test_a_budget_is_read(given: Any, budget: Budget) -> None:
    assert Budget.parse(given) == budget


@pytest.mark.parametrize(("given", "words"), [
    ({"token": 5}, "'token'"), ({7: 5}, "unknown key 7"), ({"tokens": 0}, "got 0"), ({"tokens": 1.5}, "got 1.5"), ({"steps": True}, "got True"), ({"steps": -1}, "got -1"), ({"seconds": 0}, "got 0"),
    ({"cost": float("nan")}, "got nan"), ({"cost": "5"}, "got '5'"), (None, "budget must be a mapping, got None"), (5, "budget must be a mapping, got 5"), ([], "budget must be a mapping, got []"), ({"tokens": 10**400}, "got 1000"),
])  # fmt: skip
def test_what_is_no_budget_is_refused(given: Any, words: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        Budget.parse(given)
    assert words in refused.value.message
    assert refused.value.remedy.startswith(("Give ", "Use "))
