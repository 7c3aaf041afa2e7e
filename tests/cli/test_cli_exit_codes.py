"""Every exit code is reached by what it stands for, in real processes; errors are one sentence, a hint and a code."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import apsw
import pytest
from cli_helpers import PROGRAMS, Called, Shop, environment

from everstep import errors
from everstep.cli import exit_codes

HOLD = """
import sys, time, everstep
store = everstep.open(sys.argv[1])
with store.run(sys.argv[2]) as run:
    print("open", flush=True)
    time.sleep(60)
"""


def held(shop: Shop, run: str) -> subprocess.Popen[bytes]:
    """A live process that has a run open."""
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(shop.path), run], env=environment(), stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"open\n"
    return child


def end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    if child.stdout:
        child.stdout.close()


def damage(path: Path) -> None:
    """Change one byte in the newest checkpoint of the loop, as a bad disk would."""
    connection = apsw.Connection(str(path))
    connection.execute("update records set body = cast(substr(body, 1, length(body) - 1) || x'00' as blob) where note = 'turn 6'")
    assert connection.changes() == 1
    connection.close()


def said(called: Called) -> None:
    """An error as a person should read it."""
    assert "Traceback" not in called.err
    assert re.match(r"error: .+ \[E\d{3}\]\nhint: .+\n", called.err), called.err


def test_nought_is_for_what_went_well(shop: Shop) -> None:
    assert shop.pipe("runs").code == exit_codes.OK


def test_one_is_for_what_failed(shop: Shop, empty: Shop) -> None:
    assert shop.pipe("resume", "broken", "--import", PROGRAMS).code == exit_codes.FAILED
    said(failed := shop.pipe("resume", "waits"))
    assert failed.code == exit_codes.FAILED


def test_a_missing_store_is_one_and_a_hint(empty: Shop) -> None:
    called = empty.pipe("runs")
    assert called.code == exit_codes.FAILED
    said(called)
    assert "everstep init" in called.err
    assert list(empty.folder.iterdir()) == []  # to look is not to make


@pytest.mark.parametrize(
    "name", ["show", "log", "state", "restore", "resume", "fork", "answer", "pause", "cancel", "tag", "prune", "verify"]
)
def test_only_commands_that_begin_something_make_a_store(name: str, empty: Shop) -> None:
    more = {"answer": ("g", "1"), "tag": ("x",)}.get(name, ())
    args = () if name == "verify" else ("r", *more)
    assert empty.call(name, *args).code == exit_codes.FAILED
    assert list(empty.folder.iterdir()) == []


@pytest.mark.parametrize(
    "args",
    [
        ("--nonsense",), ("runs", "--nonsense"), ("runs", "--limit", "0"), ("runs", "--since", "whenever"), ("runs", "--where", "x"),
        ("show",), ("bisect", "loop"), ("bisect", "loop", "--when", "1 +"), ("completion", "tcsh"), ("prune", "--keep-within", "soon"),
        ("fork", "loop", "not an id"), ("checkpoint", "not an id"), ("show", "a@b@c"), ("runs", "--store", "gopher://x"), ("frobnicate",),
        ("checkpoint", "x", "--meta", "novalue"), ("runs", "--store", "memory://"), ("init", "--store", "memory://"), ("log", "loop", "--graph", "svg"),
    ],
)  # fmt: skip
def test_two_is_for_a_call_that_makes_no_sense(args: tuple[str, ...], shop: Shop) -> None:
    called = shop.call(*args)
    assert called.code == exit_codes.USAGE, called.err
    assert called.out == ""
    assert "Traceback" not in called.err


@pytest.mark.parametrize(
    "args", [("show", "nobody"), ("state", "loop@99"), ("state", "loop@notag"), ("show", "conversation"), ("state", "loop", "no.path")]
)
def test_three_is_for_what_is_not_there_or_not_clear(args: tuple[str, ...], shop: Shop) -> None:
    called = shop.call(*args)
    assert called.code == exit_codes.NOT_FOUND
    assert called.out == ""
    said(called)


def test_three_is_for_a_condition_that_never_holds(shop: Shop) -> None:
    assert shop.call("bisect", "loop", "--when", "total > 1000").code == exit_codes.NOT_FOUND


def test_a_beginning_that_fits_two_runs_lists_both(shop: Shop) -> None:
    err = shop.call("show", "conversation-with").err
    assert "conversation-with-alice-2026-11-15" in err
    assert "conversation-with-bob-2026-11-15" in err


def test_four_is_for_a_run_that_a_live_process_holds_open(shop: Shop) -> None:
    child = held(shop, "loop")
    try:
        called = shop.pipe("checkpoint", "loop", stdin="{}")
        assert called.code == exit_codes.CONFLICT
        assert f"process {child.pid}" in called.err
        said(called)
        assert shop.pipe("state", "loop", "topic").ok().out == '"tea"\n'  # to read needs no leave
        assert "open in a process" in shop.pipe("show", "loop").out
        assert re.search(r"^loop +running\*", shop.pipe("runs").out, re.MULTILINE)
    finally:
        end(child)
    shop.pipe("checkpoint", "loop", stdin="{}").ok()  # one who died holds nothing


def test_four_is_for_an_id_that_is_taken(shop: Shop) -> None:
    said(called := shop.call("fork", "loop", "done"))
    assert called.code == exit_codes.CONFLICT


def test_five_is_for_a_damaged_store(shop: Shop) -> None:
    damage(shop.path)
    for args in (("state", "loop"), ("restore", "loop"), ("verify",), ("verify", "--depth", "full")):
        called = shop.pipe(*args)
        assert called.code == exit_codes.DAMAGED, (args, called)
        assert "Traceback" not in called.err
    assert shop.pipe("verify", "--json").data["problems"][0]["code"].startswith("E5")
    called = shop.pipe("state", "loop", "--newest-good", "--json")
    assert called.code == 0
    assert called.data["ref"] == "loop@5"
    assert "loop@6" in called.err
    assert json.loads(shop.pipe("restore", "loop", "--newest-good").ok().out)["total"] == 50
    called = shop.pipe("repair", str(shop.path), "new.db", "--json")
    assert called.code == exit_codes.FOUND
    assert called.data["lost"]
    assert shop.pipe("state", "loop@5", "total", "--store", "new.db").ok().out == "50\n"


def test_six_is_for_a_check_that_found_something(shop: Shop) -> None:
    assert shop.pipe("doctor").code == exit_codes.FOUND  # it was never verified
    shop.pipe("verify", "--depth", "full").ok()
    said = shop.pipe("doctor")
    assert said.code == (exit_codes.FOUND if "the store is in memory (tmpfs)" in said.out else exit_codes.OK), said.out
    assert shop.call("diff", "loop@1", "loop@2", "--exit-code").code == exit_codes.FOUND


def test_a_hundred_and_thirty_is_for_a_run_that_was_interrupted_and_it_goes_on_later(shop: Shop) -> None:
    flag = shop.folder / "flag"
    command = [sys.executable, "-m", "everstep", "run", f"{PROGRAMS}:slow", str(flag), "--id", "slow"]
    child = subprocess.Popen(command, cwd=shop.folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(flag)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == exit_codes.INTERRUPTED, err
    assert out == b""
    assert b"Traceback" not in err
    steps = [e for e in shop.json("log", "slow", "--all")["events"] if e["name"] == "step_succeeded"]
    assert len(steps) == 1  # the step that ran was finished, and kept
    assert shop.json("show", "slow")["run"]["status"] == "interrupted"


def test_a_hundred_and_thirty_is_for_a_command_that_was_interrupted(shop: Shop) -> None:
    child = shop.spawn("log", "waits", "--follow")
    child.expect_exact("gate boss")
    child.sendintr()
    child.expect_exact("interrupted")
    assert child.ended() == exit_codes.INTERRUPTED


def test_the_second_signal_ends_a_run_at_once(shop: Shop) -> None:
    flag = shop.folder / "flag"
    command = [sys.executable, "-m", "everstep", "run", f"{PROGRAMS}:slow", str(flag), "--id", "slow"]
    child = subprocess.Popen(command, cwd=shop.folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(flag)
    child.send_signal(signal.SIGINT)
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert child.returncode in (exit_codes.INTERRUPTED, -signal.SIGINT), err
    assert shop.call("verify", "--depth", "full").code == 0


def wait_for(flag: Path) -> None:
    until = time.monotonic() + 20
    while not flag.exists():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_who_looks_no_further_gets_no_complaint(shop: Shop) -> None:
    with shop.open() as store:
        for n in range(400):
            with store.run(f"many-{n}", durability="exit", note="x" * 200):
                pass
    command = f"'{sys.executable}' -m everstep runs -n 10000 | head -1; echo ${{PIPESTATUS[@]}}"
    done = subprocess.run(["bash", "-c", command], cwd=shop.folder, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout.splitlines()[0].startswith("RUN")
    assert done.stdout.splitlines()[1] in ("141 0", "0 0")


def test_an_error_is_json_on_stderr_if_json_was_asked_for(shop: Shop) -> None:
    for args, code in ((("show", "nobody"), "E201"), (("show",), "usage"), (("nonsense",), "usage")):
        called = shop.pipe(*args, "--json")
        assert called.out == ""
        told = json.loads(called.err)
        assert (told["everstep"], told["kind"], told["data"]["code"]) == (1, "error", code)
        assert told["data"].keys() == {"code", "message", "remedy"}


@pytest.mark.parametrize(
    ("args", "message", "remedy"),
    [
        (
            ("shw",),
            "No such command 'shw'. Did you mean `everstep show`?",
            "Usage: everstep [OPTIONS] [COMMAND] [ARGS]... (more: `everstep --help`)",
        ),
        (("show",), "Missing argument 'REF'.", "Usage: everstep show [OPTIONS] REF [STEP] (more: `everstep show --help`)"),
        (
            ("runs", "-n", "x"),
            "Invalid value for '--limit' / '-n': 'x' is not",
            "Usage: everstep runs [OPTIONS] (more: `everstep runs --help`)",
        ),
    ],
)
def test_a_command_that_is_called_wrongly_says_so_as_every_error_is_said(
    args: tuple[str, ...], message: str, remedy: str, shop: Shop
) -> None:
    called = shop.pipe(*args)
    assert (called.code, called.out) == (2, "")
    error, hint = called.err.splitlines()
    assert error.startswith(f"error: {message}")
    assert error.endswith(" [usage]")
    assert hint == f"hint: {remedy}"


def test_a_group_without_a_command_shows_its_commands(shop: Shop) -> None:
    called = shop.pipe("config")
    assert (called.code, called.out) == (2, "")
    assert called.err.startswith("Usage: everstep config [OPTIONS] COMMAND")


def test_debug_shows_every_call_to_the_store_and_the_traceback_of_an_error(shop: Shop) -> None:
    called = shop.pipe("show", "loop", "--debug").ok()
    assert re.search(r"debug: +\d+\.\d\d ms  \w+\(", called.err)
    assert called.out == shop.pipe("show", "loop").out
    called = shop.pipe("show", "nobody", "--debug")
    assert called.code == 3
    assert "Traceback" in called.err
    assert "[E201]" in called.err


def test_a_file_in_the_way_is_named_without_a_traceback(shop: Shop) -> None:
    for args in (
        ("restore", "loop", "-o", "no/such/folder/x.json"),
        ("runs", "--store", "."),
        ("runs", "--store", "note.txt"),
        ("init", "--store", "no/such/folder/x.db"),
        ("repair", "missing.db", "new.db"),
        ("runs", "--config", "missing.toml"),
    ):
        (shop.folder / "note.txt").write_text("hello")
        called = shop.call(*args)
        assert called.code in (1, 2, 3), args
        assert "Traceback" not in called.err, called.err
        assert re.match(r"error: ", called.err), called.err


AS_NOBODY = """
import json, os, sys
from everstep.cli.main import main
commands = json.loads(sys.argv[1])
for args in commands:  # whoever is nobody may not even import
    main([*args, "--quiet", "--store", "copy.db"])
main(["show", "nobody", "--store", "copy.db"])
main(["tag", "loop", "y", "--quiet", "--store", "copy.db"])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for args in commands:
    print(args[0], main([*args, "--quiet"]), flush=True)
print("tag", main(["tag", "loop", "x"]))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody who may not write")
def test_reading_commands_work_on_a_store_that_cannot_be_written(shop: Shop) -> None:
    (shop.folder / "copy.db").write_bytes(shop.path.read_bytes())
    for folder in (shop.folder, *shop.folder.parents):
        if "pytest" in str(folder):
            folder.chmod(0o755)
    for place in (shop.folder / ".everstep").rglob("*"):
        place.chmod(0o755 if place.is_dir() else 0o444)
    (shop.folder / ".everstep").chmod(0o555)
    commands = [
        ["runs"], ["runs", "--tree"], ["show", "loop"], ["log", "loop"], ["state", "loop"], ["diff", "loop@1", "loop"], ["stats"],
        ["blame", "loop", "total"], ["bisect", "loop", "--when", "total > 20"], ["restore", "loop"], ["verify"], ["doctor"],
        ["prune", "--keep-last", "1", "--dry-run"],
    ]  # fmt: skip
    command = [sys.executable, "-c", AS_NOBODY, json.dumps(commands)]
    done = subprocess.run(command, cwd=shop.folder, env=environment(), capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr, done.stderr
    ends = dict(re.findall(r"^(\w+) (\d+)$", done.stdout, re.MULTILINE))
    assert ends == {args[0]: "6" if args[0] == "doctor" else "0" for args in commands} | {"tag": "1"}, done.stdout + done.stderr
    assert "[E403]" in done.stderr


def test_explain_tells_the_exit_code_of_each_error(shop: Shop) -> None:
    from everstep.cli.commands.explain import classes

    known = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
    for code, one in classes().items():
        told = shop.json("explain", code)
        assert told["exit_code"] in known
        assert told["name"] == one.__name__
    assert shop.json("explain", errors.LeaseHeld.code)["exit_code"] == exit_codes.CONFLICT
    assert shop.json("explain", errors.Interrupted.code)["exit_code"] == exit_codes.INTERRUPTED
