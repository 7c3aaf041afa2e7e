"""The example of an agent that is killed does what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import everstep

EXAMPLE = Path(__file__).parents[2] / "examples" / "agent_loop.py"


def test_the_killed_agent_goes_on_is_approved_and_pays_for_nothing_twice(tmp_path: Path) -> None:
    package = str(Path(everstep.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")]), "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, str(EXAMPLE)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    out = done.stdout
    assert "was killed (SIGKILL) in turn 3" in out
    assert "2. It resumed and is waiting: Let the agent call publish(" in out
    assert "research: 7 steps kept, 2 steps run" in out
    assert "3,600 tokens, $0.0600" in out
    assert "3. Published: note 1 (btree: reads are quick; lsm: writes are quick; log: both are simple)" in out
    assert "succeeded: turn 5, 11 messages, 0 actions pending and 5 finished, 6,000 tokens, cost 0.1>" in out
    assert "approvals [('publish', 'yes', 'short enough')], used {'search': 1, 'read': 3, 'publish': 1}" in out
    assert "4. 12 calls were sent; paid for twice: read log," in out
    folder = Path(re.findall(r"Everything happens in (\S+)", out)[0])
    with everstep.open(folder / "store.db") as store:
        assert store.get("research").status == "succeeded"
        assert [step.name for step in store.steps("research")].count("plan") == 1
        assert store.verify("full").ok
