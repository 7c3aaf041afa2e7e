"""The program whose store is tested: real work through the public API, each operation logged before and after.

Three sessions, each an open, some parts and a close: a loop with tracked state, steps, checkpoints with bases and deltas and tags; a
workflow with a big result and a gate; a fork with an edit that is continued; a delete; a prune and a gc; runs that are enqueued, claimed
and ended. Each part checks what is done and does the rest, so that playing again after any crash reaches the same end. States and results
are those of `model`.

    python -m harness.faults.workload FOLDER [SEED]      the store in FOLDER/store/store.db, the log in FOLDER/log

`place` names the store inside FOLDER. With OWN_PLACE the store is in a folder that Everstep creates itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import everstep
from everstep.backends.contract.core import Backend
from everstep.backends.contract.queues import Claim
from everstep.backends.sqlite.files import wal
from everstep.errors import AlreadyAnswered, Damaged, NotFound, RunExists
from everstep.records import RunRow, Status, Worker
from everstep.snapshot import saver
from everstep.store.retention import plan
from everstep.store.retention.retention import Retention
from everstep.testing import queued
from everstep.testing.rows import new_worker
from harness.faults import model
from harness.faults.log import Entry, Log

SESSIONS = (
    ("loop", "tag", "start", "answer", "enqueue"),
    ("resume", "fork", "fork_on", "delete", "work", "enqueue", "loop"),
    ("prune", "gc", "loop", "work"),
)
BASE_EVERY = 3
MERGE_FRAMES = 60
PLACE, OWN_PLACE = "store/store.db", "store/.everstep/store.db"
_playing: list[Workload] = []


@contextmanager
def eager() -> Iterator[None]:
    """Make bases after a few deltas, merge the WAL after a few commits, and add a base for a few bytes, so that a short program has all of
    it.
    """
    before = saver.BASE_EVERY, saver.MOST_DELTAS, wal.MERGE_FRAMES, plan.WORTH
    saver.BASE_EVERY = saver.MOST_DELTAS = BASE_EVERY
    wal.MERGE_FRAMES, plan.WORTH = MERGE_FRAMES, 1
    try:
        yield
    finally:
        saver.BASE_EVERY, saver.MOST_DELTAS, wal.MERGE_FRAMES, plan.WORTH = before


class Workload:
    """One process's attempt at the program. `options` are passed to `everstep.open`."""

    def __init__(self, folder: Path, seed: int = 0, log: Log | None = None, place: str = PLACE, **options: Any):
        self.path = folder / place
        (folder / "store").mkdir(parents=True, exist_ok=True)
        self.seed = seed
        self.log = log or Log(folder / "log")
        self.options = options
        self._working: tuple[everstep.Store, Worker] | None = None

    def open(self) -> everstep.Store:
        with self.log.op("open"):
            return everstep.open(self.path, **self.options)

    def play(self) -> None:
        """Play all of it, or the remaining part."""
        with eager():
            for number, parts in enumerate(SESSIONS):
                store = self.open()
                try:
                    for name in parts:
                        self.do(getattr(self, name), store, number)
                finally:
                    store.close()
        self.log.say(Entry("done", "all"))

    def do(self, part: Callable[[everstep.Store, int], None], store: everstep.Store, session: int) -> None:
        part(store, session)

    def loop(self, store: everstep.Store, session: int) -> None:
        self._turns(store, "loop", model.TURNS[session])

    def fork_on(self, store: everstep.Store, session: int) -> None:
        self._turns(store, "fork", model.FORK_TURNS)

    def _turns(self, store: everstep.Store, id: str, last: int) -> None:
        """Continue a loop up to a turn."""
        if self.log.is_done("leave", id, str(last)):
            return
        with ExitStack() as stack:
            with self.log.op("run", id):
                run = stack.enter_context(store.run(id, state=model.first_state(self.seed, id), meta={"who": "workload"}))
            for n in range(run.state["n"] + 1, last + 1):
                self._turn(run, n)
            with self.log.op("leave", id, str(last)):
                stack.close()

    def _turn(self, run: everstep.Run, n: int) -> None:
        thought = model.thought(self.seed, run.id, n)
        found = self.step(run, "think", n - 1, thought)
        model.turn(run.state, n, found)
        note = f"turn {n}, try {len(self.log.entries)}"
        with self.log.op("checkpoint", run.id, note, digest=model.digest(self.seed, run.id, n)) as done:
            done.number = run.checkpoint(note, tags="origin" if (run.id, n) == ("loop", model.ORIGIN) else ()).number

    def step(self, run: everstep.Run, name: str, occurrence: int, result: Any) -> Any:
        """Call a step that has to return this result, and log each time that it really runs."""
        address = f"{name}#{occurrence}"

        def work(_: int) -> Any:
            self.log.say(Entry("ran", "step", run.id, address))
            return result

        with self.log.op("step", run.id, address, result):
            found = run.step(name, work, occurrence)
        if found != result:
            self.log.say(Entry("wrong", "step", run.id, address))
        return found

    def tag(self, store: everstep.Store, _: int) -> None:
        number = store.checkpoint("loop@origin").number - model.ORIGIN + model.KEPT
        if not self.log.is_done("tag", "loop", "kept"):
            with self.log.op("tag", "loop", "kept") as done:
                done.number = number
                store.tag(f"loop@{number}", "kept")

    def start(self, store: everstep.Store, _: int) -> None:
        if not self.log.is_done("end", "flow"):
            with self._flow("start"):
                outcome = store.start(_flow, self.seed, id="flow")
                if outcome.status == "failed":
                    outcome = store.resume("flow")
                self._settled(outcome)

    def answer(self, store: everstep.Store, _: int) -> None:
        if self.log.is_done("answer", "flow", "boss"):
            return
        again = self.log.is_begun("answer", "flow", "boss")
        with self.log.op("answer", "flow", "boss", model.ANSWER):
            try:
                store.answer("flow", "boss", model.ANSWER)
            except AlreadyAnswered:
                if not again:
                    raise

    def resume(self, store: everstep.Store, _: int) -> None:
        if not self.log.is_done("end", "flow"):
            with self._flow("end"):
                self._settled(store.resume("flow"), "succeeded")

    @contextmanager
    def _flow(self, what: str) -> Iterator[None]:
        """Let the workflow find its workload."""
        _playing.append(self)
        try:
            with self.log.op(what, "flow", value=model.flow_result(self.seed) if what == "end" else None):
                yield
        finally:
            _playing.pop()

    def _settled(self, outcome: everstep.Outcome, status: str | None = None) -> None:
        """Raise a workflow's own error: here it comes from the store."""
        if outcome.error is not None:
            raise outcome.error
        if status is not None and (outcome.status, outcome.result) != (status, model.flow_result(self.seed)):
            self.log.say(Entry("wrong", "end", "flow", error=str(outcome)))

    def fork(self, store: everstep.Store, _: int) -> None:
        if self.log.is_done("fork", "fork"):
            return
        again = self.log.is_begun("fork", "fork")
        with self.log.op("fork", "fork", digest=model.digest(self.seed, "fork", model.ORIGIN)):
            try:
                store.fork("loop@origin", "fork", model.EDIT)
            except RunExists:
                if not again:
                    raise

    def delete(self, store: everstep.Store, _: int) -> None:
        if self.log.is_done("delete", "gone"):
            return
        again = self.log.is_begun("delete", "gone")
        if not again:
            self._turns(store, "gone", model.GONE_TURNS)
        with self.log.op("delete", "gone"):
            try:
                store.delete("gone")
            except NotFound:
                if not again:
                    raise

    def prune(self, store: everstep.Store, _: int) -> None:
        """Prune all but the newest checkpoint and the tagged one of each run. The log says beforehand which ones may be dropped."""
        if not self.log.is_done("prune"):
            kept = Retention(keep_last=1, keep_tagged=["kept"])
            going = _whole(store.prune(kept, dry_run=True))
            with self.log.op("prune", more=[[run.run, number] for run in going.runs for number in run.dropped]):
                _whole(store.prune(kept))

    def gc(self, store: everstep.Store, _: int) -> None:
        if not self.log.is_done("gc"):
            with self.log.op("gc"):
                _whole(store.gc())

    def enqueue(self, store: everstep.Store, session: int) -> None:
        for run, task in model.JOBS[session].items():
            if self.log.is_done("enqueue", run):
                continue
            again = self.log.is_begun("enqueue", run)
            with self.log.op("enqueue", run):
                try:
                    queued.enqueue(store.backend, run, task)
                except RunExists:
                    if not again:
                        raise

    def work(self, store: everstep.Store, session: int) -> None:
        """Work like a worker: claim a run, also after another worker, start it, end it."""
        for run in model.ENDING[session]:
            if not self.log.is_done("end", run):
                row = self._taken(store.backend, run, self._worker(store))
                if row.status == Status.QUEUED:
                    begun = queued.beginning(row)
                    store.backend.commit(begun)
                    row = begun.run
                with self.log.op("end", run):
                    if row.status != Status.SUCCEEDED:  # an earlier attempt may have done it
                        store.backend.commit(queued.ending(row))

    def _worker(self, store: everstep.Store) -> Worker:
        """Return the worker of a handle: it dies with it."""
        if self._working is None or self._working[0] is not store:
            self._working = (store, new_worker(3600))
        return self._working[1]

    def _taken(self, backend: Backend, run: str, worker: Worker) -> RunRow:
        backend.free()
        others = [other for jobs in model.JOBS for other in jobs if other != run]
        with self.log.op("take", run):
            found = backend.claim(Claim(worker, ["jobs"], [queued.WORKFLOW], 9, others))
        row = found[0].row if found else backend.run(run)
        if row is None or (row.worker != worker.id and row.status != Status.SUCCEEDED):
            self.log.say(Entry("wrong", "take", run, error=f"no worker has it, but it cannot be claimed: {row!r:.200}"))
            raise NotFound(f"the run {run!r} cannot be claimed")
        return row


def _whole(report: Any) -> Any:
    """Refuse a report that skipped a run because it could not be read: the call has to be repeated."""
    if report.problems:
        raise Damaged("; ".join(map(str, report.problems)))
    return report


@everstep.workflow(name="harness.faults", version=1)
def _flow(seed: int) -> Any:
    me, run = _playing[-1], everstep.current()
    _, half, whole = model.flow_states(seed)
    fetched = me.step(run, "fetch", 0, half["fetched"])
    rows = me.step(run, "rows", 0, model.big_result(seed))
    run.state.update(fetched=fetched, rows=len(rows["rows"]))
    with me.log.op("checkpoint", "flow", "half", half) as done:
        done.number = run.checkpoint("half").number
    run.state["answer"] = everstep.gate("boss", ask="Continue?")
    if run.state["answer"] != whole["answer"]:
        me.log.say(Entry("wrong", "answer", "flow", "boss"))
    return {"answer": run.state["answer"], "end": me.step(run, "end", 0, model.flow_result(seed)["end"])}


def main(arguments: list[str]) -> None:
    Workload(Path(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0).play()


if __name__ == "__main__":
    main(sys.argv[1:])
