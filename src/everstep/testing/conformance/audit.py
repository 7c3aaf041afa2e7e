"""The sum over everything stored, and the tombstones of deleted runs: `contract.audit`."""

from __future__ import annotations

import pytest

from everstep.backends.contract.core import Backend
from everstep.backends.deleted_pks import PREFIX, name_of
from everstep.errors import Conflict, NotFound
from everstep.records import ZERO, Base, Tag
from everstep.testing.conformance.reclaim import cut
from everstep.testing.conformance.suite import OpenHandle, Suite
from everstep.testing.rows import new_message, new_run, new_worker


class ManifestSuite(Suite):
    def test_an_empty_store_has_an_empty_manifest(self, backend: Backend) -> None:
        manifest = backend.manifest()
        assert (manifest.total, manifest.runs, manifest.last) == (ZERO, 0, None)

    def test_the_manifest_follows_everything_that_changes_a_row_a_tag_or_a_message(self, backend: Backend) -> None:
        one = self.create(backend, checkpoints=2)
        two = self.advance(backend, self.create(backend), tags=("x", "y"))
        assert backend.manifest().total == self.computed(backend)
        backend.tag(Tag.make(one.key, "late", 1, 1), one.id)
        leased = backend.acquire(one.id, new_worker())
        assert backend.manifest().total == self.computed(backend)
        backend.release(leased)
        for name in ("a", "b", "c"):
            backend.post(new_message(one, name), one.id)
            backend.post(new_message(two, name), two.id)
        assert backend.manifest().total == self.computed(backend)
        two = self.advance(backend, two, read=("a", "b"), messages=(new_message(two, "a", 9), new_message(two, "c"), new_message(two, "d")))
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


class TombstonesSuite(Suite):
    def test_a_deleted_run_leaves_one(self, backend: Backend) -> None:
        keep, gone = self.create(backend, "keep"), self.create(backend, "gone", checkpoints=3)
        assert backend.tombstones() == []
        backend.prune(cut(gone, 1, bases=[Base.make(gone.key, 2, 7, b"base")]))
        backend.delete(gone)
        (left,) = backend.tombstones()
        assert (left.id, left.key, left.family, left.created_at) == ("gone", gone.key, gone.family, gone.created_at)
        assert (left.head_seq, left.head_digest, left.checkpoints) == (3, gone.head_digest, 3)
        assert left.check == left.digest()
        assert backend.pruned("gone") is None
        assert backend.bases("gone") == []
        manifest = backend.manifest()
        assert (manifest.runs, manifest.created) == (1, 2)
        assert manifest.total == self.computed(backend)
        assert backend.run("keep") == keep

    def test_a_census_adds_up_all_that_counts(self, backend: Backend) -> None:
        row = self.create(backend, "one", checkpoints=3)
        backend.tag(Tag.make(row.key, "t", 2, 1), row.id)
        backend.post(new_message(row), row.id)
        backend.prune(cut(row, 1, bases=[Base.make(row.key, 2, 7, b"base")]))
        backend.delete(self.create(backend, "gone", checkpoints=2))
        census, manifest = backend.census(), backend.manifest()
        assert (census.total, census.runs, census.created) == (manifest.total, manifest.runs, manifest.created)
        assert (census.found_total, census.found_runs, census.tombstones) == (self.computed(backend), 1, 1)
        assert census.found_total == census.total

    def test_health_tells_of_the_engine_and_that_it_can_be_written(self, backend: Backend) -> None:
        self.create(backend, "one", checkpoints=3)
        health = backend.health()
        assert isinstance(health["engine"], str)
        assert health["read_only"] is None
        assert health["writes"] == backend.manifest().writes

    def test_a_check_that_is_stopped_has_no_result_and_does_no_harm(self, backend: Backend) -> None:
        self.create(backend, "one", checkpoints=30)
        assert backend.check(lambda: True) in (None, [])
        assert backend.check(lambda: False) == []
        assert backend.check() == []

    def test_an_id_that_is_used_again_has_several(self, backend: Backend) -> None:
        for _ in range(3):
            backend.delete(self.create(backend, "again"))
        found = backend.tombstones()
        assert [tombstone.id for tombstone in found] == ["again"] * 3
        assert [tombstone.pk for tombstone in found] == sorted({tombstone.pk for tombstone in found})
        assert backend.tombstones(found[0].pk, 1) == [found[1]]
        assert backend.manifest().total == self.computed(backend)

    def test_old_tombstones_go_and_their_places_stay_known(self, backend: Backend) -> None:
        for name in ("one", "two", "three"):
            backend.delete(self.create(backend, name, checkpoints=2))
        self.create(backend, "four")
        assert backend.forget(0, 0) == backend.forget(1, 1 << 60) == 0
        before = backend.manifest()
        assert backend.forget(0, 1 << 60) == 3
        assert backend.forget(0, 1 << 60) == 0
        assert backend.tombstones() == []
        assert backend.properties(PREFIX) == {name_of(0): "1-3"}
        census, manifest = backend.census(), backend.manifest()
        assert (census.total, census.found_total, census.tombstones) == (manifest.total, self.computed(backend), 3)
        assert (manifest.runs, manifest.created) == (before.runs, before.created)
        assert manifest.writes > before.writes
        assert backend.check() == []

    def test_a_fork_of_a_run_that_was_deleted_meanwhile_is_refused(self, backend: Backend) -> None:
        parent = self.create(backend, "parent", checkpoints=1)
        backend.delete(parent)
        before = backend.manifest()
        with pytest.raises(NotFound, match="parent"):
            self.create(backend, "fork", family=parent.family, parent="parent", parent_number=1)
        assert backend.manifest() == before
        self.create(backend, "parent")  # another run with that id is not its parent
        with pytest.raises(NotFound):
            self.create(backend, "fork", family=parent.family, parent="parent", parent_number=1)
        child = new_run("child", parent="parent", parent_number=-1)
        assert child.family == child.key
        self.create(backend, "child", parent="parent", parent_number=-1)
