"""Listings: every filter, order and cursor."""

from __future__ import annotations

import json

import pytest

from everstep.backends.contract.core import Backend, Query
from everstep.errors import InvalidArgument
from everstep.records import Tag
from everstep.testing.conformance.suite import Suite


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

    def test_tags_given_later_count_but_are_not_those_of_the_record(self, long: Backend) -> None:
        found = {r.number: r.tags for r in long.checkpoints("long", Query())}
        assert found[3] == ("third",)
        assert found[5] == ()
        assert [(tag.name, tag.number) for tag in long.tags("long", 3, 5)] == [("early", 3), ("later", 3), ("later", 5), ("third", 3)]
        assert found[4] == ()
        assert self.checkpoint_ids(long, tags=("later",)) == [5, 3]
        assert self.checkpoint_ids(long, tags=("third", "later")) == [3]
        assert self.checkpoint_ids(long, tags=("third",), oldest_first=True, limit=2) == [3, 6]

    def test_digests_are_those_of_the_records(self, long: Backend) -> None:
        records = long.records("long", 0, 99)
        assert long.digests("long", [r.seq for r in records] + [0, 999]) == {r.seq: r.digest for r in records}
        assert long.digests("nobody", [1]) == {}

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
