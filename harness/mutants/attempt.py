"""One attempt to catch a break: a fork of the process that has collected all tests, which runs some of them and says how each ended.

The fork writes a line to a pipe before each test and after a failure, so its parent knows which test a fork that hangs or dies was in.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

_MEMORY = 6 << 30
_SLOW = 20.0  # seconds that any test may take, and ten times its usual time


class Attempt:
    """A fork that runs tests in their order until one fails."""

    def __init__(
        self, session: pytest.Session, tests: list[pytest.Item], seconds: dict[str, float], prepare: Callable[[Path], bool], folder: Path
    ):
        self.tests, self._seconds, self.folder = tests, seconds, folder
        self.began = self.since = time.monotonic()
        self.ran = -1
        self.result = ""
        self._rest = b""
        self.descriptor, theirs = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            code = 1
            try:
                os.close(self.descriptor)
                _become(session, folder)
                code = _run(tests, theirs, lambda: prepare(folder))
            finally:
                os._exit(code)
        os.close(theirs)

    @property
    def limit(self) -> float:
        """When the test that runs now counts as hanging."""
        usual = self._seconds.get(self.tests[self.ran].nodeid, 1.0) if self.ran >= 0 else 10.0
        return self.since + _SLOW + 10 * usual

    @property
    def test(self) -> pytest.Item:
        return self.tests[max(self.ran, 0)]

    def hear(self) -> None:
        """Read what the fork says. Sets `result` when it has ended."""
        data = os.read(self.descriptor, 65536)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            word, _, number = line.decode().partition(" ")
            if word == "run":
                self.ran, self.since = int(number), time.monotonic()
            else:
                self.result = word
        if not data and not self.result:
            self.result = "died"
        if self.result:
            self.end()

    def end(self) -> None:
        """Kill the fork and all that it started."""
        for pid in [*_below(self._pid), self._pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        os.close(self.descriptor)
        shutil.rmtree(self.folder, ignore_errors=True)


def _below(pid: int) -> list[int]:
    with suppress(OSError):
        found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return [*found, *(other for child in found for other in _below(child))]
    return []


def _become(session: pytest.Session, folder: Path) -> None:
    """Make a worker of this fork: its own output, temporary folders and limits."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    capture: Any = session.config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    factory: Any = session.config._tmp_path_factory  # type: ignore[attr-defined]
    (folder / "t").mkdir(parents=True)
    factory._basetemp = folder / "t"


def _run(tests: list[pytest.Item], said: int, prepare: Callable[[], bool]) -> int:
    if not prepare():
        os.write(said, b"import\n")
        return 0
    for number, item in enumerate(tests):
        os.write(said, f"run {number}\n".encode())
        following = tests[number + 1] if number + 1 < len(tests) else None
        reports: list[Any] = []
        item.config.pluginmanager.register(Once(reports), "everstep-attempt")
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        finally:
            item.config.pluginmanager.unregister(name="everstep-attempt")
        if any(report.failed for report in reports):
            os.write(said, b"failed\n")
            return 0
    os.write(said, b"passed\n")
    return 0


class Once:
    """Runs a test without telling the terminal."""

    def __init__(self, reports: list[Any]):
        self._reports = reports

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        self._reports += runtestprotocol(item, log=False, nextitem=nextitem)
        return True
