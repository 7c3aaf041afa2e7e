"""`everstep worker`: a live table on a terminal, lines of JSON otherwise; it drains when it is asked to stop, and says what it waits for."""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import warm
from cli_helpers import SGR, Shop, environment, plain
from screen_helper import Screen

import everstep
from everstep.cli import exit_codes

PROGRAM = """
import logging
import os
import time
from pathlib import Path

import everstep

logging.basicConfig(level="INFO")
print("imported")


@everstep.workflow
def quick(name="world"):
    print(f"greeting {name}")
    logging.info("logged for %s", name)
    return f"hello {name}"


@everstep.step
def nap(n):
    Path(f"begun-{n}").write_text("")
    while not Path("go").exists():
        time.sleep(0.02)
    with Path("naps").open("a") as file:
        file.write(f"{n}\\n")


@everstep.workflow
def slow():
    for n in range(3):
        nap(n)
    return "rested"


@everstep.workflow
def broken():
    raise ValueError("no \\x1b[2J\\u202e milk for sk-abcdefghijklmnopqrstuvwx")


@everstep.workflow
def deadly():
    os._exit(9)
"""
IMPORT = ("--import", "flows.py")


@pytest.fixture
def farm(empty: Shop) -> Iterator[Shop]:
    (empty.folder / "flows.py").write_text(PROGRAM)
    empty.pipe("init").ok()
    yield empty
    (empty.folder / "go").touch()
    empty.stop()


def enqueue(farm: Shop, workflow: str, *args: Any, **options: Any) -> None:
    with farm.open() as store:
        store.enqueue(workflow, *args, **options)


def events(text: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in text.splitlines()]
    assert all((line["everstep"], line["kind"]) == (1, "worker_event") for line in lines)
    return [line["data"] for line in lines]


def named(told: list[dict[str, Any]]) -> list[str]:
    return [one["event"] for one in told]


def start(farm: Shop, *args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "everstep", "worker", *IMPORT, *args]
    return warm.Popen(command, cwd=farm.folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until(child: subprocess.Popen[str], event: str) -> list[dict[str, Any]]:
    """What it tells, up to an event: each line comes at once."""
    told: list[dict[str, Any]] = []
    assert child.stdout is not None
    while not told or told[-1]["event"] != event:
        line = child.stdout.readline()
        assert line, told
        told += events(line)
    return told


def test_each_event_is_a_line_and_what_programs_print_goes_elsewhere(farm: Shop) -> None:
    enqueue(farm, "quick", "ann", id="q1")
    enqueue(farm, "broken", id="b1", queue="mail")
    called = farm.pipe("worker", *IMPORT, "--queue", "default", "--queue", "mail", "--concurrency", "1", "--until-idle").ok()
    told = events(called.out)
    assert named(told) == ["started", "taken", "succeeded", "taken", "failed", "stopped"]
    assert told[0]["data"]["queues"] == ["default", "mail"]
    assert told[0]["data"]["concurrency"] == 1
    assert (told[2]["run"], told[2]["workflow"], told[2]["queue"]) == ("q1", "quick", "default")
    assert told[-1]["data"]["counts"]["failed"] == 1
    assert called.err.splitlines() == ["imported", "greeting ann", "INFO:root:logged for ann"]


def test_what_went_wrong_is_masked_and_harmless(farm: Shop) -> None:
    enqueue(farm, "broken", id="b1")
    called = farm.pipe("worker", *IMPORT, "--until-idle").ok()
    assert called.out.isascii()
    assert events(called.out)[2]["error"] == "ValueError: no \x1b[2J\u202e milk for [redacted]"
    enqueue(farm, "broken", id="b2")
    shown = Screen.of(farm.terminal("worker", *IMPORT, "--until-idle").ok().out).text
    assert r"b2 failed in " in shown
    assert r"ValueError: no \x1b[2J\u202e milk for [redacted]" in shown


def test_without_a_workflow_there_is_nothing_to_do_and_it_says_what_to_name(farm: Shop) -> None:
    called = farm.pipe("worker")
    assert called.code == exit_codes.USAGE
    assert "no module was imported" in called.err
    assert "--import MODULE" in called.err
    (farm.folder / "none.py").write_text("")
    called = farm.pipe("worker", "--import", "none.py", "--json")
    assert called.code == exit_codes.USAGE
    assert "the imported modules define none" in json.loads(called.err)["data"]["message"]
    assert farm.terminal("worker").code == exit_codes.USAGE


def test_a_store_that_is_not_there_is_not_made(farm: Shop) -> None:
    called = farm.pipe("worker", *IMPORT, "--store", "elsewhere.db")
    assert called.code == exit_codes.FAILED
    assert "everstep init" in called.err
    assert not (farm.folder / "elsewhere.db").exists()


@pytest.mark.parametrize("options", [("--concurrency", "0"), ("--max-deaths", "x"), ("--queue", "a b"), ("--orders-in", "nowhere.db")])
def test_what_makes_no_sense_is_refused(options: tuple[str, str], farm: Shop) -> None:
    assert farm.pipe("worker", *IMPORT, *options, "--until-idle").code == exit_codes.USAGE


def test_modules_of_the_configuration_count(farm: Shop) -> None:
    (farm.folder / "everstep.toml").write_text('imports = ["flows"]\n')
    enqueue(farm, "quick", id="q1")
    assert "succeeded" in named(events(farm.pipe("worker", "--until-idle").ok().out))


def statuses(farm: Shop, run: str) -> set[str]:
    """The status of the only run, as each command shows it."""
    listed = {one["id"]: one["status"] for one in farm.json("runs")["runs"]}
    stranded = {one["run"]: one["status"] for one in farm.json("queues", "--stranded")}
    checked = next(one["sentence"] for one in farm.call("doctor", "--json").data["findings"] if one["name"] == "unfinished runs")
    return {listed[run], stranded[run], farm.json("show", run)["run"]["status"], checked.partition(";")[0].removeprefix("1 ")}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_another_worker_goes_on(number: int, farm: Shop) -> None:
    enqueue(farm, "slow", id="s1")
    child = start(farm)
    until(child, "taken")
    wait_for(farm, "begun-0")
    child.send_signal(number)
    told = until(child, "stopping")
    assert told[-1]["data"] == {"signal": signal.Signals(number).name, "runs": 1}
    (farm.folder / "go").touch()
    out, err = child.communicate(timeout=60)
    told = events(out)
    assert (child.returncode, named(told)) == (exit_codes.OK, ["given_back", "stopped"]), err
    assert (told[0]["run"], told[-1]["data"]["counts"]["given_back"]) == ("s1", 1)
    assert statuses(farm, "s1") == {"interrupted"}
    assert named(events(farm.pipe("worker", *IMPORT, "--until-idle").ok().out)) == ["started", "taken", "succeeded", "stopped"]
    assert (farm.folder / "naps").read_text() == "0\n1\n2\n"


def wait_for(farm: Shop, name: str) -> None:
    limit = time.monotonic() + 60
    while not (farm.folder / name).exists():
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_the_second_signal_ends_it_at_once(farm: Shop) -> None:
    enqueue(farm, "slow", id="s1")
    child = start(farm)
    wait_for(farm, "begun-0")
    child.send_signal(signal.SIGINT)
    until(child, "stopping")
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode == exit_codes.INTERRUPTED
    (farm.folder / "go").touch()
    told = events(farm.pipe("worker", *IMPORT, "--until-idle").ok().out)
    assert next(one for one in told if one["event"] == "taken")["data"]["before"].startswith("w-")
    assert farm.json("show", "s1")["run"]["status"] == "succeeded"


def test_who_reads_no_further_gets_a_worker_that_drains(farm: Shop) -> None:
    command = f'"{sys.executable}" -m everstep worker --import flows.py 2>errors | head -1; echo ${{PIPESTATUS[0]}}'
    child = subprocess.Popen(["bash", "-c", command], cwd=farm.folder, env=environment(), stdout=subprocess.PIPE, text=True)
    runs = itertools.count()
    while child.poll() is None:  # the worker notices when it next has something to print
        enqueue(farm, "quick", id=f"q{next(runs)}")
    assert child.communicate()[0].splitlines()[-1] == str(exit_codes.UNHEARD)
    assert "Traceback" not in (farm.folder / "errors").read_text()


def test_a_run_that_kills_its_workers_goes_to_dead_letter(farm: Shop) -> None:
    enqueue(farm, "deadly", id="d1")
    for _ in range(2):
        assert farm.pipe("worker", *IMPORT, "--max-deaths", "2", "--until-idle").code == 9
    told = events(farm.pipe("worker", *IMPORT, "--max-deaths", "2", "--until-idle").ok().out)
    assert "dead_letter" in named(told)
    assert "dead-letter" in farm.json("show", "d1")["run"]["tags"]
    said = farm.call("show", "d1").ok().out
    assert said.count("2 processes in a row died") == 1  # never raised, so it has no traceback that is worth showing
    assert re.search(r"^error +everstep.errors.WorkerDied: .* \[E611\]\n +Find out .*`everstep resume d1`\.$", said, re.MULTILINE)


def test_a_terminal_has_a_live_table(farm: Shop) -> None:
    farm.call("limit", "mail", "--concurrency", "2").ok()
    enqueue(farm, "slow", id="s1", queue="mail")
    enqueue(farm, "quick", "ann", id="q1")
    child = farm.spawn("worker", *IMPORT, "--queue", "default", "--queue", "mail")
    said = ""
    while not ("q1 succeeded" in said and re.search(r"s1 +slow", said) and re.search(r"mail .* 1 taken", said)):
        child.expect_exact("\x1b[J")
        said += child.before + child.after
    child.sendintr()
    while "waits for the current steps of" not in said:
        child.expect_exact("\x1b[J")
        said += child.before + child.after
    during = Screen.of(said).text
    (farm.folder / "go").touch()
    code = child.ended()
    screen = Screen.of(said + child.before)
    assert code == exit_codes.OK
    for pattern in (
        r"imported\ngreeting ann\nINFO:root:logged for ann\nworker w-\w+  1 of 8 busy  up .* default, mail",
        r"2 taken, 1 succeeded",
        r"QUEUE +READY +LATER +WAITING +RUNNING +OLDEST +LAST 5 MIN +LIMITS",
        r"mail +0 +0 +0 +1 +1 taken +2 at once",
        r"RUN +WORKFLOW +QUEUE +FOR\ns1 +slow +mail +[\d.]+ s",
        r"\d\d:\d\d:\d\d  q1 succeeded in ",
        r"SIGINT: takes no more runs, waits for the current steps of 1 run: s1\nPress Ctrl-C again to exit at once",
    ):
        assert re.search(pattern, during), (pattern, during)
    assert during.count("imported") == screen.text.count("imported") == 1
    assert re.search(r"SIGINT: drained\nStopped: 2 taken, 1 succeeded, 1 released\n\Z", screen.text), screen.text
    assert farm.json("show", "s1")["queue_entry"]["ready"] is not None


def test_a_table_is_never_larger_than_its_terminal(farm: Shop) -> None:
    for n in range(30):
        enqueue(farm, "slow", id=f"{'long-' * 12}{n}")
        enqueue(farm, "broken", id=f"{'bad-' * 12}{n}", priority=1)
    rows, columns = 12, 50
    child = farm.at_terminal(
        sys.executable, "-m", "everstep", "worker", *IMPORT, "--concurrency", "20", rows=rows, columns=columns, env=environment()
    )
    said = ""
    while "more" not in said or "failed" not in said:
        child.expect_exact("\x1b[J")
        said += child.before + child.after
    (farm.folder / "go").touch()
    child.sendintr()
    code = child.ended()
    screen = Screen.of(plain(said + child.before), columns)  # which refuses a line that is too long
    assert code == exit_codes.OK
    assert 0 < screen.highest < rows
    assert any("more" in line for frame in screen.frames for line in frame)


def test_colours_are_for_those_who_want_them_and_a_dumb_terminal_gets_lines(farm: Shop) -> None:
    enqueue(farm, "quick", id="q1")
    assert SGR.search(farm.terminal("worker", *IMPORT, "--until-idle").ok().out)
    assert not SGR.search(farm.terminal("worker", *IMPORT, "--until-idle", NO_COLOR="1").ok().out)
    for args, more in (((), {"TERM": "dumb"}), (("--json",), {})):
        called = farm.terminal("worker", *IMPORT, "--until-idle", *args, **more).ok()
        assert named(events(called.out.partition("imported\n")[2])) == ["started", "stopped"]
    assert farm.terminal("worker", *IMPORT, "--until-idle", "--quiet").ok().out == "imported\n"


def test_a_schedule_that_is_due_is_fired_by_a_worker(farm: Shop) -> None:
    farm.pipe("schedule", "often", "quick", "bo", "--cron", "0 0 1 1 *", *IMPORT).ok()
    with farm.open() as store:
        text = store.backend.get_property("schedule:often")
        assert text is not None
        store.backend.set_property("schedule:often", json.dumps({**json.loads(text), "next": 1_704_067_200_000_000}))
    told = events(farm.pipe("worker", *IMPORT, "--until-idle").ok().out)
    assert [one["data"]["schedule"] for one in told if one["event"] == "fired"] == ["often"]
    assert "succeeded" in named(told)


def test_many_machines_share_a_store_in_postgresql(farm: Shop, place: str) -> None:
    farm.pipe("init", "--store", place).ok()
    at = ("--store", place)
    assert farm.pipe("enqueue", "flows.py:quick", "ann", "--id", "q1", "--queue", "mail", *at).ok().out.splitlines()[-1] == "q1"
    farm.pipe("limit", "mail", "--concurrency", "2", *at).ok()
    assert "ready since" in farm.call("show", "q1", *at).ok().out
    farm.pipe("schedule", "often", "quick", "--cron", "0 0 * * *", *IMPORT, *at).ok()
    told = events(farm.pipe("worker", *IMPORT, "--queue", "mail", "--until-idle", *at).ok().out)
    assert named(told) == ["started", "taken", "succeeded", "stopped"]
    assert re.search(r"mail +0 +0 +0 +0 +1 taken, 1 ended +2 at once", farm.call("queues", *at).ok().out)
    assert "queue mail" in farm.call("stats", *at).ok().out
    assert "often " in farm.call("schedules", *at).ok().out
    assert "q1 " in farm.call("runs", "--queue", "mail", *at).ok().out
    with everstep.open(place) as store:
        assert store.get("q1").status == "succeeded"
