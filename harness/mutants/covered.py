"""Which test runs which line: `python -m harness.mutants.covered FILE [ARGUMENTS OF PYTEST]` runs the tests once with coverage and writes FILE.

Relies on coverage, and on tests/pool.py and tests/warm_parent.py, which measure in each process. Lines of a process that a test kills are lost, and so are
those of tests that interrupt at any moment, which cannot be measured.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_CHILDREN = """[run]
parallel = true
data_file = {folder}/child
source = {source}
context = ${{PYTEST_CURRENT_TEST-}}
core = ctrace
"""
_INTERRUPTING = "tests/crash/test_interrupts.py"  # an exception at any moment leaves a lock of coverage taken, and the test hangs
_SAVED = 20.0  # seconds after which what was measured is written, in case the worker dies


class Recorder:
    """A plugin of pytest: measures in each worker, and joins the figures at the end."""

    def __init__(self, target: Path, source: Path):
        self._target, self._source = target, source
        self._folder = Path(tempfile.mkdtemp(prefix="everstep-map-"))
        settings = self._folder / "children.ini"
        settings.write_text(_CHILDREN.format(folder=self._folder, source=source / "everstep"))
        os.environ["COVERAGE_PROCESS_START"] = str(settings)
        self._first, self._pid = os.getpid(), 0
        self._seconds: dict[str, float] = defaultdict(float)
        self._failed: set[str] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        if self._pid != os.getpid():
            from coverage import Coverage

            self._pid = os.getpid()
            self._measured = Coverage(
                data_file=str(self._folder / f"worker-{self._pid}"), source=[str(self._source / "everstep")], config_file=False
            )
            self._measured.set_option("run:core", "ctrace")
            self._since = time.monotonic()
        if item.nodeid.startswith(_INTERRUPTING):
            return (yield)
        self._measured.start()  # before each test: one that traces by itself ends this trace
        self._measured.switch_context(item.nodeid)
        try:
            result = yield
        finally:
            self._measured.stop()
        if nextitem is None or time.monotonic() - self._since > _SAVED:
            self._measured.save()
            self._since = time.monotonic()
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if os.getpid() == self._first:
            kept = join(self._folder, self._source)
            names = sorted({*self._seconds, *(test for lines in kept.values() for tests in lines.values() for test in tests)})
            numbers = {name: number for number, name in enumerate(names)}
            lines = {file: {line: [numbers[test] for test in tests] for line, tests in of.items()} for file, of in kept.items()}
            found = {"tests": names, "lines": lines, "seconds": self._seconds, "failed": sorted(self._failed)}
            self._target.write_bytes(gzip.compress(json.dumps(found).encode(), 3))


def join(folder: Path, source: Path) -> dict[str, dict[int, list[str]]]:
    """The names of the tests for each line of each file, from all data files of a folder."""
    from coverage import CoverageData
    from coverage.exceptions import DataError

    names: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in sorted(folder.iterdir()):
        if path.suffix == ".ini":
            continue
        data = CoverageData(str(path))
        try:
            data.read()
        except DataError:  # its process was killed while it began this file
            continue
        for file in data.measured_files():
            lines = names[Path(file).relative_to(source).as_posix()] if Path(file).is_relative_to(source) else {}
            for line, contexts in data.contexts_by_lineno(file).items() if Path(file).is_relative_to(source) else ():
                lines[line] |= {context.rpartition(" (")[0] if context.endswith(")") else context for context in contexts if context}
    return {file: {line: sorted(tests) for line, tests in lines.items()} for file, lines in names.items()}


class Map:
    """Answers which tests run a line."""

    def __init__(self, file: Path):
        found: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
        self.seconds: dict[str, float] = found["seconds"]
        self._failed = set(found["failed"])
        self._tests: list[str] = found["tests"]
        self._lines: dict[str, dict[int, list[int]]] = {
            file: {int(line): tests for line, tests in lines.items()} for file, lines in found["lines"].items()
        }

    def tests(self, file: str, *candidates: int) -> list[str]:
        """The tests that run the first of these lines that any test runs."""
        lines = self._lines.get(file, {})
        return next((self._passed(lines[line]) for line in candidates if line in lines), [])

    def tests_of_file(self, file: str) -> list[str]:
        """The tests that run any line of a file."""
        return self._passed(sorted({test for tests in self._lines.get(file, {}).values() for test in tests}))

    def _passed(self, numbers: list[int]) -> list[str]:
        tests = [self._tests[number] for number in numbers]
        return [test for test in tests if test in self.seconds and test not in self._failed]


if __name__ == "__main__":
    target, *more = sys.argv[1:]
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *more], plugins=[Recorder(Path(target).resolve(), Path("src").resolve())]))
