"""The examples of adapters run, end by themselves, and say what they promise."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import warm

import everstep

EXAMPLES = Path(__file__).parents[2] / "examples" / "adapters"


README = EXAMPLES.parent / "README.md"


def run(name: str, framework: str, folder: Path) -> str:
    """Run an example to its end, and return what it prints."""
    pytest.importorskip(framework, reason=f"{framework} is not installed: pip install 'everstep[dev-adapters]'")
    package = str(Path(everstep.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")]), "TMPDIR": str(folder)}
    done = warm.run([sys.executable, str(EXAMPLES / name)], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*_agent.py")), ids=lambda path: path.stem)
def test_each_example_is_in_the_gallery_and_says_how_to_run_it(example: Path) -> None:
    assert f"[adapters/{example.name}](adapters/{example.name})" in README.read_text()
    assert f"python examples/adapters/{example.name}" in example.read_text().partition("\n\n")[0]
    pages = Path(__file__).parents[2] / "docs" / "adapters"
    assert any(f"(../../examples/adapters/{example.name})" in page.read_text() for page in pages.glob("*.md"))


def test_an_adk_agent_is_killed_resumes_and_waits_for_a_confirmation(tmp_path: Path) -> None:
    out = run("adk_agent.py", "google.adk", tmp_path)
    assert "The first process was killed by signal 9." in out
    assert "The second process says: waiting: None" in out
    assert "The third process says: succeeded: Your trip is booked." in out
    made = out.partition("was made twice:\n")[2].split("\n")
    assert [made.count(call) for call in ("find flight", "find hotel", "book flight and hotel", "model 0", "model 1")] == [1, 2, 1, 1, 1]


def test_a_workflow_of_agent_framework_is_killed_resumes_and_waits_for_an_approval(tmp_path: Path) -> None:
    out = run("agent_framework_agent.py", "agent_framework", tmp_path)
    assert "The first process was killed by signal 9." in out
    assert "The second process says: waiting: None" in out
    assert "The third process says: succeeded: ['Your trip is booked.']" in out
    calls = ["model 0", "find flight", "model 1", "find hotel", "find hotel", "model 2", "book flight and hotel", "model 3"]
    assert out.partition("was made twice:\n")[2].splitlines()[:-1] == calls


def test_a_session_of_claude_is_killed_and_asks_again_for_the_call_that_was_cut_off(tmp_path: Path) -> None:
    out = run("claude_agent.py", "claude_agent_sdk", tmp_path)
    assert "The first process was killed by signal 9." in out
    assert out.count("A person is asked: Let Claude use FindHotel") == 2
    assert out.count("it may have been made.") == 1
    assert "The last process says: succeeded: Your trip is booked." in out
    assert out.partition("was made twice:\n")[2].split() == ["FindFlight", "FindHotel", "FindHotel", "Book"]


def test_a_langgraph_agent_is_killed_twice_and_makes_every_call_once(tmp_path: Path) -> None:
    out = run("langgraph_agent.py", "langgraph", tmp_path)
    assert "first process: killed\nsecond process: killed" in out
    assert "Bought a bike and a lock for 330.\nthird process: finished\n7 calls, each made once: yes" in out


@pytest.mark.parametrize(("name", "framework"), [("openai_agent.py", "agents"), ("pydantic_agent.py", "pydantic_ai")])
def test_an_agent_is_killed_resumes_and_waits_for_an_approval(name: str, framework: str, tmp_path: Path) -> None:
    out = run(name, framework, tmp_path)
    assert "The first process was killed by signal 9." in out
    assert "waiting: None (3 steps kept, 2 steps run)" in out
    assert "succeeded: Your trip is booked. (5 steps kept, 2 steps run)" in out
    assert out.count("find flight") == out.count("model 0") == out.count("book flight and hotel\n") == 1
    assert out.count("find hotel") == 2
