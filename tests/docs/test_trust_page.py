"""docs/trust.md is what the harnesses of this version wrote, and it says that nothing was lost."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from harness.faults.report import COLUMNS, HARNESSES, _paragraphs

PAGE = (Path(__file__).parents[2] / "docs" / "trust.md").read_text(encoding="utf-8")


def rows() -> list[dict[str, str]]:
    table = PAGE.split("## Counts\n\n")[1].split("\n\n")[0].splitlines()
    names, *body = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return [dict(zip(names, cells, strict=True)) for cells in body[1:]]


def test_there_is_a_row_for_each_harness_and_none_of_anything_else() -> None:
    assert re.findall(r"^### (\w+)$", PAGE, re.MULTILINE) == list(HARNESSES)
    assert len(rows()) == len(HARNESSES)


@pytest.mark.parametrize("name", HARNESSES)
def test_what_a_harness_does_stands_there_in_its_own_words(name: str) -> None:
    module = import_module(f"harness.faults.{HARNESSES[name]}")
    assert f"### {name}\n\n{_paragraphs(module.__doc__ or '')}" in PAGE


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["harness"][:30])
def test_every_row_was_tried_and_good(row: dict[str, str]) -> None:
    counts = {name: int(row[name].replace(",", "")) for name in COLUMNS}
    assert counts["tried"] > 0
    assert max(counts["held"], counts["detected"]) <= counts["tried"] <= counts["held"] + counts["detected"]
    assert {name: counts[name] for name in ("lost", "wrong", "missing", "leftovers")} == dict.fromkeys(
        ("lost", "wrong", "missing", "leftovers"), 0
    )
    assert row["canaries"]
    assert all(canary.endswith(": caught") for canary in row["canaries"].split("; "))


@pytest.mark.parametrize(
    ("harness", "least"),
    [("kill -9", 1_000), ("EIO and ENOSPC", 30_000), ("power lost", 10_000), ("every bit", 64 * 1024 * 8), ("a crash", 100_000)],
)
def test_it_was_tried_as_often_as_is_promised(harness: str, least: int) -> None:
    (row,) = [row for row in rows() if row["harness"].startswith(harness)]
    assert row["form"] == "every point"
    assert int(row["tried"].replace(",", "")) >= least
