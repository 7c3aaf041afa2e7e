"""A run that is killed and goes on: python examples/survive.py

A child process asks a (scripted, local) model twelve questions and saves after each answer. It is killed with SIGKILL in the
middle of the eighth call. A second process opens the run again and goes on from the last answer that was saved. Then the run is
forked before its decision, decides otherwise, and the two endings are compared. Nothing leaves this machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path

import everstep

PRICE = Decimal("0.15")
TOPICS = ["budget", "dates", "guests", "weather", "routes", "decision", "tickets", "hotel", "food", "luggage", "insurance", "summary"]
SLOW = 8  # the call that hangs in the first process, and during which it is killed


def ask_model(topic: str, way: str | None, bill: Path, hang: bool) -> str:
    """One paid call. It is paid for when it is sent, as with a real provider, so the bill is written first."""
    with bill.open("a") as file:
        file.write(f"{os.getpid()} {topic} {PRICE}\n")
    time.sleep(60 if hang else 0.02)
    return f"{topic}: settled, going by {way}" if way else f"{topic}: settled"


def plan_trip(run: everstep.Run, bill: Path, hang_at: int = 0, talk: bool = True) -> None:
    """The agent's loop: ask, note the answer, save. It begins wherever the state says that it stopped."""
    state = run.state
    while len(state["answers"]) < len(TOPICS):
        topic = TOPICS[len(state["answers"])]
        if topic == "decision":
            state["way"] = state["wish"] or "plane"
        answer = ask_model(topic, state["way"], bill, hang=len(state["answers"]) + 1 == hang_at)
        state["answers"].append(answer)
        state["spent"] += PRICE
        tags = ["before-decision"] if len(state["answers"]) == TOPICS.index("decision") else []
        saved = run.checkpoint(note=f"asked about {topic}", tags=tags)
        if talk:
            print(f"saved {saved.number}", flush=True)


def work(folder: Path, name: str, hang_at: int) -> None:
    """What a child process does."""
    first = {"answers": [], "way": None, "wish": None, "spent": Decimal(0)}
    with everstep.open(folder / "store.db") as store, store.run(name, state=first, workflow="trip") as run:
        plan_trip(run, folder / f"bill-{name}.txt", hang_at)


def start(folder: Path, name: str, hang_at: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, "work", str(folder), name, str(hang_at)], stdout=subprocess.PIPE, text=True)


def finish(child: subprocess.Popen[str]) -> int:
    """Wait for a child that is to end well, and return how many checkpoints it made."""
    out, _ = child.communicate(timeout=60)
    if child.returncode != 0:
        raise SystemExit(f"the child failed with {child.returncode}")
    return len(out.splitlines())


def kill_in_the_middle(folder: Path) -> None:
    child = start(folder, "trip", hang_at=SLOW)
    assert child.stdout is not None
    bill = folder / "bill-trip.txt"
    for line in child.stdout:
        if line.strip() == f"saved {SLOW - 1}":
            break
    while len(bill.read_text().splitlines()) < SLOW:  # until the next call is on its way, and paid for
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    print(f"1. Process {child.pid} was killed (SIGKILL) during call {SLOW} of {len(TOPICS)}.")


def calls(folder: Path, name: str) -> int:
    return len((folder / f"bill-{name}.txt").read_text().splitlines())


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="everstep-survive-"))
    print(f"Everything happens in {folder}\n")

    kill_in_the_middle(folder)
    with everstep.open(folder / "store.db") as store:
        kept = store.get("trip").checkpoints
        print(f"   On disk: {kept} checkpoints, the newest says {store.checkpoint('trip').note!r}.")

        made = finish(start(folder, "trip"))
        paid = calls(folder, "trip")
        print(f"2. A new process kept {kept} answers and made the other {made}.")
        print(f"   Calls paid: {paid} (the one in flight twice). Starting over would have paid {SLOW + len(TOPICS)}.")
        print(f"   Saved: {kept} calls, ${kept * PRICE}.")

        finish(start(folder, "calm"))
        same = store.load("trip") == store.load("calm")
        print(f"3. Same final state as a run that nobody disturbed: {'yes' if same else 'NO'}")

        fork = store.fork("trip@before-decision", id="by-train", edit={"wish": "train"})
        print(f"4. Forked {fork.parent}@{fork.parent_number}, before the decision, with another wish:")
        with store.run(fork.id) as run:
            plan_trip(run, folder / "bill-by-train.txt", talk=False)
        print(
            f"   It paid for {calls(folder, 'by-train')} calls; the {fork.parent_number} before the fork are shared. The endings differ in:"
        )
        for change in store.diff("trip", fork.id):
            print(f"   {change}")

        report = store.verify("full")
        print(f"5. {report}")
    print(f"\nLook at it: everstep.open({str(folder / 'store.db')!r})")
    if not (same and report.ok):
        raise SystemExit(1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    else:
        main()
