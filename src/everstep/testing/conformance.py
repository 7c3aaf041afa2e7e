"""The suite that every backend passes: the contract of `everstep.backends.base`, said as tests.

A new backend's test is a factory:

    class TestMine(ConformanceSuite):
        @pytest.fixture
        def open_handle(self, tmp_path):
            return lambda: MyBackend(tmp_path / "store")      # another handle on the same store at each call

Each class below is one capability and can be taken alone. Relies on pytest; never looks behind the interface.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from everstep.backends.base import Backend, Commit, Query
from everstep.errors import Conflict, DamagedRun, InvalidArgument, LeaseHeld, LostLease, NotFound, RunExists, StoreClosed
from everstep.records import ZERO, Record, RunRow, Tag, record_fault, shift
from everstep.testing.rows import new_letter, new_run, new_worker, next_commit

OpenHandle = Callable[[], Backend]


class Suite:
    """What all capabilities share: the store under test."""

    @pytest.fixture
    def open_handle(self) -> OpenHandle:
        raise NotImplementedError("override the fixture open_handle: a function that opens a handle on one and the same store")

    @pytest.fixture
    def backend(self, open_handle: OpenHandle) -> Iterator[Backend]:
        backend = open_handle()
        yield backend
        backend.close()

    @staticmethod
    def create(backend: Backend, name: str | None = None, checkpoints: int = 0, **fields: object) -> RunRow:
        row = new_run(name, **fields)
        backend.commit(Commit(row, None))
        for _ in range(checkpoints):
            row = Suite.advance(backend, row)
        return row

    @staticmethod
    def advance(backend: Backend, was: RunRow, body: bytes = b"state", **fields: object) -> RunRow:
        commit = next_commit(was, body, **fields)
        backend.commit(commit)
        return commit.run

    @staticmethod
    def names(found: list[tuple[int, RunRow]]) -> list[str]:
        return [row.id for _, row in found]

    @staticmethod
    def numbers(found: list[Record]) -> list[int]:
        return [record.number for record in found]


class RunsSuite(Suite):
    def test_a_run_comes_back_exactly_as_it_was_given(self, backend: Backend) -> None:
        row = self.create(
            backend, "näme-1", workflow="w", session="s", tags=("b", "a"), note="Grüße\n", meta='{"k": [1, 2]}', parent="p", parent_number=3
        )
        assert backend.run("näme-1") == row

    def test_an_unknown_run_is_none(self, backend: Backend) -> None:
        assert backend.run("nobody") is None

    def test_an_id_that_is_taken_is_refused_and_the_first_run_stays(self, backend: Backend) -> None:
        first = self.create(backend, "taken")
        with pytest.raises(RunExists):
            self.create(backend, "taken")
        assert backend.run("taken") == first

    def test_what_was_read_can_be_changed_without_changing_the_store(self, backend: Backend) -> None:
        row = self.create(backend, "copy")
        read = backend.run("copy")
        assert read is not None
        read.status = "failed"
        assert backend.run("copy") == row

    def test_every_field_that_a_commit_changes_is_stored(self, backend: Backend) -> None:
        row = self.create(backend, tags=("old",), meta='{"a": 1}')
        after = row.sealed(status="failed", note="why", tags=("new",), meta='{"b": 2}', workflow="w2", session="s2")
        backend.commit(Commit(after, row))
        assert backend.run(row.id) == after
        assert self.names(backend.runs(Query(tags=("new",), meta={"b": 2}, status="failed", session="s2", workflow="w2"))) == [row.id]
        assert backend.runs(Query(tags=("old",))) == [] == backend.runs(Query(meta={"a": 1}))

    def test_a_deleted_run_is_gone_with_its_records_tags_and_chunks(self, backend: Backend) -> None:
        row = self.create(backend, tags=("t",), meta='{"m": 1}')
        row = self.advance(backend, row, tags=("done",), chunks=((b"d" * 32, b"frame"),))
        backend.delete(row)
        assert backend.run(row.id) is None
        assert backend.records(row.id, 0, 99) == [] == backend.tags(row.id)
        assert backend.chunks(row.family, [b"d" * 32]) == {}
        assert backend.families() == []
        assert backend.runs(Query(tags=("t",))) == [] == backend.runs(Query(meta={"m": 1}))

    def test_chunks_stay_while_one_run_of_the_family_is_left(self, backend: Backend) -> None:
        parent = self.create(backend)
        parent = self.advance(backend, parent, chunks=((b"d" * 32, b"frame"),))
        fork = self.create(backend, family=parent.family, parent=parent.id)
        backend.delete(parent)
        assert backend.chunks(fork.family, [b"d" * 32]) == {b"d" * 32: b"frame"}
        backend.delete(fork)
        assert backend.families() == []

    def test_a_run_that_moved_on_is_not_deleted(self, backend: Backend) -> None:
        old = self.create(backend)
        row = self.advance(backend, old)
        with pytest.raises(Conflict):
            backend.delete(old)
        assert backend.run(row.id) == row

    def test_deleting_what_is_not_there_is_not_found(self, backend: Backend) -> None:
        with pytest.raises(NotFound):
            backend.delete(new_run("ghost"))

    def test_an_id_can_be_used_again_after_deletion_and_old_writers_stay_out(self, backend: Backend) -> None:
        old = self.create(backend, "again", checkpoints=2)
        backend.delete(old)
        new = self.create(backend, "again", checkpoints=1)
        with pytest.raises((LostLease, Conflict)):
            self.advance(backend, old)
        assert backend.run("again") == new
        assert len(backend.records("again", 0, 99)) == 1


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
            assert record_fault(before, record) is None
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
        assert backend.records("nobody", 0, 99) == []


class ChunksSuite(Suite):
    def test_chunks_come_back_and_missing_ones_are_left_out(self, backend: Backend) -> None:
        row = self.advance(backend, self.create(backend), chunks=((b"a" * 32, b"A" * 9000), (b"b" * 32, b"")))
        assert backend.chunks(row.family, [b"a" * 32, b"b" * 32, b"c" * 32]) == {b"a" * 32: b"A" * 9000, b"b" * 32: b""}
        assert backend.families() == [(row.family, b"a" * 32), (row.family, b"b" * 32)]

    def test_a_chunk_that_is_written_again_is_replaced_which_heals_it(self, backend: Backend) -> None:
        row = self.advance(backend, self.create(backend), chunks=((b"a" * 32, b"first"),))
        self.advance(backend, row, chunks=((b"a" * 32, b"second"),))
        assert backend.chunks(row.family, [b"a" * 32]) == {b"a" * 32: b"second"}

    def test_families_share_nothing(self, backend: Backend) -> None:
        row = self.advance(backend, self.create(backend), chunks=((b"a" * 32, b"mine"),))
        other = self.create(backend)
        assert backend.chunks(other.family, [b"a" * 32]) == {}
        assert backend.chunks(row.family, []) == {}


class FencingSuite(Suite):
    def test_a_writer_of_an_older_epoch_cannot_write(self, backend: Backend) -> None:
        row = self.create(backend)
        old = backend.acquire(row.id, new_worker())
        backend.release(old)
        new = backend.acquire(row.id, new_worker())
        with pytest.raises(LostLease) as caught:
            self.advance(backend, old)
        assert caught.value.written == "no"
        assert row.id in str(caught.value)
        assert backend.run(row.id) == new
        assert backend.records(row.id, 0, 99) == []

    def test_a_write_after_a_stale_head_is_a_conflict_and_leaves_nothing(self, backend: Backend) -> None:
        old = self.create(backend)
        new = self.advance(backend, old, b"winner")
        with pytest.raises(Conflict):
            self.advance(backend, old, b"loser", chunks=((b"z" * 32, b"z"),), tags=("t",))
        assert backend.run(old.id) == new
        assert [r.body for r in backend.records(old.id, 0, 99)] == [b"winner"]
        assert backend.families() == []
        assert backend.tags(old.id) == []

    def test_a_row_that_differs_without_a_new_record_is_a_conflict(self, backend: Backend) -> None:
        old = self.create(backend)
        backend.commit(Commit(old.sealed(status="failed"), old))
        with pytest.raises(Conflict):
            self.advance(backend, old)

    def test_a_run_deleted_underneath_is_a_lost_lease(self, backend: Backend) -> None:
        row = self.create(backend)
        backend.delete(row)
        with pytest.raises(LostLease):
            self.advance(backend, row)
        assert backend.run(row.id) is None

    def test_another_handle_is_fenced_the_same(self, backend: Backend, open_handle: OpenHandle) -> None:
        other = open_handle()
        try:
            old = self.create(backend)
            new = self.advance(other, old)
            with pytest.raises(Conflict):
                self.advance(backend, old)
            assert backend.run(old.id) == new
            self.advance(backend, new)
        finally:
            other.close()


class LeaseSuite(Suite):
    def test_a_lease_raises_the_epoch_and_names_the_worker(self, backend: Backend) -> None:
        row = self.create(backend)
        worker = new_worker()
        leased = backend.acquire(row.id, worker)
        assert (leased.epoch, leased.worker) == (row.epoch + 1, worker.id)
        assert leased.check == leased.digest()
        assert backend.run(row.id) == leased
        self.advance(backend, leased)

    def test_a_run_that_is_held_is_refused_with_who_holds_it(self, backend: Backend) -> None:
        row = self.create(backend)
        worker = new_worker()
        backend.acquire(row.id, worker)
        with pytest.raises(LeaseHeld) as caught:
            backend.acquire(row.id, new_worker())
        assert (caught.value.run, caught.value.host, caught.value.pid) == (row.id, worker.host, worker.pid)
        assert caught.value.since.endswith("Z")
        assert caught.value.expires > caught.value.since

    def test_the_holder_of_a_lease_is_known_while_it_holds_it(self, backend: Backend) -> None:
        row = self.create(backend)
        assert backend.holder(row) is None
        worker = new_worker()
        leased = backend.acquire(row.id, worker)
        holder = backend.holder(leased)
        assert holder is not None
        assert (holder.id, holder.pid) == (worker.id, worker.pid)
        backend.release(leased)
        freed = backend.run(row.id)
        assert freed is not None
        assert backend.holder(freed) is None

    def test_a_worker_does_not_get_the_same_run_twice(self, backend: Backend) -> None:
        row = self.create(backend)
        worker = new_worker()
        backend.acquire(row.id, worker)
        with pytest.raises(LeaseHeld):
            backend.acquire(row.id, worker)

    def test_one_worker_may_hold_many_runs(self, backend: Backend) -> None:
        worker = new_worker()
        rows = [backend.acquire(self.create(backend).id, worker) for _ in range(3)]
        assert {row.worker for row in rows} == {worker.id}

    def test_a_released_run_can_be_taken_and_keeps_its_epoch(self, backend: Backend) -> None:
        row = backend.acquire(self.create(backend).id, new_worker())
        backend.release(row)
        released = backend.run(row.id)
        assert released is not None
        assert released.worker is None
        assert released.epoch == row.epoch
        assert released.check == released.digest()
        assert backend.acquire(row.id, new_worker()).epoch == row.epoch + 1

    def test_releasing_an_older_epoch_does_nothing(self, backend: Backend) -> None:
        old = backend.acquire(self.create(backend).id, new_worker())
        backend.release(old)
        new = backend.acquire(old.id, new_worker())
        backend.release(old)
        assert backend.run(old.id) == new
        backend.release(new_run("ghost"))

    def test_a_lease_that_ended_is_overtaken_and_a_renewed_one_is_not(self, backend: Backend) -> None:
        row = self.create(backend)
        short = new_worker(seconds=-1)
        old = backend.acquire(row.id, short)
        renewed = new_worker(id=short.id)
        backend.renew(renewed)
        with pytest.raises(LeaseHeld):
            backend.acquire(row.id, new_worker())
        backend.renew(short)
        new = backend.acquire(row.id, new_worker())
        assert new.epoch == old.epoch + 1
        with pytest.raises(LostLease):
            self.advance(backend, old)

    def test_a_closed_handle_leaves_no_lease_behind(self, backend: Backend, open_handle: OpenHandle) -> None:
        row = self.create(backend)
        other = open_handle()
        old = other.acquire(row.id, new_worker())
        with pytest.raises(LeaseHeld):
            backend.acquire(row.id, new_worker())
        other.close()
        assert backend.acquire(row.id, new_worker()).epoch == old.epoch + 1

    def test_a_run_that_is_open_is_not_deleted(self, backend: Backend) -> None:
        row = backend.acquire(self.create(backend).id, new_worker())
        with pytest.raises(LeaseHeld):
            backend.delete(row)
        backend.release(row)
        released = backend.run(row.id)
        assert released is not None
        backend.delete(released)

    def test_there_is_no_lease_on_an_unknown_run(self, backend: Backend) -> None:
        with pytest.raises(NotFound):
            backend.acquire("nobody", new_worker())

    def test_a_row_that_does_not_match_its_digest_is_not_sealed_anew(self, backend: Backend) -> None:
        row = self.create(backend)
        row.note = "changed without a seal"
        backend.commit(Commit(row, backend.run(row.id)))
        with pytest.raises(DamagedRun):
            backend.acquire(row.id, new_worker())


class TagsSuite(Suite):
    def test_tags_of_checkpoint_records_become_tags(self, backend: Backend) -> None:
        row = self.advance(backend, self.create(backend), tags=("b", "a"), at=7)
        row = self.advance(backend, row, tags=("status-tag",), kind="status")
        assert backend.tags(row.id) == [Tag.make(row.key, "a", 1, 7), Tag.make(row.key, "b", 1, 7)]

    def test_a_tag_can_be_given_later_without_a_lease(self, backend: Backend) -> None:
        row = self.create(backend, checkpoints=3)
        backend.tag(Tag.make(row.key, "good", 2, 99), row.id)
        assert backend.tags(row.id) == [Tag.make(row.key, "good", 2, 99)]
        assert backend.run(row.id) == row

    def test_a_tag_that_is_there_is_left_alone(self, backend: Backend) -> None:
        row = self.create(backend, checkpoints=1)
        backend.tag(Tag.make(row.key, "t", 1, 5), row.id)
        before = backend.manifest()
        backend.tag(Tag.make(row.key, "t", 1, 6), row.id)
        assert backend.tags(row.id) == [Tag.make(row.key, "t", 1, 5)]
        assert backend.manifest() == before

    def test_what_does_not_exist_cannot_be_tagged(self, backend: Backend) -> None:
        row = self.create(backend, checkpoints=1)
        with pytest.raises(NotFound):
            backend.tag(Tag.make(row.key, "t", 1, 5), "nobody")
        with pytest.raises(NotFound):
            backend.tag(Tag.make(row.key, "t", 2, 5), row.id)

    def test_tags_are_ordered_by_name_and_number(self, backend: Backend) -> None:
        row = self.create(backend, checkpoints=3)
        for name, number in (("b", 1), ("a", 3), ("a", 1)):
            backend.tag(Tag.make(row.key, name, number, 1), row.id)
        assert [(t.name, t.number) for t in backend.tags(row.id)] == [("a", 1), ("a", 3), ("b", 1)]


class LettersSuite(Suite):
    def letter_names(self, backend: Backend, run: RunRow) -> list[str]:
        return [letter.name for letter in backend.letters(run.id)]

    def test_a_letter_comes_back_exactly_as_it_was_posted_and_the_run_stays(self, backend: Backend) -> None:
        row = self.create(backend)
        first, second = new_letter(row, "gate:päss", 2**62, bytes(range(256)) * 40), new_letter(row, "answer", None, b"")
        assert backend.post(first, row.id) is True
        assert backend.post(second, row.id) is True
        assert backend.letters(row.id) == [second, first]
        assert backend.run(row.id) == row

    def test_letters_are_ordered_by_name(self, backend: Backend) -> None:
        row = self.create(backend)
        for name in ("b", "", "ü", "a/b", "B", "\U0001f600", "\uffff", "a"):
            backend.post(new_letter(row, name), row.id)
        assert self.letter_names(backend, row) == sorted(["b", "", "ü", "a/b", "B", "\U0001f600", "\uffff", "a"])

    def test_of_two_letters_of_one_name_the_first_wins(self, backend: Backend) -> None:
        row = self.create(backend)
        first = new_letter(row, "a", 1, b"first")
        backend.post(first, row.id)
        before = backend.manifest()
        assert backend.post(new_letter(row, "a", 2, b"second"), row.id) is False
        assert backend.letters(row.id) == [first]
        assert backend.manifest() == before

    def test_a_letter_needs_no_lease_and_does_not_disturb_the_one_who_holds_it(self, backend: Backend) -> None:
        row = backend.acquire(self.create(backend).id, new_worker())
        assert backend.post(new_letter(row), row.id)
        commit = next_commit(row)
        backend.commit(commit)
        assert commit.waiting == 1

    def test_a_run_that_is_not_there_gets_no_letters(self, backend: Backend) -> None:
        with pytest.raises(NotFound):
            backend.post(new_letter(new_run("nobody")), "nobody")
        assert backend.letters("nobody") == []

    def test_a_letter_to_a_deleted_run_does_not_reach_the_next_one_of_its_id(self, backend: Backend) -> None:
        old = self.create(backend, "again")
        backend.post(new_letter(old, "for the old one"), "again")
        backend.delete(old)
        assert backend.letters("again") == []
        new = self.create(backend, "again")
        assert backend.letters("again") == []
        with pytest.raises(NotFound):
            backend.post(new_letter(old, "late"), "again")
        assert backend.letters("again") == []
        commit = next_commit(new)
        backend.commit(commit)
        assert commit.waiting == 0

    def test_runs_do_not_see_each_others_letters(self, backend: Backend) -> None:
        one, two = self.create(backend), self.create(backend)
        backend.post(new_letter(one, "a"), one.id)
        backend.post(new_letter(two, "b"), two.id)
        assert (self.letter_names(backend, one), self.letter_names(backend, two)) == (["a"], ["b"])
        backend.delete(one)
        assert self.letter_names(backend, two) == ["b"]

    def test_a_commit_posts_letters_and_the_first_of_a_name_wins(self, backend: Backend) -> None:
        row = self.create(backend)
        there = new_letter(row, "b", None, b"there")
        backend.post(there, row.id)
        mine, twice = new_letter(row, "a", 5), new_letter(row, "a", 6)
        commit = next_commit(row, letters=(mine, twice, new_letter(row, "b", None, b"late")))
        backend.commit(commit)
        assert backend.letters(row.id) == [mine, there]
        assert commit.waiting == 2

    def test_a_run_can_be_created_with_letters(self, backend: Backend) -> None:
        row = new_run()
        letter = new_letter(row, "timer", 7)
        commit = Commit(row, None, letters=[letter])
        backend.commit(commit)
        assert backend.letters(row.id) == [letter]
        assert commit.waiting == 1

    def test_a_commit_takes_out_the_letters_that_it_read_and_no_others(self, backend: Backend) -> None:
        row = self.create(backend)
        for name in ("a", "b", "c"):
            backend.post(new_letter(row, name), row.id)
        commit = next_commit(row, read=("a", "c", "never there"))
        backend.commit(commit)
        assert self.letter_names(backend, row) == ["b"]
        assert commit.waiting == 1

    def test_a_letter_that_was_read_can_be_replaced_in_the_same_commit(self, backend: Backend) -> None:
        row = self.create(backend)
        backend.post(new_letter(row, "timer", 1), row.id)
        again = new_letter(row, "timer", 2)
        commit = next_commit(row, read=("timer",), letters=(again,))
        backend.commit(commit)
        assert backend.letters(row.id) == [again]
        assert commit.waiting == 1

    def test_a_name_that_was_read_can_be_posted_again(self, backend: Backend) -> None:
        row = self.create(backend)
        backend.post(new_letter(row, "a"), row.id)
        row = self.advance(backend, row, read=("a",))
        assert backend.post(new_letter(row, "a"), row.id) is True

    def test_a_commit_without_records_carries_letters_too(self, backend: Backend) -> None:
        row = self.create(backend)
        after = row.sealed(status="waiting")
        commit = Commit(after, row, letters=[new_letter(row, "a", 3)])
        backend.commit(commit)
        assert (commit.waiting, backend.due(3)) == (1, [row.id])

    def test_a_refused_commit_posts_and_takes_out_nothing(self, backend: Backend) -> None:
        old = self.create(backend)
        kept = new_letter(old, "kept")
        backend.post(kept, old.id)
        row = self.advance(backend, old)
        before = backend.manifest()
        with pytest.raises(Conflict):
            self.advance(backend, old, read=("kept",), letters=(new_letter(old, "stale"),))
        assert backend.letters(old.id) == [kept]
        assert backend.manifest() == before
        commit = next_commit(row)
        backend.commit(commit)
        assert commit.waiting == 1

    def test_each_commit_of_a_batch_is_told_of_its_own_letters(self, backend: Backend) -> None:
        rows = [self.create(backend) for _ in range(5)]
        for i, row in enumerate(rows):
            for n in range(i):
                backend.post(new_letter(row, f"{n}"), row.id)
        commits = [next_commit(row, letters=(new_letter(row, "own"),) if i % 2 else ()) for i, row in enumerate(rows)]
        second = next_commit(commits[4].run, read=("0", "1"))
        left = threading.Semaphore(0)
        for commit in (*commits, second):
            backend.submit(commit, lambda error: left.release() if error is None else None)
        for _ in (*commits, second):
            assert left.acquire(timeout=30)
        assert [commit.waiting for commit in (*commits, second)] == [0, 2, 2, 4, 4, 2]

    def test_a_writer_is_told_of_letters_that_another_handle_posted(self, backend: Backend, open_handle: OpenHandle) -> None:
        row = self.create(backend, checkpoints=2)
        other = open_handle()
        try:
            for n in range(1, 4):
                other.post(new_letter(row, f"{n}"), row.id)
                commit = next_commit(row)
                backend.commit(commit)
                row = commit.run
                assert commit.waiting == n
            foreign = next_commit(row, read=("1", "2"))
            other.commit(foreign)
            commit = next_commit(foreign.run)
            backend.commit(commit)
            assert (foreign.waiting, commit.waiting) == (1, 1)
        finally:
            other.close()

    def test_threads_that_post_one_name_have_one_winner(self, backend: Backend) -> None:
        row = self.create(backend)
        barrier = threading.Barrier(8)

        def race(i: int) -> bool:
            barrier.wait()
            return backend.post(new_letter(row, "a", None, bytes([i])), row.id)

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(race, range(8)))
        assert sum(won) == 1
        assert [letter.body for letter in backend.letters(row.id)] == [bytes([won.index(True)])]

    def test_due_are_the_runs_that_wait_or_failed_and_have_a_letter_whose_time_has_come(self, backend: Backend) -> None:
        for status in ("queued", "running", "waiting", "succeeded", "failed", "cancelled"):
            row = self.create(backend, status, status=status)
            backend.post(new_letter(row, "timer", 10), status)
        self.create(backend, "without", status="waiting")
        never = self.create(backend, "never", status="waiting")
        backend.post(new_letter(never, "answer", None), "never")
        assert backend.due(9) == []
        assert backend.due(10) == ["waiting", "failed"] == backend.due(2**62)

    def test_due_runs_come_earliest_first_each_once_and_not_more_than_asked_for(self, backend: Backend) -> None:
        for name, times in (("late", (30,)), ("same-1", (20,)), ("early", (50, 10, 99)), ("same-2", (20,))):
            row = self.create(backend, name, status="waiting")
            for due in times:
                backend.post(new_letter(row, f"{due}", due), name)
        assert backend.due(40) == ["early", "same-1", "same-2", "late"]
        assert backend.due(40, 2) == ["early", "same-1"]
        assert backend.due(40, 0) == []
        assert backend.due(10) == ["early"]

    def test_a_paused_run_is_not_due_until_the_pause_is_taken_out(self, backend: Backend) -> None:
        row = self.create(backend, "p", status="waiting")
        backend.post(new_letter(row, "timer", 1), "p")
        backend.post(new_letter(row, "pause", None), "p")
        assert backend.due(5) == []
        self.advance(backend, row, read=("pause",))
        assert backend.due(5) == ["p"]

    def test_a_run_is_due_no_more_when_its_letter_was_read_or_it_was_deleted(self, backend: Backend) -> None:
        read, deleted = self.create(backend, status="waiting"), self.create(backend, status="waiting")
        for row in (read, deleted):
            backend.post(new_letter(row, "timer", 1), row.id)
        self.advance(backend, read, read=("timer",))
        backend.delete(deleted)
        assert backend.due(5) == []

    def test_letters_are_counted(self, backend: Backend) -> None:
        assert backend.stats()["letters"] == 0
        row = self.create(backend)
        backend.post(new_letter(row, "a"), row.id)
        backend.post(new_letter(row, "b"), row.id)
        assert backend.stats()["letters"] == 2


class FeedSuite(Suite):
    def seen(self, backend: Backend, after: int = 0, limit: int = 10**6) -> list[tuple[int, str, int]]:
        return [(position, record.run, record.seq) for position, record in backend.feed(after, limit)]

    def test_an_empty_store_has_an_empty_feed(self, backend: Backend) -> None:
        assert (backend.feed(0, 10), backend.feed_end()) == ([], 0)

    def test_the_feed_holds_the_records_of_all_runs_in_the_order_of_their_commits(self, backend: Backend) -> None:
        one, two = self.create(backend, "one"), self.create(backend, "two")
        one = self.advance(backend, one)
        two = self.advance(backend, two)
        two = self.advance(backend, two, kind="status")
        one = self.advance(backend, one)
        assert self.seen(backend) == [(1, "one", 1), (2, "two", 1), (3, "two", 2), (4, "one", 2)]
        assert backend.feed_end() == 4

    def test_a_record_in_the_feed_is_the_whole_record(self, backend: Backend) -> None:
        row = self.create(backend)
        commit = next_commit(row, b"body" * 500, note="n", tags=("t",), meta='{"m": 1}')
        backend.commit(commit)
        assert backend.feed(0, 9) == [(1, commit.records[0])]

    def test_several_records_of_one_commit_follow_each_other(self, backend: Backend) -> None:
        row = self.create(backend, "r", checkpoints=1)
        first = next_commit(row)
        second = next_commit(first.run, kind="base")
        backend.commit(Commit(second.run, row, [*first.records, *second.records]))
        assert self.seen(backend) == [(1, "r", 1), (2, "r", 2), (3, "r", 3)]

    def test_what_adds_no_record_adds_no_position(self, backend: Backend) -> None:
        row = self.create(backend, checkpoints=1)
        after = row.sealed(note="changed")
        backend.commit(Commit(after, row))
        backend.tag(Tag.make(row.key, "t", 1, 1), row.id)
        backend.post(new_letter(row), row.id)
        backend.release(backend.acquire(row.id, new_worker()))
        assert (backend.feed_end(), len(backend.feed(0, 9))) == (1, 1)

    def test_a_refused_commit_takes_no_position(self, backend: Backend) -> None:
        old = self.create(backend, "r")
        row = self.advance(backend, old)
        with pytest.raises(Conflict):
            self.advance(backend, old)
        self.advance(backend, row)
        assert self.seen(backend) == [(1, "r", 1), (2, "r", 2)]

    def test_a_page_begins_behind_a_position_and_ends_at_the_limit(self, backend: Backend) -> None:
        rows = [self.create(backend, f"r{i}") for i in range(3)]
        for n in range(400):
            rows[n % 3] = self.advance(backend, rows[n % 3], b"")
        everything = self.seen(backend)
        assert [position for position, _, _ in everything] == list(range(1, 401))
        assert everything == [(n + 1, f"r{n % 3}", n // 3 + 1) for n in range(400)]
        for after in (-5, 0, 1, 99, 100, 101, 200, 299, 398, 399, 400, 401, 2**62):
            for limit in (0, 1, 2, 101, 250, 1000):
                assert self.seen(backend, after, limit) == everything[max(after, 0) :][:limit]

    def test_a_long_run_can_be_read_page_by_page(self, backend: Backend) -> None:
        self.create(backend, "r", checkpoints=25)
        position, pages = 0, []
        while page := self.seen(backend, position, 10):
            pages.append(len(page))
            position = page[-1][0]
        assert (pages, position) == ([10, 10, 5], 25)

    def test_records_of_deleted_runs_are_left_out_and_their_positions_stay_empty(self, backend: Backend) -> None:
        gone, kept = self.create(backend, "gone", checkpoints=2), self.create(backend, "kept", checkpoints=1)
        gone = self.advance(backend, gone)
        kept = self.advance(backend, kept)
        backend.delete(gone)
        assert self.seen(backend) == [(3, "kept", 1), (5, "kept", 2)]
        assert self.seen(backend, 0, 1) == [(3, "kept", 1)]
        backend.delete(kept)
        assert (self.seen(backend), backend.feed_end()) == ([], 5)

    def test_a_run_that_has_an_old_id_has_its_own_records_only(self, backend: Backend) -> None:
        old = self.create(backend, "again", checkpoints=3)
        backend.delete(old)
        self.create(backend, "again", checkpoints=1)
        assert self.seen(backend) == [(4, "again", 1)]

    def test_two_handles_feed_one_feed(self, backend: Backend, open_handle: OpenHandle) -> None:
        other = open_handle()
        try:
            one, two = self.create(backend, "one"), self.create(other, "two")
            for _ in range(5):
                one, two = self.advance(backend, one), self.advance(other, two)
            one = self.advance(other, one)
            self.advance(backend, one)
            assert [position for position, _, _ in self.seen(backend)] == list(range(1, 13))
            assert self.seen(backend) == self.seen(other)
            assert (backend.feed_end(), other.feed_end()) == (12, 12)
        finally:
            other.close()

    def test_one_who_follows_while_others_write_misses_nothing_and_sees_nothing_twice(self, backend: Backend) -> None:
        total = 8 * 30
        seen: list[tuple[int, str, int]] = []

        def drive(i: int) -> None:
            row = self.create(backend, f"thread-{i}")
            for _ in range(30):
                row = self.advance(backend, row)

        with ThreadPoolExecutor(8) as pool:
            drivers = [pool.submit(drive, i) for i in range(8)]
            while len(seen) < total:
                page = self.seen(backend, seen[-1][0] if seen else 0, 7)
                seen += page
                if not page and all(driver.done() for driver in drivers):
                    seen += self.seen(backend, seen[-1][0] if seen else 0)
                    break
        assert [position for position, _, _ in seen] == list(range(1, total + 1))
        for i in range(8):
            assert [seq for _, run, seq in seen if run == f"thread-{i}"] == list(range(1, 31))


class RunQuerySuite(Suite):
    @pytest.fixture
    def filled(self, backend: Backend) -> Backend:
        for i in range(12):
            self.create(
                backend,
                f"{'even' if i % 2 == 0 else 'odd'}-{i:02}",
                workflow="w1" if i < 6 else None,
                session=f"s{i % 3}",
                status="failed" if i in (3, 4) else "running",
                parent="even-00" if i in (5, 7) else None,
                tags=("all", f"t{i % 4}"),
                note=f"Note {i} 100%_sure!" if i != 9 else None,
                meta=json.dumps({"i": i, "half": i / 2, "flag": i == 1, "text": f"{i}", "none": None, 'odd"key': i}),
                created_at=1000 + i,
            )
        return backend

    def run_ids(self, backend: Backend, **fields: object) -> list[int]:
        return [int(name[-2:]) for name in self.names(backend.runs(Query(**fields)))]  # type: ignore[arg-type]

    def test_runs_come_newest_first_and_oldest_first_when_asked(self, filled: Backend) -> None:
        assert self.run_ids(filled) == list(range(11, -1, -1))
        assert self.run_ids(filled, oldest_first=True, limit=3) == [0, 1, 2]

    def test_a_cursor_continues_where_a_page_ended(self, filled: Backend) -> None:
        for oldest_first in (False, True):
            seen: list[str] = []
            after = None
            while page := filled.runs(Query(after=after, limit=5, oldest_first=oldest_first)):
                seen += self.names(page)
                after = page[-1][0]
            assert seen == self.names(filled.runs(Query(oldest_first=oldest_first)))

    def test_each_filter_narrows_the_runs(self, filled: Backend) -> None:
        assert self.run_ids(filled, status="failed") == [4, 3]
        assert self.run_ids(filled, workflow="w1", limit=2) == [5, 4]
        assert self.run_ids(filled, session="s1") == [10, 7, 4, 1]
        assert self.run_ids(filled, parent="even-00") == [7, 5]
        assert self.run_ids(filled, prefix="odd-0") == [9, 7, 5, 3, 1]
        assert self.run_ids(filled, tags=("t1",)) == [9, 5, 1]
        assert self.run_ids(filled, tags=("t1", "all")) == [9, 5, 1]
        assert self.run_ids(filled, tags=("t1", "t2")) == []
        assert self.run_ids(filled, since=1009) == [11, 10, 9]
        assert self.run_ids(filled, until=1002) == [1, 0]
        assert self.run_ids(filled, since=1003, until=1005) == [4, 3]

    def test_a_note_is_found_by_a_part_whatever_its_case(self, filled: Backend) -> None:
        assert self.run_ids(filled, note="nOTE 1") == [11, 10, 1]
        assert self.run_ids(filled, note="100%_SURE!", limit=1) == [11]
        assert self.run_ids(filled, note="1_0") == [] == self.run_ids(filled, note="1%s")
        assert self.run_ids(filled, note="sure!", limit=1) == [11]
        assert self.run_ids(filled, note="s!ure") == []

    def test_meta_is_compared_as_json_scalars(self, filled: Backend) -> None:
        assert self.run_ids(filled, meta={"i": 4}) == [4] == self.run_ids(filled, meta={"i": 4.0}) == self.run_ids(filled, meta={"half": 2})
        assert self.run_ids(filled, meta={"half": 0.5}) == [1] == self.run_ids(filled, meta={"flag": True})
        assert self.run_ids(filled, meta={"text": "7"}) == [7]
        assert self.run_ids(filled, meta={"text": 7}) == []
        assert self.run_ids(filled, meta={"flag": 1}) == [] == self.run_ids(filled, meta={"missing": None})
        assert len(self.run_ids(filled, meta={"none": None})) == 12
        assert self.run_ids(filled, meta={'odd"key': 3, "text": "3"}) == [3]
        with pytest.raises(InvalidArgument):
            filled.runs(Query(meta={"i": [4]}))

    def test_filters_combine(self, filled: Backend) -> None:
        assert self.run_ids(filled, status="running", workflow="w1", session="s2") == [5, 2]
        assert self.run_ids(filled, prefix="even", note="note", tags=("t0",), meta={"none": None}, since=1001, until=1009) == [8, 4]
        (place, _) = filled.runs(Query(prefix="odd-07"))[0]
        assert self.run_ids(filled, session="s1", after=place) == [4, 1]
        assert self.run_ids(filled, session="s1", after=place, oldest_first=True) == [10]
        assert self.run_ids(filled, session="s1", note="NOTE", after=place, limit=1) == [4]


class CheckpointQuerySuite(Suite):
    @pytest.fixture
    def long(self, backend: Backend) -> Backend:
        row = self.advance(backend, self.create(backend, "long"), kind="start")
        for i in range(1, 11):
            meta = json.dumps({"n": i, "flag": i == 1, "text": f"{i}", 'odd"key': None})
            row = self.advance(
                backend, row, bytes([i]), note=f"Turn {i}", tags=("third",) if i % 3 == 0 else (), meta=meta if i != 8 else None, at=100 + i
            )
            if i % 4 == 0:
                row = self.advance(backend, row, kind="base", at=100 + i)
        backend.tag(Tag.make(row.key, "later", 3, 5), "long")
        backend.tag(Tag.make(row.key, "later", 5, 5), "long")
        backend.tag(Tag.make(row.key, "early", 3, 5), "long")
        return backend

    def checkpoint_ids(self, backend: Backend, **fields: object) -> list[int]:
        return self.numbers(backend.checkpoints("long", Query(**fields)))  # type: ignore[arg-type]

    def test_checkpoints_come_newest_first_without_bodies(self, long: Backend) -> None:
        found = long.checkpoints("long", Query(limit=2))
        assert self.numbers(found) == [10, 9]
        assert [r.body for r in found] == [None, None]
        stored = long.records("long", found[0].seq, found[0].seq)[0]
        assert found[0].body_digest == stored.body_digest
        assert found[0].digest == stored.digest
        assert self.checkpoint_ids(long, oldest_first=True) == list(range(1, 11))
        assert long.checkpoints("nobody", Query()) == []

    def test_tags_given_later_count_and_stand_after_the_records_own(self, long: Backend) -> None:
        found = {r.number: r.tags for r in long.checkpoints("long", Query())}
        assert found[3] == ("third", "early", "later")
        assert found[5] == ("later",)
        assert found[4] == ()
        assert self.checkpoint_ids(long, tags=("later",)) == [5, 3]
        assert self.checkpoint_ids(long, tags=("third", "later")) == [3]
        assert self.checkpoint_ids(long, tags=("third",), oldest_first=True, limit=2) == [3, 6]

    def test_a_cursor_is_a_number(self, long: Backend) -> None:
        assert self.checkpoint_ids(long, after=4) == [3, 2, 1]
        assert self.checkpoint_ids(long, after=8, oldest_first=True) == [9, 10]
        assert self.checkpoint_ids(long, after=5, limit=1) == [4] == self.checkpoint_ids(long, after=3, limit=1, oldest_first=True)
        assert self.checkpoint_ids(long, after=99, limit=1) == [10]
        assert self.checkpoint_ids(long, after=1) == [] == self.checkpoint_ids(long, after=10, oldest_first=True)
        assert self.checkpoint_ids(long, after=9, tags=("third",)) == [6, 3]

    def test_each_filter_narrows_the_checkpoints(self, long: Backend) -> None:
        assert self.checkpoint_ids(long, note="TURN 1") == [10, 1]
        assert self.checkpoint_ids(long, since=109) == [10, 9]
        assert self.checkpoint_ids(long, until=103) == [2, 1]
        assert self.checkpoint_ids(long, meta={"n": 4.0}) == [4]
        assert self.checkpoint_ids(long, meta={"text": "4"}) == [4]
        assert self.checkpoint_ids(long, meta={"flag": True}) == [1]
        assert self.checkpoint_ids(long, meta={"flag": 1}) == []
        assert self.checkpoint_ids(long, meta={'odd"key': None}, limit=3) == [10, 9, 7]
        assert self.checkpoint_ids(long, note="turn", tags=("third",), meta={"n": 6}, since=0, until=1000) == [6]


class ManifestSuite(Suite):
    def computed(self, backend: Backend) -> bytes:
        rows = [row for _, row in backend.runs(Query())]
        checks = [row.check for row in rows] + [tag.check for row in rows for tag in backend.tags(row.id)]
        return shift(ZERO, [], checks + [letter.check for row in rows for letter in backend.letters(row.id)])

    def test_an_empty_store_has_an_empty_manifest(self, backend: Backend) -> None:
        manifest = backend.manifest()
        assert (manifest.total, manifest.runs, manifest.last) == (ZERO, 0, None)

    def test_the_manifest_follows_everything_that_changes_a_row_a_tag_or_a_letter(self, backend: Backend) -> None:
        one = self.create(backend, checkpoints=2)
        two = self.advance(backend, self.create(backend), tags=("x", "y"))
        assert backend.manifest().total == self.computed(backend)
        backend.tag(Tag.make(one.key, "late", 1, 1), one.id)
        leased = backend.acquire(one.id, new_worker())
        assert backend.manifest().total == self.computed(backend)
        backend.release(leased)
        for name in ("a", "b", "c"):
            backend.post(new_letter(one, name), one.id)
            backend.post(new_letter(two, name), two.id)
        assert backend.manifest().total == self.computed(backend)
        two = self.advance(backend, two, read=("a", "b"), letters=(new_letter(two, "a", 9), new_letter(two, "c"), new_letter(two, "d")))
        assert backend.manifest().total == self.computed(backend)
        backend.delete(two)
        assert backend.manifest().total == self.computed(backend)
        assert backend.manifest().runs == 1

    def test_the_last_run_is_the_one_that_was_committed_to_last(self, backend: Backend) -> None:
        one, two = self.create(backend), self.create(backend)
        assert backend.manifest().last == two.id
        one = self.advance(backend, one)
        assert backend.manifest().last == one.id
        backend.delete(one)
        assert backend.manifest().last is None

    def test_a_refused_commit_leaves_the_manifest(self, backend: Backend) -> None:
        old = self.create(backend)
        self.advance(backend, old)
        before = backend.manifest()
        with pytest.raises(Conflict):
            self.advance(backend, old)
        assert backend.manifest() == before

    def test_two_handles_keep_one_manifest(self, backend: Backend, open_handle: OpenHandle) -> None:
        other = open_handle()
        try:
            one, two = self.create(backend), self.create(other)
            for _ in range(3):
                one, two = self.advance(backend, one), self.advance(other, two)
            assert backend.manifest() == other.manifest()
            assert backend.manifest().total == self.computed(backend)
            assert backend.manifest().runs == 2
        finally:
            other.close()


class GroupCommitSuite(Suite):
    def test_submitted_commits_are_settled_in_order(self, backend: Backend) -> None:
        row = self.create(backend)
        settled: list[BaseException | None] = []
        finished = threading.Event()

        def done(error: BaseException | None) -> None:
            settled.append(error)
            if len(settled) == 50:
                finished.set()

        for i in range(50):
            commit = next_commit(row, bytes([i]))
            backend.submit(commit, done)
            row = commit.run
        assert finished.wait(30)
        assert settled == [None] * 50
        assert backend.run(row.id) == row
        assert [r.body for r in backend.records(row.id, 0, 99)] == [bytes([i]) for i in range(50)]

    def test_a_refused_commit_does_not_fail_the_others_that_wait_with_it(self, backend: Backend) -> None:
        rows = [self.create(backend) for _ in range(20)]
        stale = rows[7]
        self.advance(backend, stale, b"moved")
        results: dict[int, BaseException | None] = {}
        finished = threading.Event()

        def done(i: int) -> Callable[[BaseException | None], None]:
            def note(error: BaseException | None) -> None:
                results[i] = error
                if len(results) == 22:
                    finished.set()

            return note

        for i, row in enumerate(rows):
            backend.submit(next_commit(row), done(i))
        backend.submit(Commit(new_run(rows[0].id), None), done(20))
        backend.submit(next_commit(new_run("ghost")), done(21))
        assert finished.wait(30)
        kinds = {i: type(error) for i, error in results.items() if error is not None}
        assert kinds == {7: Conflict, 20: RunExists, 21: LostLease}
        assert all(len(backend.records(row.id, 0, 9)) == 1 for row in rows)

    def test_threads_commit_to_their_own_runs_at_the_same_time(self, backend: Backend) -> None:
        def drive(i: int) -> RunRow:
            row = self.create(backend, f"thread-{i}")
            for _ in range(20):
                row = self.advance(backend, row)
            return row

        with ThreadPoolExecutor(8) as pool:
            rows = list(pool.map(drive, range(8)))
        assert [backend.run(row.id) for row in rows] == rows
        assert backend.manifest().total == shift(ZERO, [], [row.check for row in rows])

    def test_threads_racing_on_one_run_have_one_winner(self, backend: Backend) -> None:
        row = self.create(backend)
        barrier = threading.Barrier(8)

        def race(i: int) -> bool:
            barrier.wait()
            try:
                self.advance(backend, row, bytes([i]))
            except Conflict:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(race, range(8))) == 1
        assert len(backend.records(row.id, 0, 9)) == 1

    def test_waiting_and_submitted_commits_keep_the_order_of_their_calls(self, backend: Backend) -> None:
        row = self.create(backend)
        errors: list[BaseException | None] = []
        for _ in range(10):
            submitted = next_commit(row)
            backend.submit(submitted, errors.append)
            row = self.advance(backend, submitted.run)
        assert backend.run(row.id) == row
        assert errors == [None] * 10


class LifeSuite(Suite):
    def test_what_was_submitted_is_there_after_closing(self, open_handle: OpenHandle) -> None:
        first, second = open_handle(), open_handle()
        errors: list[BaseException | None] = []
        row = self.create(first)
        for _ in range(30):
            commit = next_commit(row)
            first.submit(commit, errors.append)
            row = commit.run
        first.close()
        assert errors == [None] * 30
        assert second.run(row.id) == row
        second.close()

    def test_a_closed_handle_refuses_everything_and_can_be_closed_again(self, open_handle: OpenHandle) -> None:
        backend = open_handle()
        row = self.create(backend)
        backend.close()
        backend.close()
        calls: list[Callable[[], object]] = [
            lambda: backend.commit(next_commit(row)),
            lambda: backend.submit(next_commit(row), lambda _: None),
            lambda: backend.run(row.id),
            lambda: backend.runs(Query()),
            lambda: backend.records(row.id, 0, 9),
            lambda: backend.checkpoints(row.id, Query()),
            lambda: backend.chunks(row.family, []),
            lambda: backend.tags(row.id),
            lambda: backend.tag(Tag.make(row.key, "t", 1, 1), row.id),
            lambda: backend.post(new_letter(row), row.id),
            lambda: backend.letters(row.id),
            lambda: backend.due(0),
            lambda: backend.feed(0, 9),
            backend.feed_end,
            lambda: backend.acquire(row.id, new_worker()),
            lambda: backend.release(row),
            lambda: backend.renew(new_worker()),
            lambda: backend.delete(row),
            backend.manifest,
            backend.stats,
            backend.check,
            backend.families,
        ]
        for call in calls:
            with pytest.raises(StoreClosed):
                call()

    def test_a_good_store_has_nothing_to_complain_about(self, backend: Backend) -> None:
        self.create(backend, checkpoints=3)
        assert backend.check() == []

    def test_stats_count_what_is_there(self, backend: Backend) -> None:
        row = self.advance(backend, self.create(backend), b"12345", chunks=((b"a" * 32, b"123"),))
        self.advance(backend, row, b"67")
        stats = backend.stats()
        assert {k: stats[k] for k in ("runs", "records", "chunks", "record_bytes", "chunk_bytes")} == {
            "runs": 1, "records": 2, "chunks": 1, "record_bytes": 7, "chunk_bytes": 3,
        }  # fmt: skip
        assert stats["file_bytes"] >= 0

    def test_it_says_what_it_is(self, backend: Backend) -> None:
        assert "://" in backend.url
        assert isinstance(backend.durable, bool)


class ConformanceSuite(
    RunsSuite,
    RecordsSuite,
    ChunksSuite,
    FencingSuite,
    LeaseSuite,
    TagsSuite,
    LettersSuite,
    FeedSuite,
    RunQuerySuite,
    CheckpointQuerySuite,
    ManifestSuite,
    GroupCommitSuite,
    LifeSuite,
):
    """Everything."""
