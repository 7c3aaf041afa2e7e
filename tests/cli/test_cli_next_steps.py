"""What a command says to do next can be done: its words are typed as they stand."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import warm
from cli_helpers import Called, Shop, environment

import everstep
from everstep.cli.failures import in_commands
from everstep.errors import InvalidArgument
from everstep.runtime.run import attempt_of

FLOWS = """
import everstep, os, time

@everstep.step
def work(n):
    if not os.path.exists("go"):
        raise OSError("not yet")
    return n

@everstep.workflow
def fragile(n):
    return work(n)

@everstep.workflow
def differs(n):
    n = work(n + os.path.exists("more"))
    everstep.gate("boss")
    return n

@everstep.workflow
def asks():
    return everstep.gate("boss", ask="go on?")

@everstep.workflow
def slow():
    everstep.current().step("nap", time.sleep, 0.5)
    everstep.current().step("nap", time.sleep, 0.5)
    return "slept"
"""


@pytest.fixture
def flows(empty: Shop) -> Shop:
    (Path(empty.folder) / "flows.py").write_text(FLOWS)
    empty.call("init").ok()
    return empty


def typed(shop: Shop, said: str, pattern: str, **words: str) -> Called:
    """Type what was said."""
    found = re.search(pattern, said)
    assert found, said
    command = found[1]
    for name, word in words.items():
        command = command.replace(name, word)
    return shop.pipe(*shlex.split(command.removeprefix("everstep ")))


def test_a_run_that_failed_is_resumed_as_it_is_said(flows: Shop) -> None:
    failed = flows.pipe("run", "flows.py:fragile", "3", "--id", "f")
    assert failed.code == 1
    (Path(flows.folder) / "go").touch()
    assert typed(flows, failed.err, r"\n  (everstep resume f --import flows.py)\n").ok().out == "3\n"


def test_a_run_that_is_answered_or_forked_is_resumed_as_it_is_said(flows: Shop) -> None:
    asked = flows.pipe("run", "flows.py:asks", "--id", "a").ok()
    answered = typed(flows, asked.err, r"\n  (everstep answer a boss VALUE)\n", VALUE="yes").ok()
    assert typed(flows, answered.err, r"To continue: (everstep resume a --import flows.py)").ok().out == "yes\n"


def test_a_gate_is_answered_anew_on_a_fork(flows: Shop) -> None:
    flows.pipe("run", "flows.py:asks", "--id", "a").ok()
    flows.pipe("resume", "a", "--import", "flows.py", "--answer", "boss=yes").ok()
    again = flows.pipe("resume", "a", "--import", "flows.py", "--from-step", "boss#0", "--answer", "boss=no").ok()
    assert again.out == "no\n"
    assert flows.json("show", "a")["run"]["status"] == "succeeded"


def test_another_input_is_accepted_or_forked_as_it_is_said(flows: Shop) -> None:
    (Path(flows.folder) / "go").touch()
    flows.pipe("run", "flows.py:differs", "1", "--id", "d").ok()
    (Path(flows.folder) / "more").touch()
    differs = flows.pipe("resume", "d", "--import", "flows.py", "--answer", "boss=yes")
    assert differs.code == 1
    forked = typed(flows, differs.err, r"`(everstep resume d [^`]*--from-step[^`]*)`").ok()
    assert "waiting" in forked.err
    assert typed(flows, differs.err, r"`(everstep resume d [^`]*--accept[^`]*)`").ok().out == "1\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_a_signal_stopped_is_resumed_as_it_is_said(flows: Shop, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "everstep", "run", "flows.py:slow", "--id", "s"]
    process = warm.Popen(command, cwd=flows.folder, env=environment(), stderr=subprocess.PIPE, text=True)
    limit = time.monotonic() + 60
    while not (Path(flows.folder) / ".everstep" / "store.db").exists() or flows.pipe("show", "s").code:
        assert time.monotonic() < limit
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    if process.returncode == 0:  # it was faster
        return
    assert process.returncode == 128 + number
    assert typed(flows, said, r"s: stopped \(signal \w+\)\. To continue: (everstep resume s --import flows.py)").ok().out == "slept\n"


def test_a_failed_run_shows_its_traceback(flows: Shop) -> None:
    assert "Traceback" not in flows.pipe("run", "flows.py:fragile", "3", "--id", "f").err
    shown = flows.pipe("show", "f").ok().out
    assert 'raise OSError("not yet")' in shown
    assert 'raise OSError("not yet")' in flows.pipe("resume", "f", "--import", "flows.py", "--debug").err


def test_a_timer_and_an_interruption_have_names_in_the_log(flows: Shop) -> None:
    (Path(flows.folder) / "naps.py").write_text(
        "import everstep\n@everstep.workflow(timeout=0.01)\ndef naps():\n    everstep.current().step('a', __import__('time').sleep, 0.05)\n    everstep.sleep(5)\n"
    )
    flows.pipe("run", "naps.py:naps", "--id", "n")
    assert all(re.match(r"\S+ +\S \w", line) for line in flows.pipe("log", "n").ok().out.splitlines()[1:])


@pytest.mark.parametrize(
    ("remedy", "words"),
    [
        ("Use store.resume('n1', from_step='a#0').", "Use `everstep resume n1 --from-step 'a#0'`."),
        ("Or: store.resume('n 1', accept=['a']).", "Or: `everstep resume 'n 1' --accept a`."),
        ("store.resume(run_id, anyway=True)", "`everstep resume RUN --anyway`"),
        ("store.resume(run_id, from_step=...)", "`everstep resume RUN --from-step STEP`"),
        ("store.runs() and store.checkpoints(run_id)", "`everstep runs` and `everstep show RUN`"),
        ("store.verify('full')", "`everstep verify --depth full`"),
        ("store.answer(run_id, gate, value)", "`everstep answer RUN GATE VALUE`"),
        ("store.events(run=run_id)", "`everstep log RUN`"),
        ("store.load(ref)", "`everstep state REF`"),
        ("store.skip(run_id, step, result)", "`everstep skip RUN STEP RESULT`"),
        ("store.step(run_id, address)", "`everstep show RUN STEP`"),
        ("store.budget(run_id)", "store.budget(run_id)"),
    ],
)
def test_calls_in_a_remedy_are_commands(remedy: str, words: str) -> None:
    assert in_commands(remedy) == words


def test_a_store_that_was_put_back_is_accepted_as_it_is_said(flows: Shop) -> None:
    store = Path(flows.folder) / ".everstep" / "store.db"
    flows.pipe("run", "flows.py:asks", "--id", "a").ok()
    old = store.read_bytes()
    flows.pipe("run", "flows.py:asks", "--id", "b").ok()
    with flows.open():  # what was seen of it stays noted while it is open
        pass
    for rest in store.parent.glob("store.db-[ws][ah][lm]"):
        rest.unlink()
    store.write_bytes(old)
    refused = flows.pipe("runs")
    assert "[E409]" in refused.err
    typed(flows, refused.err, r"`(everstep verify --accept-older)`").ok()
    assert [run["id"] for run in flows.json("runs")["runs"]] == ["a"]


def test_a_store_that_is_missing_is_made_where_it_was_asked_for(flows: Shop) -> None:
    missing = flows.pipe("runs", "-s", "other place.db")
    assert missing.code == 1
    typed(flows, missing.err, r"Create one: `(everstep init --store 'other place.db')`").ok()
    flows.pipe("runs", "-s", "other place.db").ok()


def test_what_is_no_store_is_not_said_to_be_made_into_one(flows: Shop) -> None:
    assert "hint: Name another store with --store, or create one with `everstep init`." in flows.pipe("runs", "-s", "flows.py").err
    (Path(flows.folder) / "empty.db").touch()
    refused = flows.pipe("init", "-s", "empty.db")
    assert "delete it; Everstep will create a new store" in refused.err
    (Path(flows.folder) / "empty.db").unlink()
    flows.pipe("init", "-s", "empty.db").ok()


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("s.db", {"durabilty": "sync"}, "Did you mean durability"),
        ("s.db", {"nonsense": 1}, "The options of such a store: create, busy_ms"),
        ("memory://", {"create": False}, "The options of such a store: seal"),
    ],
)
def test_an_option_that_a_store_does_not_have_is_refused(tmp_path: Path, url: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        everstep.open(tmp_path / url if url == "s.db" else url, **options)  # type: ignore[arg-type]
    assert words in refused.value.remedy
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("code", ["E301", "e301", "301", "LeaseHeld", "leaseheld"])
def test_an_error_is_explained_by_its_code_or_its_name(empty: Shop, code: str) -> None:
    assert empty.json("explain", code)["code"] == "E301"


def test_a_list_says_which_runs_are_open_and_which_nobody_drives(flows: Shop) -> None:
    with flows.open() as store:
        row = attempt_of(store.run("left").__enter__()).row
        assert row is not None
        assert "left" in flows.terminal("runs").out
        assert "* a process has the run open" in flows.terminal("runs").out
        store.keeper.release(row)
        assert "left was interrupted. To continue, run the program that opens it." in flows.terminal("runs").out
        assert "interrupted" not in flows.pipe("runs").err


def test_a_command_to_type_holds_what_a_shell_needs_and_a_traceback_holds_nothing_that_a_terminal_obeys(flows: Shop) -> None:
    (Path(flows.folder) / "my flows.py").write_text(
        "import everstep\n@everstep.workflow\ndef bad():\n    raise ValueError('\\x1b[2Jgone, api_key=sk-' + 'a' * 40)\n"
    )
    failed = flows.pipe("run", "my flows.py:bad", "--id", "b", "--debug")
    assert "\n  everstep resume b --import 'my flows.py'\n" in failed.err
    assert "Traceback" in failed.err
    assert "\x1b" not in failed.err
    assert "sk-" + "a" * 40 not in failed.err


def test_a_hint_names_the_one_file_here_that_defines_the_workflow(flows: Shop) -> None:
    begin = "import everstep, flows\nwith everstep.open('.everstep/store.db') as store:\n    store.start(flows.asks, id='p')\n"
    subprocess.run([sys.executable, "-c", begin], cwd=flows.folder, check=True)
    answered = flows.pipe("answer", "p", "boss", "yes").ok()
    assert typed(flows, answered.err, r"To continue: (everstep resume p --import flows.py)").ok().out == "yes\n"


def test_a_hint_names_no_file_if_two_define_the_workflow(flows: Shop) -> None:
    begin = "import everstep, flows\nwith everstep.open('.everstep/store.db') as store:\n    store.start(flows.asks, id='q')\n"
    subprocess.run([sys.executable, "-c", begin], cwd=flows.folder, check=True)
    (Path(flows.folder) / "flows_again.py").write_text(FLOWS)
    assert "everstep resume q --import MODULE" in flows.pipe("answer", "q", "boss", "yes").ok().err


def test_a_renamed_workflow_is_named_with_the_nearest_one(flows: Shop) -> None:
    flows.pipe("run", "flows.py:asks", "--id", "a").ok()
    (Path(flows.folder) / "flows.py").write_text(FLOWS.replace("def asks", "def asks2"))
    assert "flows.py defines asks2. If the workflow was renamed" in flows.pipe("resume", "a", "--import", "flows.py").err


def test_a_run_of_an_openai_agent_is_continued_as_it_is_said(flows: Shop) -> None:
    begin = (
        "import everstep\n@everstep.workflow(name='openai-agents:Mailer')\ndef mailer(text):\n    return everstep.gate('send', ask='Send?')\n"
        "if __name__ == '__main__':\n    with everstep.open('.everstep/store.db') as store:\n        store.start(mailer, 'hi', id='m')\n"
    )
    subprocess.run([sys.executable, "-c", begin], cwd=flows.folder, check=True)
    answered = flows.pipe("answer", "m", "send", "yes").ok()
    assert "run the program that started it. Or, in a module that calls openai_agents.workflow(agent): everstep resume m" in answered.err
    resumed = flows.pipe("resume", "m", "--import", "flows.py")
    assert "flows.py must call openai_agents.workflow(agent) when it is imported" in resumed.err


@pytest.mark.parametrize("label", ["openai-session", "pydantic-ai-steps", "adk-user", "adk-app"])
def test_a_fork_of_a_session_is_continued_by_its_program(empty: Shop, label: str) -> None:
    with everstep.open(Path(empty.folder) / ".everstep" / "store.db") as store, store.line("s", state={"n": 0}, workflow=label) as line:
        line.checkpoint()
    said = empty.call("fork", "s", "other").ok().err
    assert "run the program that opens it" in said
    assert "everstep resume" not in said
