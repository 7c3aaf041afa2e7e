"""The worker process, from the director's side: its messages, its kill, its end.

It has its own session, so that a Ctrl-C in the terminal reaches only the director, which then ends it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from everstep.demo.folder import Stage
from everstep.errors import EverstepError


class Child:
    """A running worker process. Leaving the block ends it."""

    def __init__(self, stage: Stage, verb: str, run: str, doomed: str | None = None):
        self._run = run
        command = [sys.executable, "-P", "-m", "everstep.demo.worker", str(stage.store.absolute()), verb, run]
        self._process = subprocess.Popen(  # noqa: S603 -- our own module, in the interpreter that runs this
            command + ([doomed] if doomed else []),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},  # finds the same modules as this process
            text=True, encoding="utf-8", errors="replace", start_new_session=True, pass_fds=[stage.lock],
        )  # fmt: skip
        self.pid = self._process.pid

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def news(self) -> Iterator[dict[str, Any]]:
        """Yield its messages up to the call in which it is to be killed, or up to its end. An earlier death is an error."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said: dict[str, Any] = json.loads(line)
            yield said
            if said["what"] in ("inside", "ended"):
                return
        raise self._failed(f"ended with {self._process.wait()}")

    def end(self) -> dict[str, Any]:
        """Wait for its end, and return its last message."""
        *_, last = self.news()
        return self.succeeded(last)

    def succeeded(self, last: dict[str, Any]) -> dict[str, Any]:
        if last.get("status") != "succeeded":
            raise self._failed(f"left the run {last.get('status')}")
        return last

    def kill(self) -> int:
        """Kill it with kill -9, and return the signal that ended it."""
        self._process.send_signal(signal.SIGKILL)
        return -self._process.wait()

    def _failed(self, how: str) -> EverstepError:
        assert self._process.stderr is not None
        last = (self._process.stderr.read().strip().splitlines() or ["it printed nothing"])[-1]
        return EverstepError(
            f"process {self.pid}, which executed the run {self._run!r}, {how}: {last}", remedy="Run the demo again: everstep demo"
        )
