"""The demo does what it says: real processes, a real kill, and figures that the store confirms."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest
from terminal import Terminal

import everstep
from everstep import errors
from everstep.demo import agent, corpus, invitation, model
from everstep.demo.child import Child
from everstep.demo.figures import Figures
from everstep.demo.folder import MARK, stage
from everstep.demo.play import FORK, RUN, UNDISTURBED, play
from harness import recording

PACKAGE = str(Path(everstep.__file__).parents[1])
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([PACKAGE, os.environ.get("PYTHONPATH", "")])}
DEMO = [sys.executable, "-m", "everstep", "demo"]
STYLED = re.compile(r"\x1b\[\d+m")


@dataclass
class Played:
    """A demo that was played to its end."""

    folder: Path
    text: str
    figures: Figures
    before: dict[str, object]
    """What the demo that was played in the same folder before has shown."""

    @property
    def path(self) -> Path:
        return self.folder / "store.db"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Played twice in one folder: from the command line in JSON, and then again, in words."""
    folder = tmp_path_factory.mktemp("with a space") / "left behind"
    first = subprocess.run([*DEMO, "--json", "--dir", str(folder)], env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert first.returncode == 0, first.stdout + first.stderr
    lines: list[str] = []
    figures = play(folder, lines.append, lambda text, _: text)
    return Played(folder, "\n".join(lines), figures, json.loads(first.stdout))


@pytest.fixture
def store(played: Played) -> Iterator[everstep.Store]:
    with everstep.open(played.path, create=False) as opened:
        yield opened


def pid_of(step: object) -> int:
    return int(str(getattr(step, "worker", "")).rpartition(":")[2])


def test_the_demo_came_out_as_promised_and_in_time(played: Played) -> None:
    data = played.before["data"]
    assert isinstance(data, dict)
    assert played.before["kind"] == "demo"
    assert data["ok"] is played.figures.ok is True
    assert set(data) == set(played.figures.to_dict())
    assert min(data["seconds"], played.figures.seconds) < 20


def test_the_killed_process_died_of_signal_9_inside_of_a_step_that_it_did_not_record(played: Played, store: everstep.Store) -> None:
    killed, resumed = played.figures.killed, played.figures.resumed
    steps = store.steps(RUN)
    assert killed.signal == signal.SIGKILL
    assert [step.address for step in steps if pid_of(step) == killed.pid][-1] == "search#4"
    assert [pid_of(step) for step in steps if step.address == killed.inside] == [resumed.pid]
    assert {(step.epoch, pid_of(step)) for step in steps} == {(1, killed.pid), (2, resumed.pid)}
    ends = [event.name for event in store.events(run=RUN) if event.name.startswith(("run_", "interrupted"))]
    assert ends == ["run_created", "run_succeeded"]  # the first process had no time to say anything


def test_what_was_kept_and_saved_is_what_the_journal_says(played: Played, store: everstep.Store) -> None:
    killed, resumed = played.figures.killed, played.figures.resumed
    kept = [step for step in store.steps(RUN) if pid_of(step) == killed.pid]
    assert killed.steps_on_disk == resumed.steps_kept == len(kept) == 10
    assert resumed.steps_run == len([step for step in store.steps(RUN) if pid_of(step) == resumed.pid]) == 4
    assert resumed.seconds_saved == pytest.approx(sum(step.seconds for step in kept))
    assert resumed.tokens_saved == sum(step.tokens for step in kept) > 1_000
    assert resumed.cost_saved == pytest.approx(sum(step.cost for step in kept))
    assert resumed.seconds_saved > 4 * model.SECONDS


def test_no_step_was_paid_for_twice_once_it_was_recorded(store: everstep.Store) -> None:
    addresses = [step.address for step in store.steps(RUN)]
    assert len(addresses) == len(set(addresses)) == len(store.steps(UNDISTURBED)) == 14


def test_the_answer_is_that_of_a_run_in_a_process_of_its_own_that_nobody_disturbed(played: Played, store: everstep.Store) -> None:
    compared = played.figures.compared
    assert compared.answer == compared.undisturbed_answer == store.load(RUN)["answer"]
    assert store.load(RUN) == store.load(UNDISTURBED)
    assert {pid_of(step) for step in store.steps(UNDISTURBED)} == {compared.pid}
    assert compared.pid not in (played.figures.killed.pid, played.figures.resumed.pid, os.getpid())


def test_the_fork_decided_otherwise_and_shares_what_came_before(played: Played, store: everstep.Store) -> None:
    forked = played.figures.forked
    info = store.get(FORK)
    assert f"{info.parent}@{info.parent_number}" == forked.ref == store.checkpoint(f"{RUN}@{agent.DECISION}").ref
    assert (forked.steps_kept, forked.steps_run) == (11, 3)
    assert [(list(c.path), c.before, c.after) for c in store.diff(RUN, FORK)] == [
        (c["path"], c["before"], c["after"]) for c in forked.changes
    ]
    assert store.load(FORK)["choice"] == "solar panels" != store.load(RUN)["choice"]
    assert forked.answer == store.load(FORK)["answer"] != played.figures.compared.answer


def test_stats_agree_with_what_the_demo_said(played: Played) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "everstep", "stats", "--json", "-s", str(played.path)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    found, figures = json.loads(done.stdout)["data"], played.figures
    executed = figures.killed.steps_on_disk + figures.resumed.steps_run + figures.forked.steps_run
    undisturbed = figures.killed.steps_on_disk + figures.resumed.steps_run
    assert found["steps"]["count"] == executed + undisturbed
    assert found["checkpoints"] == figures.sizes.checkpoints
    assert found["store"]["record_bytes"] + found["store"]["chunk_bytes"] == figures.sizes.stored
    assert found["resumes"] == {"runs": 1, "succeeded": 1}
    assert found["statuses"] == {"succeeded": 3}
    assert f"{figures.sizes.checkpoints} checkpoints, each in full" in played.text


def test_the_bytes_are_counted_and_less_than_full_copies(played: Played, store: everstep.Store) -> None:
    sizes = played.figures.sizes
    states = [store.load(one.ref) for run in store.runs() for one in store.checkpoints(run.id, limit=None)]
    assert sizes.checkpoints == len(states)
    assert sizes.full_copies == sum(len(json.dumps(state, ensure_ascii=False).encode()) for state in states)
    assert sizes.stored == sum(run.stored_bytes for run in store.runs()) < sizes.full_copies / 3
    assert played.figures.whole is store.verify("full").ok is True


def test_the_text_says_the_same_as_the_figures(played: Played) -> None:
    text, figures = played.text, played.figures
    assert re.findall(r"^(\d)  ", text, flags=re.MULTILINE) == list("12345")
    assert f"kill -9 {figures.killed.pid}" in text
    assert f"{figures.resumed.tokens_saved:,} tokens, ${figures.resumed.cost_saved:.4f}" in text
    assert text.count("✓ judge#") == 5
    assert text.count(figures.compared.answer) >= 3
    assert "NO" not in text
    assert max(map(len, text.partition("Everything is still there")[0].splitlines())) <= 80
    assert "\x1b" not in text


def test_the_recording_in_the_readme_shows_what_the_demo_prints(played: Played) -> None:
    svg = recording.SVG.read_text()
    recorded = [recording.steady(line) for line in recording.lines_of(svg)]
    printed = [recording.steady(line) for line in (recording.PROMPT, *played.text.splitlines()) if line]
    assert recorded == printed, "record it again: python -m harness.recording"
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)|<script|<image|@import|url\(", svg) == []  # nothing is loaded from elsewhere


def test_a_recording_ignores_what_differs_from_one_demo_to_the_next() -> None:
    assert recording.steady("  Process 12 did it in 3.5 s") == recording.steady("  Process 4711 did it in 12 s")
    assert recording.steady("  '/a b/everstep' log r -s '/x/store.db'") == recording.steady("  /usr/bin/python3 -m everstep log r -s y.db")
    assert recording.steady("  kept   10 steps") != recording.steady("  kept   11 steps")
    lines = recording.lines_of(recording.draw([(0.5, "\x1b[1m1  A & B\x1b[0m"), (0.6, ""), (0.7, "  \x1b[32m✓\x1b[0m a <b>     $1")]))
    assert lines == [recording.PROMPT, "1 A & B", "✓ a <b> $1"]


def test_every_command_that_is_printed_works_as_it_is_printed(played: Played) -> None:
    assert len(played.figures.commands) >= 5
    for command in played.figures.commands:
        assert f"  {command}" in played.text.splitlines()
        done = subprocess.run(command, shell=True, env=ENVIRONMENT, input="runs\n", capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, command + done.stdout + done.stderr
        assert RUN in done.stdout or "sea cable" in done.stdout, command  # the shell is asked for the runs


def test_every_command_that_is_printed_parses(played: Played) -> None:
    from everstep.cli.main import group

    for command in played.figures.commands:
        words = shlex.split(command)
        words = words[[Path(word).name for word in words].index("everstep") + 1 :]
        found = group.get_command(click.Context(group), words[0])
        assert found is not None, command
        assert found.make_context(words[0], words[1:]).params["store"] == str(played.path)


def test_the_script_is_named_only_where_the_shell_finds_this_very_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "bin" / "everstep"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "elsewhere" / "python"))
    assert invitation.program() == f"{shlex.quote(sys.executable)} -m everstep"
    monkeypatch.setattr(sys, "executable", str(other.with_name("python")))
    assert invitation.program() == "everstep"


def test_a_script_that_the_shell_does_not_find_is_named_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "my env" / "bin" / "everstep"
    script.parent.mkdir(parents=True)
    script.touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(script.with_name("python")))
    assert invitation.program() == f"'{script}'"
    monkeypatch.chdir(tmp_path)
    assert invitation.program() == "'my env/bin/everstep'"


def test_a_checkout_stays_clean(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    with stage(tmp_path / "everstep-demo") as ours, everstep.open(ours.store):
        status = subprocess.run(["git", "status", "--porcelain"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert status.stdout == ""


def test_a_list_of_ignored_files_that_is_there_already_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / MARK).touch()
    (tmp_path / ".gitignore").write_text("mine\n")
    with stage(tmp_path):
        pass
    assert (tmp_path / ".gitignore").read_text() == "mine\n"


@contextmanager
def at_terminal(folder: Path) -> Iterator[Terminal]:
    """A demo in a terminal that is ours; all that it printed is in `logfile_read`."""
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    terminal = Terminal(*DEMO, cwd=folder, env=environment)
    terminal.logfile_read = StringIO()
    try:
        yield terminal
    finally:
        terminal.stop()


def workers(folder: Path) -> list[str]:
    """Processes that play in a folder."""
    listed = subprocess.run(["ps", "-A", "-ww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if "everstep.demo.worker" in line and str(folder) in line]


def wait_for_no_worker(folder: Path) -> bool:
    for _ in range(600):
        if not workers(folder):
            return True
        time.sleep(0.1)
    return False


def test_two_demos_at_once_in_two_folders_one_of_them_on_a_terminal(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    other = subprocess.Popen(DEMO, cwd=two, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with at_terminal(one) as terminal:
        assert terminal.ended() == 0, terminal.logfile_read.getvalue()
    plain, complaints = other.communicate(timeout=120)
    assert (other.returncode, complaints) == (0, "")
    assert STYLED.search(terminal.logfile_read.getvalue())
    assert "\x1b" not in STYLED.sub("", terminal.logfile_read.getvalue())  # colour, and no cursor tricks
    assert "\x1b" not in plain
    for folder in (one, two):
        assert sorted(path.name for path in folder.iterdir()) == ["everstep-demo"]
        with everstep.open(folder / "everstep-demo" / "store.db", create=False) as store:
            assert [run.status for run in store.runs()] == ["succeeded"] * 3


def test_ctrl_c_ends_the_demo_and_its_processes(tmp_path: Path) -> None:
    with at_terminal(tmp_path) as terminal:
        terminal.expect_exact("search#1")
        assert workers(tmp_path)
        terminal.send("\x03")
        assert terminal.ended() == 130
    assert "Traceback" not in terminal.logfile_read.getvalue()
    assert workers(tmp_path) == []


def test_no_process_stays_behind_when_the_demo_itself_is_killed(tmp_path: Path) -> None:
    with at_terminal(tmp_path) as terminal:
        terminal.expect_exact("is thinking")
        assert workers(tmp_path)
    assert wait_for_no_worker(tmp_path)


def test_the_doomed_call_does_not_end_by_itself_however_late_the_kill_comes(tmp_path: Path) -> None:
    with stage(tmp_path) as ours, everstep.open(ours.store) as store, Child(ours, "start", "r", "plan#0") as child:
        assert [said["what"] for said in child.news()] == ["inside"]
        time.sleep(3 * model.SECONDS)
        assert child.kill() == signal.SIGKILL
        assert store.steps("r") == []
        assert store.get("r").status == "running"


def test_a_worker_that_fails_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    failed = pytest.raises(everstep.EverstepError, match=r"executed the run 'r', ended with 1: .*E401")
    with stage(tmp_path) as ours, Child(ours, "start", "r") as child, failed:  # there is no store yet
        child.end()


def test_a_folder_with_anything_else_in_it_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    foreign = tmp_path / "mine"
    foreign.mkdir()
    (foreign / "store.db").write_text("precious")
    refused(foreign, "contains a file that the demo did not create: 'store.db'")
    assert (foreign / "store.db").read_text() == "precious"
    (foreign / MARK).touch()
    (foreign / "thesis.txt").write_text("precious, too")
    refused(foreign, "'thesis.txt'")
    assert sorted(path.name for path in foreign.iterdir()) == [MARK, "store.db", "thesis.txt"]


def test_a_file_or_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    refused(tmp_path / "file", "is not a folder of the demo")
    refused(tmp_path / "link", "is not a folder of the demo")


def refused(folder: Path, why: str) -> None:
    with pytest.raises(errors.InvalidArgument) as caught:
        play(folder, lambda _: None, lambda text, _: text)
    assert why in caught.value.message
    assert "--dir" in caught.value.remedy


def test_a_folder_that_another_demo_plays_in_is_left_to_it(tmp_path: Path) -> None:
    with (tmp_path / MARK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(errors.StoreBusy, match="another demo is running"):
            play(tmp_path, lambda _: None, lambda text, _: text)


def test_a_folder_is_not_taken_from_a_worker_whose_director_is_gone(tmp_path: Path) -> None:
    with ExitStack() as children:
        with stage(tmp_path) as ours, everstep.open(ours.store):
            child = children.enter_context(Child(ours, "start", "r", "plan#0"))
            assert [said["what"] for said in child.news()] == ["inside"]
        with pytest.raises(errors.StoreBusy), stage(tmp_path):
            pass
        child.kill()
        with stage(tmp_path) as ours:
            assert not ours.store.exists()


def test_a_store_cannot_be_named(tmp_path: Path) -> None:
    done = subprocess.run([*DEMO, "--store", "mine.db"], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--dir" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="needs a folder in which nobody can make another one")
def test_a_current_folder_that_cannot_be_written_is_a_sentence_and_exit_1() -> None:
    done = subprocess.run(DEMO, cwd="/sys/kernel", env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "cannot write to the folder 'everstep-demo'" in done.stderr
    assert "--dir" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("option", corpus.NOTES)
def test_a_search_finds_the_note_on_what_was_asked_for(option: str) -> None:
    assert corpus.find(option) == corpus.NOTES[option]
