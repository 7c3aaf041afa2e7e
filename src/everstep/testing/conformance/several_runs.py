"""Commits of several runs that belong together: all of them are made, or none."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from everstep.backends.contract.core import Backend, Commit, Committed
from everstep.backends.contract.queues import START, Task
from everstep.errors import AlreadyQueued, Conflict, LostLease, NotFound, RunExists
from everstep.testing.conformance.suite import OpenHandle, Suite
from everstep.testing.rows import new_message, new_run, new_worker, next_commit


class SeveralRunsSuite(Suite):
    def test_all_of_them_are_made_and_count_their_messages(self, backend: Backend) -> None:
        caller = self.create(backend, "caller")
        child = new_run("child", parent="caller", parent_number=0)
        step = next_commit(caller, messages=(new_message(caller, "a"), new_message(caller, "b")))
        found = backend.commit(Commit(child, None, messages=[new_message(child, START, 1)]), step)
        assert found == Committed(1, (2,))
        assert (backend.run("child"), backend.run("caller")) == (child, step.run)
        assert backend.records("caller", 0, 9) == step.records
        assert (backend.manifest().runs, backend.manifest().total) == (2, self.computed(backend))

    def test_a_conflict_in_the_second_undoes_the_first(self, backend: Backend) -> None:
        one, two = self.create(backend, "one"), self.create(backend, "two")
        moved = self.advance(backend, two)
        message = new_message(one, "kept")
        backend.post(message, "one")
        before = backend.manifest()
        first = next_commit(
            one, b"undone", tags=("t",), chunks=((b"c" * 32, b"chunk"),), messages=(new_message(one, "new"),), read=("kept",)
        )
        with pytest.raises(Conflict) as caught:
            backend.commit(first, next_commit(two, b"stale"))
        assert caught.value.written == "no"
        assert (backend.run("one"), backend.run("two")) == (one, moved)
        assert (backend.records("one", 0, 9), backend.tags("one"), backend.messages("one")) == ([], [], [message])
        assert backend.chunks(one.family, [b"c" * 32]) == {}
        assert (backend.manifest(), backend.feed_end()) == (before, 1)
        assert backend.commit(next_commit(one, b"again"), next_commit(moved)) == Committed(1, (0,))
        assert [r.body for r in backend.records("one", 0, 9)] == [b"again"]
        assert backend.manifest().total == self.computed(backend)

    def test_a_lost_lease_in_the_second_undoes_the_creation_of_the_first(self, backend: Backend) -> None:
        old = backend.acquire(self.create(backend, "held").id, new_worker())
        backend.release(old)
        taken = backend.acquire("held", new_worker())
        created = backend.manifest().created
        with pytest.raises(LostLease):
            backend.commit(Commit(new_run("new"), None), next_commit(old))
        assert (backend.run("new"), backend.run("held")) == (None, taken)
        assert backend.manifest().created == created
        self.create(backend, "new", checkpoints=2)
        assert backend.manifest().total == self.computed(backend)

    def test_a_run_that_exists_undoes_the_step_that_creates_it(self, backend: Backend) -> None:
        caller, other = self.create(backend, "caller"), self.create(backend, "child")
        with pytest.raises(RunExists):
            backend.commit(next_commit(caller), Commit(new_run("child"), None))
        assert (backend.run("caller"), backend.run("child")) == (caller, other)

    def test_an_id_that_two_of_them_create_is_refused(self, backend: Backend) -> None:
        with pytest.raises(RunExists):
            backend.commit(Commit(new_run("twice"), None), Commit(new_run("twice"), None))
        assert backend.run("twice") is None
        assert backend.manifest().runs == 0

    def test_a_double_in_a_queue_undoes_the_others(self, backend: Backend) -> None:
        def queued(name: str) -> Commit:
            row = new_run(name, status="queued")
            return Commit(row, None, messages=[new_message(row, START, 1)], task=Task("q", dedupe="same"))

        with pytest.raises(AlreadyQueued):
            backend.commit(queued("one"), queued("two"))
        assert (backend.run("one"), backend.run("two"), backend.queue_entries()) == (None, None, [])
        assert backend.commit(queued("one"), Commit(new_run("three"), None)) == Committed(1, (0,))
        assert [entry.run for entry in backend.queue_entries()] == ["one"]

    def test_a_run_and_its_fork_can_be_made_together(self, backend: Backend) -> None:
        row = new_run("origin")
        first = next_commit(row, chunks=((b"c" * 32, b"shared"),))
        fork = new_run("fork", parent="origin", parent_number=1).sealed(family=row.family)
        backend.commit(Commit(row, None), Commit(fork, None), first)
        assert backend.run("origin") == first.run
        assert backend.chunks(fork.family, [b"c" * 32]) == {b"c" * 32: b"shared"}

    def test_a_fork_of_a_run_that_is_gone_undoes_the_others(self, backend: Backend) -> None:
        row = self.create(backend, "other")
        gone = new_run("gone")
        fork = new_run("fork", parent="gone", parent_number=1).sealed(family=gone.family)
        with pytest.raises(NotFound):
            backend.commit(next_commit(row), Commit(fork, None))
        assert backend.run("other") == row

    def test_commits_of_one_run_follow_each_other(self, backend: Backend) -> None:
        row = self.create(backend, "r")
        first = next_commit(row, b"1")
        backend.commit(first, next_commit(first.run, b"2"))
        assert [r.body for r in backend.records("r", 0, 9)] == [b"1", b"2"]
        assert [position for position, _ in backend.feed(0, 9)] == [1, 2]

    def test_a_refused_one_does_not_fail_others_that_wait_with_it(self, backend: Backend) -> None:
        stale = self.create(backend, "stale")
        self.advance(backend, stale)
        rows = [self.create(backend) for _ in range(8)]
        barrier = threading.Barrier(8)

        def drive(i: int) -> bool:
            row = rows[i]
            barrier.wait()
            for _ in range(10):
                if i % 2:
                    row = self.advance(backend, row)
                    continue
                try:
                    backend.commit(next_commit(row), next_commit(stale))
                except Conflict:
                    continue
                return False
            return backend.run(row.id) == row

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(drive, range(8))) == [True] * 8
        assert backend.manifest().total == self.computed(backend)

    def test_another_handle_sees_all_or_nothing(self, backend: Backend, open_handle: OpenHandle) -> None:
        one, two = self.create(backend, "one"), self.create(backend, "two")
        other, torn, over = open_handle(), list[tuple[int, int]](), threading.Event()

        def look() -> None:
            while not over.is_set():
                after, before = other.run("two"), other.run("one")  # read in this order, "one" may be newer but never older
                assert before is not None
                assert after is not None
                if before.head_seq < after.head_seq:
                    torn.append((before.head_seq, after.head_seq))

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            for _ in range(30):
                commits = next_commit(one), next_commit(two)
                backend.commit(*commits)
                one, two = commits[0].run, commits[1].run
        finally:
            over.set()
            watcher.join()
            other.close()
        assert torn == []
