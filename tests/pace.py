"""Which tests run, in which order, and where their time went. conftest.py takes its hooks from here.

- `-m quick` selects the files of QUICK and loads no others: half a minute that runs every module of the library.
- A push (pytest without paths) runs all variants of a cheap test and some of an expensive one (sample.py). EVERSTEP_ROTATION (a number, by default the day)
  chooses which. EVERSTEP_ROTATION=all runs all of them, with 100 examples for each property; EVERSTEP_DEEP=1 adds the long searches. With paths, only
  PostgreSQL variants of tests for every store are left out, two of three.
- Files that take long (WEIGHTS) come first, so that no worker ends with a long file while the others are done.
- The summary says how long the tests of each folder took.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
import sample
from hypothesis import settings

T = TypeVar("T")
TESTS = Path(__file__).parent
WEIGHTS: dict[str, dict[str, float]] = json.loads((TESTS / "weights.json").read_text())
"""Files, and the seconds that one variant of a test takes. `pytest --weights tests/weights.json` writes them; cheap tests are left out."""

QUICK: dict[str, tuple[str, ...]] = json.loads((TESTS / "quick.json").read_text())
"""Files, and words of which one must be in the name of a test. No words: all tests of the file."""

CHEAP = 0.2
"""Seconds of all variants of a test below which its time is not kept."""
DEEP = bool(os.environ.get("EVERSTEP_DEEP"))
ALL = DEEP or os.environ.get("EVERSTEP_ROTATION") == "all"
ROTATED = ("store", "runtime", "queues", "resume")


def rotation() -> int:
    """The number of today, which chooses the variants that run."""
    given = os.environ.get("EVERSTEP_ROTATION")
    return 0 if given == "all" else int(given) if given else int(time.time() // 86_400)


def in_turn(values: Sequence[T]) -> list[T]:
    """One of several seeds or parts of a search, another one each day; all of them if all variants run."""
    return list(values) if ALL else [values[rotation() % len(values)]]


def share(number: int, one_of: int = 3) -> int:
    """How many of so many points of a search a push tries."""
    return number if ALL else max(1, number // one_of)


def examples(suite: int) -> int:
    """How many examples a property gets that has its own number in the profile `suite`: fewer on a push, more in a search."""
    return max(10, suite * settings().max_examples // 100)


def file_of(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).as_posix()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--weights", metavar="FILE", help="write how long the tests of each file took")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("EVERSTEP_ROTATION", str(rotation()))  # the workers of xdist must not see another day
    config.addinivalue_line("markers", "whole: all variants of this test run on every push, whatever they take")
    config.addinivalue_line("markers", "quick: half a minute of tests that run every module; tests/quick.json lists them")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m quick`, don't import the files that have no quick test."""
    if config.option.markexpr == "quick" and collection_path.name.startswith("test_") and collection_path.is_relative_to(TESTS):
        return True if collection_path.relative_to(TESTS).as_posix() not in QUICK else None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if is_quick(item):
            item.add_marker(pytest.mark.quick)
    day = 0 if config.option.markexpr == "quick" else rotation()  # every module runs, whatever day it is
    others = [] if ALL else left_out(items, day, push=config.args_source is not pytest.Config.ArgsSource.ARGS)
    if others and len(items) > 1:  # a test that is named alone runs
        config.hook.pytest_deselected(items=others)
        left = set(map(id, others))
        items[:] = [item for item in items if id(item) not in left]
    items[:] = ordered(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def left_out(items: list[pytest.Item], day: int, *, push: bool) -> list[pytest.Item]:
    """The tests that don't run on this day."""
    families: dict[tuple[str, bool], list[pytest.Item]] = {}
    for item in items:
        families.setdefault((name_of(item), is_rotated(item)), []).append(item)
    found = []
    for (_, third), family in families.items():
        whole = any(mark.name == "whole" for mark in family[0].iter_markers())
        if not whole and (push or third) and (third or len(family) > sample.LEAST):
            variants = {variant_of(item): item for item in family}
            seconds = seconds_of(family[0]) if push else 0.0
            taken = {id(variants[one]) for one in sample.taken(list(variants), seconds, day, third=third)}
            found += [item for item in family if id(item) not in taken]
    return found


def name_of(item: pytest.Item) -> str:
    """The name of a test without its parameters."""
    return item.nodeid.partition("[")[0]


def variant_of(item: pytest.Item) -> sample.Variant:
    given = getattr(item, "callspec", None)
    return sample.Variant(item.nodeid, tuple(given.indices.items()) if given else ())


def seconds_of(item: pytest.Item) -> float:
    """How long one variant of a test takes; 0 if that is not worth a thought."""
    return WEIGHTS.get(file_of(item), {}).get(name_of(item).partition("::")[2], 0.0)


def ordered(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Long files first; for the workers of xdist, as many parts of equal length as there are workers, each with its share of the long files ahead.

    xdist gives the first part to the first worker, and so on. Later, workers that are done steal from the ends of the others.
    """
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(file_of(item), []).append(item)
    weights = {name: sum(map(seconds_of, file)) for name, file in files.items()}
    loads: list[tuple[float, list[pytest.Item]]] = [(0.0, []) for _ in range(workers)]
    for name in sorted((name for name in files if weights[name] >= 1), key=lambda name: (-weights[name], name)):
        least = min(range(workers), key=lambda n: loads[n][0])
        loads[least] = (loads[least][0] + weights[name], loads[least][1] + files.pop(name))
    short = [item for file in files.values() for item in file]
    parts = [part for _, part in loads]
    for n, part in enumerate(parts):
        wanted = max(0, len(items) // workers + (n < len(items) % workers) - len(part))
        part += short[:wanted]
        del short[:wanted]
    return [item for part in parts for item in part] + short


def is_quick(item: pytest.Item) -> bool:
    words = QUICK.get(file_of(item))
    return words is not None and (not words or any(word in item.name for word in words))


def is_rotated(item: pytest.Item) -> bool:
    """Whether this is the PostgreSQL variant of a test that runs with the other stores, too."""
    if item.path.parent.name not in ROTATED:
        return False
    given = getattr(item, "callspec", None)
    return given is not None and given.params.get("places") == "postgres"


def pytest_report_header(config: pytest.Config) -> str:
    ran = "all variants" if ALL else f"variants of EVERSTEP_ROTATION={rotation()}"
    profile = os.environ.get("EVERSTEP_HYPOTHESIS") or ("suite" if ALL else "push")
    return f"everstep: {ran}{', long searches' if DEEP else ''}; hypothesis profile {profile}"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say where the time went, and write the weights of tests if asked to."""
    folders: Counter[str] = Counter()
    tests: dict[str, dict[str, list[float]]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                path, _, name = report.nodeid.partition("[")[0].removeprefix("tests/").partition("::")
                folders[path.partition("/")[0]] += report.duration
                tests.setdefault(path, {}).setdefault(name, []).append(report.duration)
    total = sum(folders.values())
    if not total:
        return
    shares = ", ".join(f"{name} {seconds:.0f} s ({100 * seconds / total:.0f} %)" for name, seconds in folders.most_common())
    terminalreporter.write_line(f"time in tests: {total:.0f} s: {shares}")
    target = config.getoption("--weights")
    if target:
        Path(target).write_text(json.dumps(weights_of(tests), indent=1) + "\n")


def weights_of(tests: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, float]]:
    """The seconds of one variant of each test that takes long enough to matter. A test has three reports."""
    return {
        path: kept
        for path, names in sorted(tests.items())
        if (kept := {name: round(3 * sum(each) / len(each), 3) for name, each in sorted(names.items()) if sum(each) >= CHEAP})
    }
