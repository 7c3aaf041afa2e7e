"""A key is replaced, and a plain store becomes an encrypted one: killed or without power at any file call, and repeated."""

from pathlib import Path

import pace
import pytest
from shim_helpers import shim_or_skip

from harness.faults.keys import keys


@pytest.mark.parametrize("seed", pace.in_turn(range(3)))
def test_a_kill_while_keys_change_loses_nothing(memory_folder: Path, seed: int) -> None:
    shim_or_skip()
    points = pace.share(keys.SHORT_KILLS, 2)
    count = keys.SWEEP.part(memory_folder, points, seed, workers=1)
    assert (count.bad, count.notes) == (0, []), str(count)
    assert count.tried == count.held > points * 0.8


@pytest.mark.parametrize("seed", pace.in_turn(range(3)))
def test_a_loss_of_power_while_keys_change_loses_nothing(memory_folder: Path, seed: int) -> None:
    goal = pace.share(keys.SHORT_POWER, 2)
    count = keys.power(memory_folder, goal, seed)
    assert (count.bad, count.notes) == (0, []), str(count)
    assert count.tried == count.held > goal


def test_changes_that_are_broken_on_purpose_are_caught_by_a_kill(memory_folder: Path) -> None:
    shim_or_skip()
    assert keys.SWEEP.canaries(memory_folder) == {
        "a key that is replaced in two steps": True,
        "stores that are exchanged in two steps": True,
    }


def test_an_old_store_that_is_overwritten_too_early_is_caught_by_a_loss_of_power(memory_folder: Path) -> None:
    assert keys.unsynced_is_caught(memory_folder)
