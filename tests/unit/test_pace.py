"""The tables that choose and order tests are true, and no test falls between two thirds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pace
import pytest

NAMES = [f"tests/store/test_x.py::test_{n}[postgres]" for n in range(300)]


def made(file: str, number: int) -> Any:
    return SimpleNamespace(path=pace.TESTS / file, name=f"test_{number}")


@pytest.mark.parametrize("table", [pace.QUICK, pace.WEIGHTS], ids=["quick", "weights"])
def test_every_file_of_a_table_is_there(table: dict[str, Any]) -> None:
    assert [name for name in table if not (pace.TESTS / name).is_file()] == []


def test_every_test_belongs_to_one_third(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    for number in range(pace.THIRDS):
        monkeypatch.setenv("EVERSTEP_ROTATION", str(number))
        ran += [name for name in NAMES if pace.third_of(name) == pace.rotation()]
    assert sorted(ran) == sorted(NAMES)


def test_a_third_is_about_a_third() -> None:
    sizes = [sum(pace.third_of(name) == number for name in NAMES) for number in range(pace.THIRDS)]
    assert all(70 <= size <= 130 for size in sizes)


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
    monkeypatch.setattr(pace, "WEIGHTS", {f"long_{n}.py": 10.0 + n for n in range(8)})
    items = [made(f"short_{n}.py", m) for n in range(30) for m in range(5)] + [made(f"long_{n}.py", m) for n in range(8) for m in range(2)]
    found = pace.ordered(items, workers)
    assert sorted(map(id, found)) == sorted(map(id, items))
    part = len(items) // workers
    starts = [0]
    for n in range(1, workers):
        starts.append(starts[-1] + part + (n - 1 < len(items) % workers))
    assert all(found[start].path.name.startswith("long_") for start in starts)
    assert found[0].path.name == "long_7.py"
