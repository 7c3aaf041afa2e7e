"""Records whose numbers are damaged: whoever goes on from the number of the last one must not go in a circle."""

from __future__ import annotations

from pathlib import Path

import pytest

import everstep
from everstep.backends.contract.core import Query
from everstep.errors import Damaged, DamagedRun
from everstep.records import Record, RunRow
from harness.faults.broken_backends import Wrapper


def test_records_that_go_in_a_circle_are_no_endless_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a damaged page the number of a row may be any, also one that was there before."""
    with everstep.open(tmp_path / "s.db") as store:
        with store.run("r", state={"n": 0}) as run:
            for n in range(5):
                run.state["n"] = n
                run.checkpoint()
        backend = store.backend
        original, asked = type(backend).records, []

        def records(self: object, name: str, first: int, last: int, *args: object, **options: object) -> list[Record]:
            asked.append(first)
            assert len(asked) < 100, "no end"
            found: list[Record] = original(self, name, 1, last, *args, **options)  # type: ignore[arg-type]
            return [*found[:3], found[1]] if first <= 3 else found[1:2]

        monkeypatch.setattr(type(backend), "records", records)
        report = store.verify("records")
    assert "its records repeat" in str(report)


def test_a_row_with_the_number_of_another_one_is_damage(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store, store.run("r", state={"n": 0}) as run:
        for n in range(5):
            run.state["n"] = n
            run.checkpoint()
    content = bytearray((tmp_path / "s.db").read_bytes())
    place = 1 << 31 | 5
    varint = bytes([*(0x80 | place >> shift & 0x7F for shift in (28, 21, 14, 7)), 5])  # as SQLite writes the key of a row
    assert content.count(varint) == 1
    at = content.index(varint)
    content[at : at + 5] = varint[:4] + bytes([2])  # what was record 5 says that it is record 2
    (tmp_path / "s.db").write_bytes(content)
    with everstep.open(tmp_path / "s.db") as store:
        assert not store.verify("records").ok
        with pytest.raises(Damaged):
            store.steps("r")


class _NoRow(Wrapper):
    """A store whose table of runs cannot be read anywhere."""

    asked = 0

    def runs(self, query: Query) -> list[tuple[int, RunRow]]:
        type(self).asked += 1
        raise DamagedRun("the row of a run cannot be read")


def test_where_no_run_can_be_read_verify_looks_at_each_place_once_and_ends(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        for name in ("a", "b", "c"):
            with store.run(name) as run:
                run.checkpoint()
        assert not everstep.Store(_NoRow(store.backend)).verify("quick").ok
    assert _NoRow.asked < 20
