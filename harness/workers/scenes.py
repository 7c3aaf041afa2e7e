"""The faults while workers execute runs, on SQLite and on PostgreSQL, in a short and a full size.

    kills       one worker after the other, kill -9, and replaced
    restarts    the server stopped or killed -9, and started again, while workers are killed, too
    cuts        connections, before the request or before the reply
    outages     the server is away for longer than any worker waits for it

No wait depends on time alone: a scene ends when no run is left in the queue, or when no run has made progress for too long.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import everstep
from everstep.api import Store
from everstep.errors import EverstepError
from everstep.testing.postgres import Server
from harness.workers import effects, hand, judge
from harness.workers.crew import Crew
from harness.workers.wire import Wire

PATIENCE = 120.0
NAMES = ("kills on SQLite", "kills on PostgreSQL", "restarts", "cuts", "outages")


@dataclass(frozen=True, slots=True)
class Size:
    """The number of workers and runs; the seconds between two kills and between two restarts; how rare cuts are; the number and lengths of
    outages, and how long workers wait for the server before they release a run.
    """

    workers: int
    runs: int
    steps: int
    kill: float
    restart: float
    cut_one_of: int
    nap: float
    outages: tuple[float, ...]
    patience: float


SHORT = Size(workers=3, runs=60, steps=hand.STEPS, kill=0.5, restart=1.0, cut_one_of=100, nap=0.1, outages=(1.0, 2.0), patience=0.3)
DEEP = Size(
    workers=8,
    runs=2000,
    steps=hand.STEPS,
    kill=1.0,
    restart=10.0,
    cut_one_of=400,
    nap=0.1,
    outages=(5.0, 33.0, 120.0, 15.0, 60.0),
    patience=15.0,
)

_RUNS_A_MINUTE = 500  # that 8 workers drive on two processors while they are broken


def within(size: Size, minutes: float) -> Size:
    """A part of a size that takes about so long: fewer runs, and of the outages only the first ones."""
    lengths: list[float] = []
    left = 60 * minutes
    for length in size.outages:
        left -= length
        if left >= 0 or not lengths:
            lengths.append(length)
    return replace(size, runs=min(size.runs, max(SHORT.runs, int(_RUNS_A_MINUTE * minutes))), outages=tuple(lengths))


@dataclass(slots=True)
class Tally:
    """One scene: how often each fault happened, and the result."""

    name: str
    runs: int = 0
    steps: int = 0
    faults: int = 0
    seconds: float = 0.0
    canary: bool = False
    verdict: judge.Verdict = field(default_factory=judge.Verdict)

    @property
    def ok(self) -> bool:
        return self.faults > 0 and self.canary and not self.verdict.faults and self.verdict.ended == self.runs


class Trouble:
    """An action that is repeated `every` so many seconds, until it has been done `most` times."""

    def __init__(self, every: float, do: Callable[[], None], most: int | None = None):
        self._every = every
        self._do = do
        self._next = time.monotonic() + every
        self.done = 0
        self._most = most

    def come(self) -> bool:
        """Do it if it is time; return whether it was done."""
        if time.monotonic() < self._next or (self._most is not None and self.done >= self._most):
            return False
        self._do()
        self.done += 1
        self._next = time.monotonic() + self._every
        return True


def play(name: str, size: Size, folder: Path, seed: int = 0, server: Server | None = None) -> Tally:
    """Play one scene. A given server is used if it is not restarted."""
    tally = Tally(name, size.runs, size.steps)
    began = time.monotonic()
    _SCENES[name](tally, size, folder, random.Random(seed), server)  # noqa: S311
    tally.seconds = time.monotonic() - began
    return tally


def _kills_on_sqlite(tally: Tally, size: Size, folder: Path, rng: random.Random, server: Server | None) -> None:
    _drive(tally, size, folder, str(folder / "store.db"), rng)


def _kills_on_postgres(tally: Tally, size: Size, folder: Path, rng: random.Random, server: Server | None) -> None:
    with _served(server) as running:
        _drive(tally, size, folder, running.database(), rng)


def _restarts(tally: Tally, size: Size, folder: Path, rng: random.Random, server: Server | None) -> None:
    with Server.start() as own:

        def restart() -> None:
            own.halt() if rng.random() < 0.5 else own.kill()
            own.start_again()

        trouble = Trouble(size.restart, restart, most=2 if size.runs <= SHORT.runs else None)
        _drive(tally, size, folder, own.database(), rng, trouble)


def _cuts(tally: Tally, size: Size, folder: Path, rng: random.Random, server: Server | None) -> None:
    with _served(server) as running, tempfile.TemporaryDirectory(prefix="wire") as short:  # the name of a socket has a limited length
        place = running.database()
        wire = Wire(place, Path(short), size.cut_one_of, rng.randrange(1 << 30))
        try:
            _drive(tally, size, folder, wire.url, rng, own=place, kill=False)
        finally:
            wire.close()
        tally.faults += sum(wire.cuts.values())
        if not all(wire.cuts.values()):
            tally.verdict.fault(f"only one kind of cut happened: {wire.cuts}")


def _outages(tally: Tally, size: Size, folder: Path, rng: random.Random, server: Server | None) -> None:
    lengths = list(size.outages)

    with Server.start() as own:

        def away() -> None:
            own.halt() if rng.random() < 0.5 else own.kill()
            time.sleep(lengths.pop(0))
            own.start_again()

        trouble = Trouble(0.5, away, most=len(lengths))
        _drive(tally, size, folder, own.database(), rng, trouble, kill=False, options={"patience": size.patience})
        if lengths:
            tally.verdict.fault(f"the work ended before all outages happened: {lengths}")


_SCENES = dict(zip(NAMES, (_kills_on_sqlite, _kills_on_postgres, _restarts, _cuts, _outages), strict=True))


@contextmanager
def _served(server: Server | None) -> Iterator[Server]:
    if server is not None:
        yield server
        return
    with Server.start() as own:
        yield own


def _drive(
    tally: Tally, size: Size, folder: Path, url: str, rng: random.Random, trouble: Trouble | None = None, own: str = "", kill: bool = True,
    options: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Enqueue, let workers execute everything while faults happen, and judge. `own`: another address of the same store, for this process."""
    path, log = folder / "effects", folder / "log"
    path.touch()
    hand.make_flow(effects.EffectsLog(path), 0.0)
    with everstep.open(own or url) as store:
        runs = [store.enqueue(hand.ACHAIN if n % 3 == 0 else hand.CHAIN, size.steps, id=f"r{n}").id for n in range(size.runs)]
        with Crew(size.workers, url, path, log, 8, size.nap, options or {}) as crew:
            troubles = [trouble] if trouble is not None else []
            if kill:
                troubles.append(Trouble(size.kill, lambda: crew.kill_one(rng)))
            if not _see_through(store, troubles):
                tally.verdict.fault(f"no run made progress for {PATIENCE:.0f} s; {_log(log)}")
        tally.faults = sum(each.done for each in troubles)
        only = crew.killed if trouble is None and kill else None
        faults = tally.verdict.faults
        tally.verdict = judge.judge(store, path, runs, size.steps, only)
        tally.verdict.faults[:0] = faults
        tally.canary = _canary(store, path, runs, size.steps)


def _see_through(store: Store, troubles: list[Trouble]) -> bool:
    """Wait until no run is left; False if there is no progress."""
    before, limit = -1, time.monotonic() + PATIENCE
    while True:
        came = [trouble.come() for trouble in troubles]
        if any(came):
            limit = time.monotonic() + PATIENCE
        left = _left(store)
        if left == 0:
            return True
        if left is not None and left != before:
            before, limit = left, time.monotonic() + PATIENCE
        if time.monotonic() > limit:
            return False
        time.sleep(0.05)


def _left(store: Store) -> int | None:
    try:
        return sum(int(depth.ready + depth.later + depth.waiting + depth.running) for depth in store.queues(1))
    except EverstepError:  # the server is away
        return None


def _log(path: Path) -> str:
    return path.read_text()[-1500:] if path.exists() else "no worker printed anything"


def _canary(store: Store, path: Path, runs: list[str], steps: int) -> bool:
    """Whether a finished step that ran again, and a lost run, would be detected."""
    broken = path.with_name("canary")
    broken.write_text(path.read_text())
    effects.EffectsLog(broken).add(runs[0], "0")
    found = judge.judge(store, broken, [*runs[:1], "lost"], steps)
    return (found.rerun, found.lost) == (1, 1)


def head() -> str:
    return f"{'':24}" + "".join(f"{name:>9}" for name in _COLUMNS)


_COLUMNS = ("runs", "steps", "faults", "ended", "lost", "twice", "rerun", "again", "seconds", "canary")


def line(tally: Tally) -> str:
    """Format a row of the table, with the failures below it. rerun: finished steps that ran again; again: others that did, which is
    allowed.
    """
    verdict = tally.verdict
    values: list[Any] = [tally.runs, tally.runs * tally.steps, tally.faults, verdict.ended, verdict.lost, verdict.twice, verdict.rerun]
    row = f"{tally.name:24}" + "".join(f"{value:>9,}" for value in [*values, verdict.again])
    row += f"{tally.seconds:>9.1f}{'caught' if tally.canary else 'MISSED':>9}"
    return "\n    ".join([row if tally.ok else f"{row}  <- NOT OK", *verdict.faults[:10]])
