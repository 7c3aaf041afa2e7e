"""A disk that fails for a moment under a worker: it finishes its runs by itself, or ends with its reason and an exit code. Never neither.

A supervisor that starts the worker again after such an exit is all it takes. In full: EVERSTEP_DEEP=1.
"""

import errno
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from shim_helpers import shim_or_skip

import everstep
from everstep.errors import StoreFull
from harness.children import environment
from harness.faults.kills.shim import build

DEEP = bool(os.environ.get("EVERSTEP_DEEP"))
FLOWS = """
import time
from pathlib import Path

import everstep

EFFECTS = Path(__file__).with_name("effects")


def work(step):
    run = everstep.current()
    with EFFECTS.open("a") as out:
        out.write(f"{run.id} {step}\\n")
    time.sleep(0.02)
    return step


@everstep.workflow
def disk_chain(steps):
    run = everstep.current()
    found = []
    for step in range(steps):
        try:
            found.append(run.step("work", work, step))
        except Exception:
            found.append("swallowed")
    return found
"""
RUNS, STEPS = 4, 3
MOMENTS = int(os.environ.get("EVERSTEP_DISK_MOMENTS", "2"))


class Disk:
    """A store with runs in a queue, and workers that are started one after the other as a supervisor does."""

    def __init__(self, folder: Path):
        self.folder = folder
        (folder / "store").mkdir(mode=0o700)
        (folder / "disk_flows.py").write_text(FLOWS)
        with everstep.open(folder / "store" / "s.db") as store:
            for n in range(RUNS):
                store.enqueue("disk_chain", STEPS, id=f"r{n}")

    def work(self, call: int, number: int = 0, seconds: float = 0.0) -> tuple[int, int, int, str]:
        """Exit code, file calls, failed calls and what it printed."""
        command = [sys.executable, str(Path(__file__).with_name("disk_worker.py")), str(self.folder), str(call), str(number), str(seconds)]
        variables = {name: value for name, value in environment(LD_PRELOAD=str(build())).items() if not name.startswith("EVERSTEP_")}
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
        calls, fired = map(int, re.findall(r"^calls (\d+) fired (\d+)$", done.stderr, re.MULTILINE)[-1])
        return done.returncode, calls, fired, done.stdout + done.stderr

    def fault(self) -> str | None:
        with everstep.open(self.folder / "store" / "s.db") as store:
            rows = {f"r{n}": store.get(f"r{n}").status for n in range(RUNS)}
            results = {name: store.enqueue("disk_chain", STEPS, id=name).wait(0).result for name in rows}
            whole = store.verify("full")
        if set(rows.values()) != {"succeeded"} or any(result != list(range(STEPS)) for result in results.values()):
            return f"{rows} {results}"
        return None if whole.ok else str(whole)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_a_worker_survives_a_disk_that_fails_for_a_moment_or_ends_with_a_code(number: int, tmp_path: Path) -> None:
    shim_or_skip()
    (tmp_path / "counted").mkdir()
    code, calls, _, said = Disk(tmp_path / "counted").work(0)
    assert (code, calls > 50) == (0, True), said
    rng, hit, ended = random.Random(5), 0, 0
    moments = range(1, calls + 1) if DEEP else {calls // 3, *rng.sample(range(1, calls // 2), min(MOMENTS, calls // 2 - 1))}
    for call in moments:
        folder = tmp_path / f"at-{call}"
        folder.mkdir()
        disk = Disk(folder)
        code, _, fired, said = disk.work(call, number, 1.0 if DEEP else 0.4)
        about = f"call {call} of {calls}: exit code {code}\n{said[-2500:]}"
        hit += fired > 0  # how many calls there are depends on who commits together
        if code:
            assert code == 1, about
            assert re.search(r"E4\d\d", said), about
            ended += 1
            code, _, _, again = disk.work(0)
            assert code == 0, again
        assert disk.fault() is None, f"{disk.fault()} {about}"
    assert hit
    print(f"{hit} moments, {ended} ended with a code")


def test_start_on_a_full_disk_raises_and_leaves_the_run_resumable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The status is `running`, nothing was recorded that did not happen, and `resume` continues when there is space."""
    ran: list[int] = []

    @everstep.workflow
    def full_disk(steps: int) -> list[int]:
        run = everstep.current()
        return [run.step("work", lambda n: (ran.append(n), n)[1], n) for n in range(steps)]

    with everstep.open(tmp_path / "s.db") as store:
        real = store.backend.commit

        def commit(commit: object) -> object:
            if ran == [0, 1]:
                raise StoreFull("no space is left")
            return real(commit)

        monkeypatch.setattr(store.backend, "commit", commit)
        with pytest.raises(StoreFull) as caught:
            store.start(full_disk, 3, id="f")
        assert "store.resume('f')" in str(caught.value)
        assert (caught.value.written, store.get("f").status) == ("no", "running")
        ran.append(-1)
        assert store.resume("f").result == [0, 1, 2]
    assert ran == [0, 1, -1, 1, 2]


def test_a_disk_that_cannot_be_read_for_a_moment_is_not_called_damaged(tmp_path: Path) -> None:
    """SQLite reports a page that the disk could not read (EIO) as a malformed database."""
    shim_or_skip()
    (tmp_path / "store").mkdir(mode=0o700)
    place = tmp_path / "store" / "s.db"
    with everstep.open(place) as store, store.run("r", state={"n": 0}) as run:
        for n in range(10):
            run.state["n"] = n
            run.checkpoint()
    program = [sys.executable, str(Path(__file__).with_name("disk_reads.py")), str(place)]
    done = subprocess.run(program, env=environment(LD_PRELOAD=str(build())), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    errors = [line.split()[2] for line in done.stdout.splitlines()]
    assert len(errors) > 5
    assert "StoreError" in errors
    assert set(errors) <= {"StoreError", "StoreFailed", "nothing"}, done.stdout
