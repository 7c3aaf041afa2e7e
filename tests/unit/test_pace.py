"""The tables that choose and order tests are true, and every variant of a test runs on some day."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pace
import pytest
import sample
from sample import Variant

STORES = [Variant(f"t[{n}-{m}]", (("n", n), ("m", m))) for n in range(12) for m in range(3)]


def made(file: str, number: int, test: str = "") -> Any:
    name = test or f"test_{number}"
    return SimpleNamespace(path=pace.TESTS / file, name=name, nodeid=f"tests/{file}::{name}", iter_markers=lambda: ())


def test_every_file_with_quick_tests_is_there() -> None:
    assert [name for name in pace.QUICK if not (pace.TESTS / name).is_file()] == []


def test_most_tests_with_a_weight_are_there() -> None:
    """One that was renamed runs whole until the weights are measured again."""
    found = [_defined(file, name) for file, tests in pace.WEIGHTS.items() for name in tests]
    assert sum(found) > 0.8 * len(found)


def _defined(file: str, name: str) -> bool:
    """A class may have inherited its tests."""
    path = pace.TESTS / file
    return path.is_file() and name.partition("::")[0] in path.read_text()


@pytest.mark.parametrize("seconds", [0.05, 0.1, 0.2, 3.0])
@pytest.mark.parametrize("third", [False, True])
def test_every_variant_runs_within_as_many_days_as_it_takes(seconds: float, third: bool) -> None:
    wanted = sample.size(len(STORES), seconds, third=third)
    days = -(-len(STORES) // wanted)
    for first in (0, 17, 20_000):
        ran = {one for day in range(first, first + days) for one in sample.taken(STORES, seconds, day, third=third)}
        assert ran == set(STORES)


def test_a_family_of_one_postgres_variant_runs_on_every_third_day() -> None:
    for number in range(20):
        ran = [day for day in range(6) if sample.taken([Variant(f"t{number}")], 9.0, day, third=True)]
        assert len(ran) == 2
        assert ran[1] - ran[0] == 3


@pytest.mark.parametrize(("variants", "seconds", "wanted"), [(36, 0.0, 36), (36, 0.001, 36), (36, 0.1, 5), (36, 9.0, 2), (1, 9.0, 1)])
def test_a_cheap_test_runs_whole_and_an_expensive_one_at_least_twice(variants: int, seconds: float, wanted: int) -> None:
    assert sample.size(variants, seconds) == wanted


def test_a_few_neighbours_have_every_value_of_a_parameter() -> None:
    order = sample.spread(STORES)
    assert sorted(one.name for one in order) == sorted(one.name for one in STORES)
    for start in (0, 12, 24):
        assert {dict(one.values)["n"] for one in order[start : start + 12]} == set(range(12))


def test_the_order_is_the_same_whatever_order_the_tests_are_found_in() -> None:
    assert sample.spread(STORES) == sample.spread(STORES[::-1])


def test_named_files_run_whole_and_a_push_leaves_variants_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "WEIGHTS", {"store/test_x.py": {"test_long": 1.0}})
    items = [made("store/test_x.py", n, f"test_long[{n}]") for n in range(10)] + [made("store/test_x.py", n) for n in range(5)]
    assert pace.left_out(items, 0, push=False) == []
    left = pace.left_out(items, 0, push=True)
    assert len(left) == 8
    assert all("test_long" in item.name for item in left)


def test_only_postgres_variants_of_tests_for_all_stores_are_rotated() -> None:
    def item(folder: str, **params: str) -> Any:
        return SimpleNamespace(path=Path("tests", folder, "test_x.py"), callspec=SimpleNamespace(params=params))

    assert pace.is_rotated(item("store", places="postgres"))
    assert not pace.is_rotated(item("store", places="sqlite"))
    assert not pace.is_rotated(item("postgres", places="postgres"))
    assert not pace.is_rotated(item("verify", url="postgres"))
    assert not pace.is_rotated(SimpleNamespace(path=Path("tests/store/test_x.py")))  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", [1, 2, 4, 7])
def test_ordering_keeps_every_test_and_starts_each_worker_with_a_long_file(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "WEIGHTS", {f"long_{n}.py": {"test_0": 5.0 + n, "test_1": 5.0} for n in range(8)})
    items = [made(f"short_{n}.py", m) for n in range(30) for m in range(5)] + [made(f"long_{n}.py", m) for n in range(8) for m in range(2)]
    found = pace.ordered(items, workers)
    assert sorted(map(id, found)) == sorted(map(id, items))
    part = len(items) // workers
    starts = [0]
    for n in range(1, workers):
        starts.append(starts[-1] + part + (n - 1 < len(items) % workers))
    assert all(found[start].path.name.startswith("long_") for start in starts)
    assert found[0].path.name == "long_7.py"


@pytest.mark.parametrize(("every", "seeds", "points"), [(False, [1], 33), (True, [0, 1, 2], 100)])
def test_all_variants_are_all_seeds_and_all_points(every: bool, seeds: list[int], points: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "ALL", every)
    monkeypatch.setenv("EVERSTEP_ROTATION", "all" if every else "4")
    assert pace.in_turn(range(3)) == seeds
    assert pace.share(100) == points
    assert pace.rotation() == (0 if every else 4)
