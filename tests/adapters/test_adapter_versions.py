"""An adapter whose framework is missing, or is of a version without the names that it needs, says what to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import everstep


@pytest.mark.parametrize(
    ("adapter", "package", "wanted"),
    [
        ("adk", "google", "needs google-adk 2.13: pip install 'everstep[adk]'"),
        ("claude", "claude_agent_sdk", "needs claude-agent-sdk 0.2.182: pip install 'everstep[claude]'"),
        ("openai_agents", "agents", "needs openai-agents 0.24: pip install 'everstep[openai-agents]'"),
        ("pydantic_ai", "pydantic_ai", "needs pydantic-ai-slim 2.62 to 2.66: pip install 'everstep[pydantic-ai]'"),
    ],
)
def test_another_version_is_refused_clearly(adapter: str, package: str, wanted: str, tmp_path: Path) -> None:
    (tmp_path / f"{package}.py").write_text("")  # a package without the names
    path = os.pathsep.join([str(tmp_path), str(Path(everstep.__file__).parents[1])])
    command = [sys.executable, "-c", f"import everstep.adapters.{adapter}"]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert wanted in done.stderr.splitlines()[-1]
