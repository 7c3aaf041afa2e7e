"""The child process that is a worker: `python -m benchmarks.hand URL`. Prints a JSON line when it is ready and one when a workflow begins.

Times are those of the system's monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import everstep


def say(what: str, **said: Any) -> None:
    line = json.dumps({"what": what, "at": time.monotonic_ns(), "pid": os.getpid(), **said})
    os.write(1, f"{line}\n".encode())  # one write, so that lines of several threads stay whole


@everstep.workflow
def greet(number: int) -> int:
    say("begun", number=number)
    return number


@everstep.workflow
def linger(number: int, sign: str) -> int:
    """Run until a file appears."""
    say("begun", number=number)
    while not Path(sign).exists():
        time.sleep(0.01)
    return number


def main() -> None:
    with everstep.open(sys.argv[1]) as store:
        store.worker(tell=lambda told: say("ready") if told["event"] == "started" else None).run()


if __name__ == "__main__":
    main()
