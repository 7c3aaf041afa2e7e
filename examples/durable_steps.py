"""Steps that are not paid for twice: python examples/durable_steps.py

A child process works through six questions. Each is one step: a paid call of a (scripted, local) model. It is killed with SIGKILL inside
the fourth. A second process runs the same program: three answers come from the journal, the fourth call learns that it may have been made
before, and the report shows how much was saved. Nothing leaves this machine.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import everstep

QUESTIONS = ["budget", "dates", "guests", "weather", "routes", "food"]
SLOW = "weather"  # the call that hangs in the first process, which is killed during it


@everstep.step(kind="llm", ignore=("folder", "hang"))
def ask_model(question: str, folder: Path, hang: bool) -> str:
    """Make one paid call. `step_key` is the same in both processes, so that a service could recognise the second call."""
    run = everstep.current()
    with (folder / "bill.txt").open("a") as bill:
        bill.write(f"{question} {run.step_key} {'again' if run.step_again else 'first'}\n")
    if hang and question == SLOW:
        time.sleep(60)
    time.sleep(0.05)
    run.usage(tokens=800, cost=0.012)
    return f"{question}: settled"


def work(folder: Path, hang: bool) -> everstep.Run:
    with everstep.open(folder / "store.db") as store, store.run("trip") as run:
        run.state["answers"] = [ask_model(question, folder, hang) for question in QUESTIONS]
    return run


def kill_in_the_middle(folder: Path) -> None:
    child = subprocess.Popen([sys.executable, __file__, "work", str(folder)])
    bill = folder / "bill.txt"
    while not (bill.exists() and SLOW in bill.read_text()):
        if child.poll() is not None:
            raise SystemExit(f"the child ended on its own with {child.returncode}")
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    child.wait()
    print(f"1. Process {child.pid} was killed (SIGKILL) inside step 4 of {len(QUESTIONS)}.")


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="everstep-steps-"))
    print(f"Everything happens in {folder}\n")
    kill_in_the_middle(folder)
    run = work(folder, hang=False)
    print(f"2. {run.report}")

    paid = [line.split() for line in (folder / "bill.txt").read_text().splitlines()]
    twice = [entry for entry in paid if entry[0] == SLOW]
    same = len({key for _, key, _ in twice}) == 1
    print(f"3. {len(paid)} calls were paid for {len(QUESTIONS)} answers. {SLOW!r} was in flight when the process died:")
    print(f"   the second call saw that ({twice[-1][2]}) and had the same key: {'yes' if same else 'NO'}.")

    with everstep.open(folder / "store.db") as store:
        for step in store.steps("trip"):
            print(f"   {step.address:13} {step.input:22} {step.seconds * 1000:4.0f} ms by process {step.worker.rpartition(':')[2]}")
        if store.load("trip")["answers"] != [f"{question}: settled" for question in QUESTIONS]:
            raise SystemExit("the answers differ from those of an undisturbed run")
    if len(paid) != len(QUESTIONS) + 1 or not same or run.report.kept != 3:
        raise SystemExit(1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(Path(sys.argv[2]), hang=True)
    else:
        main()
