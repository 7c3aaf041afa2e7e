"""Bytes and files from an enemy: some cases of each group, with the canaries. `python -m harness.faults --deep` does them all."""

from pathlib import Path

import pace
import pytest

from harness.faults.count import Count
from harness.faults.hostile import hostile


@pytest.mark.parametrize("part", pace.in_turn(range(3)))
def test_hostile_stores_execute_nothing_and_give_clear_errors_at_once(memory_folder: Path, part: int) -> None:
    count = Count("hostile")
    for name, case, forged in list(hostile.cases(hostile.SHORT))[part::3]:
        hostile.judge(memory_folder / "case", name, case, forged, count, hostile.use)
    assert count.tried > 10
    assert count.bad == 0, str(count)
    assert count.detected > 0


@pytest.mark.parametrize("what", ["a reader that unpickles", "one that decompresses without a limit"])
def test_a_careless_reader_is_caught(memory_folder: Path, what: str) -> None:
    assert hostile.canaries(memory_folder, what) == {what: True}


def test_every_case_has_a_name_of_its_own() -> None:
    names = [name for name, _, _ in hostile.cases()]
    assert len(names) == len(set(names)) > 400
