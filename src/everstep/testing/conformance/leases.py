"""Fencing and leases: which writer may write."""

from __future__ import annotations

import pytest

from everstep.backends.contract.core import Backend, Commit
from everstep.errors import Conflict, DamagedRun, LeaseHeld, LostLease, NotFound
from everstep.testing.conformance.suite import OpenHandle, Suite
from everstep.testing.rows import new_run, new_worker


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
        assert backend.chunk_sizes(old.family) == {}
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

    def test_a_held_run_is_refused_with_the_name_of_its_holder(self, backend: Backend) -> None:
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
            backend.acquire("missing", new_worker())

    def test_a_row_that_does_not_match_its_digest_is_not_sealed_again(self, backend: Backend) -> None:
        row = self.create(backend)
        row.note = "changed without a seal"
        backend.commit(Commit(row, backend.run(row.id)))
        with pytest.raises(DamagedRun):
            backend.acquire(row.id, new_worker())
