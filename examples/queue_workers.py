"""Runs in a queue, two workers, one of which is killed: python examples/queue_workers.py

Ten runs of four steps wait in a queue. Two processes work on it; when half of the steps are done, one of them is killed with SIGKILL. The
other one resumes its runs after the last step that each had finished. With a store on PostgreSQL the workers could be on any machine: pass
its URL as an argument. Otherwise nothing leaves this machine.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import everstep

RUNS, STEPS = 10, 4


@everstep.step
def brew(cup: int, part: int, effects: str) -> str:
    with Path(effects).open("a") as lines:
        lines.write(f"{cup}/{part}\n")
    time.sleep(0.05)
    return f"{part}"


@everstep.workflow
def coffee(cup: int, effects: str) -> str:
    return "".join(brew(cup, part, effects) for part in range(STEPS))


def work(url: str) -> None:
    """Work like `everstep worker --import examples.queue_workers --queue coffee --concurrency 3`."""
    with everstep.open(url) as store:
        store.worker("coffee", concurrency=3).run()


def worker(url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, "work", url])


def done(effects: Path) -> int:
    return len(effects.read_text().splitlines()) if effects.exists() else 0


def main(url: str) -> None:
    effects = Path(tempfile.mkdtemp(prefix="everstep-queue-"), "effects.txt")
    place = url or str(effects.with_name("store.db"))
    with everstep.open(place) as store:
        cups = [store.enqueue(coffee, cup, str(effects), queue="coffee") for cup in range(RUNS)]
        print(f"{len(cups)} runs wait in the queue. Two workers start.")
        workers = [worker(place), worker(place)]
        while done(effects) < RUNS * STEPS // 2:
            time.sleep(0.01)
        workers[0].send_signal(signal.SIGKILL)
        print(f"Process {workers[0].pid} was killed (SIGKILL) after {done(effects)} of {RUNS * STEPS} steps.")
        results = {cup.wait(60).result for cup in cups}
        workers[1].send_signal(signal.SIGTERM)  # it finishes its runs, and ends
        workers[1].wait()
        workers[0].wait()
        freed = next(queue.freed for queue in store.queues() if queue.name == "coffee")
        again = done(effects) - RUNS * STEPS
        print(f"All {len(cups)} runs succeeded. {freed} were taken over; {again} steps that were running when the process died ran again.")
        if results != {"0123"} or not 0 <= again <= 3 or not all(cup.status == "succeeded" for cup in cups):
            raise SystemExit(1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(sys.argv[2])
    else:
        main(sys.argv[1] if len(sys.argv) > 1 else "")
