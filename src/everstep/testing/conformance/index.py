"""Tags, and lists of checkpoints: `contract.index`."""

from __future__ import annotations

import json

import pytest

from everstep.backends.contract.capability import has
from everstep.backends.contract.core import Backend, Query
from everstep.backends.contract.reclaim import Reclaim
from everstep.errors import NotFound
from everstep.records import Tag
from everstep.testing.conformance.suite import Suite


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

    def test_an_existing_tag_is_left_alone(self, backend: Backend) -> None:
        row = self.create(backend, checkpoints=1)
        backend.tag(Tag.make(row.key, "t", 1, 5), row.id)
        before = backend.manifest()
        backend.tag(Tag.make(row.key, "t", 1, 6), row.id)
        assert backend.tags(row.id) == [Tag.make(row.key, "t", 1, 5)]
        assert backend.manifest() == before

    def test_a_missing_checkpoint_cannot_be_tagged(self, backend: Backend) -> None:
        row = self.create(backend, checkpoints=1)
        with pytest.raises(NotFound):
            backend.tag(Tag.make(row.key, "t", 1, 5), "missing")
        with pytest.raises(NotFound):
            backend.tag(Tag.make(row.key, "t", 2, 5), row.id)

    def test_tags_are_ordered_by_name_and_number(self, backend: Backend) -> None:
        row = self.create(backend, checkpoints=3)
        for name, number in (("b", 1), ("a", 3), ("a", 1)):
            backend.tag(Tag.make(row.key, name, number, 1), row.id)
        assert [(t.name, t.number) for t in backend.tags(row.id)] == [("a", 1), ("a", 3), ("b", 1)]


class GatesSuite(Suite):
    def test_gates_and_answers_of_a_run_are_found(self, backend: Backend) -> None:
        row = self.create(backend, "r", checkpoints=1)
        assert backend.gates("r") == [] == backend.unanswered()
        for kind, note in (("gate", "a#0"), ("event", "a#0"), ("answer", "a#0"), ("gate", "b#0")):
            row = self.advance(backend, row, kind=kind, note=note)
        assert [(r.kind, r.note) for r in backend.gates("r")] == [("gate", "a#0"), ("answer", "a#0"), ("gate", "b#0")]
        assert backend.gates("r") == backend.records("r", 1, 99, ("gate", "answer"))
        assert backend.gates("absent") == []

    def test_questions_without_an_answer_are_found_over_all_waiting_runs(self, backend: Backend) -> None:
        for name, status, workflow in (("a", "waiting", "w"), ("b", "waiting", "v"), ("c", "succeeded", "w"), ("d", "waiting", "w")):
            row = self.create(backend, name, status=status, workflow=workflow)
            for kind, note in (("gate", "x#0"), ("gate", "y#0"), ("answer", "x#0"), ("gate", "z#0")):
                row = self.advance(backend, row, kind=kind, note=note)
        found = backend.unanswered()
        assert [(r.run, r.note) for _, r in found] == [(run, note) for run in "abd" for note in ("y#0", "z#0")]
        assert [r for _, r in found[:2]] == [r for r in backend.gates("a") if r.note in ("y#0", "z#0")]
        assert backend.unanswered("w") == [*found[:2], *found[4:]]
        assert backend.unanswered("absent") == []
        assert backend.unanswered(limit=3) == found[:3]
        assert backend.unanswered(after=found[2][0], limit=2) == found[3:5]


class FindSuite(Suite):
    def test_checkpoints_of_all_runs_are_found_by_metadata_and_tags(self, backend: Backend) -> None:
        for name in ("a", "b"):
            row = self.create(backend, name)
            for i in range(1, 4):
                meta = json.dumps({"n": i, "text": f"{i}", "same": True})
                row = self.advance(backend, row, note=f"{name}{i}", tags=("odd",) if i % 2 else (), meta=meta, labels=bytes(16))
            row = self.advance(backend, row, kind="base")
            backend.tag(Tag.make(row.key, "later", 2, 5), name)

        def found(tags: tuple[str, ...] = (), after: int | None = None, limit: int | None = None, **meta: object) -> list[str | None]:
            return [record.note for _, record in backend.find(tags, meta, after, limit)]

        assert found(n=2) == ["b2", "a2"] == found(n=2.0) == found(("later",))
        assert found(text="2") == ["b2", "a2"]
        assert found(text=2) == [] == found(n="2") == found(same=1) == found(("absent",))
        assert found(same=True) == ["b3", "b2", "b1", "a3", "a2", "a1"]
        assert found(same=True, n=3) == ["b3", "a3"] == found(("odd",), n=3)
        assert found(("odd",)) == ["b3", "b1", "a3", "a1"]
        assert found(("odd", "later")) == []
        for asked in ({"same": True}, {"tags": ("odd",)}):
            tags = asked.pop("tags", ())
            everything = backend.find(tags, asked)  # type: ignore[arg-type]
            assert backend.find(tags, asked, limit=2) == everything[:2]  # type: ignore[arg-type]
            assert backend.find(tags, asked, after=everything[1][0]) == everything[2:]  # type: ignore[arg-type]
        (_, record), *_ = backend.find((), {"n": 3})
        assert (record.run, record.body) == ("b", None)
        assert record.digest == backend.records("b", record.seq, record.seq)[0].digest

    def test_tags_of_a_name_are_found(self, backend: Backend) -> None:
        row = self.create(backend, "r", checkpoints=3)
        for name, number in (("b", 1), ("a", 3), ("a", 1)):
            backend.tag(Tag.make(row.key, name, number, 1), row.id)
        assert [(tag.name, tag.number) for tag in backend.tags("r", name="a")] == [("a", 1), ("a", 3)]
        assert backend.tags("r", name="c") == [] == backend.tags("absent", name="a")

    def test_a_deleted_run_is_not_found(self, backend: Backend) -> None:
        row = self.advance(backend, self.create(backend, "r"), meta='{"n":1}', tags=("t",), labels=bytes(16))
        backend.delete(row)
        assert backend.find((), {"n": 1}) == [] == backend.find(("t",), {})


class AttachedSuite(Suite):
    def test_attached_entries_are_found_by_the_beginning_of_their_addresses(self, backend: Backend) -> None:
        row = self.create(backend, "r", checkpoints=2)
        assert backend.attached("r") == []
        for note in ("1:b", "12:a", "1:a", "1:b"):
            row = self.advance(backend, row, note.encode(), kind="attached", note=note)
        row = self.advance(backend, row, kind="event", note="1:a")
        found = backend.attached("r", "1:")
        assert [(r.note, r.body) for r in found] == [("1:b", b"1:b"), ("1:a", b"1:a"), ("1:b", b"1:b")]
        assert found == [record for record in backend.records("r", 1, 99, ("attached",)) if record.note != "12:a"]
        assert [r.note for r in backend.attached("r", "1:b")] == ["1:b", "1:b"]
        assert len(backend.attached("r")) == 4
        assert backend.attached("r", "2:") == [] == backend.attached("absent", "1:")

    def test_attached_entries_belong_to_one_run_and_go_with_it(self, backend: Backend) -> None:
        row = self.advance(backend, self.create(backend, "r"), kind="attached", note="1:a")
        self.advance(backend, self.create(backend, "other"), kind="attached", note="1:a")
        assert [r.run for r in backend.attached("r")] == ["r"]
        if has(backend, Reclaim):
            backend.delete(row)
            assert backend.attached("r") == []
            assert len(backend.attached("other")) == 1


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
        assert long.checkpoints("missing", Query()) == []

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
        assert long.digests("missing", [1]) == {}

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
