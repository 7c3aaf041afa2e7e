"""The SQL files: a statement is found by its name, so that a name stands for one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import everstep.backends

FOLDER = Path(everstep.backends.__file__).parent


@pytest.mark.parametrize("file", sorted(FOLDER.rglob("*.sql")), ids=lambda file: str(file.relative_to(FOLDER)))
def test_no_two_statements_of_a_file_have_one_name(file: Path) -> None:
    names = re.findall(r"^-- name: (\w+)", file.read_text(), re.MULTILINE)
    assert sorted(names) == sorted(set(names))
