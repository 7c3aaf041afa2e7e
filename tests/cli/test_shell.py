"""The shell, as a person meets it at a real terminal, and as a script meets it through a pipe."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import warm
from terminal import Terminal

import everstep
from everstep.cli.shell import words
from everstep.cli.shell.history import MOST, History, path
from everstep.errors import Waiting
from everstep.redact import Redactor

PACKAGE = str(Path(everstep.__file__).parents[1])
SECRET = "sk-ant-api03-abcdefghijklmnopqrstuvwx"
HOSTILE = "red \x1b[31m back \u202egnp.exe\x07"
FLOWS = """
import pathlib
import everstep


@everstep.workflow
def order(items, questions=1):
    run = everstep.current()
    run.state["total"] = everstep.step(name="price")(lambda: len(items) * 10)()
    run.checkpoint(note="sum", tags=["milestone"])
    answers = [everstep.gate(f"boss {n}" if n else "boss", ask="Spend it?", choices=["yes", "no"]) for n in range(questions)]
    run.state["answers"] = answers
    return answers


@everstep.workflow
def fragile():
    if not pathlib.Path("mended").exists():
        raise ValueError("broken")
    return "whole"


@everstep.workflow
def slow():
    run = everstep.current()

    def wait():
        import time

        print("it waits now", flush=True)
        time.sleep(60)

    run.step("wait", wait)


def think(state):
    return f"{len(state.messages)} messages, the last: {state.messages[-1]['content']}"


async def think_later(state):
    return f"later: {state.task}"


talker = everstep.AgentLoop(think, agent="talker")
later = everstep.AgentLoop(think_later, agent="later")
careful = everstep.AgentLoop(
    lambda state: {"tool": "send", "input": {}} if state.turn == 0 else "sent", tools={"send": lambda: "ok"},
    approve=lambda action: True, agent="careful",
)
"""
PROMPT = r"everstep> "


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of workflows, and a home of its own."""
    (tmp_path / "flows.py").write_text(FLOWS)
    (tmp_path / "home").mkdir()
    for name in ("EVERSTEP_STORE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    path = os.pathsep.join([PACKAGE, os.environ.get("PYTHONPATH", "")])
    for name, value in {
        "PYTHONPATH": path,
        "HOME": str(tmp_path / "home"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "TERM": "xterm",
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.fixture
def store(folder: Path) -> Path:
    """A store with a run of two checkpoints, and one that failed."""
    path = folder / ".everstep" / "store.db"
    with everstep.open(path) as opened:
        with opened.run("alpha", state={"n": 1}, tags=["first"], workflow="count") as run:
            run.checkpoint(note="begun", tags=["milestone"])
            run.state["n"] = 2
            run.checkpoint(note=f"done with {SECRET}")
        with pytest.raises(ValueError, match="oh"), opened.run("beta", note="the second") as run:
            raise ValueError("oh")
    return path


@pytest.fixture
def waiting(store: Path, folder: Path) -> Path:
    """The same with a run that waits at two gates, one after the other."""
    done = script(folder, 'run flows.py:order \'["a", "b"]\' questions=2 --id o1')
    assert done.returncode == 0, done.stderr
    return store


def script(folder: Path, *lines: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "everstep", "shell", *options]
    return warm.run(command, input="\n".join(lines) + "\n", cwd=folder, capture_output=True, text=True, timeout=60)


def at_once(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "everstep", "shell", *options, "-c", text]
    return warm.run(command, stdin=subprocess.DEVNULL, cwd=folder, capture_output=True, text=True, timeout=60)


class AtTerminal:
    """A shell at a pseudo-terminal."""

    def __init__(self, folder: Path, *options: str, program: tuple[str, ...] = ("-m", "everstep")):
        self.child = Terminal(sys.executable, *program, "shell", *options, cwd=folder, timeout=30, rows=50, columns=180)

    def until(self, pattern: str) -> str:
        """What is printed before a pattern."""
        self.child.expect(pattern)
        return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", self.child.before)

    def type(self, text: str) -> None:
        self.child.send(text)

    def enter(self, line: str, pattern: str = PROMPT) -> str:
        """Type a line; gives what comes up to the next prompt."""
        self.child.send(line + "\r")
        return self.until(pattern)

    def end(self) -> int:
        return self.child.ended()


@pytest.fixture
def at(folder: Path) -> Iterator[Callable[..., AtTerminal]]:
    """Opens shells at terminals: `at(option, …)`."""
    opened: list[AtTerminal] = []

    def make(*options: str, **others: Any) -> AtTerminal:
        opened.append(AtTerminal(folder, *options, **others))
        return opened[-1]

    yield make
    for one in opened:
        one.child.stop()


def test_a_pipe_gets_the_answers_and_nothing_else(store: Path, folder: Path) -> None:
    done = script(folder, "state alpha@1", "", "# a comment", "state alpha n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == '{\n  "n": 1\n}\n2\n'


def test_a_script_stops_at_the_first_command_that_fails(store: Path, folder: Path) -> None:
    done = script(folder, "state alpha n", "show nobody", "state alpha n")
    assert (done.returncode, done.stdout) == (3, "2\n")
    assert "there is no run 'nobody' [E201]" in done.stderr


def test_commands_can_be_given_as_an_option(store: Path, folder: Path) -> None:
    done = at_once(folder, "state alpha@1 n; everstep state alpha n\nstate beta; state alpha n")
    assert (done.returncode, done.stdout) == (3, "1\n2\n")
    left = at_once(folder, "state alpha n; quit; state alpha n")
    assert (left.returncode, left.stdout) == (0, "2\n")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("log 'x", "no closing quotation"),
        ("rusn", "Did you mean `run` or `runs`"),
        ("shell", "You are already in the shell."),
        ("runs --nonsense", "No such option"),
        ("use", "Missing argument 'RUN'"),
        ("show", "Missing argument 'REF'"),
        ("help config nothing", "config has no command 'nothing'"),
        ("help nothing", "No such command 'nothing'"),
    ],
)
def test_a_line_that_makes_no_sense_is_a_usage_error(store: Path, folder: Path, line: str, said: str) -> None:
    done = script(folder, line)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_input_that_is_no_text_is_refused(store: Path, folder: Path) -> None:
    command = [sys.executable, "-m", "everstep", "shell"]
    done = subprocess.run(command, input=b"state alpha n\n\xff\xfe\n", cwd=folder, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, b"2\n")
    assert b"standard input must be UTF-8 text" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_command_reads_what_stands_behind_its_line(folder: Path) -> None:
    done = script(folder, "checkpoint kept", '{"a": [1, 2]}')
    assert (done.returncode, done.stdout) == (0, "kept@1\n"), done.stderr
    assert json.loads(at_once(folder, "restore kept").stdout) == {"a": [1, 2]}


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("a 'x;y' ; b \"c;d\"", [["a", "x;y"], ["b", "c;d"]]),
        ("a x\\;y;;  ;b", [["a", "x;y"], ["b"]]),
        ("a \"it's;\" '\"' ; b", [["a", "it's;", '"'], ["b"]]),
        ("a '\\' ; b", [["a", "\\"], ["b"]]),
        ("resume o1 --from-step price#0", [["resume", "o1", "--from-step", "price#0"]]),
        ("  # a; b", []),
        ("everstep", [["help"]]),
        ("everstep runs", [["runs"]]),
    ],
)
def test_a_line_is_cut_where_a_person_means_it(line: str, commands: list[list[str]]) -> None:
    assert words.commands(line) == commands


def test_the_current_run_is_taken_where_none_is_named(store: Path, folder: Path) -> None:
    lines = ["use alpha", "state n", "state @1 n", "state ~1 n", "diff @1 @2", "tag good", "state @good n", "restore beta"]
    done = script(folder, *lines)
    assert done.stdout == "2\n1\n1\n~ n: 1 -> 2\n2\n", done.stderr
    assert "alpha@good now names alpha@2" in done.stderr
    assert done.returncode == 3  # a run that is named is the one that is meant


def test_the_current_run_can_be_forgotten(store: Path, folder: Path) -> None:
    done = script(folder, "use alpha", "use -", "state")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Missing argument" in done.stderr


def test_a_run_that_does_not_exist_is_not_used(store: Path, folder: Path) -> None:
    assert script(folder, "use nobody").returncode == 3


def test_a_gate_of_the_current_run_is_answered_without_naming_the_run(waiting: Path, folder: Path) -> None:
    done = script(folder, "use o1", "answer boss yes", "resume", "answer 'boss 1' no", "resume", options=("--import", "flows.py"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["yes", "no"]


def test_checkpoints_are_listed_with_the_status_of_their_run(waiting: Path, folder: Path) -> None:
    done = at_once(folder, "checkpoints o1; checkpoints --json; checkpoints --json -n 1; checkpoints nobody")
    table, _, rest = done.stdout.partition("{")
    assert re.findall(r"^(o1@\d)\s+(\w+).*(waiting)(?: +(\w+) +(\w+))?$", table, re.MULTILINE) == [
        ("o1@2", "gate", "waiting", "", ""),
        ("o1@1", "manual", "waiting", "milestone", "sum"),
    ]
    everything, end = json.JSONDecoder().raw_decode("{" + rest)
    newest = json.loads(("{" + rest)[end:])
    assert everything["kind"] == newest["kind"] == "checkpoints"
    assert {(one["ref"], one["status"]) for one in everything["data"]} >= {("o1@2", "waiting"), ("alpha@2", "succeeded")}
    times = [one["at"] for one in everything["data"]]
    assert times == sorted(times, reverse=True)
    assert [one["ref"] for one in newest["data"]] == ["o1@2"]
    assert done.returncode == 3


def test_hostile_text_and_secrets_are_shown_harmless(store: Path, folder: Path) -> None:
    with everstep.open(store) as opened, opened.run("alpha2", note=HOSTILE) as run:
        run.checkpoint(state=1, note=HOSTILE)
    done = at_once(folder, "checkpoints; checkpoints alpha; runs")
    assert done.returncode == 0
    assert not {"\x1b", "\u202e", "\x07"} & set(done.stdout + done.stderr)
    assert done.stdout.count("red \\x1b[31m back \\u202egnp.exe\\x07") == 2
    assert SECRET not in done.stdout
    assert "done with [redacted]" in done.stdout


def test_options_of_the_shell_hold_for_every_command(store: Path, folder: Path) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    done = at_once(elsewhere, "use alpha; state n; config show store; nobody", "--json", "--store", str(store))
    first, end = json.JSONDecoder().raw_decode(done.stdout)
    assert first["data"]["state"] == 2
    assert json.loads(done.stdout[end:])["data"]["store"] == {"value": str(store), "origin": "argument"}
    assert json.loads(done.stderr)["data"]["message"].startswith("No such command 'nobody'")


def test_an_error_is_told_as_its_line_wants_it(store: Path, folder: Path) -> None:
    done = at_once(folder, "show nobody --json")
    assert json.loads(done.stderr)["data"]["code"] == "E201"


def test_modules_that_the_shell_imports_hold_for_every_command(folder: Path) -> None:
    broken = script(folder, "run flows.py:fragile --id f1")
    assert broken.returncode == 1
    (folder / "mended").touch()
    unknown = script(folder, "resume f1")
    assert (unknown.returncode, "--import" in unknown.stderr) == (1, True)
    done = script(folder, "resume f1 --check", "resume f1", "resume f1", options=("--import", "flows.py"))
    assert (done.returncode, done.stdout) == (0, "f1 can be resumed\nwhole\nwhole\n")


@pytest.fixture
def chat(folder: Path) -> None:
    """A store with an agent that has finished."""
    program = "import everstep, flows\nwith everstep.open() as store: flows.talker.run(store, 'chat', 'Hello')\n"
    subprocess.run([sys.executable, "-c", program], cwd=folder, check=True, timeout=60)


@pytest.mark.usefixtures("chat")
def test_a_finished_agent_takes_another_task(folder: Path) -> None:
    done = script(folder, "resume chat --task 'And tomorrow?'", "state chat task", options=("--import", "flows"))
    assert (done.returncode, done.stdout) == (0, '3 messages, the last: And tomorrow?\n"And tomorrow?"\n'), done.stderr


@pytest.mark.usefixtures("chat")
@pytest.mark.parametrize(
    ("line", "options", "missing"), [("resume chat", ("--import", "flows"), "--task"), ("resume chat --task x", (), "--import")]
)
def test_what_a_finished_agent_needs_is_named(folder: Path, line: str, options: tuple[str, ...], missing: str) -> None:
    done = script(folder, line, options=options)
    assert (done.returncode, missing in done.stderr) == (2, True), done.stderr


def test_an_agent_of_async_functions_takes_another_task_too(folder: Path) -> None:
    program = "import asyncio, everstep, flows\nwith everstep.open() as store: asyncio.run(flows.later.arun(store, 'chat', 'Hello'))\n"
    subprocess.run([sys.executable, "-c", program], cwd=folder, check=True, timeout=60)
    done = script(folder, "resume chat --task More", options=("--import", "flows"))
    assert (done.returncode, done.stdout) == (0, "later: More\n"), done.stderr


def test_a_task_is_for_agents_only(waiting: Path, folder: Path) -> None:
    done = script(folder, "resume o1 --task x", options=("--import", "flows.py"))
    assert (done.returncode, "o1 is not one" in done.stderr) == (2, True)


def test_an_answer_can_come_with_the_resume(waiting: Path, folder: Path) -> None:
    done = script(folder, "resume o1 --answer boss=yes", "resume o1 --answer 'boss 1=no'", options=("--import", "flows.py"))
    assert (done.returncode, json.loads(done.stdout)) == (0, ["yes", "no"]), done.stderr


def test_every_command_of_the_command_line_is_there(folder: Path) -> None:
    from everstep.cli.main import COMMANDS

    done = at_once(folder, "help; help resume; help config show; runs --help")
    assert done.returncode == 0
    for name in (*COMMANDS, "checkpoints", "use", "help", "exit"):
        assert re.search(rf"^  {name} ", done.stdout, re.MULTILINE), name
    assert "--task TEXT" in done.stdout
    assert "Usage: config show [OPTIONS]" in done.stdout
    assert "Usage: runs [OPTIONS]" in done.stdout


def test_the_banner_names_the_store_and_counts_it(store: Path, at: Callable[..., AtTerminal]) -> None:
    shell = at()
    said = shell.until(PROMPT)
    assert f"everstep {everstep.__version__}" in said
    assert f"store: sqlite {store}" in " ".join(said.split())
    assert "2 runs (1 failed, 1 succeeded), 2 checkpoints" in said or "2 runs (1 succeeded, 1 failed), 2 checkpoints" in said
    assert "Type help for a list of commands" in said
    assert "exit" in said
    shell.type("exit\r")
    assert shell.end() == 0


def test_a_folder_without_a_store_is_offered_one(folder: Path, at: Callable[..., AtTerminal]) -> None:
    no = at()
    assert "there is no store at" in no.until("Create one")
    assert "Create one later with `init`" in no.enter("n")
    assert not (folder / ".everstep").exists()
    assert "there is no store" in no.enter("runs")
    yes = at()
    yes.until("Create one")
    assert "`run FILE.yaml`" in yes.enter("")
    assert (folder / ".everstep" / "store.db").exists()
    again = at()
    assert "No runs yet. Start one with `run FILE.yaml`" in again.until(PROMPT)


def test_a_damaged_store_does_not_end_the_shell(store: Path, at: Callable[..., AtTerminal]) -> None:
    store.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    shell = at()
    assert re.search(r"error: .* \[E\d+\]", " ".join(shell.until(PROMPT).split()))
    assert "E301" in shell.enter("explain E301")


def test_tab_completes_names_options_runs_refs_gates_and_codes(waiting: Path, at: Callable[..., AtTerminal]) -> None:
    shell = at()
    shell.until(PROMPT)
    for typed, completed in (
        ("checkpoints al\t", "pha"),
        ("show alpha@mi\t", "lestone"),
        ("runs --old\t", "est-first "),
        ("runs --status=wai\t", "ting"),
        ("answer o1 bo\t", "ss"),
        ("help bis\t", "ect"),
        ("explain E60\t\t", "E603"),
        ("verify; log be\t", "ta"),
        ("ver\t", "ify "),
    ):
        shell.type(typed)
        if "\t\t" in typed:
            shell.until(f"{completed}.*{PROMPT}")  # a list, and the line once more below it
        shell.until(re.escape(typed.rstrip("\t") + ("" if "\t\t" in typed else completed)))
        shell.type("\x03")
        shell.until(PROMPT)
    shell.enter("use alpha", r"everstep\(alpha\)> ")
    shell.type("state @m\t")
    shell.until("state @milestone")


def test_tab_offers_nothing_that_a_terminal_must_not_see(waiting: Path, folder: Path) -> None:
    from everstep.cli.app import App
    from everstep.cli.shell.completing import offers
    from everstep.cli.shell.session import Session

    with everstep.open(waiting) as opened:
        opened.tag("alpha@1", "mile\u034fstone")
    with everstep.open(waiting) as opened, pytest.raises(Waiting), opened.run("spaced") as run:
        run.gate("two words", ask="?")
    session = Session(App(str(waiting), False, "never", False, False, None), ["--store", str(waiting)])
    assert offers(session, "show ", "alpha@mi") == ["alpha@milestone"]
    assert offers(session, "answer spaced ", "") == ["'two words'"]
    assert offers(session, "answer nobody ", "") == []
    assert offers(session, "nonsense ", "") == []
    assert offers(session, "log 'x ", "") == []
    session.current = "o1"
    assert {"boss", "alpha", "o1"} <= set(offers(session, "answer ", ""))
    assert offers(session, "show ", "@2") == ["@2"]


def test_history_survives_the_shell_but_holds_no_secret(store: Path, folder: Path, at: Callable[..., AtTerminal]) -> None:
    first = at()
    first.until(PROMPT)
    first.enter("state alpha n")
    first.enter(f"answer alpha gate {SECRET}")
    first.type("\x04")
    assert first.end() == 0
    file = folder / "state" / "everstep" / "history"
    assert file.read_text() == "state alpha n\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    second = at()
    second.until(PROMPT)
    second.type("\x1b[A")
    second.until("state alpha n")
    assert re.search(r"^2\r?$", second.enter(""), re.MULTILINE)


def test_history_is_cut_to_its_newest_lines(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "history"
    history = History(file, Redactor.default())
    assert [history.add(line) for line in ("runs", "runs", " ", "log \x1b", "password=hunter22", "log")] == [
        True,
        False,
        False,
        False,
        False,
        True,
    ]
    for n in range(MOST):
        history.add(f"show r{n}")
    History(file, Redactor.default()).close()
    lines = file.read_text().splitlines()
    assert (len(lines), lines[0], lines[-1]) == (MOST, "show r0", f"show r{MOST - 1}")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [one.name for one in file.parent.iterdir()] == ["history"]


def test_history_that_cannot_be_kept_lasts_as_long_as_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    history = History(tmp_path / "file" / "history", Redactor.default())
    assert history.add("runs")
    history.close()
    assert history.lines == ["runs"]
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert path() == tmp_path / ".local" / "state" / "everstep" / "history"


def test_a_run_that_is_not_named_can_be_chosen(waiting: Path, at: Callable[..., AtTerminal]) -> None:
    shell = at("--import", "flows.py")
    shell.until(PROMPT)
    listed = shell.enter("state", "Which one to state")
    number = next(n for n, id in re.findall(r"^\s+(\d)  (\w+)", listed, re.MULTILINE) if id == "alpha")
    assert '"n": 2' in shell.enter(number)
    listed = shell.enter("answer", "Which one to answer")
    assert re.findall(r"^\s+(\d)  (\w+)", listed, re.MULTILINE) == [("1", "o1")]
    assert "boss: Spend it?" in shell.enter("1")
    listed = shell.enter("use", "Which one to use")
    number = next(n for n, id in re.findall(r"^\s+(\d)  (\w+)", listed, re.MULTILINE) if id == "beta")
    shell.enter(number, r"everstep\(beta\)> ")


def test_a_gate_is_answered_in_the_middle_of_a_resume(waiting: Path, at: Callable[..., AtTerminal]) -> None:
    shell = at("--import", "flows.py")
    shell.until(PROMPT)
    assert "gate boss: Spend it?" in shell.enter("resume o1", "Answer .yes, no.")
    assert "[E604]" in shell.enter("perhaps", "Answer .yes, no.")
    assert "gate boss 1: Spend it?" in shell.enter("yes", "Answer .yes, no.")
    assert "o1 is still waiting" in shell.enter("")
    shell.enter("resume o1", "Answer .yes, no.")
    assert "o1: succeeded" in shell.enter("no")
    with everstep.open(waiting, create=False) as opened:
        assert opened.load("o1")["answers"] == ["yes", "no"]


def test_an_agent_is_asked_for_and_given_its_next_task(folder: Path, at: Callable[..., AtTerminal]) -> None:
    program = "import everstep, flows\nwith everstep.open() as store:\n  flows.talker.run(store, 'chat', 'Hello'); flows.careful.run(store, 'care', 'Go')\n"
    subprocess.run([sys.executable, "-c", program], cwd=folder, check=True, timeout=60)
    shell = at("--import", "flows")
    shell.until(PROMPT)
    shell.enter("resume chat", "Its next task")
    assert "3 messages, the last: And then?" in shell.enter("And then?")
    shell.enter("resume chat", "Its next task")
    shell.enter("")
    assert "Let the agent call send" in shell.enter("resume care", "Answer")
    assert "care: succeeded" in shell.enter("yes")
    with everstep.open(folder / ".everstep" / "store.db", create=False) as opened:
        assert [message["content"] for message in opened.load("chat")["messages"] if message["role"] == "user"] == ["Hello", "And then?"]


def test_ctrl_c_ends_the_line_and_ctrl_d_the_shell(store: Path, at: Callable[..., AtTerminal]) -> None:
    shell = at()
    shell.until(PROMPT)
    shell.type("show nobo")
    shell.until("show nobo")
    shell.type("\x03")
    shell.until(PROMPT)
    assert "no run" not in shell.enter("state alpha n")
    shell.enter("state", "Which one to state")
    shell.type("\x03")
    assert "interrupted" in shell.until(PROMPT)
    shell.type("\x04")
    assert shell.end() == 0


def test_ctrl_c_stops_a_run_and_not_the_shell(folder: Path, store: Path, at: Callable[..., AtTerminal]) -> None:
    shell = at()
    shell.until(PROMPT)
    shell.enter("run flows.py:slow --id s1", "it waits now")
    shell.type("\x03")
    shell.until("repeat to stop at once")
    shell.type("\x03")
    shell.until(PROMPT)
    assert re.search(r"^2\r?$", shell.enter("state alpha n"), re.MULTILINE)


def test_sigterm_in_a_run_ends_the_shell(folder: Path, store: Path, at: Callable[..., AtTerminal]) -> None:
    shell = at()
    shell.until(PROMPT)
    shell.enter("run flows.py:slow --id s1", "it waits now")
    shell.child.process.send_signal(signal.SIGTERM)
    shell.until("repeat to stop at once")
    shell.child.process.send_signal(signal.SIGTERM)
    assert shell.end() == 128 + signal.SIGTERM


def test_a_command_that_fails_is_told_and_the_shell_goes_on(store: Path, at: Callable[..., AtTerminal]) -> None:
    shell = at()
    shell.until(PROMPT)
    assert "there is no run 'nobody' [E201]" in shell.enter("show nobody")
    assert "No such command 'nonsense'" in shell.enter("nonsense")
    assert "no closing quotation" in shell.enter("show 'x")
    assert re.search(r"^2\r?$", shell.enter("state alpha n"), re.MULTILINE)


def test_it_works_without_readline(store: Path, folder: Path, at: Callable[..., AtTerminal]) -> None:
    without = "import sys; sys.modules['readline'] = None; from everstep.cli.main import run; run()"
    shell = at(program=("-c", without))
    shell.until(PROMPT)
    assert re.search(r"^2\r?$", shell.enter("state alpha n"), re.MULTILINE)
    shell.type("\x04")
    assert shell.end() == 0
    assert (folder / "state" / "everstep" / "history").read_text() == "state alpha n\n"


def session_of(text: str) -> tuple[str, list[tuple[str, list[str]]]]:
    """The command of a documented session, and its lines: what is typed, and what is then seen."""
    block = next(one for one in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL) if "\neverstep" in one)
    command, *rest = block.splitlines()
    lines: list[tuple[str, list[str]]] = []
    for line in rest:
        asked = re.match(r"(everstep(?:\(\w+\))?> |Answer .*: )(.*)", line)
        if asked:
            lines.append((asked[0], []))
        else:
            lines[-1][1].append(line)
    return command.removeprefix("$ everstep shell "), lines


def test_the_session_in_the_documents_goes_as_it_is_written(folder: Path, at: Callable[..., AtTerminal]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "shell.md").read_text()
    (folder / "flows.py").write_text(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0])
    everstep.open(folder / ".everstep" / "store.db").close()
    options, lines = session_of(text)
    shell = at(*options.split())
    asks = r"everstep(\(\w+\))?> |Answer .*?: "
    for line, seen in lines:
        said = shell.until(asks) if line is lines[0][0] else ""
        prompt = str(shell.child.after)
        assert line.startswith(prompt), (line, said)
        shell.type(line.removeprefix(prompt) + "\r")
        if line.endswith("exit"):
            assert shell.end() == 0
            return
        said = shell.until(asks)
        assert [one for one in seen if one not in said] == [], said
    raise AssertionError("it is never left")


def test_data_goes_elsewhere_while_the_prompt_stays(store: Path, folder: Path) -> None:
    child = Terminal("/bin/sh", "-c", f"{sys.executable} -m everstep shell > out", cwd=folder, timeout=30)
    child.expect(PROMPT)
    child.send("state alpha n\r")
    child.expect(PROMPT)
    child.send("exit\r")
    child.ended()
    assert (folder / "out").read_text() == "2\n"
