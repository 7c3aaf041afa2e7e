"""Runs are enqueued, queues looked at and limited, schedules kept, from the command line; and what makes no sense is refused with a reason."""

from __future__ import annotations

import json
import os
import re
import threading

import pytest
from cli_helpers import PROGRAMS, Shop

from everstep.backends.contract.queues import Limits
from everstep.cli import exit_codes
from everstep.queues.enqueue import limits_of
from everstep.testing.clock import FakeClock
from everstep.testing.waiting import until

IMPORT = ("--import", str(PROGRAMS))
KEY = "sk-abcdefghijklmnopqrstuvwx"


def test_a_run_is_enqueued_with_all_that_was_said(empty: Shop) -> None:
    called = empty.call(
        "enqueue", f"{PROGRAMS}:order", "tea", "limit=7", "--id", "o", "--queue", "shop", "--priority", "5", "--delay", "1h", "--key", "ann",
        "--dedupe", "tea",
    )  # fmt: skip
    assert (called.ok().out, called.err) == ("o\n", "Enqueued in shop, ready in 1 h\n")
    with empty.open() as store:
        entry = store.backend.queue_entry("o")
        assert entry is not None
        assert (entry.task.queue, entry.task.priority, entry.task.key, entry.task.dedupe) == ("shop", 5, "ann", "tea")
        assert (store.get("o").status, store.get("o").workflow) == ("queued", "order")
        (depth,) = store.queues()
        assert (depth.ready, depth.later) == (0, 1)


def test_an_enqueued_run_is_there_once(empty: Shop) -> None:
    first = empty.json("enqueue", "hello", *IMPORT, "--dedupe", "x")
    again = empty.json("enqueue", "hello", *IMPORT, "--dedupe", "x")
    assert (first["new"], again["new"], again["run"]) == (True, False, first["run"])
    empty.call("enqueue", "hello", "Ann", *IMPORT, "--id", "h").ok()
    assert empty.call("enqueue", "hello", "Ann", *IMPORT, "--id", "h").ok().err == "Already exists: queued\n"
    assert empty.call("enqueue", "hello", "Bo", *IMPORT, "--id", "h").code == exit_codes.CONFLICT


def test_a_workflow_that_only_workers_know_is_enqueued_by_its_name_and_said_so(empty: Shop) -> None:
    called = empty.pipe("enqueue", "elsewhere", "1", "--id", "e").ok()
    assert called.out == "e\n"
    assert "Workflow 'elsewhere' is not defined here, so its arguments are not checked" in called.err
    assert empty.pipe("enqueue", "elsewhere", "--quiet").ok().err == ""


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("hello", "1", "2", *IMPORT), "too many positional arguments"),
        ((f"{PROGRAMS}:nap",), "is not a workflow, so no worker would find it"),
        ((f"{PROGRAMS}:nothing",), "does not define 'nothing'"),
        (("nowhere.py:flow",), "nowhere.py' does not exist [E104]"),
        (("hello", "queue=x", *IMPORT), "the argument 'queue' cannot be given by name"),
        (("hello", "--queue", "a b", *IMPORT), "invalid queue name"),
        (("hello", "--delay", "soon", *IMPORT), "must be a time span such as 30s, 15min, 2h, 3d or 1w, got 'soon'"),
        (("hello", "--priority", "9999999999", *IMPORT), "priority must be an integer from -2,147,483,648 to 2,147,483,647"),
        (("hello", "--id", "a b", *IMPORT), "a b"),
        (("hello", "--key", "k" * 300, *IMPORT), "key"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value)[:40],
)
def test_what_cannot_be_enqueued_is_refused_and_nothing_is_kept(args: tuple[str, ...], said: str, shop: Shop) -> None:
    before = shop.counts()
    called = shop.call("enqueue", *args)
    assert called.code == exit_codes.USAGE
    assert said in called.err
    assert "Traceback" not in called.err
    assert shop.counts() == before


def test_whoever_waits_gets_the_outcome(empty: Shop) -> None:
    empty.call("init").ok()
    with empty.open() as store:
        worker = store.worker()
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            called = empty.pipe("enqueue", f"{PROGRAMS}:hello", "Ann", "--id", "h", "--wait").ok()
            assert called.out == "hello Ann\n"
            assert called.err.splitlines()[0] == "h: Enqueued in default"
            assert empty.pipe("enqueue", f"{PROGRAMS}:broken", "--wait").code == exit_codes.FAILED
            assert empty.pipe("enqueue", f"{PROGRAMS}:hello", "--wait", "--json").ok().data["result"] == "hello world"
        finally:
            worker.stop()
            thread.join()


def test_queues_tell_what_waits_and_what_happened(empty: Shop) -> None:
    empty.call("init").ok()
    assert "No queues" in empty.call("queues").ok().err
    assert empty.json("queues") == []
    for n in range(3):
        empty.call("enqueue", "hello", *IMPORT, "--id", f"h{n}").ok()
    empty.call("enqueue", "broken", *IMPORT, "--id", "b").ok()
    empty.call("enqueue", "order", "tea", *IMPORT, "--id", "o").ok()
    empty.call("enqueue", "hello", *IMPORT, "--delay", "1h", "--queue", "other").ok()
    found, other = empty.json("queues")
    assert (found["queue"], found["ready"], found["later"], found["waiting"], found["running"]) == ("default", 5, 0, 0, 0)
    assert (other["queue"], other["ready"], other["later"], other["oldest"]) == ("other", 0, 1, None)
    with empty.open() as store:
        store.worker().run(until_idle=True)
    found = empty.json("queues")[0]
    assert (found["ready"], found["later"], found["waiting"], found["oldest"]) == (0, 0, 1, None)
    assert found["lately"] == {"minutes": 5, "taken": 5, "ended": 3, "failed": 1, "taken_over": 0}
    assert re.search(r"default +0 +0 +1 +0 +5 taken, 3 ended, 1 failed", empty.call("queues").ok().out)
    assert re.search(r"queue default +1 waiting; in 5 min 5 taken, 3 ended, 1 failed", empty.call("stats").ok().out)


def test_a_limit_that_is_not_named_stays(empty: Shop) -> None:
    empty.call("init").ok()
    assert empty.call("limit", "mail").ok().out == "mail: no limits\n"
    empty.call("limit", "mail", "--concurrency", "2", "--rate", "10/2min").ok()
    assert empty.call("limit", "mail", "--per-key", "1").ok().out == "mail: 2 at once, 1 per key, 10 per 2 min\n"
    with empty.open() as store:
        assert limits_of(store, "mail") == Limits(2, 1, 10, 120_000_000)
    assert empty.json("limit", "mail", "--none", "--rate", "5/h") == {
        "queue": "mail",
        "concurrency": None,
        "per_key": None,
        "rate": 5,
        "seconds": 3600,
    }
    assert empty.call("limit", "mail", "--none").ok().out == "mail: no limits\n"
    assert empty.json("queues") == []


@pytest.mark.parametrize(
    "args",
    [
        ("mail", "--rate", "10"), ("mail", "--rate", "x/s"), ("mail", "--rate", "10/"), ("mail", "--rate", "0/s"), ("mail", "--rate", "10/0s"),
        ("mail", "--rate", "10/9999w"), ("mail", "--concurrency", "0"), ("mail", "--per-key", "-1"), ("a b",), ("",), (),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_limit_that_makes_no_sense_is_refused(args: tuple[str, ...], shop: Shop) -> None:
    called = shop.call("limit", *args)
    assert called.code == exit_codes.USAGE
    assert "Traceback" not in called.err
    assert shop.json("queues") == []


def test_runs_of_a_queue_are_listed_with_their_queue_entries(empty: Shop) -> None:
    empty.call("enqueue", "hello", *IMPORT, "--id", "h", "--queue", "mail").ok()
    empty.call("enqueue", "hello", *IMPORT, "--id", "later", "--queue", "mail", "--delay", "1h").ok()
    empty.call("enqueue", "hello", *IMPORT, "--id", "other").ok()
    listed = empty.call("runs", "--queue", "mail").ok().out
    assert re.search(r"^h +queued .* ready since 20", listed, re.MULTILINE)
    assert re.search(r"^later +queued .* ready at 20", listed, re.MULTILINE)
    assert "other" not in listed
    assert re.search(r"h .* ready (now|\d+ s ago)", empty.terminal("runs", "--queue", "mail").out)
    assert re.search(r"later .* ready in 59 min", empty.terminal("runs", "--queue", "mail", columns=140).out)
    assert [run["id"] for run in empty.json("runs", "--queue", "mail")["runs"]] == ["later", "h"]
    with empty.open() as store:
        (held,) = store.keeper.claim(["mail"], ["hello"], 1, [])
        assert f"taken by {store.keeper.worker.id}" in empty.call("show", held.run).ok().out


def test_after_an_answer_a_worker_goes_on_with_a_run_of_a_queue(empty: Shop) -> None:
    empty.call("enqueue", "order", "tea", *IMPORT, "--id", "o").ok()
    with empty.open() as store:
        store.worker().run(until_idle=True)
        assert empty.call("answer", "o", "boss", "yes").ok().err == "Answer recorded. A worker will resume the run.\n"
        store.worker().run(until_idle=True)
        assert store.get("o").status == "succeeded"


def test_show_tells_the_queue_of_a_run_that_has_ended(empty: Shop) -> None:
    empty.call("enqueue", "hello", *IMPORT, "--id", "h", "--priority", "3", "--key", f"of {KEY}").ok()
    assert re.search(r"queue +default, priority 3, key of \[redacted\]; ready since ", empty.call("show", "h").ok().out)
    assert empty.json("show", "h")["queue_entry"]["key"] == "of [redacted]"
    with empty.open() as store:
        store.worker().run(until_idle=True)
    shown = empty.call("show", "h").ok().out
    assert "queue    default, priority 3" in shown.replace("queue     ", "queue    ")
    assert "queue_entry" not in shown
    assert empty.json("show", "h")["queue_entry"] is None


def test_schedules_are_kept_changed_and_forgotten(empty: Shop) -> None:
    empty.call("init").ok()
    assert "No schedules" in empty.call("schedules").ok().err
    made = empty.json(
        "schedule", "nightly", "hello", f"name={KEY}", "--cron", "0 3 * * *", "--zone", "Europe/Berlin", "--missed", "skip", *IMPORT
    )
    assert (made["cron"], made["zone"], made["missed"], made["named"]) == ("0 3 * * *", "Europe/Berlin", "skip", {"name": "[redacted]"})
    empty.call("schedule", "nightly", "hello", "Bo", "--cron", "0 4 * * *", "--queue", "mail", *IMPORT).ok()
    (found,) = empty.json("schedules")
    assert (found["cron"], found["queue"], found["arguments"]) == ("0 4 * * *", "mail", ["Bo"])
    empty.call("unschedule", "nightly").ok()
    assert empty.json("schedules") == []
    called = empty.call("unschedule", "nightly")
    assert called.code == exit_codes.NOT_FOUND
    assert "`everstep schedules` lists them" in called.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("n", "hello", "--cron", "often"), "invalid cron expression"),
        (("n", "hello", "--cron", "0 0 30 2 *"), "30 2"),
        (("n", "hello", "--cron", "* * * * *", "--zone", "Nowhere"), "unknown time zone"),
        (("n", "hello"), "Missing option '--cron'"),
        (("a b", "hello", "--cron", "* * * * *"), "a b"),
        (("n", "hello", "1", "2", "--cron", "* * * * *"), "too many positional arguments"),
        (("n", "hello", "cron=1", "--cron", "* * * * *"), "the argument 'cron'"),
        (("n", "hello", "--cron", "* * * * *", "--missed", "perhaps"), "'perhaps' is not one of"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_schedule_that_makes_no_sense_is_refused(args: tuple[str, ...], said: str, shop: Shop) -> None:
    called = shop.call("schedule", *args, *IMPORT)
    assert called.code == exit_codes.USAGE
    assert said in called.err
    assert shop.json("schedules") == []


def test_the_doctor_sees_a_queue_that_nobody_works_on(empty: Shop) -> None:
    empty.call("init").ok()
    with FakeClock() as time:
        empty.call("enqueue", "hello", *IMPORT, "--queue", "mail").ok()
        assert "queues:" not in empty.call("doctor").out
        time.advance(11 * 60)
        said = empty.call("doctor").out
        assert "! queues: 1 run is ready in queue 'mail', but no worker has claimed a run for 10 minutes\n    Start a worker" in said
        empty.call("limit", "mail", "--rate", "1/d").ok()
        assert "queues:" not in empty.call("doctor").out


def test_a_run_that_a_worker_gave_back_is_none_that_nobody_drives(empty: Shop) -> None:
    empty.call("enqueue", "order", "tea", *IMPORT, "--id", "o").ok()
    with empty.open() as store:
        (claimed,) = store.keeper.claim(["default"], ["order"], 1, [])
        assert claimed.row is not None
        store.keeper.release(claimed.row)
        assert store.doctor()["unfinished runs"].level == "ok"


def test_names_of_queues_and_schedules_complete_themselves(shop: Shop) -> None:
    import click

    from everstep.cli.args.refs import QUEUE, SCHEDULE
    from everstep.cli.main import group

    shop.call("limit", "mail", "--concurrency", "1").ok()
    shop.call("schedule", "nightly", "hello", "--cron", "0 0 * * *", *IMPORT).ok()
    with click.Context(group) as ctx:
        parameter = click.Argument(["name"])
        assert [item.value for item in QUEUE.shell_complete(ctx, parameter, "m")] == ["mail"]
        assert QUEUE.shell_complete(ctx, parameter, "x") == []
        assert [item.value for item in SCHEDULE.shell_complete(ctx, parameter, "")] == ["nightly"]


def test_enqueue_makes_a_store_and_lists_do_not(empty: Shop) -> None:
    for args in (("queues",), ("limit", "mail"), ("schedules",)):
        called = empty.call(*args)
        assert called.code == exit_codes.FAILED
        assert "everstep init" in called.err
    empty.call("enqueue", "hello", *IMPORT).ok()
    assert empty.path.is_file()
    assert json.loads(empty.call("queues", "--json").ok().out)["data"][0]["ready"] == 1


def test_live_workers_are_listed_with_their_queues(empty: Shop) -> None:
    empty.call("init").ok()
    assert empty.json("workers") == []
    assert "everstep worker --import" in empty.call("workers").ok().err
    with empty.open() as store:
        worker = store.worker(queues=["mail", "shop"], concurrency=3)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            (found,) = until(lambda: empty.json("workers"))
            assert (found["pid"], found["queues"], found["concurrency"], found["runs"]) == (os.getpid(), ["mail", "shop"], 3, [])
            head, row = empty.call("workers", "--queue", "shop").ok().lines
            assert head.split()[:4] == ["WORKER", "HOST", "PID", "QUEUES"]
            assert f" {os.getpid()} " in row
            assert "mail, shop" in row
            assert "0 of 3" in row
            assert empty.json("workers", "--queue", "other") == []
        finally:
            worker.stop()
            thread.join()
    assert empty.json("workers") == []
