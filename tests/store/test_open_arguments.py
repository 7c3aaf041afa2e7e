"""Wrong arguments of `everstep.open` are refused before a file is created."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.errors import InvalidArgument


@pytest.mark.parametrize("wrong", ["maybe", 1, None])
@pytest.mark.parametrize("name", ["enabled", "checking"])
def test_a_switch_must_be_true_or_false(tmp_path: Path, name: str, wrong: Any) -> None:
    options: dict[str, Any] = {name: wrong}
    with pytest.raises(InvalidArgument, match=f"{name} must be True or False, got {wrong!r}"):
        everstep.open(str(tmp_path / "s.db"), **options)
    assert list(tmp_path.iterdir()) == []
