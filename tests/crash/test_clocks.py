"""The clock is set back and forward: the short form of its harness, with its canary."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from shim_helpers import shim_or_skip

from harness.faults.machine import clocks


def test_order_does_not_depend_on_a_clock(memory_folder: Path) -> None:
    count = clocks.run(memory_folder, deep=False)
    assert count.ok, str(count)


@pytest.mark.parametrize("offset", [-clocks.DAY, clocks.DAY])
def test_a_shifted_process_has_another_wall_clock_and_the_same_boot_clock(offset: int) -> None:
    found = clocks.shifted(offset)
    if found is None:
        shim_or_skip()
    assert found is not None
    prefix, environment = found
    code = "import time; print(time.time(), time.monotonic())"
    said = subprocess.run([*prefix, sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=True)
    here = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (wall, boot), (own_wall, own_boot) = (map(float, out.stdout.split()) for out in (said, here))
    assert abs(wall + -offset - own_wall) < 3600
    assert abs(boot - own_boot) < 3600
