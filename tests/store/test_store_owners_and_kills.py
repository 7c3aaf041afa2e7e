"""The owner of a run in real processes and under real signals: two writers, killed ones, stopped ones, forked ones, many at once."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
import warm

import everstep
from everstep.errors import LeaseHeld, StoreClosed

Start = Callable[..., "subprocess.Popen[str]"]
PACKAGE = str(Path(everstep.__file__).parents[1])
PREAMBLE = """
import os, sys, time
import everstep
from everstep.errors import *
def say(*words): print(*words, flush=True)
"""


@pytest.fixture
def start() -> Iterator[Start]:
    """Run Python code in a process of its own; what still lives at the end of the test is killed."""
    started: list[subprocess.Popen[str]] = []
    paths = [str(Path(everstep.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}

    def run(code: str, *arguments: object) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", PREAMBLE + code, *map(str, arguments)]
        process: subprocess.Popen[str] = warm.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, env=environment)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def heard(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def finished(process: "subprocess.Popen[str]") -> str:
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    return out


HOLD = """
store = everstep.open(sys.argv[1])
with store.run("r", state={"l": [1]}) as run:
    run.checkpoint()
    say("open")
    sys.stdin.readline()
"""


def test_a_second_process_is_refused_and_told_who_has_the_run(tmp_path: Path, start: Start) -> None:
    before = datetime.now().astimezone()
    owner = start(HOLD, tmp_path / "s.db")
    assert heard(owner) == "open"
    with everstep.open(tmp_path / "s.db") as store:
        with pytest.raises(LeaseHeld) as caught, store.run("r"):
            pass
        held = caught.value
        assert (held.run, held.pid, held.host) == ("r", owner.pid, socket.gethostname())
        since, expires = datetime.fromisoformat(held.since), datetime.fromisoformat(held.expires)
        assert abs((since - before).total_seconds()) < 30
        assert 0 < (expires - since).total_seconds() < 120
        assert store.load("r") == {"l": [1]}
        assert store.get("r").open
        with store.run("another"):
            pass
        owner.communicate("go\n", timeout=30)
        with store.run("r") as run:
            run.state["l"].append(2)
            run.checkpoint()
        assert store.load("r") == {"l": [1, 2]}


def test_a_killed_owner_is_overtaken_at_once(tmp_path: Path, start: Start) -> None:
    owner = start(HOLD, tmp_path / "s.db")
    assert heard(owner) == "open"
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    with everstep.open(tmp_path / "s.db") as store:
        began = time.monotonic()
        with store.run("r") as run:
            assert time.monotonic() - began < 2
            assert run.state == {"l": [1]}
            run.state["l"].append(2)
            assert run.checkpoint().number == 2
        assert store.verify("full").ok


def test_a_stopped_owner_is_overtaken_when_its_lease_ends_and_writes_nothing_more(tmp_path: Path, start: Start) -> None:
    code = """
store = everstep.open(sys.argv[1], lease_seconds=0.8)
run = store.run("r", state={"who": "first"}).__enter__()
run.checkpoint()
say("open"); sys.stdin.readline()
run.state["who"] = "late"
for _ in range(2):
    try: run.checkpoint(); say("written")
    except EverstepError as error: say(type(error).__name__, error.written)
run.__exit__(None, None, None)
store.close()
"""
    owner = start(code, tmp_path / "s.db")
    assert heard(owner) == "open"
    owner.send_signal(signal.SIGSTOP)
    with everstep.open(tmp_path / "s.db") as store:
        with pytest.raises(LeaseHeld), store.run("r"):
            pass
        time.sleep(1.0)
        with store.run("r") as run:
            run.state["who"] = "second"
            run.checkpoint()
            owner.send_signal(signal.SIGCONT)
            assert owner.communicate("go\n", timeout=30)[0] == "LostLease no\n" * 2
            run.state["still"] = "mine"
            run.checkpoint()
        assert store.load("r") == {"who": "second", "still": "mine"}
        assert store.get("r").checkpoints == 3
        assert store.verify("full").ok


def test_a_live_owner_keeps_its_lease_beyond_its_time(tmp_path: Path, start: Start) -> None:
    owner = start(HOLD.replace("sys.argv[1])", "sys.argv[1], lease_seconds=0.5)"), tmp_path / "s.db")
    assert heard(owner) == "open"
    with everstep.open(tmp_path / "s.db") as store:
        for _ in range(4):
            time.sleep(0.4)
            with pytest.raises(LeaseHeld), store.run("r"):
                pass


def test_eight_processes_open_a_new_store_at_once(tmp_path: Path, start: Start) -> None:
    code = """
name, gate = sys.argv[2], sys.argv[3]
while not os.path.exists(gate): time.sleep(0.001)
with everstep.open(sys.argv[1]) as store, store.run(name, state={"name": name}) as run:
    run.checkpoint()
"""
    gate = tmp_path / "gate"
    processes = [start(code, tmp_path / ".everstep" / "store.db", f"run{i}", gate) for i in range(8)]
    time.sleep(0.3)
    gate.touch()
    for process in processes:
        finished(process)
    with everstep.open(tmp_path / ".everstep" / "store.db") as store:
        assert {info.id for info in store.runs()} == {f"run{i}" for i in range(8)}
        assert all(store.load(f"run{i}") == {"name": f"run{i}"} for i in range(8))
        assert store.verify("full").ok


def test_sixteen_processes_write_sixteen_runs_and_nothing_is_lost(tmp_path: Path, start: Start) -> None:
    code = """
with everstep.open(sys.argv[1]) as store, store.run(sys.argv[2], state={"l": []}) as run:
    for i in range(30):
        run.state["l"].append(f"{sys.argv[2]} {i}")
        assert run.checkpoint().number == i + 1
"""
    for process in [start(code, tmp_path / "s.db", f"run{i}") for i in range(16)]:
        finished(process)
    with everstep.open(tmp_path / "s.db") as store:
        for i in range(16):
            assert store.load(f"run{i}") == {"l": [f"run{i} {k}" for k in range(30)]}
            assert store.load(f"run{i}@7") == {"l": [f"run{i} {k}" for k in range(7)]}
        assert store.verify("full").ok


def test_of_many_processes_that_want_one_new_run_one_gets_it(tmp_path: Path, start: Start) -> None:
    code = """
store, gate = everstep.open(sys.argv[1]), sys.argv[2]
while not os.path.exists(gate): time.sleep(0.001)
try:
    with store.run("r") as run:
        run.state["pid"] = os.getpid(); run.checkpoint(); say("wrote"); sys.stdin.readline()
except LeaseHeld: say("refused")
"""
    everstep.open(tmp_path / "s.db").close()
    gate = tmp_path / "gate"
    processes = [start(code, tmp_path / "s.db", gate) for _ in range(6)]
    time.sleep(0.3)
    gate.touch()
    assert sorted(heard(process) for process in processes) == ["refused"] * 5 + ["wrote"]
    with everstep.open(tmp_path / "s.db") as store:
        assert store.get("r").checkpoints == 1
        assert store.load("r")["pid"] in {process.pid for process in processes}


def test_a_forked_child_that_uses_its_parents_store_is_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store, store.run("r", state={"l": []}) as run:
        run.checkpoint()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads around is what is tested
            pid = os.fork()
        if pid == 0:
            code = 1
            try:
                refused = 0
                run.state["l"].append("child")
                for use in (run.checkpoint, lambda: store.load("r"), lambda: store.runs()):
                    try:
                        use()
                    except StoreClosed as error:
                        refused += "in the child" in error.remedy
                if refused == 3:
                    own = everstep.open(tmp_path / "s.db")
                    code = 0 if own.load("r") == {"l": []} else 2
                    own.close()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        run.state["l"].append("parent")
        assert run.checkpoint().number == 2
        assert store.load("r") == {"l": ["parent"]}
        assert store.verify("full").ok


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_a_forked_child_closes_what_it_was_born_with_and_goes(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The threads of a store are not there in the child: nobody waits for them."""
    at = tmp_path / "s.db" if backend == "sqlite" else request.getfixturevalue("place")
    with everstep.open(at) as store, store.run("r", state={}) as run, store.run("deferred", state={}, durability="async") as deferred:
        for i in range(40):  # all threads of the store have begun
            run.state["n"] = deferred.state["n"] = i
            run.checkpoint()
            deferred.checkpoint()
        deferred.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads around is what is tested
            pid = os.fork()
        if pid == 0:
            signal.alarm(20)  # ends the child if it waits for ever
            code = 1
            try:
                store.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        for handle in (run, deferred):
            handle.state["n"] = "after"
            handle.checkpoint()
        deferred.flush()
        assert [store.load(name)["n"] for name in ("r", "deferred")] == ["after", "after"]


LOOP = """
store = everstep.open(sys.argv[1])
with store.run("r", state={"l": [], "n": 0}) as run:
    while True:
        run.state["n"] += 1
        run.state["l"].append("%d " % run.state["n"] * 50)
        if len(run.state["l"]) > 400: del run.state["l"][:100]
        say(run.checkpoint(tags=["even"] if run.state["n"] % 2 == 0 else []).number)
"""


@pytest.mark.parametrize("part", range(2))
def test_whatever_was_acknowledged_is_there_after_kill_9_at_any_moment(tmp_path: Path, start: Start, part: int) -> None:
    rng = random.Random(part)
    last = 0
    for _ in range(10):
        process = start(LOOP, tmp_path / "s.db")
        assert process.stdout is not None
        for _ in range(rng.randint(1, 60)):
            last = int(heard(process))
        time.sleep(rng.random() * 0.01)
        process.send_signal(signal.SIGKILL)
        complete = process.stdout.read().rpartition("\n")[0].split()
        last = max([last, *map(int, complete)])
        process.wait()
        with everstep.open(tmp_path / "s.db") as store:
            head = store.get("r").checkpoints
            assert last <= head <= last + 1
            assert store.load("r")["n"] == head
            report = store.verify("full")
            assert report.ok, str(report)
        last = head


def test_sigterm_in_the_middle_leaves_a_whole_store(tmp_path: Path, start: Start) -> None:
    process = start(LOOP, tmp_path / "s.db")
    for _ in range(20):
        last = int(heard(process))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    with everstep.open(tmp_path / "s.db") as store:
        assert store.get("r").checkpoints >= last
        assert store.verify("full").ok
        with store.run("r") as run:
            run.checkpoint()


def test_ctrl_c_in_the_middle_leaves_a_whole_store_that_can_go_on(tmp_path: Path, start: Start) -> None:
    for _ in range(5):
        process = start(LOOP, tmp_path / "s.db")
        for _ in range(random.Random(1).randint(3, 20)):
            last = int(heard(process))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        with everstep.open(tmp_path / "s.db") as store:
            newest = next(c for c in store.checkpoints("r") if c.kind == "manual")
            assert newest.number >= last
            assert store.verify("full").ok
            with store.run("r") as run:
                assert run.state == store.load(newest.ref)


def test_async_durability_loses_only_what_was_not_flushed(tmp_path: Path, start: Start) -> None:
    code = """
store = everstep.open(sys.argv[1])
with store.run("r", durability="async") as run:
    for i in range(1, 10**9):
        run.state["n"] = i; run.checkpoint()
        if i % 50 == 0: run.flush(); say(i)
"""
    process = start(code, tmp_path / "s.db")
    for _ in range(6):
        last = int(heard(process))
    process.send_signal(signal.SIGKILL)
    process.wait()
    with everstep.open(tmp_path / "s.db") as store:
        head = store.get("r").checkpoints
        assert head >= last
        assert store.load("r") == {"n": head}
        assert store.verify("full").ok


@pytest.mark.parametrize("durability", ["async", "exit"])
def test_lagging_checkpoints_are_flushed_when_the_program_ends_by_an_error(tmp_path: Path, start: Start, durability: str) -> None:
    code = """
store = everstep.open(sys.argv[1])
with store.run("r", durability=sys.argv[2]) as run:
    for i in range(1, 101): run.state["n"] = i; run.checkpoint()
    raise SystemExit(3)
"""
    process = start(code, tmp_path / "s.db", durability)
    process.communicate(timeout=30)
    assert process.returncode == 3
    with everstep.open(tmp_path / "s.db") as store:
        assert store.load("r") == {"n": 100}


def test_the_default_store_is_found_upward_like_git(tmp_path: Path, start: Start) -> None:
    code = """
os.chdir(sys.argv[1])
with everstep.open() as store, store.run(sys.argv[2]) as run: run.checkpoint()
say(store.url)
"""
    (tmp_path / "a" / "b").mkdir(parents=True)
    first = finished(start(code, tmp_path, "one"))
    second = finished(start(code, tmp_path / "a" / "b", "two"))
    assert first == second
    assert (tmp_path / ".everstep" / "store.db").exists()
    with everstep.open(tmp_path / ".everstep" / "store.db") as store:
        assert {info.id for info in store.runs()} == {"one", "two"}


def test_importing_everstep_imports_no_heavy_module() -> None:
    heavy = ["asyncio", "numpy", "pydantic", "rich", "click", "msgspec", "sqlite3", "apsw"]
    code = f"import everstep, sys; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": PACKAGE}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
