"""The contents of a run: its chain of records, the positions of its checkpoints, its chunks."""

from __future__ import annotations

import pytest

from everstep.backends.contract.core import Backend, Commit
from everstep.records import ZERO, Record, RunRow, record_fault
from everstep.testing.conformance.suite import Suite
from everstep.testing.rows import next_commit


class RecordsSuite(Suite):
    def test_records_come_back_exactly_and_in_order(self, backend: Backend) -> None:
        row = self.create(backend)
        given: list[Record] = []
        for i in range(5):
            commit = next_commit(row, bytes([i]) * 1000, note=f"n{i}", tags=("x",) if i == 2 else (), meta='{"i": 1}')
            backend.commit(commit)
            given += commit.records
            row = commit.run
        assert backend.records(row.id, 1, 5) == given
        assert backend.records(row.id, 2, 3) == given[1:3]

    def test_the_chain_proves_itself_after_reading(self, backend: Backend) -> None:
        row = self.create(backend, checkpoints=4)
        before = ZERO
        for record in backend.records(row.id, 0, 99):
            assert record_fault(before, record, row.key, backend.seal) is None
            before = record.digest
        assert before == row.head_digest

    def test_only_some_kinds_and_only_the_newest_of_them(self, backend: Backend) -> None:
        row = self.create(backend)
        for kind in ("start", "checkpoint", "base", "checkpoint", "status"):
            row = self.advance(backend, row, kind=kind)
        assert [r.seq for r in backend.records(row.id, 0, 99, ["checkpoint"])] == [2, 4]
        assert [r.seq for r in backend.records(row.id, 0, 99, ["checkpoint", "base"], newest=2)] == [3, 4]
        assert [r.seq for r in backend.records(row.id, 0, 99, newest=2)] == [4, 5]
        assert [r.seq for r in backend.records(row.id, 0, 3, ["checkpoint"], newest=1)] == [2]
        assert backend.records(row.id, 0, 99, newest=0) == []

    def test_a_pruned_body_stays_pruned_and_keeps_its_digest(self, backend: Backend) -> None:
        row = self.create(backend)
        commit = next_commit(row, b"long gone")
        record = commit.records[0]
        record.body = None
        backend.commit(commit)
        assert backend.records(row.id, 1, 1) == [record]

    def test_an_empty_body_is_not_a_missing_one(self, backend: Backend) -> None:
        row = self.advance(backend, self.create(backend), b"")
        assert backend.records(row.id, 1, 1)[0].body == b""

    def test_a_large_body_comes_back(self, backend: Backend) -> None:
        body = bytes(range(256)) * 20_000
        row = self.advance(backend, self.create(backend), body)
        assert backend.records(row.id, 1, 1)[0].body == body

    def test_several_records_in_one_commit(self, backend: Backend) -> None:
        row = self.create(backend)
        first = next_commit(row, b"1")
        second = next_commit(first.run, b"2", kind="base")
        backend.commit(Commit(second.run, row, [*first.records, *second.records]))
        assert [r.body for r in backend.records(row.id, 1, 2)] == [b"1", b"2"]

    def test_runs_do_not_see_each_others_records(self, backend: Backend) -> None:
        one, two = self.create(backend, checkpoints=3), self.create(backend, checkpoints=2)
        assert len(backend.records(one.id, 0, 2**31 - 1)) == 3
        assert len(backend.records(two.id, 0, 2**31 - 1)) == 2
        assert backend.records("missing", 0, 99) == []


class LocateSuite(Suite):
    """Positions of checkpoints in a run with steps between them, and a base now and then."""

    KINDS = (
        "start",
        "step",
        "checkpoint",
        "base",
        "step",
        "step",
        "checkpoint",
        "status",
        "checkpoint",
        "base",
        "step",
        "checkpoint",
        "status",
    )

    @pytest.fixture
    def row(self, backend: Backend) -> RunRow:
        row = self.create(backend, "r")
        for kind in self.KINDS:
            row = self.advance(backend, row, kind=kind)
        return row

    def test_a_checkpoint_is_found_with_the_base_at_or_before_it(self, backend: Backend, row: RunRow) -> None:
        found = [backend.locate(row.id, number) for number in (1, 2, 3, 4)]
        assert [(one.seq, one.base) for one in found if one is not None] == [(3, 4), (7, 4), (9, 10), (12, 10)]
        assert [one.records for one in found if one is not None] == [()] * 4

    def test_the_records_of_its_state_come_with_it(self, backend: Backend, row: RunRow) -> None:
        for number, upto, seqs in ((1, 0, range(2, 5)), (2, 0, range(3, 8)), (3, 0, range(8, 11)), (4, 13, range(9, 14))):
            found = backend.locate(row.id, number, upto)
            assert found is not None
            assert list(found.records) == backend.records(row.id, seqs[0], seqs[-1])

    def test_without_a_base_they_begin_at_the_first(self, backend: Backend) -> None:
        row = self.create(backend, "plain", checkpoints=3)
        found = backend.locate(row.id, 2, 0)
        assert found is not None
        assert (found.seq, found.base, [r.seq for r in found.records]) == (2, 0, [1, 2])

    def test_a_missing_checkpoint_is_not_found(self, backend: Backend, row: RunRow) -> None:
        assert [backend.locate(row.id, number, 0) for number in (0, 5, 99)] == [None] * 3
        assert backend.locate("missing", 1) is None
        assert backend.locate(self.create(backend, "empty").id, 1, 0) is None


class ChunksSuite(Suite):
    def test_chunks_come_back_and_missing_ones_are_left_out(self, backend: Backend) -> None:
        row = self.advance(backend, self.create(backend), chunks=((b"a" * 32, b"A" * 9000), (b"b" * 32, b"")))
        assert backend.chunks(row.family, [b"a" * 32, b"b" * 32, b"c" * 32]) == {b"a" * 32: b"A" * 9000, b"b" * 32: b""}
        assert backend.families() == [row.family]
        assert backend.chunk_sizes(row.family) == {b"a" * 32: 9000, b"b" * 32: 0}

    def test_a_chunk_that_is_written_again_is_replaced_which_heals_it(self, backend: Backend) -> None:
        row = self.advance(backend, self.create(backend), chunks=((b"a" * 32, b"first"),))
        self.advance(backend, row, chunks=((b"a" * 32, b"second"),))
        assert backend.chunks(row.family, [b"a" * 32]) == {b"a" * 32: b"second"}

    def test_a_frame_never_gets_shorter(self, backend: Backend) -> None:
        row = self.advance(backend, self.create(backend), chunks=((b"a" * 32, b"first"),))
        self.advance(backend, row, chunks=((b"a" * 32, b"2nd"),))
        assert backend.chunks(row.family, [b"a" * 32]) == {b"a" * 32: b"first"}

    def test_families_share_nothing(self, backend: Backend) -> None:
        row = self.advance(backend, self.create(backend), chunks=((b"a" * 32, b"mine"),))
        other = self.create(backend)
        assert backend.chunks(other.family, [b"a" * 32]) == {}
        assert backend.chunks(row.family, []) == {}
