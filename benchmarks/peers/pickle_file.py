"""The solution without a library: pickle the whole state, fsync, rename, fsync the folder. Keeps only the newest state."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

from benchmarks import workload
from benchmarks.timing import Laps
from benchmarks.workload import Message


def run(items: list[Message], folder: Path, laps: Laps) -> None:
    live = workload.state()
    for item in items:
        laps.start()
        workload.turn(live, item)
        _save(live, folder)
        laps.end()


def _save(live: workload.State, folder: Path) -> None:
    with (folder / "state.new").open("wb") as file:
        pickle.dump(live, file, pickle.HIGHEST_PROTOCOL)
        file.flush()
        os.fsync(file.fileno())
    (folder / "state.new").replace(folder / "state")
    directory = os.open(folder, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def load(folder: Path) -> int:
    with (folder / "state").open("rb") as file:
        return len(pickle.load(file)["messages"])
