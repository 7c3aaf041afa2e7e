"""Memory runs out: the short form of its harness, with its canary."""

from pathlib import Path

from everstep.testing.faults import memory


def test_without_memory_a_call_works_or_raises_and_nothing_acknowledged_is_lost(memory_folder: Path) -> None:
    count = memory.run(memory_folder, deep=False)
    assert count.ok, str(count)
