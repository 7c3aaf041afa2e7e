"""What docs/yaml.md says about keys, names, changes and limits is what the code does; the example runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_yaml_compatible import FINE, REFUSED

import everstep
from everstep.expressions.parser import MOST_DEPTH, MOST_TEXT
from everstep.expressions.values import COMPARISONS, FUNCTIONS
from everstep.yaml import nodes
from everstep.yaml.action import GATE_KEYS, RUN_KEYS
from everstep.yaml.document import KEYS, parse
from everstep.yaml.step import GROUP_KEYS, WORK_KEYS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/yaml.md").read_text()


def table(header: str, part: str = TEXT) -> list[str]:
    """The first cells of the table with this header."""
    rows = part.partition(f"\n| {header} |")[2].splitlines()
    cells = [row.split("|")[1].strip() for row in rows[2:] if row.startswith("|")]
    end = next((i for i, row in enumerate(rows[2:]) if not row.startswith("|")), len(cells))
    assert cells, header
    return cells[:end]


def words(cells: list[str]) -> set[str]:
    return {word for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


def test_every_key_stands_in_its_table() -> None:
    assert words(table("key")) == set(KEYS)
    assert words(table("key of a step")) == {*WORK_KEYS, *GROUP_KEYS, "gate"}
    assert words(table("`run:` as a mapping")) == set(RUN_KEYS)
    assert words(table("key", TEXT.partition("## Gates")[2])) == set(GATE_KEYS)


def test_every_operator_and_function_stands_in_the_table() -> None:
    forms = " ".join(table("form"))
    assert [name for name in (*COMPARISONS, *(f"{f}(" for f in FUNCTIONS)) if name not in forms] == []


def test_every_change_has_its_row_and_every_row_its_test() -> None:
    assert table("change") == list(FINE)
    assert table("change", TEXT.partition("These are refused.")[2]) == list(REFUSED)


def test_the_limits_are_those_of_the_code() -> None:
    limits = " ".join(TEXT.partition("## Errors and limits")[2].split())
    assert (
        f"at most {nodes.MOST_TEXT:,} characters and {nodes.MOST_NODES:,} values, an expression {MOST_TEXT:,} characters and {MOST_DEPTH} levels"
        in limits
    )


@pytest.mark.parametrize("block", re.findall(r"^```yaml\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL))
def test_every_document_on_the_page_is_one(block: str) -> None:
    assert parse(block).steps


def test_the_document_of_the_example_is_one() -> None:
    assert parse((ROOT / "examples/report.yaml").read_text()).name == "report"


def test_the_example_runs_and_says_what_it_promises(tmp_path: Path) -> None:
    package = str(Path(everstep.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": package, "TMPDIR": str(tmp_path)}
    script = ROOT / "examples/yaml_workflow.py"
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    for said in (
        "was killed (SIGKILL) in the middle of a search",
        "r1: 5 steps kept, 3 steps run in",
        "The run is waiting: an answer at gate 'editor#0'",
        "Searches paid: 6, for 5 queries.",
        "It asks: Publish 'A report on 5 things",
        "it is succeeded, and was published: succeeded",
        "began under another definition of report: the command of step 'count' changed",
        "+        run: printf '%s\\n' \"$EVERSTEP_WITH_HITS\" | tr ',' '\\n' | wc -w",
    ):
        assert said in done.stdout
    (folder,) = tmp_path.glob("everstep-yaml-*")
    assert (folder / "published.txt").read_text().startswith("A report on 5 things")
    assert sorted(path.name for path in (ROOT / "examples").iterdir() if path.suffix == ".txt") == []
