"""Pruning and sweeping: `contract.reclaim`."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import pytest

from everstep.backends.contract.core import Backend
from everstep.backends.contract.types import Cut
from everstep.errors import Conflict, NotFound
from everstep.records import ZERO, Base, Pruned, RunRow, Tag, labels_digest, record_fault
from everstep.testing.conformance.suite import OpenHandle, Suite
from everstep.testing.rows import new_message

_A, _B, _C = b"a" * 32, b"b" * 32, b"c" * 32


def cut(row: RunRow, *seqs: int, was: Pruned | None = None, bases: Sequence[Base] = (), **more: object) -> Cut:
    """Drop the bodies `state` of these records."""
    ranges = sorted({(seq, seq) for seq in seqs} | set(was.ranges if was is not None else ()))
    now = Pruned.make(row.key, ranges, 5 * len(ranges), 1)
    return Cut(row.id, was, now, [(seq, sha256(b"state").digest()) for seq in seqs], bases, **more)  # type: ignore[arg-type]


class PruneSuite(Suite):
    def test_a_body_is_dropped_and_the_chain_still_proves_itself(self, backend: Backend) -> None:
        row = self.create(backend, checkpoints=4)
        assert backend.pruned(row.id) is None
        asked = cut(row, 1, 3)
        backend.prune(asked)
        records = backend.records(row.id, 0, 99)
        assert [record.body for record in records] == [None, b"state", None, b"state"]
        before = ZERO
        for record in records:
            assert record_fault(before, record, row.key, backend.seal) is None
            before = record.digest
        assert backend.pruned(row.id) == asked.now
        assert backend.run(row.id) == row
        assert [position for position, _ in backend.feed(0, 99)] == [1, 2, 3, 4]
        assert backend.manifest().total == self.computed(backend)

    def test_labels_are_dropped_and_the_chain_still_proves_itself(self, backend: Backend) -> None:
        row = self.create(backend, "r")
        for n in (1, 2):
            row = self.advance(backend, row, note=f"n{n}", tags=(f"t{n}",), meta=f'{{"n":{n}}}', labels=bytes(16))
        backend.tag(Tag.make(row.key, "later", 1, 5), "r")
        left = labels_digest("n1", ("t1",), '{"n":1}', bytes(16))
        backend.prune(cut(row, 1, labels=[(1, left)]))
        gone, kept = backend.records("r", 1, 2)
        assert (gone.note, gone.tags, gone.meta, gone.labels, gone.body) == (None, (), None, left, None)
        assert (kept.note, kept.tags) == ("n2", ("t2",))
        assert record_fault(ZERO, gone, row.key, backend.seal) is None
        assert record_fault(gone.digest, kept, row.key, backend.seal) is None
        assert [tag.name for tag in backend.tags("r")] == ["t2"]
        assert backend.find((), {"n": 1}) == [] == backend.find(("later",), {})
        assert len(backend.find((), {"n": 2})) == 1
        assert backend.manifest().total == self.computed(backend)

    def test_the_run_continues_while_it_is_pruned(self, backend: Backend) -> None:
        row = self.create(backend, checkpoints=2)
        backend.prune(cut(row, 1))
        row = self.advance(backend, row)
        assert [record.body for record in backend.records(row.id, 0, 99)] == [None, b"state", b"state"]
        assert backend.manifest().total == self.computed(backend)

    def test_a_writer_that_does_not_know_the_mark_is_refused(self, backend: Backend) -> None:
        row = self.create(backend, checkpoints=3)
        first = cut(row, 1)
        backend.prune(first)
        before = backend.manifest()
        for wrong in (cut(row, 2), cut(row, 2, was=Pruned.make(row.key, ((3, 3),), 5, 1))):
            with pytest.raises(Conflict):
                backend.prune(wrong)
        assert backend.manifest() == before
        assert [record.body for record in backend.records(row.id, 0, 99)] == [None, b"state", b"state"]
        second = cut(row, 2, was=first.now)
        backend.prune(second)
        assert backend.pruned(row.id) == second.now
        assert backend.manifest().total == self.computed(backend)

    def test_a_body_that_was_dropped_before_is_not_an_error(self, backend: Backend) -> None:
        row = self.create(backend, checkpoints=2)
        first = cut(row, 1)
        backend.prune(first)
        backend.prune(cut(row, 1, was=first.now))
        assert backend.records(row.id, 1, 1)[0].body_digest == sha256(b"state").digest()

    def test_a_run_that_is_gone_or_replaced_is_not_pruned(self, backend: Backend) -> None:
        row = self.create(backend, "r", checkpoints=1)
        backend.delete(row)
        with pytest.raises(NotFound):
            backend.prune(cut(row, 1))
        self.create(backend, "r", checkpoints=1)
        with pytest.raises(NotFound):
            backend.prune(cut(row, 1))
        assert backend.records("r", 1, 1)[0].body == b"state"

    def test_added_bases_come_with_their_chunks_are_replaced_and_go(self, backend: Backend) -> None:
        row = self.create(backend, checkpoints=9)
        bases = [Base.make(row.key, number, 7, b"base" * number) for number in (3, 8)]
        first = cut(row, 1, bases=bases, chunks=((_A, b"frame"),))
        backend.prune(first)
        assert backend.bases(row.id) == bases
        assert [backend.bases(row.id, upto) for upto in (2, 3, 7, 8, 9)] == [[], bases[:1], bases[:1], bases[1:], bases[1:]]
        assert backend.chunks(row.family, [_A]) == {_A: b"frame"}
        assert backend.manifest().total == self.computed(backend)
        other = Base.make(row.key, 8, 9, b"another")
        backend.prune(cut(row, 2, was=first.now, bases=[other], gone=(3, 4)))
        assert backend.bases(row.id) == [other]
        assert backend.manifest().total == self.computed(backend)

    def test_another_handle_sees_it(self, backend: Backend, open_handle: OpenHandle) -> None:
        row = self.create(backend, checkpoints=2)
        other = open_handle()
        try:
            other.prune(cut(row, 1))
            assert backend.records(row.id, 1, 1)[0].body is None
            row = self.advance(backend, row)
            assert backend.manifest().total == self.computed(other)
        finally:
            other.close()

    def test_a_missing_run_has_nothing(self, backend: Backend) -> None:
        assert backend.pruned("missing") is None
        assert backend.bases("missing") == [] == backend.bases("missing", 3)


class SweepSuite(Suite):
    def test_only_chunks_that_were_not_written_since_are_swept(self, backend: Backend) -> None:
        row = self.advance(backend, self.create(backend), chunks=((_A, b"aaa"), (_B, b"bb"), (_C, b"c")))
        stamp = backend.manifest().writes
        row = self.advance(backend, row, chunks=((_B, b"bb"),))
        assert backend.sweep(row.family, [_A, _B], stamp) == 3
        assert backend.chunk_sizes(row.family) == {_B: 2, _C: 1}
        assert backend.sweep(row.family, [_A, _B], backend.manifest().writes) == 2
        assert backend.chunk_sizes(row.family) == {_C: 1}

    def test_a_chunk_that_prune_writes_again_stays(self, backend: Backend) -> None:
        row = self.advance(backend, self.create(backend), chunks=((_A, b"aaa"),))
        stamp = backend.manifest().writes
        backend.prune(cut(row, 1, chunks=((_A, b"aaa"),)))
        assert backend.sweep(row.family, [_A], stamp) == 0
        assert backend.chunk_sizes(row.family) == {_A: 3}

    def test_other_families_are_left_alone(self, backend: Backend) -> None:
        one = self.advance(backend, self.create(backend), chunks=((_A, b"aaa"),))
        two = self.advance(backend, self.create(backend), chunks=((_A, b"aaa"),))
        assert backend.sweep(one.family, [_A], backend.manifest().writes) == 3
        assert backend.chunks(two.family, [_A]) == {_A: b"aaa"}
        assert backend.families() == sorted([one.family, two.family])

    def test_every_write_counts(self, backend: Backend) -> None:
        counts = [backend.manifest().writes]
        row = self.create(backend)
        counts.append(backend.manifest().writes)
        row = self.advance(backend, row)
        counts.append(backend.manifest().writes)
        backend.post(new_message(row), row.id)
        counts.append(backend.manifest().writes)
        backend.delete(row)
        counts.append(backend.manifest().writes)
        assert counts == sorted(set(counts))

    def test_space_is_returned_and_nothing_is_lost(self, backend: Backend) -> None:
        row = self.create(backend, checkpoints=3)
        row = self.advance(backend, row, chunks=[(bytes([n]) * 32, bytes([n]) * 5000) for n in range(100)])
        backend.sweep(row.family, [bytes([n]) * 32 for n in range(1, 100)], backend.manifest().writes)
        while backend.shrink(100_000):
            pass
        assert backend.compact() >= 0
        assert backend.chunks(row.family, [bytes(32)]) == {bytes(32): bytes(5000)}
        row = self.advance(backend, row)
        assert len(backend.records(row.id, 0, 99)) == 5
        assert backend.check() == []
