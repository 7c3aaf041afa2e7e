"""Real processes that run a YAML workflow on SQLite: killed in the middle of a step, stopped by a signal, answered by another process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import warm
from test_yaml_shell import alive

import everstep
from everstep import yaml
from everstep.testing.waiting import until

HERE = Path(__file__).parent
PROGRAM = """
import sys, threading, time
from pathlib import Path
import everstep
from everstep import yaml
from everstep.runtime.limits import signals

def watch():
    while signals.seen() is None:
        time.sleep(0.005)
    Path("seen").touch()

threading.Thread(target=watch, daemon=True).start()

flow = yaml.load("flow.yaml")
with everstep.open("store.db") as store:
    out = store.start(flow, id="r") if sys.argv[1] == "start" else store.resume("r")
    print(out.status, out.result, out.report.kept, out.report.executed, sep="|")
"""


class Place:
    """A folder with a document, a store, and notes of what was called."""

    def __init__(self, folder: Path, steps: str, head: str = ""):
        self.folder = folder
        (folder / "flow.yaml").write_text(f"name: flow\n{head}\nsteps:\n{steps}")

    def run(self, how: str) -> subprocess.Popen[str]:
        package = str(Path(everstep.__file__).parents[1])
        paths = os.pathsep.join([package, str(HERE)])
        environment = os.environ | {"PYTHONPATH": paths, "NOTES": str(self.folder / "notes")}
        command = [sys.executable, "-c", PROGRAM, how]
        return warm.Popen(command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)

    def finish(self, how: str) -> list[str]:
        child = self.run(how)
        out, _ = child.communicate(timeout=60)
        assert child.returncode == 0
        return out.strip().split("|")

    @property
    def notes(self) -> list[str]:
        file = self.folder / "notes"
        return file.read_text().splitlines() if file.exists() else []

    def kill_when(self, true: Any) -> None:
        child = self.run("start")
        assert child.stdout is not None
        until(true)
        child.kill()
        child.wait()
        child.stdout.close()


STEPS = [
    "- {id: plan, run: 'yaml_actions:plan', with: {topic: t, n: 2}, save: plan}",
    "- {id: search, run: 'yaml_actions:search', for_each: steps.plan.result, concurrency: 2, with: {query: '${item}'}}",
    "- {id: list, run: 'echo list >> notes; echo listed'}",
    "- parallel:\n  - {id: left, run: 'yaml_actions:same', with: {value: left}}\n  - {id: right, run: 'echo right >> notes; echo right'}",
    "- {id: never, run: 'echo never >> notes', when: 'false'}",
    "- {id: good, gate: {condition: len(steps.search.result) == 2}}",
    "- {id: last, run: 'yaml_actions:same', with: {value: '${steps.list.result.stdout} ${steps.right.result.stdout} ${state.plan[1]}'}}",
]
ALL = ["plan t", "search t-0", "search t-1", "list", "left", "right", "listed right t-1"]
HANG = "- {id: hang, run: 'yaml_actions:hang_once', with: {mark: mark}}"


@pytest.mark.parametrize("place", range(len(STEPS) + 1))
def test_a_killed_run_goes_on_and_repeats_only_the_step_it_died_in(place: int, tmp_path: Path) -> None:
    here = Place(tmp_path, "\n".join([*STEPS[:place], HANG, *STEPS[place:]]), "result: ${steps.last.result}")
    here.kill_when((tmp_path / "mark").exists)
    before = [note for note in here.notes if note != "hang_once"]
    status, result, kept, executed = here.finish("resume")
    assert (status, result) == ("succeeded", "listed right t-1")
    assert sorted(note for note in here.notes if note != "hang_once") == sorted(ALL)
    assert here.notes.count("hang_once") == 2
    assert int(kept) == len(before)
    assert int(kept) + int(executed) == len(ALL) + 1


def test_of_a_group_only_the_member_that_was_running_is_repeated(tmp_path: Path) -> None:
    members = "  - {id: hang, run: 'yaml_actions:hang_once', with: {mark: mark}}\n" + "".join(
        f"  - {{id: m{i}, run: 'yaml_actions:same', with: {{value: m{i}}}}}\n" for i in range(5)
    )
    here = Place(tmp_path, f"- parallel:\n{members}  concurrency: 2")
    here.kill_when(lambda: len(_steps(tmp_path)) == 5 and len(here.notes) == 6)
    assert here.finish("resume")[0] == "succeeded"
    assert sorted(here.notes) == ["hang_once", "hang_once", "m0", "m1", "m2", "m3", "m4"]


def _steps(folder: Path) -> list[Any]:
    if not (folder / "store.db").exists():
        return []
    with everstep.open(folder / "store.db") as store:
        return store.steps("r") if store.runs() else []


def test_an_answer_from_another_process_lets_the_run_go_on_in_a_third(tmp_path: Path) -> None:
    steps = "- {id: a, run: 'yaml_actions:same', with: {value: a}}\n- {id: ask, gate: {ask: 'Go?', choices: [yes, no]}}\n- {id: b, run: 'yaml_actions:same', with: {value: '${steps.ask.result}'}}"
    here = Place(tmp_path, steps)
    assert here.finish("start")[0] == "waiting"
    with everstep.open(tmp_path / "store.db") as store:
        (gate,) = store.gates("r")
        assert gate.ask == "Go?"
        store.answer("r", "ask", "yes", by="ann")
    assert here.finish("resume")[0] == "succeeded"
    assert here.notes == ["a", "yes"]


@pytest.mark.parametrize(("kill", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_lets_the_command_finish_and_the_run_stop_behind_it(kill: signal.Signals, code: int, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    here = Place(
        tmp_path,
        "- {id: a, run: 'echo a >> notes; read x < go; echo end >> notes; echo $x'}\n- {id: b, run: 'echo b >> notes'}",
        "result: ${steps.a.result.stdout}",
    )
    child = here.run("start")
    until(lambda: here.notes == ["a"])
    os.killpg(child.pid, kill)  # as a terminal does
    until((tmp_path / "seen").exists)
    with (tmp_path / "go").open("w") as go:
        go.write("went\n")
    child.communicate(timeout=60)
    assert (child.returncode, here.notes) == (code, ["a", "end"])
    assert here.finish("resume") == ["succeeded", "went", "1", "1"]
    assert here.notes == ["a", "end", "b"]


GROUP = """
- parallel:
  - {id: a, run: 'echo a >> notes; read x < go; echo end-a >> notes'}
  - {id: b, run: 'echo b >> notes; read x < go2; echo end-b >> notes'}
  - {id: c, run: 'echo c >> notes'}
  concurrency: 2
"""


def test_a_signal_lets_the_members_of_a_group_finish_and_begins_no_other(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    os.mkfifo(tmp_path / "go2")
    here = Place(tmp_path, GROUP)
    child = here.run("start")
    until(lambda: sorted(here.notes) == ["a", "b"])
    os.killpg(child.pid, signal.SIGTERM)
    until((tmp_path / "seen").exists)
    for name in ("go", "go2"):
        (tmp_path / name).write_text("x\n")
    child.communicate(timeout=60)
    assert (child.returncode, sorted(here.notes)) == (143, ["a", "b", "end-a", "end-b"])
    assert here.finish("resume")[0] == "succeeded"
    assert sorted(here.notes) == ["a", "b", "c", "end-a", "end-b"]


@pytest.mark.parametrize(
    "steps", [GROUP, GROUP.replace("- parallel:", "").replace("  concurrency: 2", "").replace("\n  - ", "\n- ")], ids=["group", "alone"]
)
def test_a_second_signal_ends_the_program_and_its_commands(steps: str, tmp_path: Path) -> None:
    here = Place(tmp_path, steps.replace("read x < go2", "echo $$ >> pids; sleep 600").replace("read x < go", "echo $$ >> pids; sleep 600"))
    child = here.run("start")
    count = 2 if "parallel" in steps else 1
    pids = tmp_path / "pids"
    until(lambda: pids.exists() and len(pids.read_text().split()) == count)
    os.killpg(child.pid, signal.SIGTERM)
    until((tmp_path / "seen").exists)  # two at once would count as one
    os.killpg(child.pid, signal.SIGTERM)
    child.communicate(timeout=60)
    assert child.returncode == 143
    until(lambda: not any(alive(int(pid)) for pid in pids.read_text().split()))
    assert "end-a" not in here.notes


def test_a_changed_document_is_compared_with_the_one_the_killed_run_began_with(tmp_path: Path) -> None:
    here = Place(tmp_path, f"- {{id: a, run: 'yaml_actions:same', with: {{value: a}}}}\n{HANG}")
    here.kill_when((tmp_path / "mark").exists)
    text = (tmp_path / "flow.yaml").read_text()
    (tmp_path / "flow.yaml").write_text(text.replace("yaml_actions:same", "yaml_actions:say").replace("value: a", "word: a"))
    sys.path.insert(0, str(HERE)) if str(HERE) not in sys.path else None
    yaml.load(tmp_path / "flow.yaml")
    with everstep.open(tmp_path / "store.db") as store, pytest.raises(everstep.EverstepError) as caught:
        store.resume("r")
    assert (
        "-- {id: a, run: 'yaml_actions:same', with: {value: a}}\n+- {id: a, run: 'yaml_actions:say', with: {word: a}}"
        in caught.value.difference
    )  # type: ignore[attr-defined]
    (tmp_path / "flow.yaml").write_text(text)
    assert here.finish("resume")[0] == "succeeded"
