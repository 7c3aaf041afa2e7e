"""A workflow that is killed, resumes, and waits for a person: python examples/approval_gate.py

A child process starts the workflow and is killed with SIGKILL while it prices the third item. A second process resumes the run and reaches
a gate; now the run waits without a process. A third one answers the gate, as a web page or a chat bot would, and wakes up the run. Nothing
leaves this machine.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import everstep

ITEMS = ["train", "hotel", "museum", "dinner"]
SLOW = "museum"  # the item that is being priced when the first process is killed


@everstep.step(retry=everstep.Retry(attempts=3, delay=0.05))
def price(item: str, folder: str) -> int:
    with Path(folder, "calls.txt").open("a") as calls:
        calls.write(f"{item}\n")
    if item == SLOW and Path(folder, "hang").exists():
        time.sleep(60)
    return 10 * len(item)


@everstep.step(at_most_once=True)
def book(items: list[str]) -> str:
    return f"booked {len(items)} things"


@everstep.workflow
def trip(items: list[str], folder: str) -> str:
    total = sum(price(item, folder) for item in items)
    choice = everstep.gate("budget", ask=f"Spend {total}?", choices=["yes", "no"], timeout=7 * 24 * 3600, default="no")
    return book(items) if choice == "yes" else "stayed at home"


def start(folder: Path) -> everstep.Outcome:
    """Start the run or resume it: the same call, because the id and the input are the same."""
    with everstep.open(folder / "store.db") as store:
        outcome: everstep.Outcome = store.start(trip, ITEMS, str(folder), id="trip-1")
        return outcome


def answer(folder: Path, value: str) -> None:
    """Answer as a person would. This needs neither a lease nor the code of the workflow."""
    with everstep.open(folder / "store.db") as store:
        store.answer("trip-1", "budget", value, by="ann")


def child(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, *words])


def kill_in_the_middle(folder: Path) -> None:
    (folder / "hang").touch()
    process = child("start", str(folder))
    calls = folder / "calls.txt"
    while not (calls.exists() and SLOW in calls.read_text()):
        if process.poll() is not None:
            raise SystemExit(f"the child ended on its own with {process.returncode}")
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (folder / "hang").unlink()
    print(f"1. Process {process.pid} was killed (SIGKILL) while it priced the {SLOW}.")


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="everstep-gate-"))
    print(f"Everything happens in {folder}\n")
    kill_in_the_middle(folder)

    outcome = start(folder)
    print(f"2. {outcome.report}")
    print(f"   The run is {outcome.status}. It asks: {outcome.gates[0].ask} {outcome.gates[0].choices}")

    if child("answer", str(folder), "yes").wait() != 0:
        raise SystemExit("the answer was refused")
    print("3. Another process has answered: yes")

    with everstep.open(folder / "store.db") as store:
        (outcome,) = store.wake()
        print(f"4. {outcome.result}")
        print(f"   {outcome.report}")
        for event in store.events(run="trip-1"):
            print(f"   {event.position:3} {event.name:18} {event.data.get('step') or event.data.get('gate') or ''}")
    calls = (folder / "calls.txt").read_text().split()
    if outcome.unwrap() != "booked 4 things" or calls != ["train", "hotel", "museum", "museum", "dinner"]:
        raise SystemExit(1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["start"]:
        start(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["answer"]:
        answer(Path(sys.argv[2]), sys.argv[3])
    else:
        main()
