"""How much one process gets done on one PostgreSQL server: durable steps of 1 KB a second, and workflows of one step a second.

Ours, dbos and langgraph's PostgresSaver run one after the other in alternating rounds, each in a process and a database of its own, with the
same numbers of threads and of asyncio tasks. The bar holds the best setting of ours against the best of dbos, whichever they are. How each is
set up is in its file in `peers/`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks import process, server
from benchmarks.options import Options
from benchmarks.peers import RATE_LABELS
from benchmarks.table import Bar, Line
from everstep.testing.postgres import Server

OURS, BAR_PEER = "everstep_postgres", "dbos_postgres"
WHAT = {"steps": "steps", "runs": "one-step workflows"}
BARS = {"steps": 5.0}
TIMEOUT = 120


@dataclass
class Rates:
    """The results of one program: for each setting and kind of work the rate and the processor time of each round."""

    steps: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    runs: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    trips: dict[str, float] = field(default_factory=dict)
    problem: str = ""
    broken: bool = False

    def add(self, said: dict[str, Any]) -> None:
        for one in said["rates"]:
            self.steps.setdefault(one["setting"], []).append(one["steps"])
            self.runs.setdefault(one["setting"], []).append(one["runs"])
        self.trips = said["trips"]

    def medians(self, kind: str) -> dict[str, float]:
        return {setting: median(rate for rate, _ in found) for setting, found in getattr(self, kind).items()}

    def spent(self, kind: str) -> float:
        """Return milliseconds of the program's processor time for each, in its best setting."""
        return median(spent for _, spent in getattr(self, kind)[self.best(kind)[1]])

    def best(self, kind: str) -> tuple[float, str]:
        return max((rate, setting) for setting, rate in self.medians(kind).items())


def lines(options: Options) -> Iterator[Line]:
    names = [name for name in RATE_LABELS if options.peers or name == OURS]
    seen = {name: Rates() for name in names}
    with server.started(options) as home:
        version = server.version(home)
        for turn in range(options.rate_rounds):
            shift = turn % len(names)
            for name in names[shift:] + names[:shift]:
                if not seen[name].problem:
                    print(f"  throughput, round {turn + 1}: {RATE_LABELS[name]}", file=sys.stderr, flush=True)
                    _guarded(name, seen[name], home, options)
    for kind in WHAT:
        yield from _lines(kind, seen, options, version)


def _guarded(name: str, rates: Rates, home: Server, options: Options) -> None:
    try:
        rates.add(_said(name, home, options))
    except process.Missing as missing:
        rates.problem = f"not installed: pip install '.[bench]' ({missing} is missing)"
    except process.Failed as failed:
        rates.problem, rates.broken = f"FAILED: {failed}", True


def _said(name: str, home: Server, options: Options) -> dict[str, Any]:
    url = home.database()
    command = [sys.executable, "-m", "benchmarks.rate", name, url, str(options.rate_seconds), ",".join(options.rate_settings)]
    try:
        done = subprocess.run(command, env=process.environment(), capture_output=True, text=True, timeout=TIMEOUT, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise process.Failed(f"did not end within {TIMEOUT} s") from None
    finally:
        home.drop(url)
    if done.returncode:
        raise process.Failed((done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1])
    said: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    if "missing" in said:
        raise process.Missing(said["missing"])
    return said


def _lines(kind: str, seen: dict[str, Rates], options: Options, version: str) -> Iterator[Line]:
    note = f"medians of {options.rate_rounds} alternating rounds of {options.rate_seconds:g} s; {version}"
    label = f"PostgreSQL: {WHAT[kind]} a second in one process"
    if seen[OURS].problem or BAR_PEER not in seen or seen[BAR_PEER].problem:
        yield Line(label, note=note)
    else:
        yield _against(kind, label, seen[OURS], seen[BAR_PEER], note)
    for name, rates in seen.items():
        yield _peer(kind, name, rates)


def _against(kind: str, label: str, ours: Rates, theirs: Rates, note: str) -> Line:
    (most, setting), (floor, other) = ours.best(kind), theirs.best(kind)
    bar = Bar(">=", BARS[kind]) if kind in BARS else None
    said = f"ours with {_shown(setting)}, dbos with {_shown(other)}: the best of each; {note}"
    return Line(f"{label} / dbos", f"{most:,.0f}/s", f"{floor:,.0f}/s", most / floor, bar, said)


def _peer(kind: str, name: str, rates: Rates) -> Line:
    if rates.problem:
        return Line(f"  {RATE_LABELS[name]}", problem=rates.problem, broken=rates.broken)
    found = rates.medians(kind)
    best, _ = rates.best(kind)
    note = "; ".join(f"{_shown(setting)} {rate:,.0f}/s" for setting, rate in found.items())
    trips, spent = rates.trips[kind], rates.spent(kind)
    said = f"{note}; each {trips:.1f} round trips and {spent:.2f} ms of the program's processor time"
    return Line(f"  {RATE_LABELS[name]}", f"{best:,.0f}/s", note=said, raw={**found, "trips": trips, "processor_ms": spent})


def _shown(setting: str) -> str:
    kind, _, width = setting.partition(":")
    return f"{width} {kind if width != '1' else kind.rstrip('s')}"
