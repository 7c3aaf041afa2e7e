"""Nothing is reported of a store that is whole, however much others write, prune, sweep and delete while it is looked at."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pg_damage import behind
from upkeep_helpers import grow, many_bases
from verify_helpers import DEPTHS, tamper

import everstep
from everstep.backends.contract.types import Cut
from everstep.errors import Conflict, EverstepError, LeaseHeld, NotFound
from everstep.records import Pruned
from everstep.store.progress import Pace
from everstep.store.verify import run_proof
from everstep.store.verify.report import Depth, Report
from everstep.store.verify.run_proof import RunProof


class Crowd:
    """Threads that do something again and again until they are told to stop."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.errors: list[BaseException] = []
        self.rounds: dict[str, int] = {}
        self._threads: list[threading.Thread] = []

    def add(self, work: Callable[[int], object]) -> None:
        self._threads.append(threading.Thread(target=self._repeat, args=(work,)))

    def _repeat(self, work: Callable[[int], object]) -> None:
        turn = 0
        while not self.over.is_set():
            try:
                with suppress(NotFound, LeaseHeld, Conflict):
                    work(turn)
                turn += 1
                self.rounds[work.__name__] = turn
            except BaseException as error:
                self.errors.append(error)
                return

    def __enter__(self) -> Crowd:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join()


def test_a_store_that_four_threads_change_gives_no_false_alarm(places: Any) -> None:
    store = places.open()
    chance = random.Random(7)
    with many_bases(every=3):
        for name in ("long", "other"):
            grow(store, name, 30)
        crowd = Crowd()

        def write(turn: int) -> None:
            grow(store, f"live-{turn % 3}", 4)
            grow(store, "long", 3)

        def prune(turn: int) -> None:
            store.prune(everstep.Retention(keep_last=1 + turn % 4))
            store.gc()

        def delete(turn: int) -> None:
            name = f"live-{turn % 3}"
            store.fork("long", f"fork-{turn % 2}")
            grow(store, f"fork-{turn % 2}", 2)
            store.delete(f"fork-{turn % 2}")
            store.delete(name)

        def talk(turn: int) -> None:
            store.tag("other", f"t{turn % 50}")
            store.start(asking, id=f"ask-{turn % 2}")
            store.answer(f"ask-{turn % 2}", "sure", 1)
            store.wake()
            store.delete(f"ask-{turn % 2}")

        for work in (write, prune, delete, talk):
            crowd.add(work)
        with crowd:
            reports = [store.verify(chance.choice(DEPTHS)) for _ in range(40)]
        assert crowd.errors == []
        assert [str(report) for report in reports if not report.ok] == []
        assert all(crowd.rounds.get(name, 0) > 1 for name in ("write", "prune", "delete", "talk")), crowd.rounds
        assert store.verify("full").ok


@everstep.workflow
def asking() -> int:
    return int(everstep.gate("sure"))


def at_each_read(store: everstep.Store, monkeypatch: pytest.MonkeyPatch, name: str, work: Callable[[], object]) -> list[int]:
    """Have something happen just before each of the backend's reads of one sort; counts them."""
    count = [0]
    real = getattr(store.backend, name)

    def read(*args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        work()
        return real(*args, **kwargs)

    monkeypatch.setattr(store.backend, name, read)
    return count


READS = ("records", "chunks", "pruned", "bases", "tags", "messages", "tombstones", "chunk_sizes", "runs")


def pruned_meanwhile(places: Any, monkeypatch: pytest.MonkeyPatch, read: str) -> Report:
    """What verify says if two runs are pruned a little and swept before each read of one sort."""
    store, other = places.open(), places.open()
    with many_bases(every=4):
        for name in ("one", "two"):
            grow(store, name, 26, size=4000)
        left = [9, 1]
        here = threading.local()

        def work() -> None:
            if left and not getattr(here, "busy", False):  # in memory both handles are one
                here.busy, last = True, left.pop(0)
                for name in ("one", "two"):
                    other.prune(everstep.Retention(keep_last=last), run=name)
                other.gc()
                here.busy = False

        with monkeypatch.context() as patch:
            count = at_each_read(store, patch, read, work)
            report: Report = store.verify("full")
        assert count[0] > 0
        assert store.verify("full").ok
    return report


@pytest.mark.parametrize("read", READS)
def test_a_prune_and_a_sweep_between_any_two_reads_are_no_damage(places: Any, monkeypatch: pytest.MonkeyPatch, read: str) -> None:
    report = pruned_meanwhile(places, monkeypatch, read)
    assert report.ok, str(report)


def deleted_meanwhile(places: Any, monkeypatch: pytest.MonkeyPatch, read: str, depth: Depth, again: bool) -> Report:
    """What verify says if one of three runs is deleted before each read of one sort, and perhaps another one takes its id."""
    store, other = places.open(), places.open()
    with many_bases(every=4):
        for name in ("one", "two", "three"):
            grow(store, name, 9, tags={3: "t"})
        store.prune(everstep.Retention(keep_last=5), run="two")
        waiting = ["one", "two", "three"]

        def work() -> None:
            if waiting:
                name = waiting.pop(0)
                other.delete(name)
                if again:
                    grow(other, name, 2, seed=1)

        with monkeypatch.context() as patch:
            count = at_each_read(store, patch, read, work)
            report: Report = store.verify(depth)
        in_one = depth == "quick" and places.kind != "memory"  # runs are read by the page, in one moment
        assert count[0] > 0 or in_one or (depth != "full" and read in ("chunks", "chunk_sizes"))
        assert store.verify("full").ok
    return report


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "replaced"])
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("read", READS)
def test_a_run_that_is_deleted_between_any_two_reads_is_no_damage(
    places: Any, monkeypatch: pytest.MonkeyPatch, read: str, depth: Depth, again: bool
) -> None:
    report = deleted_meanwhile(places, monkeypatch, read, depth, again)
    assert report.ok, str(report)


def test_what_others_write_meanwhile_is_not_taken_for_unreachable(places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for read in (*READS, "run", "families"):
        own = type(places)(places.kind, fresh(places.path.parent, read))
        store, other = own.open(), own.open()
        with many_bases(every=3), monkeypatch.context() as patch:
            for name in ("one", "two"):
                grow(store, name, 6, size=4000)

            def work(other: everstep.Store = other) -> None:
                if other.get("one").checkpoints < 40:
                    for name in ("one", "two"):
                        grow(other, name, 3, seed=other.get(name).checkpoints, size=4000)

            count = at_each_read(store, patch, read, work)
            report = store.verify("full")
        assert count[0] > 0
        assert (report.ok, report.unreachable) == (True, 0), read
        own.close()


def test_without_a_second_look_these_tests_would_see_false_alarms(places: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The canary of the tests above."""
    monkeypatch.setattr(run_proof, "_LOOKS", 1)
    for read in ("records", "chunks"):
        assert not pruned_meanwhile(type(places)(places.kind, fresh(tmp_path, read)), monkeypatch, read).ok
    monkeypatch.setattr(RunProof, "_deleted", lambda self, place: False)
    assert not deleted_meanwhile(type(places)(places.kind, fresh(tmp_path, "deleted")), monkeypatch, "records", "full", True).ok


def fresh(folder: Path, name: str) -> Path:
    made = folder / name
    made.mkdir()
    return made


def test_damage_is_reported_although_the_run_is_written_pruned_and_tagged_all_the_time(
    places: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The canary of the second look: a store that lost a body, in a run that never stands still."""
    store = places.open()
    with many_bases(every=4):
        grow(store, "r", 30)
        backend = store.backend
        row = backend.run("r")
        assert row is not None
        steps = [r for r in backend.records("r", 1, row.head_seq) if r.kind == "step"]
        lose(places, store, steps[4].seq)
        turns = [0]

        def work() -> None:
            mark = backend.pruned("r")
            turns[0] += 1
            with suppress(EverstepError):
                now = Pruned.make(row.key, mark.ranges if mark else (), turns[0], turns[0], mark.numbers if mark else ())
                backend.prune(Cut("r", mark, now))

        at_each_read(store, monkeypatch, "tags", work)
        report = RunProof(backend, "records", Pace(None, None)).problems(1, row)
        monkeypatch.undo()
        assert turns[0] > 4
        assert [problem.where for problem in report] == [f"run r, record {steps[4].seq}"]


def lose(places: Any, store: everstep.Store, seq: int) -> None:
    """Take the body of a record away behind the store's back."""
    if places.kind == "memory":
        store.backend._data.runs["r"].records[seq - 1].body = None  # type: ignore[attr-defined]
        return
    (record,) = store.backend.records("r", seq, seq)
    if places.kind == "postgres":
        behind(store.url, "UPDATE records SET body = NULL, body_digest = ? WHERE run = 1 AND seq = ?", record.body_digest, seq)
        return
    assert tamper(places.path, "UPDATE records SET body = NULL, body_digest = ? WHERE id = (1 << 31 | ?)", record.body_digest, seq) == 1
