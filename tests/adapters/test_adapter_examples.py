"""The examples of adapters run, end by themselves, and say what they promise."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import warm

import everstep

EXAMPLES = Path(__file__).parents[2] / "examples" / "adapters"


def test_an_adk_agent_is_killed_resumes_and_waits_for_a_confirmation(tmp_path: Path) -> None:
    pytest.importorskip("google.adk", reason="google-adk is not installed: pip install 'everstep[dev-adapters]'")
    package = str(Path(everstep.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")]), "TMPDIR": str(tmp_path)}
    command = [sys.executable, str(EXAMPLES / "adk_agent.py")]
    done = warm.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The first process was killed by signal 9." in done.stdout
    assert "The second process says: waiting: None" in done.stdout
    assert "The third process says: succeeded: Your trip is booked." in done.stdout
    made = done.stdout.partition("was made twice:\n")[2].split("\n")
    assert [made.count(call) for call in ("find flight", "find hotel", "book flight and hotel", "model 0", "model 1")] == [1, 2, 1, 1, 1]


@pytest.mark.parametrize(("name", "framework"), [("openai_agent.py", "agents"), ("pydantic_agent.py", "pydantic_ai")])
def test_an_agent_is_killed_resumes_and_waits_for_an_approval(name: str, framework: str, tmp_path: Path) -> None:
    pytest.importorskip(framework, reason=f"{framework} is not installed: pip install 'everstep[dev-adapters]'")
    package = str(Path(everstep.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")]), "TMPDIR": str(tmp_path)}
    done = warm.run([sys.executable, str(EXAMPLES / name)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The first process was killed by signal 9." in done.stdout
    assert "waiting: None (3 steps kept, 2 steps run)" in done.stdout
    assert "succeeded: Your trip is booked. (5 steps kept, 2 steps run)" in done.stdout
    assert done.stdout.count("find flight") == done.stdout.count("model 0") == done.stdout.count("book flight and hotel\n") == 1
    assert done.stdout.count("find hotel") == 2
    assert f"examples/adapters/{name}" in (EXAMPLES / name).read_text().partition("\n\n")[0]
