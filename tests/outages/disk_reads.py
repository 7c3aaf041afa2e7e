"""Reads a store whose disk fails from one file call on, for each call in turn: `python disk_reads.py STORE`. Runs under the shim.

Prints the class of each error, and what the store says when the disk works again.
"""

import sys
from pathlib import Path

import everstep
from harness.faults.kills.shim import READ, Fault, Shim


def read(path: Path) -> None:
    with everstep.open(path) as store:
        silence = store.backend.bell(lambda: None)  # a connection of its own, as a worker has
        assert store.load("r") == {"n": 9}
        assert len(store.runs()) == 1
        silence()


if __name__ == "__main__":
    place, shim = Path(sys.argv[1]), Shim()
    shim.arm(place.parent, Fault(0, "count", kinds=READ))
    read(place)
    calls = shim.calls
    for call in range(1, calls + 1):
        shim.arm(place.parent, Fault(call, "fail", error=5, lasting=True, kinds=READ))
        try:
            read(place)
            said = "nothing"
        except Exception as error:
            said = type(error).__name__
        shim.disarm()
        read(place)
        print(call, calls, said)
