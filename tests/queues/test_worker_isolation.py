"""What is wrong with one part of a store keeps a worker from nothing else."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.clock import clock
from everstep.errors import ExitInWorkflow, InvalidArgument
from everstep.queues.schedules import PREFIX, fire
from everstep.redact import Redactor
from everstep.testing.waiting import until


@everstep.workflow
def queued_thrice(number: int) -> int:
    return number * 3


@everstep.workflow
def queued_login(user: str, *, password: str) -> str:
    return user


def test_a_damaged_schedule_and_damaged_orders_keep_nobody_from_working(
    store: everstep.Store, work: Any, heard: list[Any], tmp_path: Any
) -> None:
    store.backend.set_property(PREFIX + "bad", "no JSON")
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"no database at all" * 100)
    work(store, orders_in=[broken])
    assert [store.enqueue(queued_thrice, n).wait(30).result for n in range(3)] == [0, 3, 6]
    told = until(lambda: {said["code"] for said in heard if said["event"] == "trouble"})
    assert told <= {"E500", "E407"}


def test_a_worker_that_ends_when_it_is_idle_does_not_wait_for_what_it_does_not_know(store: everstep.Store) -> None:
    foreign, own = store.enqueue("nobody has this"), store.enqueue(queued_thrice, 4)
    store.worker().run(until_idle=True)
    assert (foreign.status, own.wait(0).result) == ("queued", 12)


def test_a_schedule_that_was_left_for_years_is_fired_at_once(store: everstep.Store) -> None:
    store.schedule("often", queued_thrice, 1, cron="* * * * *")
    said = json.loads(store.backend.get_property(PREFIX + "often") or "")
    store.backend.set_property(PREFIX + "often", json.dumps({**said, "next": 1_500_000_000_000_000 // 60_000_000 * 60_000_000}))
    now = clock.now_us()
    (fired,) = fire(store, now)
    assert fire(store, now) == []
    (plan,) = store.schedules()
    assert 0 < plan.next.timestamp() - now / 1e6 <= 60
    store.backend.set_property(
        PREFIX + "often", json.dumps({**said, "missed": "all", "next": now // 60_000_000 * 60_000_000 - 300_000_000})
    )
    assert len(fire(store, now)) == 5  # the newest of the six was fired before
    store.backend.set_property(
        PREFIX + "often", json.dumps({**said, "missed": "skip", "next": 1_500_000_000_000_000 // 60_000_000 * 60_000_000})
    )
    assert fire(store, now) == []
    assert fired.run.startswith("often-")


def test_what_a_schedule_remembers_is_masked_as_all_that_is_stored(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "masked.db", redaction=Redactor.default()) as store:
        plan = store.schedule("nightly", queued_login, "eve", password="hunter2-of-eve", cron="0 3 * * *")
        assert "hunter2-of-eve" not in str(plan)
        assert store.schedules() == [plan]
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    plain = b"hunter2-of-eve"
    assert [part for part in (plain, *(b64encode(plain[at : at + 12]) for at in range(3))) if part in kept] == []


def test_a_schedule_that_is_changed_at_the_moment_it_is_fired_stays_changed(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.schedule("changed", queued_thrice, 1, cron="* * * * *")
    now = clock.now_us() + 60_000_000
    note = store.backend.set_property

    def change_first(name: str, value: str | None) -> None:
        monkeypatch.setattr(store.backend, "set_property", note)
        store.schedule("changed", queued_thrice, 2, cron="30 4 * * *")
        note(name, value)

    monkeypatch.setattr(store.backend, "set_property", change_first)
    assert len(fire(store, now)) == 1
    (plan,) = store.schedules()
    assert (plan.cron, plan.input) == ("30 4 * * *", ((2,), {}))
    assert plan.next > datetime.fromtimestamp(now / 1e6 - 60, UTC)


def test_what_was_fired_is_known_after_a_repair(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "old.db") as store:
        store.schedule("fired", queued_thrice, 1, cron="* * * * *")
        first = store.schedules()
        assert len(fire(store, clock.now_us() + 60_000_000)) == 1
        plans = store.schedules()
    everstep.repair(tmp_path / "old.db", tmp_path / "new.db")
    with everstep.open(tmp_path / "new.db") as store:
        assert store.schedules() == plans != first


def test_what_was_fired_is_forgotten_with_the_schedule(store: everstep.Store) -> None:
    store.schedule("fired", queued_thrice, 1, cron="* * * * *")
    now = clock.now_us() + 60_000_000
    (first,) = fire(store, now)
    (plan,) = store.schedules()
    store.unschedule("fired")
    assert store.backend.properties() == {}
    store.schedule("fired", queued_thrice, 1, cron="* * * * *")
    assert store.schedules()[0].next <= plan.next
    assert fire(store, now) == []  # of that time there is a run
    assert first.run in {run.id for run in store.runs()}


def _leaves(how: type[BaseException]) -> None:
    raise how("enough")


def _exits() -> None:
    _leaves(SystemExit)


@everstep.workflow
def queued_exit(where: str) -> None:
    if where == "step":
        everstep.current().step("exit", _exits)
    _leaves({"exit": SystemExit, "interrupt": KeyboardInterrupt, "other": GeneratorExit}[where])


@everstep.workflow
async def queued_async_exit(where: str) -> None:
    if where == "step":
        await everstep.current().step("exit", _exits)
    if where == "other":
        raise asyncio.CancelledError("enough")
    _leaves(SystemExit if where == "exit" else KeyboardInterrupt)


@pytest.mark.parametrize("where", ["step", "exit", "interrupt", "other"])
@pytest.mark.parametrize("flow", [queued_exit, queued_async_exit])
def test_a_workflow_that_wants_to_end_its_worker_fails(store: everstep.Store, work: Any, heard: list[Any], flow: Any, where: str) -> None:
    work(store)
    bad = store.enqueue(flow, where)
    out = bad.wait(30)
    assert (out.status, type(out.error)) == ("failed", ExitInWorkflow)
    assert "enough" in str(out.error)
    assert store.enqueue(queued_thrice, 2).wait(30).result == 6
    told = until(lambda: {said["run"] for said in heard if said["event"] == "failed"})  # after the run has ended
    assert told == {bad.id}


def test_a_workflow_that_a_program_started_and_wants_to_end_it_ends_it(store: everstep.Store) -> None:
    with pytest.raises(SystemExit):
        store.start(queued_exit, "step", id="mine")
    assert store.get("mine").status == "running"


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda store: store.enqueue("w", priority=2**31), "from -2,147,483,648 to 2,147,483,647"),
        (lambda store: store.enqueue("w", delay=10**15), "to 3,153,600,000 \\(100 years\\)"),
        (lambda store: store.enqueue("w", id="x\ud800"), "invalid run id"),
        (lambda store: store.enqueue("w", queue="1n"), "invalid queue name '1n': it must have 1 to 100 characters"),
        (lambda store: store.schedule("1n", "w", cron="* * * * *"), "invalid schedule name '1n': it must have 1 to 100 characters"),
        (lambda store: store.limit("q", concurrency=2**31), "from 1 to 2,147,483,647"),
        (lambda store: store.limit("q", rate=(2**31, 1)), "rate must be \\(runs, seconds\\)"),
        (lambda store: store.load("x\ud800"), "invalid run id"),
        (lambda store: store.run("x\ud800").__enter__(), "invalid run id"),
        (lambda store: everstep.open("a\0b"), "must be a path or a URL"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(store: everstep.Store, ask: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        ask(store)


@pytest.mark.parametrize("event", ["started", "taken", "succeeded", "stopped", None])
def test_a_listener_that_fails_does_no_harm(store: everstep.Store, event: str | None) -> None:
    told: list[str] = []

    def tell(said: dict[str, Any]) -> None:
        told.append(said["event"])
        if event in (None, said["event"]):
            raise ValueError("no")

    runs = [store.enqueue(queued_thrice, n) for n in range(3)]
    with pytest.warns(UserWarning, match="tell"):
        store.worker(tell=tell).run(until_idle=True)
    assert [run.wait(0).result for run in runs] == [0, 3, 6]
    assert sorted(told) == sorted(["started", *["taken", "succeeded"] * 3, "stopped"])
