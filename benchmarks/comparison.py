"""Peers on the same turns, each in its own process and folder, run by run in alternating rounds, with us among them.

Each child takes a one-row insert between its turns, so that its ratio is formed inside its own run; the line quotes the median
of the rounds. A peer that is not installed or that fails keeps its line and says so.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

from benchmarks import fsyncs, process
from benchmarks.options import Options
from benchmarks.peers import LABELS
from benchmarks.table import Line
from benchmarks.table import ms as show
from benchmarks.timing import first_tenth, last_tenth, ms, size


@dataclass
class Rounds:
    """The results of one peer, a figure for each round."""

    turn: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)
    ratio: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)
    last_ratio: list[float] = field(default_factory=list)
    disk: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)
    flushes: float | None = None
    problem: str = ""
    broken: bool = False


def lines(options: Options) -> Iterator[Line]:
    yield from group("turn", LABELS, options, loads=True)


def group(unit: str, labels: dict[str, str], options: Options, loads: bool) -> Iterator[Line]:
    """Yield a head and a line for each of some peers, whose laps are called `unit`."""
    seen = {name: Rounds() for name in labels}
    names = list(labels)
    for turn in range(options.peer_rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            if not seen[name].problem:
                print(f"  peers, round {turn + 1}: {labels[name]}", file=sys.stderr, flush=True)
                _guarded(name, seen[name], options, loads)
    yield Line(
        f"peers, {options.peer_turns:,} {unit}s of 1 KB / one-row insert",
        note=f"median {unit}; medians of {options.peer_rounds} alternating rounds",
    )
    for name, rounds in seen.items():
        yield _line(f"  {labels[name]}", unit, rounds)


def _guarded(name: str, rounds: Rounds, options: Options, loads: bool) -> None:
    try:
        _round(name, rounds, options, loads)
        if rounds.flushes is None and shutil.which("strace"):
            rounds.flushes = fsyncs.count(name, options.folder / "peer-fsyncs" / name)
    except process.Missing as missing:
        rounds.problem = f"not installed: pip install '.[bench]' ({missing} is missing)"
    except process.Failed as failed:
        rounds.problem, rounds.broken = f"FAILED: {failed}", True


def _round(name: str, rounds: Rounds, options: Options, loads: bool) -> None:
    folder = options.folder / "peer" / name
    said = process.subject("run", name, options.peer_turns, folder)
    turns, floors = said["turns"], said["floors"]
    if len(turns) != options.peer_turns:
        raise process.Failed(f"{len(turns)} turns were timed instead of {options.peer_turns}")
    if loads:
        rounds.load.append(process.subject("load", name, options.peer_turns, folder)["load"] / 1e6)
    rounds.disk.append(size(folder / "own") / options.peer_turns / 1000)
    shutil.rmtree(folder)
    rounds.turn.append(ms(turns))
    rounds.floor.append(ms(floors))
    rounds.ratio.append(ms(turns) / ms(floors))
    rounds.first.append(ms(first_tenth(turns)))
    rounds.last.append(ms(last_tenth(turns)))
    rounds.last_ratio.append(ms(last_tenth(turns)) / ms(last_tenth(floors)))


def _line(label: str, unit: str, rounds: Rounds) -> Line:
    if rounds.problem:
        return Line(label, problem=rounds.problem, broken=rounds.broken)
    figures = {key: median(value) for key, value in vars(rounds).items() if isinstance(value, list) and value}
    loaded = f"; open and load {figures['load']:,.1f} ms" if "load" in figures else ""
    flushes = "" if rounds.flushes is None else f"; fsyncs a {unit}: {rounds.flushes:g}"
    note = (
        f"first 10 % {figures['first']:.2f}, last 10 % {figures['last']:.2f} ms ({figures['last_ratio']:.1f}x); "
        f"disk {figures['disk']:.1f} KB a {unit}{loaded}{flushes}"
    )
    return Line(
        label, show(figures["turn"]), show(figures["floor"]), figures["ratio"], note=note, raw={**figures, "flushes": rounds.flushes}
    )
