"""`python -m harness.workers`: break workers, their server and their wire while they drive runs, and print what came of it.

Exits with 0 only if every run ended once, nothing that was finished ran again, and the judge would have told otherwise.
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
    parser = argparse.ArgumentParser(prog="python -m harness.workers", description="Break workers while they drive runs.")
    parser.add_argument("--deep", action="store_true", help="8 workers and 2,000 runs for each scene; takes some minutes")
    parser.add_argument("--only", action="append", choices=(*scenes.NAMES, OVERTAKEN), help="only this scene; may be given several times")
    parser.add_argument("--minutes", type=float, help="how long each scene of --deep may take, about: fewer runs, fewer outages")
    parser.add_argument("--seed", type=int, default=0, help="what chance is made of (0)")
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
