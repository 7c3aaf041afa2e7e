"""The examples run, end by themselves, and say what they promise."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import everstep

EXAMPLES = Path(__file__).parents[2] / "examples"
TESTS = [
    Path(__file__).parents[1] / name for name in ("docs/test_examples.py", "agents/test_agent_example.py", "workflows/test_yaml_docs.py")
]


def variables(folder: Path) -> dict[str, str]:
    package = str(Path(everstep.__file__).parents[1])
    return os.environ | {"PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")]), "TMPDIR": str(folder)}


def run(name: str, folder: Path, typed: str = "", **more: str) -> str:
    command = [sys.executable, str(EXAMPLES / name)]
    done = subprocess.run(command, cwd=folder, env=variables(folder) | more, input=typed, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_example_has_a_test_and_a_line_in_the_gallery() -> None:
    tests = "".join(path.read_text() for path in TESTS)
    listed = re.findall(r"^\| \[(\S+)\]\(\1\) \| .+ \|$", (EXAMPLES / "README.md").read_text(), flags=re.MULTILINE)
    listed = [name for name in listed if "/" not in name]  # those of adapters: tests/adapters/test_adapter_examples.py
    assert listed == sorted(path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".sh"))
    assert [name for name in listed if f'"{name}"' not in tests and f"examples/{name}" not in tests] == []


def test_an_example_names_the_command_that_runs_it() -> None:
    for path in (*EXAMPLES.glob("*.py"), *EXAMPLES.glob("*.sh")):
        assert f"examples/{path.name}" in path.read_text().partition("\n\n")[0], path.name


def test_finished_steps_are_kept_when_a_loop_is_killed(tmp_path: Path) -> None:
    out = run("durable_steps.py", tmp_path)
    assert "3 steps kept, 3 steps run" in out
    assert "same key: yes" in out


def test_a_workflow_waits_for_a_person_and_survives_a_kill(tmp_path: Path) -> None:
    out = run("approval_gate.py", tmp_path)
    assert "2 steps kept, 2 steps run" in out
    assert "booked 4 things" in out


def test_bills_are_paid_once_however_often_the_process_is_killed(tmp_path: Path) -> None:
    out = run("transactional_steps.py", tmp_path)
    assert "Done. 3 deaths, 10 bills. The accounts: {'us': 45, 'them': 55}" in out


def test_the_runs_of_a_killed_worker_go_on_with_another(tmp_path: Path) -> None:
    assert "All 10 runs succeeded." in run("queue_workers.py", tmp_path)


def test_the_chat_continues_where_it_stopped(tmp_path: Path) -> None:
    assert run("chat_loop.py", tmp_path, "Hello\nHow many is that?\n").splitlines()[-1] == "chat@4: That was your message number 2."
    assert run("chat_loop.py", tmp_path) == ""  # nothing is said or done twice
    assert run("chat_loop.py", tmp_path, "And now?\n").splitlines()[-1] == "chat@6: That was your message number 3."


def test_the_chat_answers_the_message_that_a_killed_process_left(tmp_path: Path) -> None:
    killed = f"import os, sys; sys.path.insert(0, {str(EXAMPLES)!r}); import chat_loop; chat_loop.model = lambda _: os.kill(os.getpid(), 9); chat_loop.main()"
    done = subprocess.run([sys.executable, "-c", killed], cwd=tmp_path, env=variables(tmp_path), input="Hello\n", text=True, timeout=60)
    assert done.returncode == -9
    assert run("chat_loop.py", tmp_path) == "chat@2: That was your message number 1.\n"


def test_a_pipeline_is_shared_by_workers(tmp_path: Path) -> None:
    out = run("fan_out.py", tmp_path)
    assert "succeeded: {'words': 21, 'failed': 1}" in out
    assert re.search(r"enqueue_many\.0\.1 +succeeded +attempts: 3", out)


def test_forks_decide_differently_and_keep_the_research(tmp_path: Path) -> None:
    out = run("fork_and_compare.py", tmp_path)
    assert re.findall(r"^(\S+) +Take the (\w+)", out, flags=re.MULTILINE) == [
        ("original", "plane"),
        ("cheap", "bus"),
        ("new-train", "train"),
    ]
    assert "3 steps kept, 2 run again, $0.75 not paid again" in out
    assert "~ ['way']: 'plane' -> 'bus'" in out


def test_a_schedule_fires_once_for_each_time(tmp_path: Path) -> None:
    out = run("scheduled_job.py", tmp_path)
    assert re.findall(r": (\w+): 6 letters", out) == ["Monday", "Tuesday", "Thursday"]


def test_the_tests_of_a_workflow_pass(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / "testing_a_workflow.py")]
    env = variables(tmp_path) | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run([*command, "-c", os.devnull], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert "4 passed" in done.stdout, done.stdout + done.stderr


def test_a_shell_script_continues_after_a_kill(tmp_path: Path) -> None:
    script = tmp_path / "bin" / "everstep"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m everstep "$@"\n')
    script.chmod(0o755)
    env = variables(tmp_path) | {"PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}"}

    def call(**more: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", str(EXAMPLES / "save_state.sh")]
        return subprocess.run(command, cwd=tmp_path, env=env | more, capture_output=True, text=True, timeout=60)

    killed = call(STOP_AFTER="2")
    assert killed.returncode == -9, killed.stdout + killed.stderr
    again = call()
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.splitlines()[:2] == ["2 items are finished", "working on music"]
    assert call().stdout == "4 items are finished\n"
    with everstep.open(tmp_path / ".everstep" / "store.db") as store:
        assert store.load("backup") == {"finished": 4, "last": "films"}
        assert store.get("backup").status == "succeeded"
    (tmp_path / ".everstep" / "store.db").write_bytes(b"damaged" * 1000)
    damaged = call()  # must not begin from the start
    assert damaged.returncode != 0
    assert "working on" not in damaged.stdout


def test_a_real_model_needs_a_key(tmp_path: Path) -> None:
    env = {name: value for name, value in variables(tmp_path).items() if name != "OPENAI_API_KEY"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "real_model.py")], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, list(tmp_path.iterdir())) == (1, [])
    assert "Set OPENAI_API_KEY" in done.stderr


def test_a_real_client_is_answered_once(tmp_path: Path) -> None:
    """The provider's own client, against a server of ours that speaks its protocol."""
    pytest.importorskip("openai", reason="the client of the provider: pip install '.[dev-adapters]'")
    asked: list[dict[str, Any]] = []

    class Provider(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            call = {"id": "c1", "type": "function", "function": {"name": "people", "arguments": '{"city": "Oslo"}'}}
            message = (
                {"role": "assistant", "content": None, "tool_calls": [call]}
                if len(asked) == 1
                else {"role": "assistant", "content": "Oslo."}
            )
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            usage = {"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100}
            body = json.dumps(
                {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        more = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_port}/v1"}
        first = run("real_model.py", tmp_path, **more)
        again = run("real_model.py", tmp_path, **more)
        server.shutdown()
    assert "200 tokens, tools {'people': 1}" in first
    assert first.splitlines()[-1] == again.splitlines()[-1] == "Oslo."
    assert [message["role"] for message in asked[1]["messages"]] == ["user", "assistant", "tool"]
    assert asked[1]["messages"][-1]["content"] == "717,000"
    assert len(asked) == 2


def test_a_hundred_async_runs_are_saved(tmp_path: Path) -> None:
    out = run("async_many.py", tmp_path)
    assert "100 runs, 500 durable checkpoints" in out
    assert "agent-099 ends with {'turn': 4, 'answer': 396}" in out
    assert "all good" in out


def test_own_types_come_back_where_they_are_known(tmp_path: Path) -> None:
    out = run("own_types.py", tmp_path)
    assert "+ ['plan']['stops'][1] = 'Madrid'" in out
    assert "Unknown('trip.Plan', 2, {'goal': 'Lisbon', 'stops': ['Paris', 'Madrid']})" in out
    assert "Plan(goal='Lisbon', stops=['Paris', 'Madrid']) 90000 a stranger" in out
    assert "Plan(goal='Rome', stops=[])" in out
