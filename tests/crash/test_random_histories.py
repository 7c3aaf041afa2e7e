"""Random histories with a crash between any two calls: the short form of the machine, with its canary."""

from pathlib import Path

import pace
import pytest

from harness.faults.count import Count
from harness.faults.machine import machine


@pytest.mark.parametrize("seed", pace.in_turn([0, 1000]))
def test_whatever_is_called_in_whatever_order_the_store_holds_what_the_model_says(seed: int) -> None:
    count = Count("machine")
    machine.drive(machine.Near, machine.SHORT * 9 // 20, seed, count, None)
    assert count.tried >= machine.SHORT * 9 // 20
    assert count.bad == 0, str(count)


def test_a_process_that_is_killed_between_calls_and_inside_them_leaves_what_the_model_says() -> None:
    count = Count("machine")
    machine.drive(machine.Far, machine.SHORT // 10, 0, count, None)
    assert count.tried >= machine.SHORT // 10
    assert count.bad == 0, str(count)


def test_a_backend_that_acknowledges_too_early_is_caught(memory_folder: Path) -> None:
    assert machine.canary(memory_folder)
