"""Tries breaks with the tests of one pytest session, several at a time. A plugin of pytest that takes the place of its loop.

Each break is made in a fork (attempt.py): in memory if it is inside of a function, and in a copy of the source for the processes that tests start. A
break that acts on import needs a pytest of its own, which takes longer. A test that fails is run again, alone, without the break and with it, before it
counts.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.mutants.attempt import Attempt
from harness.mutants.covered import Map
from harness.mutants.memory import Functions
from harness.mutants.places import Place

_LOADING = 0.5  # seconds for a file of tests, in a new process
_KILLING = {
    "adapters/": ("tests/adapters/test_langgraph_kills", "tests/adapters/test_openai_kills", "tests/adapters/test_pydantic_kills"),
    "agents/": ("tests/agents/test_agent_kills",),
    "backends/postgres/": ("tests/postgres/", "tests/workers/"),
    "backends/sqlite/": ("tests/backends/test_sqlite_processes", "tests/crash/test_kill_points", "tests/store/test_store_owners_and_kills"),
    "cli/": ("tests/cli/test_worker",),
    "queues/": ("tests/workers/",),
    "runtime/": ("tests/replay/test_kills", "tests/resume/test_situations", "tests/workers/", "tests/workflows/test_yaml_crash"),
    "store/": ("tests/migration/test_interrupted", "tests/repair/test_repair_interrupted", "tests/store/test_store_owners_and_kills"),
    "transactions/": ("tests/transactional/",),
}
"""Tests that kill processes: the lines that these had run are not in the map, so the tests are tried for every place of these folders."""


@dataclass
class Job:
    """A place, the tests that may catch it, and what has been found."""

    place: Place
    limit: float
    began: float = field(default_factory=time.monotonic)
    tests: list[pytest.Item] = field(default_factory=list)
    known: int = 0
    confirms: str = ""
    repeats: str = ""


class Bench:
    """The plugin."""

    def __init__(
        self,
        places: list[Place],
        covered: Map,
        source: Path,
        done: Callable[[Place, dict[str, Any]], None],
        *,
        workers: int,
        seconds: float,
        others: bool = False,
    ):
        """`others`: only tests that may do more than when the map was made."""
        self._left, self._covered, self._source, self._done = deque(places), covered, source, done
        self._workers, self._seconds, self._others = workers, seconds, others
        self._good: set[str] = set()
        self._bad: set[str] = set()
        self._running: dict[int, tuple[Job, Attempt]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._session = session
        self._families: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in session.items if not self._others else [item for item in session.items if self._does_more(item)]:
            self._families[family(item.nodeid)].append(item)
        _import_all(self._source)
        self._functions = Functions(str(self._source / "everstep"))
        self._scratch = Path(tempfile.mkdtemp(prefix="mt-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))  # noqa: S108
        self._base = self._compiled()
        self._count = 0
        gc.collect()
        gc.freeze()
        try:
            self._loop()
        finally:
            for _, attempt in self._running.values():
                attempt.end()
            shutil.rmtree(self._scratch, ignore_errors=True)
        return True

    def _loop(self) -> None:
        while self._left or self._running:
            while self._left and len(self._running) < self._workers:
                self._begin(self._left.popleft())
            ready = select.select(list(self._running), [], [], 1.0)[0] if self._running else []
            for descriptor in ready:
                job, attempt = self._running[descriptor]
                attempt.hear()
                if attempt.result:
                    del self._running[descriptor]
                    self._ended(job, attempt)
            for descriptor, (job, attempt) in list(self._running.items()):
                late, over = time.monotonic() > attempt.limit, time.monotonic() - job.began > job.limit
                if late or (over and not job.confirms and not job.repeats):
                    del self._running[descriptor]
                    attempt.end()
                    attempt.result = "hung" if late else "time"
                    self._ended(job, attempt)

    def _compiled(self) -> Path:
        """A copy of the source with its bytecode, from which copies for breaks are linked."""
        base = self._scratch / "base"
        shutil.copytree(self._source, base, ignore=shutil.ignore_patterns("__pycache__"))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(base)], check=True, env=environment)  # noqa: S603
        return base

    def _begin(self, place: Place) -> None:
        job = Job(place, self._seconds)
        exact = self._covered.tests(place.file, place.line, place.statement)
        job.tests = self._ordered(exact or self._covered.tests_of_file(place.file))
        job.tests += self._killing(place, {item.nodeid for item in job.tests})
        job.known = len(exact)
        if not job.tests:
            self._finish(job, "survived", "no test runs this file")
            return
        if not exact:  # only a process that was killed may have run it, or an import
            job.limit = self._seconds / 4
        self._try(job)

    def _ordered(self, tests: list[str]) -> list[pytest.Item]:
        """First the fastest test of each family, then another one of each: variants of one test find the same."""
        families = {family(test) for test in tests}
        exact = set(tests)
        found = []
        for name in families:
            of = [item for item in self._families.get(name, []) if item.nodeid not in self._bad]
            of.sort(key=lambda item: (item.nodeid not in exact, self._usual(item)))
            found += [(rank, self._usual(item), item.nodeid, item) for rank, item in enumerate(of)]
        return [entry[-1] for entry in sorted(found, key=lambda entry: entry[:3])]

    def _killing(self, place: Place, known: set[str]) -> list[pytest.Item]:
        names = next((names for folder, names in _KILLING.items() if place.file.startswith(f"everstep/{folder}")), ())
        items = [item for of in self._families.values() for item in of if item.nodeid.startswith(names)] if names else []
        return sorted((item for item in items if item.nodeid not in known and item.nodeid not in self._bad), key=self._usual)

    def _does_more(self, item: pytest.Item) -> bool:
        """Whether the map was made without this test, or it tries more with EVERSTEP_ROTATION=all: examples, or shares (tests/pace.py)."""
        known = vars(getattr(item, "module", None) or object).values()
        paced = any("pace" in (getattr(value, "__module__", ""), getattr(value, "__name__", "")) for value in known)
        return paced or item.nodeid not in self._covered.seconds or getattr(getattr(item, "obj", None), "is_hypothesis_test", False)

    def _usual(self, item: pytest.Item) -> float:
        return self._covered.seconds.get(item.nodeid, 1.0)

    def _try(self, job: Job) -> None:
        self._attempt(job, job.tests, lambda folder: self._broken(job.place, folder))

    def _attempt(self, job: Job, tests: list[pytest.Item], prepare: Callable[[Path], bool]) -> None:
        self._count += 1
        attempt = Attempt(self._session, tests, self._covered.seconds, prepare, self._scratch / str(self._count))
        self._running[attempt.descriptor] = job, attempt

    def _broken(self, place: Place, folder: Path) -> bool:
        """In the fork: break its functions, and the source that its processes import."""
        source = self._source / place.file
        copy = self._copied(place, folder)
        os.environ["PYTHONPATH"] = str(copy)
        os.environ.pop("PYTHONPYCACHEPREFIX", None)
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if name.partition(".")[0] == "everstep" and file:
                module.__file__ = str(copy / Path(file).relative_to(self._source))
        return self._functions.replace(place, str(source), source.read_bytes())

    def _copied(self, place: Place, folder: Path) -> Path:
        copy = folder / "src"
        shutil.copytree(self._base, copy, copy_function=os.link)
        (copy / place.file).unlink()
        (copy / place.file).write_bytes(place.apply((self._source / place.file).read_bytes()))
        return copy

    def _ended(self, job: Job, attempt: Attempt) -> None:
        name = attempt.test.nodeid
        if job.confirms:
            (self._bad if attempt.result != "passed" else self._good).add(name)
            self._repeat(job, job.confirms, attempt.test)
        elif job.repeats:
            self._judge(job, job.repeats if attempt.result != "passed" else "", name)
        elif attempt.result == "passed":
            self._finish(job, "survived", f"{len(job.tests)} tests, {job.known} of which run the line")
        elif attempt.result == "time":
            self._finish(job, "survived", f"{attempt.ran} of {len(job.tests)} tests in {job.limit:.0f} s")
        elif attempt.result == "import":
            self._finish(job, *self._in_a_new_process(job))
        elif name in self._good:
            self._repeat(job, attempt.result, attempt.test)
        else:
            job.confirms = attempt.result
            self._attempt(job, [attempt.test], lambda _: True)

    def _repeat(self, job: Job, how: str, test: pytest.Item) -> None:
        """A test that fails now and then, or only after others, must not count."""
        job.confirms, job.repeats = "", how
        if test.nodeid in self._good:
            self._attempt(job, [test], lambda folder: self._broken(job.place, folder))
        else:
            self._judge(job, "", test.nodeid)

    def _judge(self, job: Job, how: str, name: str) -> None:
        job.repeats = ""
        if how:
            self._finish(job, "caught", f"{name} {how}")
            return
        job.tests = [item for item in job.tests if item.nodeid != name and item.nodeid not in self._bad]
        if job.tests:
            self._try(job)
        else:
            self._finish(job, "survived", "its tests fail without the break, too, or only now and then")

    def _in_a_new_process(self, job: Job) -> tuple[str, str]:
        """The break acts on import: run tests of the file with a pytest of their own."""
        folder = self._scratch / f"new-{self._count}"
        copy = self._copied(job.place, folder)
        names = self._few(job.tests)
        listed = folder / "tests"
        listed.write_text("\n".join(names))
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"} | {"PYTHONPATH": str(copy)}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            f"--basetemp={folder / 't'}",
            f"@{listed}",
        ]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=self._seconds, check=False)  # noqa: S603
        except subprocess.TimeoutExpired:
            return "survived", f"{len(names)} tests in {self._seconds:.0f} s, in a new process"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        if done.returncode:
            return "caught", f"{failed[0].partition(' - ')[0] if failed else 'its import fails'}, in a new process"
        return "survived", f"{len(names)} tests, in a new process"

    def _few(self, tests: list[pytest.Item]) -> list[str]:
        """As many tests as fit in half of the time. Each file takes time to load, too."""
        files: set[str] = set()
        chosen: list[str] = []
        left = self._seconds / 2
        for item in tests:
            file = item.nodeid.partition("::")[0]
            left -= self._usual(item) + (0.0 if file in files else _LOADING)
            if left < 0:
                break
            files.add(file)
            chosen.append(item.nodeid)
        return chosen

    def _finish(self, job: Job, result: str, how: str) -> None:
        self._done(job.place, {"result": result, "how": how, "seconds": round(time.monotonic() - job.began, 1)})


def _import_all(source: Path) -> None:
    """Many modules are imported when they are needed; a function can be broken in memory only if it is there."""
    for path in sorted((source / "everstep").rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        if parts[-1] != "__main__":
            with suppress(ImportError):  # an optional dependency is missing
                importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))


def family(nodeid: str) -> str:
    """A test without its parameters."""
    return nodeid.partition("[")[0]
