"""The child process that drives one subject, ours or a peer: `python -m benchmarks.subject ACTION NAME TURNS FOLDER`.

    run    take TURNS turns, with a one-row insert after each, and print both lists of times as JSON
    bare   take TURNS turns without the floor (for counting system calls)
    load   load the newest state once, after a tiny store was loaded to get all imports out of the way; print ms

A missing package is printed as {"missing": ...}; every other failure ends the process with its traceback.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from benchmarks import workload
from benchmarks.floors import OneRow
from benchmarks.peers import Peer, find
from benchmarks.timing import Laps, settle, size


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
    return {"load": took, "load_only": alone, "disk": size(_own(folder))}


def _own(folder: Path) -> Path:
    own = folder / "own"
    own.mkdir(parents=True, exist_ok=True)
    return own


def main() -> None:
    action, name, turns, folder = sys.argv[1:]
    try:
        peer = find(name)
    except ImportError as error:
        if name == "everstep":
            raise
        print(json.dumps({"missing": error.name or str(error)}))
        return
    print(json.dumps({"run": run, "bare": bare, "load": load}[action](peer, int(turns), Path(folder))), flush=True)
    if action != "bare":
        os._exit(0)  # some peers leave threads behind that would keep the process from ending


if __name__ == "__main__":
    main()
