"""Memory runs out: the short form of its harness, with its canary."""

from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from harness.faults.actor import Actor
from harness.faults.count import Count
from harness.faults.memory import memory

MB = 1 << 20


def test_without_memory_a_call_works_or_raises_and_nothing_acknowledged_is_lost(memory_folder: Path) -> None:
    count = memory.run(memory_folder, deep=False)
    assert count.ok, str(count)


def starve(pipe: Connection, path: Path, spare: int) -> None:
    """Do nothing until there is memory, as the interpreter does where it looks for who handles an error."""
    acts = memory._begin(pipe, path, spare)
    acts.load(0)
    while True:
        try:
            bytearray(64 * MB)
        except MemoryError:
            continue
        break
    memory._end(acts, pipe)


def hang(pipe: Connection) -> None:
    pipe.send("here")
    while pipe:
        pass


def test_a_process_that_stands_still_without_memory_goes_on_when_it_has_some(memory_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "QUIET", 0.3)
    known = memory.prepare(memory_folder / "prepared.db")
    count = Count("starved")
    assert not memory._one(memory_folder, starve, MB, known, count)
    assert (count.notes, count.lost, count.wrong) == ([], 0, 0)


def test_a_process_that_says_nothing_tells_where_it_stands() -> None:
    with Actor(hang) as actor:
        assert actor.hear() == "here"
        with pytest.raises(TimeoutError, match=r"(?s)sent nothing for 1 s.*state R.*line \d+ in hang"):
            actor.hear(1)
