"""Runs: their rows, listings, and the life cycle of a handle."""

from __future__ import annotations

import json

import pytest

from everstep.backends.contract.core import Backend, Commit, Query
from everstep.errors import Conflict, Damaged, DamagedRun, InvalidArgument, LostLease, NotFound, RunExists, StoreClosed
from everstep.records import Tag
from everstep.testing.conformance.suite import OpenHandle, Suite
from everstep.testing.rows import new_message, new_run, new_worker, next_commit


class RunsSuite(Suite):
    def test_a_run_comes_back_exactly_as_it_was_given(self, backend: Backend) -> None:
        row = self.create(
            backend, "näme-1", workflow="w", session="s", tags=("b", "a"), note="Grüße\n", meta='{"k": [1, 2]}', parent="p", parent_number=3
        )
        assert backend.run("näme-1") == row

    def test_an_unknown_run_is_none(self, backend: Backend) -> None:
        assert backend.run("missing") is None

    def test_a_row_that_is_older_than_its_records_is_refused(self, backend: Backend) -> None:
        """A disk that lost a write leaves such a row. It is valid in itself, but must not be read or written as if it were the newest."""
        if not backend.durable:
            pytest.skip("in memory, a row and its records are one object")
        row = self.create(backend, "stale", checkpoints=2)
        old = row.sealed(note="as it was")
        backend.commit(Commit(old, row, next_commit(row, b"state").records))
        for read in (lambda: backend.run("stale"), lambda: backend.runs(Query()), lambda: backend.acquire("stale", new_worker(10))):
            with pytest.raises(DamagedRun, match="older than its records"):
                read()
        with pytest.raises(Damaged):
            self.advance(backend, old)
        assert [record.seq for record in backend.records("stale", 1, 99)] == [1, 2, 3]

    def test_an_id_that_is_taken_is_refused_and_the_first_run_stays(self, backend: Backend) -> None:
        first = self.create(backend, "taken")
        with pytest.raises(RunExists):
            self.create(backend, "taken")
        assert backend.run("taken") == first

    def test_changing_an_answer_does_not_change_the_store(self, backend: Backend) -> None:
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

    def test_many_runs_are_deleted_at_once_but_those_that_moved_on_or_are_held(self, backend: Backend) -> None:
        rows = [self.create(backend, f"r{n}", checkpoints=1) for n in range(5)]
        self.advance(backend, rows[1])
        held = backend.acquire(rows[2].id, new_worker())
        gone = backend.delete_many([*rows[:2], held, *rows[3:], new_run("ghost")])
        assert gone == {rows[0].key, rows[3].key, rows[4].key}
        assert [backend.run(row.id) is not None for row in rows] == [False, True, True, False, False]
        assert {stone.id for stone in backend.tombstones()} == {"r0", "r3", "r4"}
        census = backend.census()
        assert (census.total, census.runs) == (census.found_total, census.found_runs)
        assert backend.check() == []
        assert backend.delete_many([]) == set()

    def test_a_run_that_moved_on_is_not_deleted(self, backend: Backend) -> None:
        old = self.create(backend)
        row = self.advance(backend, old)
        with pytest.raises(Conflict):
            backend.delete(old)
        assert backend.run(row.id) == row

    def test_deleting_a_missing_run_is_not_found(self, backend: Backend) -> None:
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
        (position, _) = filled.runs(Query(prefix="odd-07"))[0]
        assert self.run_ids(filled, session="s1", after=position) == [4, 1]
        assert self.run_ids(filled, session="s1", after=position, oldest_first=True) == [10]
        assert self.run_ids(filled, session="s1", note="NOTE", after=position, limit=1) == [4]


class LifeSuite(Suite):
    def test_a_closed_handle_refuses_everything_and_can_be_closed_again(self, open_handle: OpenHandle) -> None:
        backend = open_handle()
        row = self.create(backend)
        backend.close()
        backend.close()
        calls: dict[str, tuple[object, ...]] = {
            "commit": (next_commit(row),), "submit": (next_commit(row), lambda _: None), "run": (row.id,), "runs": (Query(),),
            "records": (row.id, 0, 9), "locate": (row.id, 1), "checkpoints": (row.id, Query()), "chunks": (row.family, []), "tags": (row.id,),
            "tag": (Tag.make(row.key, "t", 1, 1), row.id), "post": (new_message(row), row.id), "messages": (row.id,), "due": (0,), "feed": (0, 9),
            "feed_end": (), "acquire": (row.id, new_worker()), "introduce": (new_worker(),), "release": (row,), "renew": (new_worker(),),
            "delete": (row,), "manifest": (), "stats": (), "check": (), "families": (),
        }  # fmt: skip
        for name, given in calls.items():
            if hasattr(backend, name):
                with pytest.raises(StoreClosed):
                    getattr(backend, name)(*given)

    def test_a_good_store_has_nothing_to_complain_about(self, backend: Backend) -> None:
        self.create(backend, checkpoints=3)
        assert backend.check() == []

    def test_stats_count_runs_records_and_chunks(self, backend: Backend) -> None:
        row = self.advance(backend, self.create(backend), b"12345", chunks=((b"a" * 32, b"123"),))
        self.advance(backend, row, b"67")
        stats = backend.stats()
        assert {k: stats[k] for k in ("runs", "records", "chunks", "record_bytes", "chunk_bytes")} == {
            "runs": 1, "records": 2, "chunks": 1, "record_bytes": 7, "chunk_bytes": 3,
        }  # fmt: skip
        assert stats["file_bytes"] >= 0

    def test_a_backend_has_an_address_and_says_whether_it_is_durable(self, backend: Backend) -> None:
        assert "://" in backend.url
        assert isinstance(backend.durable, bool)
