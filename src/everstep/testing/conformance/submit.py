"""Commits without waiting, and many at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from everstep.backends.contract.core import Backend, Commit, Committed, Outcome
from everstep.errors import Conflict, LostLease, RunExists
from everstep.records import ZERO, RunRow, shift
from everstep.testing.conformance.suite import OpenHandle, Suite
from everstep.testing.rows import new_run, next_commit


class GroupCommitSuite(Suite):
    def test_submitted_commits_are_settled_in_order(self, backend: Backend) -> None:
        row = self.create(backend)
        settled: list[Outcome] = []
        finished = threading.Event()

        def done(outcome: Outcome) -> None:
            settled.append(outcome)
            if len(settled) == 50:
                finished.set()

        for i in range(50):
            commit = next_commit(row, bytes([i]))
            backend.submit(commit, done)
            row = commit.run
        assert finished.wait(30)
        assert settled == [Committed(0)] * 50
        assert backend.run(row.id) == row
        assert [r.body for r in backend.records(row.id, 0, 99)] == [bytes([i]) for i in range(50)]

    def test_a_refused_commit_does_not_fail_the_others_that_wait_with_it(self, backend: Backend) -> None:
        rows = [self.create(backend) for _ in range(20)]
        stale = rows[7]
        self.advance(backend, stale, b"moved")
        results: dict[int, Outcome] = {}
        finished = threading.Event()

        def done(i: int) -> Callable[[Outcome], None]:
            def note(outcome: Outcome) -> None:
                results[i] = outcome
                if len(results) == 22:
                    finished.set()

            return note

        for i, row in enumerate(rows):
            backend.submit(next_commit(row), done(i))
        backend.submit(Commit(new_run(rows[0].id), None), done(20))
        backend.submit(next_commit(new_run("ghost")), done(21))
        assert finished.wait(30)
        kinds = {i: type(outcome) for i, outcome in results.items() if not isinstance(outcome, Committed)}
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
        settled: list[Outcome] = []
        for _ in range(10):
            submitted = next_commit(row)
            backend.submit(submitted, settled.append)
            row = self.advance(backend, submitted.run)
        assert backend.run(row.id) == row
        assert settled == [Committed(0)] * 10

    def test_submitted_commits_are_stored_after_closing(self, open_handle: OpenHandle) -> None:
        first, second = open_handle(), open_handle()
        settled: list[Outcome] = []
        row = self.create(first)
        for _ in range(30):
            commit = next_commit(row)
            first.submit(commit, settled.append)
            row = commit.run
        first.close()
        assert settled == [Committed(0)] * 30
        assert second.run(row.id) == row
        second.close()
