"""Replay: a workflow whose process died in the middle of its last step is resumed in a new one, where every finished step returns its
recorded result of about 100 bytes.

The figure includes everything that a program waits for after its imports: opening, taking over, reading, verifying, running the workflow to
its end (with the one remaining step) and closing. Dbos is timed only inside its workflow, because it resumes a workflow at its queue's next
poll.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import copytree, rmtree
from statistics import median
from typing import Any

from benchmarks import process
from benchmarks.options import Options
from benchmarks.peers import STEP_LABELS
from benchmarks.table import Bar, Line


def lines(options: Options) -> Iterator[Line]:
    said = resumed("everstep_steps", options.replayed, options.replays, options.folder / "replay")
    took, alone, spent = (each(said, key, options.replayed) for key in ("all", "alone", "processor"))
    yield Line(
        f"replay of a finished step, N={options.replayed:,}",
        f"{took:.1f} us",
        "",
        took,
        Bar("<=", 20, "us"),
        f"all included, median of {options.replays} fresh processes; inside the workflow {alone:.1f}, "
        f"processor time {spent:.1f} us a step; {held(said)}",
    )
    if options.peers:
        for name in ("everstep_steps", "dbos_steps"):
            yield peer(name, options)


def peer(name: str, options: Options) -> Line:
    """Measure a peer inside its workflow, the time that can be compared."""
    label = f"  {STEP_LABELS[name]}, inside the workflow, N={options.peer_replayed:,}"
    try:
        said = resumed(name, options.peer_replayed, 3, options.folder / "peer-replay" / name)
    except process.Missing as missing:
        return Line(label, problem=f"not installed: pip install '.[bench]' ({missing} is missing)")
    except process.Failed as failed:
        return Line(label, problem=f"FAILED: {failed}", broken=True)
    whole = median(one["all"] for one in said) / 1e6
    return Line(label, f"{each(said, 'alone', options.peer_replayed):.1f} us", note=f"{whole:,.0f} ms with all around it; {held(said)}")


def resumed(name: str, steps: int, times: int, folder: Path) -> list[dict[str, Any]]:
    """Return the output of several processes that each resumed a copy of one interrupted workflow."""
    left = folder / "left"
    left.mkdir(parents=True)
    process.subject("leave", name, steps, left)
    said = []
    for i in range(times):
        copy = folder / str(i)
        copytree(left, copy)
        said.append(process.subject("resume", name, steps, copy))
        rmtree(copy)
    return said


def each(said: list[dict[str, Any]], key: str, steps: int) -> float:
    """Return microseconds per step."""
    return float(median(one[key] for one in said)) / steps / 1e3


def held(said: list[dict[str, Any]]) -> str:
    return f"memory grew by {median(one['memory'] for one in said) / 1e6:.1f} MB"
