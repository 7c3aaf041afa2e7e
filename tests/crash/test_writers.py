"""Two writers, workers that wake too late, gc beside writers: the short forms of their harnesses, with their canaries."""

from pathlib import Path

from harness.faults.kills import takeovers, writers
from harness.faults.machine import upkeep_race


def test_two_processes_lose_no_update_and_write_one_history(memory_folder: Path) -> None:
    count = writers.run(memory_folder, deep=False)
    assert count.ok, str(count)
    assert count.tried == 210


def test_a_worker_that_wakes_after_a_take_over_writes_nothing(memory_folder: Path) -> None:
    count = takeovers.run(memory_folder, deep=False)
    assert count.ok, str(count)
    assert count.tried == 60


def test_gc_beside_live_writers_frees_nothing_that_is_reachable(memory_folder: Path) -> None:
    count = upkeep_race.run(memory_folder, deep=False)
    assert count.ok, str(count)
