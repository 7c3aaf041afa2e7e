"""`python -m harness.mutants --count 200 --out mutants.json`: break the source in many places, one at a time, and count what the tests catch.

The first call makes a map of which test runs which line, which takes about twice as long as the tests; `--map` says where it is kept. Places that OUT has are
not tried again, so a call that was stopped can be repeated. `--tests` chooses the tests: quick, push, whole, deep, each with all tests of those before it. A
place that OUT knows as caught by fewer tests is not tried with more. Relies on the checkout in the current folder. Exits with 0 whatever survives: a
survivor is a question to a person.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from everstep.testing.postgres import Server
from harness.mutants.bench import Bench
from harness.mutants.covered import Map
from harness.mutants.places import KINDS, Place, all_places

TIERS = ("quick", "push", "whole", "deep")
"""Tests, each with all of those before: half a minute of them; a push; a push with all variants and examples; what takes hours, too."""


def main(given: list[str] | None = None) -> int:
    asked = _parser().parse_args(given)
    source = Path("src").resolve()
    os.environ.setdefault("EVERSTEP_ROTATION", "0")
    os.environ["EVERSTEP_HYPOTHESIS"] = "mutants"
    if not asked.map.exists():
        _say(f"making the map {asked.map}")
        command = [sys.executable, "-m", "harness.mutants.covered", str(asked.map), "-n", str(asked.workers), *asked.pytest]
        subprocess.run(command, check=False)  # noqa: S603 - a test that fails is left out
    results = Results(asked.out)
    found = [place for place in all_places(source) if not asked.only or asked.only in place.file]
    places = chosen(found, asked.count, asked.seed)
    tier = asked.tests
    os.environ |= {"whole": {"EVERSTEP_ROTATION": "all"}, "deep": {"EVERSTEP_DEEP": "1"}}.get(tier, {})
    selected = ["-m", "quick"] if tier == "quick" else []
    bench = Bench(
        [place for place in places if results.open(place, tier)],
        Map(asked.map),
        source,
        lambda place, result: results.add(place, tier, result),
        workers=asked.workers,
        seconds=asked.seconds,
        others=tier == "whole",
    )
    with Server.start(fsync=False) as server:
        os.environ["TEST_POSTGRES_URL"] = server.url("postgres")
        pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", "-p", "no:terminalreporter", *selected, *asked.pytest], plugins=[bench])
    _say(results.summary(places))
    return 0


class Results:
    """The results for places so far, in a JSON file that is written after each."""

    def __init__(self, file: Path):
        self._file = file
        self._known: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}

    def open(self, place: Place, tier: str) -> bool:
        """Whether a place must be tried with these tests."""
        return tier not in self._known.get(str(place), {}) and not self.caught(place, tier)

    def caught(self, place: Place, tier: str) -> bool:
        """Whether these tests, or fewer, catch a place."""
        known = self._known.get(str(place), {})
        return any(known.get(name, {}).get("result") == "caught" for name in TIERS[: TIERS.index(tier) + 1])

    def add(self, place: Place, tier: str, result: dict[str, Any]) -> None:
        known = self._known.setdefault(str(place), {"file": place.file, "line": place.line, "kind": place.kind})
        known[tier] = result
        temporary = self._file.with_suffix(".tmp")
        temporary.write_text(json.dumps(self._known, indent=1) + "\n")
        temporary.replace(self._file)
        done = sum(tier in one for one in self._known.values())
        _say(f"{done:4d}  {tier}: {result['result']}  [{place}]  {result['how']}  {result['seconds']:.0f} s")

    def summary(self, places: list[Place]) -> str:
        """How many places each kind of tests catches, as far as they were tried, and what the most of them leave."""
        lines = []
        for tier in TIERS:
            open_ = sum(self.open(place, tier) for place in places)
            if any(tier in self._known.get(str(place), {}) for place in places):
                caught = sum(self.caught(place, tier) for place in places)
                lines.append(f"{tier}: catches {caught} of {len(places)}" + (f", {open_} not tried" if open_ else ""))
        left = [place for place in places if not self.caught(place, TIERS[-1])]
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(place.kind for place in left).most_common())
        return "\n".join([*lines, f"left: {kinds or 'none'}", *(f"  {place}" for place in sorted(left, key=str))])


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
    parser.add_argument("--seed", type=int, default=1, help="chooses the places (1)")
    parser.add_argument("--tests", choices=TIERS, default="push", help="which tests; those that fewer caught are not tried again (push)")
    parser.add_argument(
        "--out", type=Path, default=Path("mutants.json"), help="results; places that it has are not tried again (mutants.json)"
    )
    parser.add_argument("--map", type=Path, default=Path(tempfile.gettempdir(), "everstep-mutants.map"), help="which test runs which line")
    parser.add_argument("--only", help="only files whose path contains this text")
    parser.add_argument("--seconds", type=float, default=60.0, help="longest time for one place (60)")
    parser.add_argument("--workers", type=int, default=2, help="places that are tried at the same time (2)")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, such as tests/unit")
    return parser


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
