"""`python -m harness.faults`: run the harnesses, print their counts, and with --deep write them down.

Exits with 0 only if every promise held and every canary was caught.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness.faults.count import Count
from harness.faults.report import HARNESSES, Asked, document, run_all


def main(given: list[str] | None = None) -> int:
    asked = _parser().parse_args(given)
    names = asked.only or HARNESSES
    print(f"seed {asked.seed}, {'deep' if asked.deep else 'short'}", flush=True)  # noqa: T201
    progress = _grows if sys.stderr.isatty() else None
    how = Asked(asked.deep, asked.seed, asked.minutes, Path(asked.counts) if asked.counts else None)
    ran = run_all(names, how, lambda text: print(text, flush=True), progress)  # noqa: T201
    good = all(each.count.ok for each in ran)
    out = asked.out or ("docs/trust.md" if asked.deep and not asked.only else None)
    if out is not None:
        Path(out).parent.mkdir(parents=True, exist_ok=True)
        Path(out).write_text(document(ran, asked.seed), encoding="utf-8")
        print(f"written to {out}")  # noqa: T201
    print("all promises held, all canaries were caught" if good else "NOT OK")  # noqa: T201
    return 0 if good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m harness.faults", description="Break a store in every way, and count the results.")
    parser.add_argument(
        "--deep", action="store_true", help="try every point instead of some, and write the counts to docs/trust.md; takes hours"
    )
    parser.add_argument("--only", action="append", choices=HARNESSES, help="run only this harness; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the random choices (default 0)")
    parser.add_argument(
        "--minutes", type=float, help="minutes that each of the longest harnesses may take; it tries as many random points as it can"
    )
    parser.add_argument(
        "--counts",
        help="a file that keeps counts: a harness whose count is there is not run again, so that a long run can be done in parts",
    )
    parser.add_argument("--out", help="where to write the counts as a document")
    return parser


def _grows(count: Count) -> None:
    print(f"\r{count.harness[:50]}: {count.tried:,} tried, {count.bad} bad", end="\r", file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
