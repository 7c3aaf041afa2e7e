"""`python -m harness.workers`: break workers, their server and their connection while they execute runs, and print the results.

Exits with 0 only if every run ended once, no finished step ran again, and the judge would have detected otherwise.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from everstep.testing.postgres import Server
from harness.faults.kills import takeovers
from harness.workers import scenes

OVERTAKEN = "take-overs"


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.workers", description="Break workers while they execute runs.")
    parser.add_argument("--deep", action="store_true", help="use 8 workers and 2,000 runs for each scene; takes some minutes")
    parser.add_argument("--only", action="append", choices=(*scenes.NAMES, OVERTAKEN), help="run only this scene; may be repeated")
    parser.add_argument("--minutes", type=float, help="about how long each scene may take: fewer runs, fewer outages")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the random choices (default 0)")
    asked = parser.parse_args(given)
    size = scenes.DEEP if asked.deep else scenes.SHORT
    if asked.minutes is not None:
        size = scenes.within(size, asked.minutes)
    good = True
    print(scenes.head(), flush=True)  # noqa: T201
    for name in asked.only or (*scenes.NAMES, OVERTAKEN):
        with tempfile.TemporaryDirectory(prefix="everstep-workers-") as folder:
            ok, row = _play(name, Path(folder), size, asked.seed)
        good = good and ok
        print(row, flush=True)  # noqa: T201
    return 0 if good else 1


def _play(name: str, folder: Path, size: scenes.Size, seed: int) -> tuple[bool, str]:
    if name != OVERTAKEN:
        tally = scenes.play(name, size, folder, seed)
        return tally.ok, scenes.line(tally)
    with Server.start() as server:
        count = takeovers.on_server(
            (server.database(), server.database()), folder, max(20, size.runs // 2) if size.workers == scenes.DEEP.workers else 20, seed
        )
    return count.ok, str(count)


if __name__ == "__main__":
    sys.exit(main())
