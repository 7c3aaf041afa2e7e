"""A worker whose disk fails for a moment: `python disk_worker.py FOLDER CALL ERRNO SECONDS`. Runs under the shim; CALL 0 only counts calls.

From file call number CALL on, every call below FOLDER fails with ERRNO, for SECONDS from the first failure; then the disk works again.
"""

import sys
import threading
import time
from pathlib import Path

from everstep.cli.main import main
from harness.faults.kills.shim import CHANGES, READ, Fault, Shim


def heal(shim: Shim, seconds: float) -> None:
    while not shim.fired:
        time.sleep(0.002)
    time.sleep(seconds)
    shim.disarm()


if __name__ == "__main__":
    folder, call, number, seconds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    shim = Shim()
    fault = Fault(call, "fail" if call else "count", error=number, lasting=True, kinds=CHANGES | (READ if number == 5 else 0))
    shim.arm(folder / "store", fault)
    if call:
        threading.Thread(target=heal, args=(shim, seconds), daemon=True).start()
    arguments = ["worker", "--store", str(folder / "store" / "s.db"), "--import", str(folder / "disk_flows.py"), "--until-idle"]
    code = main(arguments)
    print(f"calls {shim.calls} fired {shim.fired}", file=sys.stderr, flush=True)
    sys.exit(code)
