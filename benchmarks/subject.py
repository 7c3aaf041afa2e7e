"""The child process that drives one subject, ours or a peer: `python -m benchmarks.subject ACTION NAME TURNS FOLDER`.

    run    take TURNS turns, with a one-row insert after each, and print both lists of times as JSON
    bare   take TURNS turns without the floor (for counting system calls)
    load   load the newest state once, after a tiny store was loaded to get all imports out of the way; print ns
    leave  take TURNS small steps and die in the middle of the last
    resume take up the workflow that was left, in which one step is still to be done; print ns, and bytes of memory

A missing package is printed as {"missing": ...}; every other failure ends the process with its traceback.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Any

from benchmarks import workload
from benchmarks.floors import OneRow
from benchmarks.peers import Peer, StepPeer, find
from benchmarks.timing import Laps, memory, settle


def run(peer: Peer, turns: int, folder: Path) -> dict[str, Any]:
    items = workload.messages(turns)
    bodies = [workload.encoded(item) for item in items]
    with OneRow(folder / "floor") as floor:
        laps = Laps(lambda i: floor.write(bodies[i]))
        settle()
        peer.run(items, _own(folder), laps)
    return {"turns": laps.turns, "floors": laps.floors}


def bare(peer: Peer, turns: int, folder: Path) -> dict[str, Any]:
    peer.run(workload.messages(turns), _own(folder), Laps())
    return {}


def load(peer: Peer, turns: int, folder: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        peer.run(workload.messages(3), Path(scratch), Laps())
        peer.load(Path(scratch))
        settle()
        start = perf_counter_ns()
        held = peer.load(_own(folder))
        took = perf_counter_ns() - start
    if held != turns:
        raise RuntimeError(f"{turns} messages were saved and {held} loaded")
    alone = getattr(peer, "load_times", [took])[-1]
    return {"load": took, "load_only": alone}


class Fatal(list[workload.Message]):
    """Items of which the last is never returned: the process that reads it dies there, as by kill -9."""

    def __getitem__(self, i: Any) -> Any:
        if i == len(self) - 1:
            print("{}", flush=True)
            os._exit(0)
        return super().__getitem__(i)


class Counted(list[workload.Message]):
    """Items that count how often they were read."""

    asked = 0

    def __getitem__(self, i: Any) -> Any:
        self.asked += 1
        return super().__getitem__(i)


def leave(peer: StepPeer, steps: int, folder: Path) -> None:
    peer.run(Fatal(workload.results(steps)), _own(folder), Laps())
    raise RuntimeError("the workflow ended although its last step has killed the process")


def resume(peer: StepPeer, steps: int, folder: Path) -> dict[str, Any]:
    items = Counted(workload.results(steps))
    settle()
    before = memory()
    start, spent = perf_counter_ns(), process_time_ns()
    alone = peer.resume(items, _own(folder))
    took, spent = perf_counter_ns() - start, process_time_ns() - spent
    if items.asked != 1:
        raise RuntimeError(f"1 of {steps} steps was left to do and {items.asked} were done")
    return {"all": took, "alone": alone, "processor": spent, "memory": memory() - before}


def _own(folder: Path) -> Path:
    own = folder / "own"
    own.mkdir(parents=True, exist_ok=True)
    return own


def main() -> None:
    action, name, turns, folder = sys.argv[1:]
    try:
        peer = find(name)
    except ImportError as error:
        if name.startswith("everstep"):
            raise
        print(json.dumps({"missing": error.name or str(error)}))
        return
    actions: dict[str, Callable[[Any, int, Path], Any]] = {"run": run, "bare": bare, "load": load, "leave": leave, "resume": resume}
    print(json.dumps(actions[action](peer, int(turns), Path(folder))), flush=True)
    if action != "bare":
        os._exit(0)  # threads that some peers leave behind would keep the process from ending


if __name__ == "__main__":
    main()
