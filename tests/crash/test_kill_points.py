"""kill -9 at file calls: the shim that does it, the judge, and what becomes of a store."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import apsw
import pace
import pytest
from shim_helpers import shim_or_skip

import everstep
from harness.children import environment
from harness.faults.kills import kills
from harness.faults.kills.crashes import Scenario, Stage
from harness.faults.kills.shim import build, why_not
from harness.faults.kills.sweep import some
from harness.faults.log import Entry, Log, read_log
from harness.faults.verdict import judge, leftovers, look
from harness.faults.workload import Workload

PARTS = 3


def under_shim(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run some lines in a new process that has the shim; `arm(call, action, ...)` arms it for the folder."""
    shim_or_skip()
    begin = f"""
import os, sys
from pathlib import Path
from harness.faults.kills.shim import Fault, Shim, CHANGES, NEEDS_SPACE, READ
folder = Path({str(folder)!r})
shim = Shim()
def arm(*fault, **more): shim.arm(folder, Fault(*fault, **more))
"""
    return subprocess.run(
        [sys.executable, "-c", begin + code], env=environment(LD_PRELOAD=str(build())), capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("moment", "left"), [("before", b""), ("half", b"01234"), ("after", b"0123456789")])
@pytest.mark.parametrize("call", ["os.write(file, data)", "os.pwrite(file, data, 0)"])
def test_a_process_is_killed_before_in_the_middle_of_or_after_a_write(memory_folder: Path, moment: str, left: bytes, call: str) -> None:
    done = under_shim(
        f"file = os.open(folder / 'f', os.O_WRONLY | os.O_CREAT)\ndata = b'0123456789'\narm(1, 'kill', {moment!r})\n{call}", memory_folder
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (memory_folder / "f").read_bytes() == left


def test_calls_are_counted_below_the_folder_only_and_in_order(memory_folder: Path) -> None:
    done = under_shim(
        """
inside, outside = folder / "inside", folder / "outside"
inside.mkdir(); outside.mkdir()
shim.arm(inside, Fault(), 1)
for place in (outside, inside):
    file = os.open(place / "a", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(file, b"x"); os.fsync(file); os.ftruncate(file, 0); os.pread(file, 1, 0); os.close(file)
    os.rename(place / "a", place / "b"); os.link(place / "b", place / "c"); os.unlink(place / "b")
    (place / "d").mkdir()
print("all", shim.calls, shim.fired)
""",
        memory_folder,
    )
    seen = [line.split()[1:] for line in done.stdout.splitlines()[:-1]]
    order = ["open /a", "write /a", "fsync /a", "ftruncate /a", "rename /b", "link /c", "unlink /b", "mkdir /d"]
    assert [" ".join(words) for words in seen] == order, done.stderr
    assert done.stdout.splitlines()[-1] == "all 8 0"


def test_an_error_comes_once_or_for_good_and_nothing_is_written_by_it(memory_folder: Path) -> None:
    done = under_shim(
        """
def attempt(*fault, **more):
    file = os.open(folder / "f", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    arm(*fault, **more)
    said = []
    for _ in range(4):
        try: said.append(os.write(file, b"0123"))
        except OSError as error: said.append(error.errno)
    shim.disarm()
    print(said, (folder / "f").stat().st_size, shim.fired)
attempt(2, "fail", error=5)
attempt(2, "fail", error=28, lasting=True)
attempt(2, "fail", "half", 28)
attempt(2, "fail", error=28, kinds=READ)
""",
        memory_folder,
    )
    assert done.stdout.splitlines() == ["[4, 5, 4, 4] 12 1", "[4, 28, 28, 28] 4 3", "[4, 28, 4, 4] 14 1", "[4, 4, 4, 4] 16 0"], done.stderr


def test_a_full_disk_still_opens_what_is_there(memory_folder: Path) -> None:
    done = under_shim(
        """
(folder / "there").touch()
arm(1, "fail", error=28, lasting=True, kinds=NEEDS_SPACE)
os.close(os.open(folder / "there", os.O_RDWR | os.O_CREAT))
try: os.open(folder / "new", os.O_RDWR | os.O_CREAT)
except OSError as error: print(error.errno)
""",
        memory_folder,
    )
    assert done.stdout == "28\n", done.stderr


def test_without_a_compiler_a_sentence_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "apt install gcc" in str(why_not())
    monkeypatch.setenv("EVERSTEP_REQUIRE_CC", "1")
    with pytest.raises(pytest.fail.Exception, match="apt install gcc"):
        shim_or_skip()
    monkeypatch.delenv("EVERSTEP_REQUIRE_CC")
    with pytest.raises(pytest.skip.Exception, match="apt install gcc"):
        shim_or_skip()
    monkeypatch.setenv("EVERSTEP_REQUIRE_CC", "1")
    with pytest.raises(pytest.fail.Exception, match="apt install gcc"):
        shim_or_skip()


# the judge


@pytest.fixture
def played(memory_folder: Path) -> Path:
    Workload(memory_folder).play()
    return memory_folder


def told(folder: Path, *entries: Entry) -> str:
    """What is found wrong if the log said this, too."""
    with everstep.open(folder / "store" / "store.db") as store:
        return str(look(store, [*read_log(folder / "log"), *entries]))


def test_an_undisturbed_store_is_as_promised_and_all_of_the_program_was_done(played: Path) -> None:
    assert str(judge(played)) == "as promised"
    done = {entry.what for entry in read_log(played / "log") if entry.at == "done"}
    assert done == {
        "open", "run", "step", "checkpoint", "leave", "tag", "start", "answer", "end", "fork", "delete", "prune", "gc", "enqueue", "take", "all",
    }  # fmt: skip
    with everstep.open(played / "store" / "store.db") as store:
        assert store.backend.bases("loop")
        assert store.backend.pruned("loop")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (Entry("done", "checkpoint", "loop", "turn 99", "d", 99), "lost: loop@99"),
        (Entry("done", "checkpoint", "loop", "turn 10", "d", 12), "wrong: loop@12"),
        (Entry("done", "step", "loop", "think#77"), "lost: step think#77"),
        (Entry("ran", "step", "loop", "think#0"), "lost: step think#0 of 'loop' ran again"),
        (Entry("done", "run", "gone2"), "as promised"),
        (Entry("done", "tag", "loop", "other", number=3), "lost: tag 'other'"),
        (Entry("wrong", "step", "loop", "think#0"), "wrong: step loop think#0"),
    ],
)
def test_a_store_that_is_not_what_the_log_says_is_found_out(played: Path, entry: Entry, said: str) -> None:
    assert said in told(played, entry)


def test_a_run_that_is_gone_or_back_is_found_out(played: Path) -> None:
    with everstep.open(played / "store" / "store.db") as store:
        store.delete("fork")
        with store.run("gone") as run:
            run.checkpoint()
    verdict = told(played)
    assert "missing: run 'fork'" in verdict
    assert "run 'gone' was deleted" in verdict


def test_a_queue_entry_that_is_lost_or_left_behind_is_found_out(memory_folder: Path) -> None:
    workload = Workload(memory_folder)
    with workload.open() as store:
        workload.enqueue(store, 0)
    assert told(memory_folder) == "as promised"
    done = Entry("done", "end", "job-1")
    assert "wrong: run 'job-1' has ended and still has a queue entry" in told(memory_folder, done)
    connection = apsw.Connection(str(workload.path))
    connection.execute("DELETE FROM tasks WHERE priority = 0")
    connection.close()
    assert told(memory_folder) == "lost: the queue entry of 'job-1'"
    assert "no entry in queue 'jobs'" in str(judge(memory_folder, resume=False))


def test_what_was_refused_as_not_written_must_not_be_there(memory_folder: Path) -> None:
    with everstep.open(memory_folder / "s.db") as store:
        with store.run("loop", state={"n": 1}) as run:
            run.checkpoint("turn 1, try 1")
        entries = [Entry("begin", "run", "loop"), Entry("begin", "checkpoint", "loop", "turn 1, try 1", "d")]
        refused = Entry("refused", "checkpoint", "loop", "turn 1, try 1", "d", written="no")
        assert "was reported as not written" in str(look(store, [*entries, refused]))
        refused.written = "unknown"
        assert "was reported as not written" not in str(look(store, [*entries, refused]))


def test_leftovers_are_found(played: Path) -> None:
    store = played / "store"
    assert leftovers(store / "store.db") == []
    (store / ".store.db.1.x.new").touch()
    (store / "store.db-locks").mkdir(exist_ok=True)
    (store / "store.db-locks" / "w-1").touch()
    assert leftovers(store / "store.db") == [".store.db.1.x.new", "store.db-locks/w-1"]


def test_a_log_that_was_cut_off_is_read_up_to_there(memory_folder: Path) -> None:
    log = Log(memory_folder / "log")
    log.say(Entry("begin", "open"))
    log.write(b'{"at": "do')
    log.close()
    assert read_log(memory_folder / "log") == [Entry("begin", "open")]


# the sweep


def test_a_seed_chooses_the_same_points(memory_folder: Path) -> None:
    stages = [Stage(Scenario(name, lambda folder: None, lambda folder: None), memory_folder / name) for name in ("a", "b")]  # type: ignore[arg-type, return-value]
    places = [(stage, fault, "") for stage in stages for fault in range(500 if stage is stages[0] else 20)]
    chosen = some(places, 60, Random(1))  # type: ignore[arg-type]
    assert chosen == some(places, 60, Random(1))  # type: ignore[arg-type]
    assert chosen != some(places, 60, Random(2))  # type: ignore[arg-type]
    assert sum(stage is stages[1] for stage, *_ in chosen) >= 15


@pytest.mark.parametrize("seed", pace.in_turn(range(PARTS)))
def test_nothing_that_was_acknowledged_is_lost_by_a_kill(memory_folder: Path, seed: int) -> None:
    shim_or_skip()
    points = pace.share(kills.SHORT // PARTS, 2)
    count = kills.SWEEP.part(memory_folder, points, seed, workers=1)
    assert (count.bad, count.notes) == (0, []), str(count)
    assert count.tried == count.held > points * 0.8


def test_stores_that_are_broken_on_purpose_are_caught_by_a_kill(memory_folder: Path) -> None:
    shim_or_skip()
    assert kills.SWEEP.canaries(memory_folder) == {
        "a store that acknowledges before COMMIT": True,
        "a manifest in a second transaction": True,
    }
