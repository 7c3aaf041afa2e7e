"""Which tests run, in which order, and where their time went. conftest.py takes its hooks from here.

- `-m quick` selects the files of QUICK and loads no others: a minute that runs every module of the library.
- A push runs the PostgreSQL variants of a third of the tests that exist for every store; EVERSTEP_ROTATION (a number, by default the day) chooses the third,
  EVERSTEP_DEEP=1 runs all. Which third a test belongs to depends only on its name.
- Each worker of xdist begins with long files (WEIGHTS), so that none ends with a long test while the others are done.
- The summary says how long the tests of each folder took.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

TESTS = Path(__file__).parent
WEIGHTS: dict[str, float] = json.loads((TESTS / "weights.json").read_text())
"""Seconds that the tests of a file take. `pytest --weights tests/weights.json` writes them."""

QUICK: dict[str, tuple[str, ...]] = json.loads((TESTS / "quick.json").read_text())
"""Files, and words of which one must be in the name of a test. No words: all tests of the file."""

THIRDS = 3
DEEP = bool(os.environ.get("EVERSTEP_DEEP"))
ROTATED = ("store", "runtime", "queues", "resume")


def rotation() -> int:
    """The third of the PostgreSQL variants that runs today."""
    given = os.environ.get("EVERSTEP_ROTATION")
    return (int(given) if given else int(time.time() // 86_400)) % THIRDS


def third_of(name: str) -> int:
    """The third that a test belongs to: always the same for the same name."""
    return zlib.crc32(name.encode()) % THIRDS


def examples(suite: int) -> int:
    """How many examples a property gets that has its own number in the profile `suite`: fewer on a push, more in a search."""
    return max(10, suite * settings().max_examples // 100)


def file_of(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).as_posix()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--weights", metavar="FILE", help="write how long the tests of each file took")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("EVERSTEP_ROTATION", str(rotation()))  # the workers of xdist must not see another day
    config.addinivalue_line("markers", "quick: a minute of tests that run every module; tests/quick.json lists them")


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
    others = [] if DEEP else [item for item in items if is_rotated(item) and third_of(item.nodeid) != rotation()]
    if others and len(items) > 1:  # a test that is named alone runs
        config.hook.pytest_deselected(items=others)
        left = set(map(id, others))
        items[:] = [item for item in items if id(item) not in left]
    items[:] = ordered(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def ordered(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """As many parts of equal length as there are workers, each with its share of the long files ahead.

    xdist gives the first part to the first worker, and so on. Later, workers that are done steal from the ends of the others.
    """
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(file_of(item), []).append(item)
    loads: list[tuple[float, list[pytest.Item]]] = [(0.0, []) for _ in range(workers)]
    for name in sorted(files.keys() & WEIGHTS.keys(), key=lambda name: (-WEIGHTS[name], name)):
        least = min(range(workers), key=lambda n: loads[n][0])
        loads[least] = (loads[least][0] + WEIGHTS[name], loads[least][1] + files.pop(name))
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
    ran = (
        "all PostgreSQL variants (EVERSTEP_DEEP=1)"
        if DEEP
        else f"PostgreSQL variants: third {rotation() + 1} of {THIRDS} (EVERSTEP_ROTATION={rotation()})"
    )
    return f"everstep: {ran}; hypothesis profile {os.environ.get('EVERSTEP_HYPOTHESIS', 'push')}"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say where the time went, and write the weights of files if asked to."""
    folders: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                path = report.nodeid.partition("::")[0].removeprefix("tests/")
                folders[path.partition("/")[0]] += report.duration
                files[path] += report.duration
    total = sum(folders.values())
    if not total:
        return
    shares = ", ".join(f"{name} {seconds:.0f} s ({100 * seconds / total:.0f} %)" for name, seconds in folders.most_common())
    terminalreporter.write_line(f"time in tests: {total:.0f} s: {shares}")
    target = config.getoption("--weights")
    if target:
        found = {name: round(seconds, 1) for name, seconds in files.most_common() if seconds >= 1}
        Path(target).write_text(json.dumps(found, indent=1) + "\n")
