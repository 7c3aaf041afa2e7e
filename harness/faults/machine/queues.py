"""The rules of the machine for queues: runs are enqueued, claimed, started, released, ended; their workers die. A plain model knows the
owner of each.

Part of `machine`. The model knows no times: a run is ready, not ready yet, or waits for something.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from harness.faults.machine.assertions import guarded, refused, same

PICK = st.integers(0, 1000)
ENDS = ("succeeded", "failed", "cancelled")


@dataclass
class Job:
    """A run in a queue, and its expected queue entry."""

    priority: int
    dedupe: str | None
    ready: bool
    status: str = "queued"
    held: bool = False
    dead: bool = False
    deaths: int = 0
    still: bool = False
    """Whether nothing was recorded since its worker died."""

    def release(self, ready: bool) -> None:
        self.held, self.dead, self.ready = False, False, ready

    def entry(self) -> tuple[int, str | None, bool, bool, int]:
        return self.priority, self.dedupe, self.ready and not self.held, self.held, self.deaths


class QueueRules(RuleBasedStateMachine):
    """Rules for a machine that has `_do`; `jobs` are the runs that have a queue entry."""

    jobs: dict[str, Job]
    queued: int
    _do: Any

    def begin_jobs(self) -> None:
        self.jobs, self.queued = {}, 0

    def workers_died(self) -> None:
        for job in self.jobs.values():
            job.dead = job.held

    def _job(self, pick: int, held: bool) -> str | None:
        names = [name for name, job in self.jobs.items() if job.held == held and not job.dead]
        return names[pick % len(names)] if names else None

    def check_queue_entries(self) -> None:
        same(self._do("queue_entries"), {name: job.entry() for name, job in self.jobs.items()}, "the queue entries")

    @precondition(lambda self: len(self.jobs) < 6)
    @rule(priority=st.integers(-1, 1), dedupe=st.sampled_from([None, None, "x", "y"]), later=st.booleans())
    @guarded
    def enqueue(self, priority: int, dedupe: str | None, later: bool) -> None:
        name = f"job-{self.queued}"
        self.queued += 1
        found = self._do("enqueue", name, priority, dedupe, later)
        if dedupe is not None and any(job.dedupe == dedupe for job in self.jobs.values()):
            refused(found, "AlreadyQueued")
            return
        same(found, None, "enqueue")
        self.jobs[name] = Job(priority, dedupe, not later)

    @precondition(lambda self: self.jobs)
    @rule(most=st.integers(1, 3))
    @guarded
    def take(self, most: int) -> None:
        """Claim the ready runs with the highest priorities, in any order among equal ones."""
        ready = {name: job for name, job in self.jobs.items() if job.ready and not job.held}
        best = sorted((job.priority for job in ready.values()), reverse=True)[:most]
        found = self._do("take", most)
        assert set(found) <= set(ready), f"{found} were claimed, but ready are {list(ready)}"
        same([ready[name].priority for name in found], best, f"the runs claimed of {list(ready)}")
        for name in found:
            self.jobs[name].held = True
        self.check_queue_entries()

    @precondition(lambda self: self.jobs)
    @rule(pick=PICK)
    @guarded
    def begin_job(self, pick: int) -> None:
        name = self._job(pick, held=True)
        if name is not None and self.jobs[name].status != "running":
            same(self._do("begin", name), None, "begin")
            self.jobs[name].status, self.jobs[name].still = "running", False
            self.check_queue_entries()

    @precondition(lambda self: self.jobs)
    @rule(pick=PICK, how=st.sampled_from(["succeeded", "failed", "cancelled", "waiting", "timer", "retry"]), due=st.booleans())
    @guarded
    def end_job(self, pick: int, how: str, due: bool) -> None:
        name = self._job(pick, held=True)
        if name is None or self.jobs[name].status != "running":
            return
        same(self._do("end", name, how, due), None, "end")
        if how in ENDS:
            del self.jobs[name]
        else:
            job = self.jobs[name]
            job.status, job.still = "failed" if how == "retry" else "waiting", False
            job.release(how != "waiting" and due)
        self.check_queue_entries()

    @precondition(lambda self: self.jobs)
    @rule(pick=PICK)
    @guarded
    def give_back(self, pick: int) -> None:
        """Release a run. The reason for its wake-up is still there, unless it had begun; then it is ready at once."""
        name = self._job(pick, held=True)
        if name is not None:
            same(self._do("give_back", name), None, "give back")
            self.jobs[name].release(True)
            self.check_queue_entries()

    @precondition(lambda self: self.jobs)
    @rule(pick=PICK)
    @guarded
    def a_message_comes(self, pick: int) -> None:
        name = self._job(pick, held=False)
        if name is not None and self.jobs[name].status in ("waiting", "queued"):
            self._do("message", name)
            self.jobs[name].ready = True
            self.check_queue_entries()

    @precondition(lambda self: self.jobs)
    @rule()
    @guarded
    def free(self) -> None:
        dead = [job for job in self.jobs.values() if job.dead]
        same(self._do("free"), len(dead), "the number of released runs")
        for job in dead:
            job.deaths = job.deaths + 1 if job.still else 1
            job.still = True
            job.release(True)
        self.check_queue_entries()
