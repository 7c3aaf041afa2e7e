"""Messages to runs: `contract.mailbox`."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest

from everstep.backends.contract.core import Backend, Commit, Committed, Outcome
from everstep.errors import Conflict, NotFound
from everstep.records import RunRow
from everstep.testing.conformance.suite import OpenHandle, Suite
from everstep.testing.rows import new_message, new_run, new_worker, next_commit


class MessagesSuite(Suite):
    def message_names(self, backend: Backend, run: RunRow) -> list[str]:
        return [message.name for message in backend.messages(run.id)]

    def test_a_message_comes_back_exactly_as_it_was_posted_and_the_run_stays(self, backend: Backend) -> None:
        row = self.create(backend)
        first, second = new_message(row, "gate:päss", 2**62, bytes(range(256)) * 40), new_message(row, "answer", None, b"")
        assert backend.post(first, row.id) is True
        assert backend.post(second, row.id) is True
        assert backend.messages(row.id) == [second, first]
        assert backend.run(row.id) == row

    def test_a_checkpoint_is_found_with_the_number_of_messages(self, backend: Backend) -> None:
        row = self.create(backend, "r", checkpoints=2)
        for posted in range(3):
            found = backend.locate(row.id, 2, row.head_seq)
            assert found is not None
            assert found.waiting in (posted, None)
            backend.post(new_message(row, f"m{posted}"), row.id)

    def test_messages_are_ordered_by_name(self, backend: Backend) -> None:
        row = self.create(backend)
        for name in ("b", "", "ü", "a/b", "B", "\U0001f600", "\uffff", "a"):
            backend.post(new_message(row, name), row.id)
        assert self.message_names(backend, row) == sorted(["b", "", "ü", "a/b", "B", "\U0001f600", "\uffff", "a"])

    def test_of_two_messages_of_one_name_the_first_wins(self, backend: Backend) -> None:
        row = self.create(backend)
        first = new_message(row, "a", 1, b"first")
        backend.post(first, row.id)
        before = backend.manifest()
        assert backend.post(new_message(row, "a", 2, b"second"), row.id) is False
        assert backend.messages(row.id) == [first]
        assert backend.manifest() == before

    def test_a_message_needs_no_lease_and_does_not_disturb_its_holder(self, backend: Backend) -> None:
        row = backend.acquire(self.create(backend).id, new_worker())
        assert backend.post(new_message(row), row.id)
        commit = next_commit(row)
        committed = backend.commit(commit)
        assert committed.waiting == 1

    def test_a_missing_run_gets_no_messages(self, backend: Backend) -> None:
        with pytest.raises(NotFound):
            backend.post(new_message(new_run("missing")), "missing")
        assert backend.messages("missing") == []

    def test_a_message_to_a_deleted_run_does_not_reach_the_next_one_of_its_id(self, backend: Backend) -> None:
        old = self.create(backend, "again")
        backend.post(new_message(old, "for the old one"), "again")
        backend.delete(old)
        assert backend.messages("again") == []
        new = self.create(backend, "again")
        assert backend.messages("again") == []
        with pytest.raises(NotFound):
            backend.post(new_message(old, "late"), "again")
        assert backend.messages("again") == []
        commit = next_commit(new)
        committed = backend.commit(commit)
        assert committed.waiting == 0

    def test_runs_do_not_see_each_others_messages(self, backend: Backend) -> None:
        one, two = self.create(backend), self.create(backend)
        backend.post(new_message(one, "a"), one.id)
        backend.post(new_message(two, "b"), two.id)
        assert (self.message_names(backend, one), self.message_names(backend, two)) == (["a"], ["b"])
        backend.delete(one)
        assert self.message_names(backend, two) == ["b"]

    def test_a_commit_posts_messages_and_the_first_of_a_name_wins(self, backend: Backend) -> None:
        row = self.create(backend)
        there = new_message(row, "b", None, b"there")
        backend.post(there, row.id)
        mine, twice = new_message(row, "a", 5), new_message(row, "a", 6)
        commit = next_commit(row, messages=(mine, twice, new_message(row, "b", None, b"late")))
        committed = backend.commit(commit)
        assert backend.messages(row.id) == [mine, there]
        assert committed.waiting == 2

    def test_a_run_can_be_created_with_messages(self, backend: Backend) -> None:
        row = new_run()
        message = new_message(row, "timer", 7)
        commit = Commit(row, None, messages=[message])
        committed = backend.commit(commit)
        assert backend.messages(row.id) == [message]
        assert committed.waiting == 1

    def test_a_commit_takes_out_the_messages_that_it_read_and_no_others(self, backend: Backend) -> None:
        row = self.create(backend)
        for name in ("a", "b", "c"):
            backend.post(new_message(row, name), row.id)
        commit = next_commit(row, read=("a", "c", "never there"))
        committed = backend.commit(commit)
        assert self.message_names(backend, row) == ["b"]
        assert committed.waiting == 1

    def test_a_message_that_was_read_can_be_replaced_in_the_same_commit(self, backend: Backend) -> None:
        row = self.create(backend)
        backend.post(new_message(row, "timer", 1), row.id)
        again = new_message(row, "timer", 2)
        commit = next_commit(row, read=("timer",), messages=(again,))
        committed = backend.commit(commit)
        assert backend.messages(row.id) == [again]
        assert committed.waiting == 1

    def test_a_name_that_was_read_can_be_posted_again(self, backend: Backend) -> None:
        row = self.create(backend)
        backend.post(new_message(row, "a"), row.id)
        row = self.advance(backend, row, read=("a",))
        assert backend.post(new_message(row, "a"), row.id) is True

    def test_a_commit_without_records_carries_messages_too(self, backend: Backend) -> None:
        row = self.create(backend)
        after = row.sealed(status="waiting")
        commit = Commit(after, row, messages=[new_message(row, "a", 3)])
        committed = backend.commit(commit)
        assert (committed.waiting, backend.due(3)) == (1, [row.id])

    def test_a_refused_commit_posts_and_takes_out_nothing(self, backend: Backend) -> None:
        old = self.create(backend)
        kept = new_message(old, "kept")
        backend.post(kept, old.id)
        row = self.advance(backend, old)
        before = backend.manifest()
        with pytest.raises(Conflict):
            self.advance(backend, old, read=("kept",), messages=(new_message(old, "stale"),))
        assert backend.messages(old.id) == [kept]
        assert backend.manifest() == before
        commit = next_commit(row)
        committed = backend.commit(commit)
        assert committed.waiting == 1

    def test_each_commit_of_a_batch_counts_its_own_messages(self, backend: Backend) -> None:
        rows = [self.create(backend) for _ in range(5)]
        for i, row in enumerate(rows):
            for n in range(i):
                backend.post(new_message(row, f"{n}"), row.id)
        commits = [next_commit(row, messages=(new_message(row, "own"),) if i % 2 else ()) for i, row in enumerate(rows)]
        second = next_commit(commits[4].run, read=("0", "1"))
        told: SimpleQueue[Outcome] = SimpleQueue()
        for commit in (*commits, second):
            backend.submit(commit, told.put)
        assert [told.get(timeout=30) for _ in (*commits, second)] == [Committed(n) for n in (0, 2, 2, 4, 4, 2)]

    def test_a_writer_counts_messages_that_another_handle_posted(self, backend: Backend, open_handle: OpenHandle) -> None:
        row = self.create(backend, checkpoints=2)
        other = open_handle()
        try:
            for n in range(1, 4):
                other.post(new_message(row, f"{n}"), row.id)
                commit = next_commit(row)
                committed = backend.commit(commit)
                row = commit.run
                assert committed.waiting == n
            foreign = next_commit(row, read=("1", "2"))
            assert other.commit(foreign).waiting == 1
            assert backend.commit(next_commit(foreign.run)).waiting == 1
        finally:
            other.close()

    def test_threads_that_post_one_name_have_one_winner(self, backend: Backend) -> None:
        row = self.create(backend)
        barrier = threading.Barrier(8)

        def race(i: int) -> bool:
            barrier.wait()
            return backend.post(new_message(row, "a", None, bytes([i])), row.id)

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(race, range(8)))
        assert sum(won) == 1
        assert [message.body for message in backend.messages(row.id)] == [bytes([won.index(True)])]

    def test_due_are_the_runs_that_wait_or_failed_and_have_a_message_whose_time_has_come(self, backend: Backend) -> None:
        for status in ("queued", "running", "waiting", "succeeded", "failed", "cancelled"):
            row = self.create(backend, status, status=status)
            backend.post(new_message(row, "timer", 10), status)
        self.create(backend, "without", status="waiting")
        never = self.create(backend, "never", status="waiting")
        backend.post(new_message(never, "answer", None), "never")
        assert backend.due(9) == []
        assert backend.due(10) == ["waiting", "failed"] == backend.due(2**62)

    def test_due_runs_come_earliest_first_each_once_and_not_more_than_asked_for(self, backend: Backend) -> None:
        for name, times in (("late", (30,)), ("same-1", (20,)), ("early", (50, 10, 99)), ("same-2", (20,))):
            row = self.create(backend, name, status="waiting")
            for due in times:
                backend.post(new_message(row, f"{due}", due), name)
        assert backend.due(40) == ["early", "same-1", "same-2", "late"]
        assert backend.due(40, 2) == ["early", "same-1"]
        assert backend.due(40, 0) == []
        assert backend.due(10) == ["early"]

    def test_a_paused_run_is_not_due_until_the_pause_is_taken_out(self, backend: Backend) -> None:
        row = self.create(backend, "p", status="waiting")
        backend.post(new_message(row, "timer", 1), "p")
        backend.post(new_message(row, "pause", None), "p")
        assert backend.due(5) == []
        self.advance(backend, row, read=("pause",))
        assert backend.due(5) == ["p"]

    def test_a_run_is_no_longer_due_when_its_message_was_read_or_it_was_deleted(self, backend: Backend) -> None:
        read, deleted = self.create(backend, status="waiting"), self.create(backend, status="waiting")
        for row in (read, deleted):
            backend.post(new_message(row, "timer", 1), row.id)
        self.advance(backend, read, read=("timer",))
        backend.delete(deleted)
        assert backend.due(5) == []

    def test_messages_are_counted(self, backend: Backend) -> None:
        assert backend.stats()["messages"] == 0
        row = self.create(backend)
        backend.post(new_message(row, "a"), row.id)
        backend.post(new_message(row, "b"), row.id)
        assert backend.stats()["messages"] == 2
