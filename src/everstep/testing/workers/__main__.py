"""`python -m everstep.testing.workers`: break workers, their server and their wire while they drive runs, and print what came of it.

Exits with 0 only if every run ended once, nothing that was finished ran again, and the judge would have told otherwise.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from everstep.testing.workers import scenes


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m everstep.testing.workers", description="Break workers while they drive runs.")
    parser.add_argument("--deep", action="store_true", help="8 workers and 2,000 runs for each scene; takes some minutes")
    parser.add_argument("--only", action="append", choices=scenes.NAMES, help="only this scene; may be given several times")
    parser.add_argument("--seed", type=int, default=0, help="what chance is made of (0)")
    asked = parser.parse_args(given)
    good = True
    print(scenes.head(), flush=True)  # noqa: T201
    for name in asked.only or scenes.NAMES:
        with tempfile.TemporaryDirectory(prefix="everstep-workers-") as folder:
            tally = scenes.play(name, scenes.DEEP if asked.deep else scenes.SHORT, Path(folder), asked.seed)
        good = good and tally.ok
        print(scenes.line(tally), flush=True)  # noqa: T201
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
