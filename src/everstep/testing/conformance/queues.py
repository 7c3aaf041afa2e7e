"""Queued runs: which worker gets which run, when, how many at once, and what happens when a worker dies."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from everstep import clock as clocks
from everstep.backends.contract.core import Backend, Commit
from everstep.backends.contract.queues import LIMITS, START, Claim, Limits, Task
from everstep.errors import AlreadyQueued, LeaseHeld, LostLease, RunExists
from everstep.records import RunRow, Worker
from everstep.testing.conformance.suite import OpenHandle, Suite
from everstep.testing.rows import new_message, new_run, new_worker, next_commit

SECOND = 1_000_000


class QueuesSuite(Suite):
    def enqueue(self, backend: Backend, name: str | None = None, due: int = 0, workflow: str = "w", **task: object) -> RunRow:
        """Create a run in a queue that is ready `due` microseconds from now."""
        row = new_run(name, status="queued", workflow=workflow)
        messages = [new_message(row, START, clocks.clock.now_us() + due)]
        backend.commit(Commit(row, None, messages=messages, task=Task(**({"queue": "q"} | task))))  # type: ignore[arg-type]
        return row

    def claim(
        self, backend: Backend, most: int = 1, worker: Worker | None = None, queues: tuple[str, ...] = ("q",), **more: object
    ) -> list[RunRow]:
        asked = Claim(worker or new_worker(), queues, more.get("workflows", ("w",)), most, more.get("without", ()))  # type: ignore[arg-type]
        return [taken.row for taken in backend.claim(asked) if taken.row is not None]

    def claimed(self, backend: Backend, most: int = 1, **more: object) -> list[str]:
        return [row.id for row in self.claim(backend, most, **more)]  # type: ignore[arg-type]

    def begin(self, backend: Backend, row: RunRow) -> RunRow:
        """Return the first commit of a worker: it has read the message, and the run is running."""
        commit = next_commit(row, kind="status", read=(START,))
        commit.run = commit.run.sealed(status="running")
        backend.commit(commit)
        return commit.run

    def end(self, backend: Backend, row: RunRow, status: str = "succeeded", messages: tuple[object, ...] = ()) -> RunRow:
        commit = next_commit(row, kind="status", messages=messages)
        commit.run = commit.run.sealed(status=status, worker=None, since=0)
        backend.commit(commit)
        return commit.run

    def test_a_run_is_given_once_with_its_lease_and_the_next_epoch(self, backend: Backend) -> None:
        row = self.enqueue(backend)
        worker = new_worker()
        (taken,) = self.claim(backend, 5, worker)
        assert (taken.id, taken.epoch, taken.worker) == (row.id, row.epoch + 1, worker.id)
        assert backend.run(row.id) == taken
        assert backend.held_by(worker.id) == [row.id]
        assert taken.check == taken.digest()
        assert self.claimed(backend, 5) == []
        with pytest.raises(LeaseHeld):
            backend.acquire(row.id, new_worker())
        assert self.computed(backend) == backend.manifest().total

    def wanted(self, name: str, **task: object) -> Commit:
        """Return the commit that creates a run in a queue."""
        row = new_run(name, status="queued", workflow="w")
        messages = [new_message(row, START, clocks.clock.now_us())]
        return Commit(row, None, messages=messages, task=Task(**({"queue": "q"} | task)))  # type: ignore[arg-type]

    def test_many_runs_are_created_at_once_and_duplicates_are_found(self, backend: Backend) -> None:
        self.enqueue(backend, "old", dedupe="x")
        asked = [self.wanted("a"), self.wanted("b", dedupe="x"), self.wanted("c", dedupe="y"), self.wanted("d", dedupe="y")]
        assert backend.create([*asked, self.wanted("old", queue="z")], ["old"]) == [True, False, True, False, False]
        assert [entry.run for entry in backend.queue_entries()] == ["old", "a", "c"]
        assert backend.run("b") is None
        assert self.computed(backend) == backend.manifest().total
        assert backend.manifest().runs == 3
        assert backend.create([]) == []

    def test_where_one_id_is_taken_none_of_many_is_created(self, backend: Backend) -> None:
        self.enqueue(backend, "old")
        before = backend.manifest().total
        for asked in (["a", "old", "b"], ["old", "a"], ["a", "b", "old"]):
            with pytest.raises(RunExists):
                backend.create([self.wanted(name) for name in asked])
            assert [entry.run for entry in backend.queue_entries()] == ["old"]
            assert backend.manifest().total == before == self.computed(backend)
        assert backend.create([self.wanted("a")]) == [True]

    def test_workers_are_listed_while_they_live(self, backend: Backend) -> None:
        first, second = new_worker(), new_worker()
        second.started_at = first.started_at + 1
        assert backend.living() == []
        backend.introduce(second)
        backend.introduce(first)
        assert [worker.id for worker in backend.living()] == [first.id, second.id]
        first.expires_boot = clocks.clock.boot_us() - 1
        first.expires_at = clocks.clock.now_us() - 1
        backend.renew(first)
        assert [worker.id for worker in backend.living()] == [second.id]

    def test_nothing_is_given_where_nothing_waits_or_nothing_is_asked_for(self, backend: Backend) -> None:
        assert self.claimed(backend, 5) == []
        self.enqueue(backend)
        assert self.claimed(backend, 0) == []
        assert self.claimed(backend, 5, queues=("other",)) == []
        assert self.claimed(backend, 5, queues=()) == []

    def test_the_highest_priority_comes_first_then_the_longest_ready(self, backend: Backend) -> None:
        for name, priority in (("a", 0), ("b", -5), ("c", 7), ("d", 0), ("e", 7)):
            self.enqueue(backend, name, priority=priority)
        assert self.claimed(backend, 3) == ["c", "e", "a"]
        assert self.claimed(backend, 3) == ["d", "b"]

    def test_a_run_that_is_due_later_comes_later_and_delays_no_other(self, backend: Backend) -> None:
        self.enqueue(backend, "later", due=3600 * SECOND, priority=9)
        self.enqueue(backend, "soon", due=300_000)
        self.enqueue(backend, "now")
        assert self.claimed(backend, 3) == ["now"]
        soon = backend.next_ready(["q"])
        assert soon is not None
        assert 0 < soon - clocks.clock.now_us() < SECOND
        time.sleep(0.4)
        assert self.claimed(backend, 3) == ["soon"]

    def test_queues_are_asked_in_the_given_order(self, backend: Backend) -> None:
        self.enqueue(backend, "a", queue="first")
        self.enqueue(backend, "b", queue="second", priority=100)
        assert self.claimed(backend, 2, queues=("first", "second")) == ["a", "b"]

    def test_workflows_that_a_worker_does_not_know_and_runs_that_it_leaves_are_left(self, backend: Backend) -> None:
        self.enqueue(backend, "foreign", workflow="other")
        self.enqueue(backend, "left")
        self.enqueue(backend, "mine")
        assert self.claimed(backend, 5, without=("left",)) == ["mine"]
        assert self.claimed(backend, 5, workflows=("other", "w")) == ["foreign", "left"]

    def test_a_known_workflow_is_found_behind_many_unknown_ones(self, backend: Backend) -> None:
        names = [f"r{n}" for n in range(150)]
        for n, name in enumerate(names):
            self.enqueue(backend, name, workflow="w" if n % 70 == 69 or n > 147 else "other")
        assert self.claimed(backend, 3) == ["r69", "r139", "r148"]
        assert self.claimed(backend, 200, workflows=("w", "other")) == [name for name in names if name not in ("r69", "r139", "r148")]

    def test_a_run_that_ended_has_no_queue_entry(self, backend: Backend) -> None:
        for status in ("succeeded", "cancelled", "failed"):
            row = self.enqueue(backend, status)
            (taken,) = self.claim(backend)
            self.end(backend, self.begin(backend, taken), status)
            assert backend.queue_entry(row.id) is None
        assert backend.queue_entries() == []
        assert self.claimed(backend) == []

    def test_a_run_that_waits_is_given_again_when_a_message_comes_or_is_due(self, backend: Backend) -> None:
        row = self.enqueue(backend)
        (taken,) = self.claim(backend)
        waiting = self.end(backend, self.begin(backend, taken), "waiting")
        assert self.claimed(backend) == []
        entry = backend.queue_entry(row.id)
        assert entry is not None
        assert (entry.ready, entry.worker) == (None, None)
        backend.post(new_message(waiting, "answer:editor", clocks.clock.now_us()), row.id)
        (again,) = self.claim(backend)
        assert again.id == row.id
        self.end(backend, again, "waiting", (new_message(again, "timer", clocks.clock.now_us() + 200_000),))
        backend_messages = backend.messages(row.id)
        assert {message.name for message in backend_messages} == {"answer:editor", "timer"}
        assert self.claimed(backend) == [row.id]  # the answer has not been read yet

    def test_a_message_that_comes_while_a_run_is_driven_is_not_overlooked(self, backend: Backend) -> None:
        row = self.enqueue(backend)
        (taken,) = self.claim(backend)
        taken = self.begin(backend, taken)
        backend.post(new_message(taken, "answer:a", clocks.clock.now_us()), row.id)
        assert self.claimed(backend) == []
        self.end(backend, taken, "waiting")
        assert self.claimed(backend) == [row.id]

    def test_due_runs_outside_of_queues_are_listed_separately(self, backend: Backend) -> None:
        row = self.enqueue(backend, "inside")
        (taken,) = self.claim(backend)
        waiting = self.end(backend, self.begin(backend, taken), "waiting")
        backend.post(new_message(waiting, "answer:a", 1), row.id)
        plain = self.create(backend, "outside", status="waiting")
        backend.post(new_message(plain, "answer:a", 2), plain.id)
        assert backend.due(10) == ["inside", "outside"]
        assert backend.due(10, outside=True) == ["outside"]

    def test_a_failed_run_is_given_again_for_its_retry_alone(self, backend: Backend) -> None:
        row = self.enqueue(backend)
        (taken,) = self.claim(backend)
        taken = self.begin(backend, taken)
        backend.post(new_message(taken, "answer:a", 1), row.id)
        self.end(backend, taken, "failed", (new_message(taken, "retry", clocks.clock.now_us() + 150_000),))
        assert self.claimed(backend) == []
        time.sleep(0.2)
        assert self.claimed(backend) == [row.id]

    def test_a_paused_run_is_not_given(self, backend: Backend) -> None:
        row = self.enqueue(backend)
        backend.post(new_message(row, "pause"), row.id)
        assert self.claimed(backend) == []
        taken = backend.acquire(row.id, new_worker())
        commit = next_commit(taken, kind="status", read=("pause",))
        commit.run = commit.run.sealed(worker=None)
        backend.commit(commit)
        assert self.claimed(backend) == [row.id]

    def test_a_run_that_is_given_back_is_ready_at_once(self, backend: Backend) -> None:
        row = self.enqueue(backend)
        (taken,) = self.claim(backend)
        backend.release(self.begin(backend, taken))
        (again,) = self.claim(backend)
        assert (again.id, again.epoch) == (row.id, taken.epoch + 1)
        backend.release(again)

    def test_opening_a_run_by_its_id_takes_it_from_the_queue(self, backend: Backend) -> None:
        row = self.enqueue(backend)
        held = backend.acquire(row.id, new_worker())
        assert self.claimed(backend) == []
        backend.release(held)
        assert self.claimed(backend) == [row.id]

    def test_a_deleted_run_leaves_its_queue(self, backend: Backend) -> None:
        backend.delete(self.enqueue(backend))
        assert backend.queue_entries() == []
        assert self.claimed(backend) == []

    def test_a_run_of_a_dead_worker_is_freed_and_the_dead_one_is_fenced(self, backend: Backend) -> None:
        row = self.enqueue(backend)
        (taken,) = self.claim(backend, 1, new_worker(0.05))
        begun = self.begin(backend, taken)
        time.sleep(0.1)
        assert backend.free() == 1
        assert backend.free() == 0
        asked = Claim(new_worker(), ["q"], ["w"], 1)
        (again,) = backend.claim(asked)
        assert again.row is not None
        assert (again.run, again.before, again.deaths) == (row.id, taken.worker, 1)
        with pytest.raises(LostLease):
            self.advance(backend, begun)

    def test_the_living_keep_their_runs(self, backend: Backend) -> None:
        self.enqueue(backend)
        self.claim(backend)
        assert backend.free() == 0
        assert self.claimed(backend) == []

    def test_deaths_are_counted_until_the_run_gets_on(self, backend: Backend) -> None:
        row = self.enqueue(backend)
        (taken,) = self.claim(backend, 1, new_worker(0.01))
        self.begin(backend, taken)
        counted = []
        for _ in range(3):
            time.sleep(0.05)
            backend.free()
            (found,) = backend.claim(Claim(new_worker(0.01), ["q"], ["w"], 1))
            counted.append(found.deaths)
        assert found.row is not None
        self.advance(backend, found.row)
        time.sleep(0.05)
        backend.free()
        entry = backend.queue_entry(row.id)
        assert entry is not None
        assert (counted, entry.deaths) == ([1, 2, 3], 1)

    def test_many_concurrent_claims_get_each_run_once(self, open_handle: OpenHandle) -> None:
        handles = [open_handle() for _ in range(4)]
        try:
            names = {self.enqueue(handles[0]).id for _ in range(60)}

            def take(handle: Backend) -> list[str]:
                worker, found = new_worker(), []
                while got := self.claimed(handle, 3, worker=worker):
                    found += got
                return found

            with ThreadPoolExecutor(8) as pool:
                taken = [name for names in pool.map(take, [handles[n % 4] for n in range(8)]) for name in names]
            assert len(taken) == len(set(taken))
            assert set(taken) == names
        finally:
            for handle in handles:
                handle.close()

    def test_the_concurrency_of_a_queue_holds_for_all_workers(self, backend: Backend, open_handle: OpenHandle) -> None:
        backend.set_property(LIMITS + "q", Limits(concurrency=2).text())
        for _ in range(5):
            self.enqueue(backend)
        other = open_handle()
        try:
            first = self.claim(other)
            assert len(first) == 1
            assert len(self.claim(backend, 5)) == 1
            assert self.claimed(backend, 5) == []
            self.end(other, self.begin(other, first[0]))
            assert len(self.claim(backend, 5)) == 1
        finally:
            other.close()

    def test_the_concurrency_of_a_key_holds_and_others_go_past(self, backend: Backend) -> None:
        backend.set_property(LIMITS + "q", Limits(per_key=1).text())
        for name, key in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("n1", None), ("n2", None)):
            self.enqueue(backend, name, key=key)
        taken = self.claim(backend, 9)
        assert [row.id for row in taken] == ["a1", "b1", "n1", "n2"]
        self.end(backend, self.begin(backend, taken[0]))
        assert self.claimed(backend, 9) == ["a2"]

    def test_a_rate_is_never_exceeded_in_any_period(self, backend: Backend) -> None:
        backend.set_property(LIMITS + "q", Limits(rate=3, period=400_000).text())
        for _ in range(7):
            self.enqueue(backend)
        assert len(self.claim(backend, 2)) == 2
        assert len(self.claim(backend, 9)) == 1
        assert self.claimed(backend, 9) == []
        time.sleep(0.45)
        assert len(self.claim(backend, 9)) == 3

    def test_limits_of_one_queue_do_not_touch_another(self, backend: Backend) -> None:
        backend.set_property(LIMITS + "slow", Limits(concurrency=1).text())
        for queue in ("slow", "slow", "q", "q"):
            self.enqueue(backend, queue=queue)
        assert len(self.claim(backend, 9, queues=("slow", "q"))) == 3

    def test_a_global_limit_of_one_is_never_exceeded_by_many_at_once(self, open_handle: OpenHandle) -> None:
        handles = [open_handle() for _ in range(3)]
        handles[0].set_property(LIMITS + "q", Limits(concurrency=1).text())
        names = {self.enqueue(handles[0]).id for _ in range(12)}
        active, most, guard = 0, 0, threading.Lock()
        done: set[str] = set()

        def work(handle: Backend) -> None:
            nonlocal active, most
            worker = new_worker()
            while len(done) < len(names):
                for row in self.claim(handle, 2, worker):
                    with guard:
                        active += 1
                        most = max(most, active)
                    row = self.begin(handle, row)
                    with guard:
                        active -= 1
                        done.add(row.id)
                    self.end(handle, row)

        try:
            with ThreadPoolExecutor(6) as pool:
                list(pool.map(work, [handles[n % 3] for n in range(6)]))
            assert (most, done) == (1, names)
        finally:
            for handle in handles:
                handle.close()

    def test_a_double_is_refused_until_the_first_has_ended(self, backend: Backend) -> None:
        first = self.enqueue(backend, dedupe="mail 7")
        with pytest.raises(AlreadyQueued) as caught:
            self.enqueue(backend, "double", dedupe="mail 7")
        assert caught.value.run in (first.id, None)
        assert backend.run("double") is None
        assert backend.twin(Task("q", dedupe="mail 7")) == first.id
        assert self.computed(backend) == backend.manifest().total
        self.enqueue(backend, "elsewhere", queue="other", dedupe="mail 7")
        (taken,) = self.claim(backend)
        self.end(backend, self.begin(backend, taken))
        assert backend.twin(Task("q", dedupe="mail 7")) is None
        self.enqueue(backend, "later", dedupe="mail 7")

    def test_a_run_that_gets_its_entry_later_takes_no_dedupe_from_another(self, backend: Backend) -> None:
        first = self.enqueue(backend, dedupe="one")
        late = self.create(backend, "late", workflow="w")
        commit = next_commit(late, kind="status")
        commit.task = Task("q", 5, "k", "one")
        backend.commit(commit)
        entries = {entry.run: entry.task for entry in backend.queue_entries("q")}
        assert entries == {"late": Task("q", 5, "k", None), first.id: Task("q", 0, None, "one")}

    def test_of_many_doubles_at_once_one_gets_in(self, open_handle: OpenHandle) -> None:
        handles = [open_handle() for _ in range(3)]
        try:

            def enqueue(n: int) -> bool:
                try:
                    self.enqueue(handles[n % 3], dedupe="one")
                except AlreadyQueued:
                    return False
                return True

            with ThreadPoolExecutor(9) as pool:
                assert sum(pool.map(enqueue, range(18))) == 1
            assert len(handles[0].queue_entries()) == 1
        finally:
            for handle in handles:
                handle.close()

    def test_a_damaged_row_is_named_and_delays_no_other_run(self, backend: Backend) -> None:
        bad = new_run("bad", status="queued", workflow="w")
        bad.note = "not what was sealed"
        backend.commit(Commit(bad, None, messages=[new_message(bad, START, 1)], task=Task("q")))
        self.enqueue(backend, "good")
        found = {taken.run: taken.row for taken in backend.claim(Claim(new_worker(), ["q"], ["w"], 5))}
        assert found["bad"] is None
        assert found["good"] is not None
        assert self.claimed(backend, 5, without=("bad",)) == []

    def test_entries_and_depths_show_the_waiting_runs(self, backend: Backend) -> None:
        self.enqueue(backend, "now", priority=1, key="k", dedupe="d")
        self.enqueue(backend, "later", due=3600 * SECOND)
        self.enqueue(backend, "taken", queue="other")
        self.claim(backend, queues=("other",))
        backend.set_property(LIMITS + "empty", Limits(concurrency=1).text())
        assert [entry.run for entry in backend.queue_entries("q")] == ["now", "later"]
        assert [entry.run for entry in backend.queue_entries(limit=1)] == ["taken"] or len(backend.queue_entries(limit=1)) == 1
        entry = backend.queue_entry("now")
        assert entry is not None
        assert entry.task == Task("q", 1, "k", "d")
        depths = {depth.queue: depth for depth in backend.depths(2)}
        assert set(depths) == {"q", "other", "empty"}
        assert (depths["q"].ready, depths["q"].later, depths["q"].running) == (1, 1, 0)
        assert depths["q"].oldest is not None
        assert (depths["other"].running, sum(minute[0] for minute in depths["other"].minutes)) == (1, 1)
        assert (depths["empty"].ready, depths["empty"].oldest) == (0, None)

    def test_a_message_to_a_run_whose_worker_died_leaves_its_entry_ready_and_is_not_a_second_death(self, backend: Backend) -> None:
        row = self.enqueue(backend)
        dead = new_worker(seconds=-1)
        self.claim(backend, 1, dead)
        assert backend.free([dead.id]) == 1
        backend.post(new_message(row, "note"), row.id)
        entry = backend.queue_entry(row.id)
        assert entry is not None
        assert (entry.ready is not None, entry.worker, entry.deaths) == (True, None, 1)
        assert backend.free([dead.id]) == 0
        assert self.claimed(backend) == [row.id]

    def test_queued_runs_are_counted_also_if_each_is_running_or_waiting(self, backend: Backend) -> None:
        self.enqueue(backend)
        (taken,) = self.claim(backend)
        (depth,) = backend.depths(1)
        assert (depth.ready, depth.later, depth.waiting, depth.running, depth.oldest) == (0, 0, 0, 1, None)
        self.end(backend, self.begin(backend, taken), "waiting")
        (depth,) = backend.depths(1)
        assert (depth.ready, depth.later, depth.waiting, depth.running, depth.oldest) == (0, 0, 1, 0, None)

    def test_the_bell_rings_when_something_gets_ready(self, backend: Backend, open_handle: OpenHandle) -> None:
        other = open_handle()
        rung = threading.Event()
        stop = other.bell(rung.set)
        try:
            time.sleep(0.2)
            rung.clear()
            self.enqueue(backend)
            assert rung.wait(10)
        finally:
            stop()
            other.close()
