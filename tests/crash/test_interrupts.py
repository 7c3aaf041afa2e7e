"""Ctrl-C at any moment in one thread of many that write: what was acknowledged is there, what was interrupted is there or never will be, nobody waits for ever."""

import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import pace
import pytest

from everstep.backends.contract.core import Backend, Commit, Committed, Outcome
from everstep.backends.postgres.backend import PostgresBackend
from everstep.backends.sqlite.backend import SqliteBackend
from everstep.records import RunRow
from everstep.testing.rows import new_run, next_commit
from everstep.testing.waiting import until

TIMES = pace.share(400)
BESIDE = 3


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest, memory_folder: Path) -> Iterator[Backend]:
    made: Backend
    made = SqliteBackend(memory_folder / "s.db") if request.param == "sqlite" else PostgresBackend(request.getfixturevalue("place"))
    yield made
    made.close()


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Ctrl-C in this thread, once."""
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.fixture
def _interrupts() -> Iterator[None]:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.signal(signal.SIGALRM, before)


class Beside:
    """Threads that commit, and hand over, while another one is interrupted."""

    def __init__(self, backend: Backend):
        self._backend = backend
        self._stop = False
        self.rows: dict[str, RunRow] = {}
        self.heard: dict[str, dict[int, Outcome]] = {}
        self.sent: dict[str, int] = {}
        self._threads = [threading.Thread(target=self._drive, args=(f"beside-{i}", i % 2 == 1)) for i in range(BESIDE)]
        for thread in self._threads:
            thread.start()

    def _drive(self, name: str, defer: bool) -> None:
        row = new_run(name)
        self.heard[name] = heard = {}
        self._backend.commit(Commit(row, None))
        sent = 0
        while not self._stop:
            commit = next_commit(row, b"x")
            if defer:
                self._backend.submit(commit, partial(heard.setdefault, sent))  # told again where Ctrl-C came right behind it
                sent += 1
                until(lambda: len(heard) > sent - 20)  # noqa: B023 - asked at once
            else:
                self._backend.commit(commit)
            row = commit.run
        self.rows[name], self.sent[name] = row, sent

    def end(self) -> None:
        self._stop = True
        for thread in self._threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self._threads), "somebody waits for ever"


@pytest.mark.usefixtures("_interrupts")
def test_ctrl_c_at_any_moment_of_a_commit_leaves_it_made_or_not_and_harms_nobody(backend: Backend) -> None:
    rng = random.Random(7)
    row = new_run("mine")
    backend.commit(Commit(row, None))
    beside = Beside(backend)
    interrupted = made = 0
    try:
        while interrupted < TIMES:
            commit = next_commit(row, b"x")
            try:
                with interrupted_after(rng.uniform(0.00001, 0.002)):
                    backend.commit(commit)
            except KeyboardInterrupt:
                interrupted += 1
                found = backend.run("mine")
                assert found in (row, commit.run)
                made += found == commit.run
                row = found
            else:
                row = commit.run
    finally:
        beside.end()
    assert 0 < made < interrupted, "it was interrupted on both sides of COMMIT"
    assert backend.run("mine") == row
    until(lambda: all(len(beside.heard[name]) == sent for name, sent in beside.sent.items()), "all that was handed over is settled")
    assert {error for heard in beside.heard.values() for error in heard.values()} <= {Committed(0)}
    assert {name: backend.run(name) for name in beside.rows} == beside.rows
    for name, last in beside.rows.items():
        assert [record.seq for record in backend.records(name, 1, last.head_seq)] == list(range(1, last.head_seq + 1))


@pytest.mark.usefixtures("_interrupts")
def test_ctrl_c_at_any_moment_of_handing_over_settles_what_was_handed_over(backend: Backend) -> None:
    rng = random.Random(8)
    interrupted = 0
    beside = Beside(backend)
    told: dict[str, list[Outcome]] = {}
    try:
        while interrupted < TIMES:
            row = new_run(f"mine-{len(told)}")
            told[row.id] = heard = []
            try:
                with interrupted_after(rng.uniform(0.00001, 0.0003)):
                    for _ in range(50):
                        backend.submit(Commit(row, None), heard.append)
                        row = new_run(f"mine-{len(told)}")
                        told[row.id] = heard = []
            except KeyboardInterrupt:
                interrupted += 1
    finally:
        beside.end()
    a_last = new_run("last")
    backend.commit(Commit(a_last, None))  # all that was handed over before is settled with it, or was before
    until(lambda: backend.run("last") is not None)
    for name, heard in told.items():
        assert len(heard) <= 1, name
        assert (heard == [Committed(0)]) == (backend.run(name) is not None), (name, heard)
