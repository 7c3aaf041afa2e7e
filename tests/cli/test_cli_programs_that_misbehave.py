"""What a person sees of a program that prints, does not import, exits or cannot be written to: an answer, or a sentence with a code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_helpers import Shop, environment

CHATTY = """
import everstep
print("imported")

@everstep.workflow
def chatty(n):
    print("hello from the workflow")
    everstep.gate("boss", ask="go on?")
    print("going on")
    return n
"""


def write(shop: Shop, name: str, text: str) -> str:
    (Path(shop.folder) / name).write_text(text)
    return name


def test_json_is_json_also_where_a_program_prints(empty: Shop) -> None:
    write(empty, "chatty.py", CHATTY)
    first = empty.pipe("run", "chatty.py:chatty", "3", "--id", "c", "--json").ok()
    assert first.data["status"] == "waiting"
    assert "imported\nhello from the workflow\n" in first.err
    again = empty.pipe("resume", "c", "--import", "chatty.py", "--answer", "boss=yes", "--json").ok()
    assert again.data["result"] == 3
    assert "going on" in again.err
    assert empty.pipe("enqueue", "chatty.py:chatty", "4", "--id", "q", "--json").ok().data["run"] == "q"


COMMANDING = """
import os, subprocess
import everstep
subprocess.run(["echo", "a command of the import"])

@everstep.workflow
def commanding(n):
    everstep.current().step("speak", lambda: subprocess.run(["echo", "a command of a step"]).returncode)
    os.write(1, b"written past Python\\n")
    return n
"""


def test_json_is_json_also_where_commands_of_a_program_print(empty: Shop) -> None:
    write(empty, "commanding.py", COMMANDING)
    said = ("a command of the import", "a command of a step", "written past Python")
    ran = empty.pipe("run", "commanding.py:commanding", "3", "--json").ok()
    assert ran.data["result"] == 3
    assert [words for words in said if words not in ran.err] == []
    empty.pipe("enqueue", "commanding.py:commanding", "4", "--id", "q").ok()
    worked = empty.pipe("worker", "--import", "commanding.py", "--until-idle", "--json").ok()
    events = [json.loads(line)["data"]["event"] for line in worked.out.splitlines()]
    assert events[-1] == "stopped"
    assert [words for words in said if words not in worked.err] == []
    plain = empty.pipe("run", "commanding.py:commanding", "5").ok()
    assert [words for words in said if words not in plain.out] == []


def test_without_json_a_program_prints_where_programs_print(empty: Shop) -> None:
    write(empty, "chatty.py", CHATTY)
    assert "hello from the workflow" in empty.pipe("run", "chatty.py:chatty", "3").ok().out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def broken(:\n", "SyntaxError: "),
        ("import nothing_of_that_name\n", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("x = 1\ny = x / 0\n", "ZeroDivisionError: division by zero (bad.py:2)"),
        ("raise SystemExit(7)\n", "SystemExit: 7 (bad.py:1)"),
    ],
)
@pytest.mark.parametrize("command", [("run", "bad.py:x"), ("worker", "--import", "bad.py"), ("resume", "r", "--import", "bad")])
def test_a_module_that_does_not_import_is_an_error_with_a_place(empty: Shop, text: str, words: str, command: tuple[str, ...]) -> None:
    write(empty, "bad.py", text)
    called = empty.pipe(*command)
    assert called.code == 2
    assert "Traceback" not in called.err
    assert f"error: {'bad' if command[-1] == 'bad' else 'bad.py'} cannot be imported: {words}" in called.err
    assert "hint: " in called.err
    as_json = empty.pipe(*command, "--json")
    assert json.loads(as_json.err.splitlines()[-1])["data"]["code"] == "E104"
    assert "Traceback" in empty.pipe(*command, "--debug").err


def run_without(shop: Shop, redirection: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = f'exec "$@" {redirection}'
    called = ["bash", "-c", command, "bash", sys.executable, "-m", "everstep", *args]
    return subprocess.run(called, cwd=shop.folder, env=environment(), capture_output=True, text=True, timeout=60)


def test_a_command_without_standard_output_or_error_does_its_work(shop: Shop) -> None:
    for args in (("runs",), ("runs", "--json"), ("show", "loop"), ("tag", "loop@1", "kept")):
        done = run_without(shop, ">&-", *args)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), args
    assert run_without(shop, "2>&-", "runs").returncode == 0
    assert run_without(shop, ">&- 2>&- <&-", "show", "nothing").returncode == 3
    assert "kept" in shop.pipe("show", "loop@1").ok().out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_an_answer_that_does_not_fit_says_so(shop: Shop) -> None:
    done = run_without(shop, ">/dev/full", "show", "loop")
    assert done.returncode == 1
    assert "error: the output cannot be written: No space left on device [E000]" in done.stderr
    assert "hint: Free some space where the output is written." in done.stderr


def test_a_place_that_cannot_be_written_is_named_as_it_was_given(shop: Shop) -> None:
    called = shop.pipe("restore", "loop", "-o", "nowhere/state.json")
    assert called.code == 2
    assert called.err.startswith("error: nowhere/state.json cannot be written: the folder 'nowhere' does not exist [E104]\nhint: ")
