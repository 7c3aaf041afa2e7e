"""One crash after the other: a forked child acts under a fault, a second one checks the result. The parent only counts.

The parent imports everything once and never opens a store, so that a fork costs a few milliseconds and no lock is shared. A child that does
not end in time is killed and reported as hung: no call may wait forever.
"""

from __future__ import annotations

import json
import os
import pkgutil
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.faults import model
from harness.faults.kills.shim import Fault, Shim
from harness.faults.verdict import Verdict

PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """An action under a fault. `prepare` fills a folder once; `act` works in a copy of it, under the fault; `judge` checks the result."""

    name: str
    act: Callable[[Path], Any]
    judge: Callable[[Path], Verdict]
    prepare: Callable[[Path], object] | None = None
    aim: str = ""
    """For a canary: the calls at which its defect shows."""


@dataclass(slots=True)
class Ended:
    """How a child ended, and its message."""

    code: int
    said: Any = None
    hung: bool = False

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL and not self.hung


def forked(function: Callable[[], Any], seconds: float = PATIENCE) -> Ended:
    """Call a function in a child; its return value comes back as JSON, an error as its last message."""
    listen, speak = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(listen)
        _child(function, speak)
    os.close(speak)
    said, hung = _hear(listen, time.monotonic() + seconds)
    if hung:
        os.kill(child, signal.SIGKILL)
    os.close(listen)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return Ended(code, json.loads(said) if said and not hung else None, hung)


def _child(function: Callable[[], Any], speak: int) -> None:
    code = 1
    try:
        said = json.dumps(function())
        code = 0
    except BaseException:  # noqa: BLE001 -- a child never returns to the parent's code
        said = json.dumps({"raised": _shortly(*sys.exc_info()[1:])})
    try:
        sys.stdout.flush()
        data = said.encode()
        while data:
            data = data[os.write(speak, data) :]
    finally:
        os._exit(code)


def _shortly(error: BaseException | None, trace: TracebackType | None) -> str:
    """Describe an error in a few words, with the innermost locations."""
    places = [f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(trace)[-6:]]
    return f"{type(error).__name__}: {error} ({' '.join(places)})"[:1500]


def _hear(listen: int, deadline: float) -> tuple[bytes, bool]:
    said = b""
    while True:
        ready, _, _ = select.select([listen], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return said, True
        part = os.read(listen, 1 << 16)
        if not part:
            return said, False
        said += part


def warm(seed: int) -> None:
    """Import and compute everything that each child would otherwise repeat, before any fork. Opens no store."""
    import everstep

    for module in pkgutil.walk_packages(everstep.__path__, "everstep."):
        if not module.name.startswith("everstep.testing") and ".yaml" not in module.name:
            import_module(module.name)
    for run, turns in (("loop", model.TURNS[-1]), ("fork", model.FORK_TURNS), ("gone", model.GONE_TURNS)):
        for n in range(turns + 1):
            model.digest(seed, run, n)


class Stage:
    """A scenario that is tried repeatedly: a template, and a copy of it for each fault."""

    def __init__(self, scenario: Scenario, folder: Path):
        self.scenario = scenario
        self._template = folder / "template"
        self._place = folder / "place"
        self._template.mkdir(parents=True)
        if scenario.prepare is not None:
            prepare = scenario.prepare
            ended = forked(lambda: prepare(self._template))
            if ended.code:
                raise RuntimeError(f"{scenario.name} could not be prepared: {ended.said}")

    def count(self, kinds: int) -> list[str]:
        """List the calls of an undisturbed act, in order, as the shim reports them."""
        trace = self._template.with_name("trace")
        ended = self._act(Fault(kinds=kinds), os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        if ended.code:
            raise RuntimeError(f"{self.scenario.name} fails by itself: {ended.said}")
        return [line.partition(" ")[2] for line in trace.read_text().splitlines()]

    def _act(self, fault: Fault, trace: int = -1) -> Ended:
        shutil.rmtree(self._place, ignore_errors=True)
        shutil.copytree(self._template, self._place)
        (self._place / "store").mkdir(exist_ok=True)

        def act() -> Any:
            shim = Shim()
            shim.arm(self._place / "store", fault, trace)
            said = self.scenario.act(self._place)
            return {"fired": shim.fired, "said": said}

        ended = forked(act)
        if trace >= 0:
            os.close(trace)
        return ended

    def act(self, fault: Fault) -> Ended:
        return self._act(fault)

    def judged(self) -> Verdict:
        """Judge the remaining files in a separate process."""
        ended = forked(lambda: self._judge())
        if ended.hung:
            return Verdict(lost=["the store cannot be read: it hangs"])
        if ended.code or ended.said is None:
            return Verdict(wrong=[f"the judge fails with {ended.code}: {ended.said and ended.said.get('raised')}"])
        return Verdict(**ended.said)

    def _judge(self) -> dict[str, list[str]]:
        verdict = self.scenario.judge(self._place)
        return asdict(verdict)
