"""Which tests run a line, and whether they catch a break. Starts pytest in processes of its own; never changes the tree.

The map is coverage data with a context for each test, made once (`make_map`) and kept in a file. Only lines that run in the process of pytest are in it:
for a line that only runs in child processes the quick tests are tried.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.mutants.places import Place

_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)
_A_TEST = 60  # seconds for one test; a break that makes it hang is caught


def make_map(file: Path, tests: str, source: Path, workers: str) -> None:
    """Run the tests once and note which test runs which line."""
    chosen = {"push": [], "quick": ["-m", "quick"]}.get(tests, [tests])
    alone = ["--dist", "no"] if workers == "0" else []  # else pytest-cov waits for workers, and names no test
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        workers,
        *alone,
        "-p",
        "no:cacheprovider",
        *chosen,
        f"--cov={source / 'everstep'}",
    ]
    command += ["--cov-context=test", "--cov-report="]
    done = subprocess.run(command, env=_environment(source, COVERAGE_FILE=str(file)), check=False)  # noqa: S603
    if done.returncode:
        file.unlink(missing_ok=True)
        raise SystemExit("the tests fail without any break: no map was made")


class Map:
    """Answers which tests run a line."""

    def __init__(self, file: Path, source: Path):
        from coverage import CoverageData

        self._data = CoverageData(str(file))
        self._data.read()
        self._source = source
        self._lines: dict[str, dict[int, list[str]]] = {}

    def tests(self, place: Place) -> list[str]:
        """The tests that run the line of a place; those that begin on import have no name."""
        if place.file not in self._lines:
            self._lines[place.file] = self._data.contexts_by_lineno(str(self._source / place.file))
        contexts = self._lines[place.file].get(place.line, [])
        return sorted({context.partition("|")[0] for context in contexts if context})


class Bench:
    """Tries breaks, each in a copy of the source."""

    def __init__(self, source: Path, covered: Map, most: int, seconds: float, seed: int):
        self._source, self._covered = source, covered
        self._most, self._seconds, self._seed = most, seconds, seed

    def tried(self, place: Place) -> str:
        """`caught by TEST`, `survived N tests`, or why that is not known."""
        tests = self._covered.tests(place)
        chosen = random.Random(self._seed).sample(tests, min(self._most, len(tests)))  # noqa: S311
        with self._broken(place) as source:
            code, said = self._run(chosen or ["-m", "quick"], source)
        ran = f"{len(chosen)} of {len(tests)} tests" if tests else "the quick tests, no test runs it in its own process"
        if code == 0:
            return f"survived {ran}"
        if code is None:
            return f"undecided after {self._seconds:.0f} s of {ran}"
        return self._confirmed(said)

    def _confirmed(self, said: str) -> str:
        """Whether the test that failed passes without the break."""
        failed = _FAILED.search(said)
        if failed is None:
            return "caught at its import" if "error" in said.lower() else f"undecided: {said[-200:]}"
        code, _ = self._run([failed[1]], self._source)
        return f"caught by {failed[1]}" if code == 0 else f"undecided: {failed[1]} fails without it, too"

    @contextmanager
    def _broken(self, place: Place) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="everstep-mutant-") as folder:
            source = Path(folder)
            shutil.copytree(self._source / "everstep", source / "everstep", ignore=shutil.ignore_patterns("__pycache__"))
            file = source / place.file
            file.write_bytes(place.apply(file.read_bytes()))
            yield source

    def _run(self, tests: list[str], source: Path) -> tuple[int | None, str]:
        """The exit code of pytest, None if it took too long, and what it said."""
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
            listed.write("\n".join(tests) + "\n")
            listed.flush()
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-rfE", "--timeout", str(_A_TEST)]
            try:
                done = subprocess.run(  # noqa: S603
                    [*command, f"@{listed.name}"],
                    env=_environment(source),
                    capture_output=True,
                    text=True,
                    timeout=self._seconds,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return None, ""
        return done.returncode, done.stdout + done.stderr


def _environment(source: Path, **more: str) -> dict[str, str]:
    """Tests import Everstep from this folder, whatever is installed."""
    kept = {name: value for name, value in os.environ.items() if name != "EVERSTEP_DEEP"}
    return {**kept, "PYTHONPATH": str(source), "EVERSTEP_ROTATION": kept.get("EVERSTEP_ROTATION", "0"), **more}
