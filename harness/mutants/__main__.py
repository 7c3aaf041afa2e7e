"""`python -m harness.mutants --count 200 --seed 1 --tests push`: break the source in many places, one at a time, and count what the tests catch.

The first call makes a map of which test runs which line, which takes about twice as long as the tests; `--map FILE` keeps it. Needs pytest-cov. Relies on the
checkout in the current folder. Exits with 0 whatever survives: a survivor is a question to a person.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from harness.mutants.places import KINDS, Place, all_places
from harness.mutants.tests import Bench, Map, make_map


def main(given: list[str] | None = None) -> int:
    asked = _parser().parse_args(given)
    source = Path("src").resolve()
    found = [place for place in all_places(source) if not asked.only or asked.only in place.file]
    file = Path(asked.map or f"{tempfile.gettempdir()}/everstep-mutants-{asked.tests.replace('/', '-')}.coverage")
    if not file.exists():
        _say(f"making the map {file}")
        make_map(file, asked.tests, source, asked.workers)
    bench = Bench(source, Map(file, source), asked.most, asked.seconds, asked.seed)
    results: Counter[str] = Counter()
    for number, place in enumerate(chosen(found, asked.count, asked.seed), 1):
        began = time.monotonic()
        result = bench.tried(place)
        results[result.split()[0]] += 1
        _say(f"{number:4d}  {result}  [{place}]  {time.monotonic() - began:.0f} s")
    counts = ", ".join(f"{results[name]} {name}" for name in ("caught", "survived", "undecided"))
    _say(f"{sum(results.values())} of {len(found)} places, seed {asked.seed}, {asked.tests} tests: {counts}")
    return 0


def chosen(found: list[Place], count: int, seed: int) -> list[Place]:
    """As many places of each kind as there can be: chance alone would draw mostly conditions."""
    chance = random.Random(seed)  # noqa: S311
    kinds = {kind: chance.sample(of, len(of)) for kind in KINDS if (of := [place for place in found if place.kind == kind])}
    drawn: list[Place] = []
    while kinds and len(drawn) < count:
        for kind in list(kinds):
            drawn.append(kinds[kind].pop())
            if not kinds[kind]:
                del kinds[kind]
    return drawn[:count]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m harness.mutants", description="Break the source in many places, and count what the tests catch."
    )
    parser.add_argument("--count", type=int, default=200, help="number of places (200)")
    parser.add_argument("--seed", type=int, default=1, help="chooses the places and the tests (1)")
    parser.add_argument("--tests", default="push", help="tests that may catch a break: push, quick, or a path such as tests/unit (push)")
    parser.add_argument("--map", help="coverage file with a context for each test; made if it is not there")
    parser.add_argument("--only", help="only files whose path contains this text")
    parser.add_argument("--most", type=int, default=300, help="largest number of tests to run for one place (300)")
    parser.add_argument("--seconds", type=float, default=300.0, help="longest time for one place (300)")
    parser.add_argument("--workers", default="auto", help="processes of pytest that make the map (auto)")
    return parser


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
