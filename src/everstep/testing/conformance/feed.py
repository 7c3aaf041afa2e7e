"""The order of all commits: `contract.feed`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from everstep.backends.contract.core import Backend, Commit
from everstep.errors import Conflict
from everstep.records import Tag
from everstep.testing.conformance.suite import OpenHandle, Suite
from everstep.testing.rows import new_message, new_worker, next_commit


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

    def test_a_write_without_a_record_adds_no_position(self, backend: Backend) -> None:
        row = self.create(backend, checkpoints=1)
        after = row.sealed(note="changed")
        backend.commit(Commit(after, row))
        backend.tag(Tag.make(row.key, "t", 1, 1), row.id)
        backend.post(new_message(row), row.id)
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

    def test_a_follower_beside_writers_misses_nothing_and_sees_nothing_twice(self, backend: Backend) -> None:
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
