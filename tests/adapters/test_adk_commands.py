"""The command line on sessions of ADK: questions are answered from the shell, the answers survive kill -9, and resume and workers continue."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import warm

import everstep

pytest.importorskip("google.adk", reason="google-adk is not installed: pip install 'everstep[dev-adapters]'")

RUN = "shop/ann@example.com/7"
APP = """
import asyncio, os, signal
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.apps.app import ResumabilityConfig
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.tools import FunctionTool
from google.genai import types
from everstep.adapters.adk import SessionService, resume

def enter(call):
    with open("ledger", "a") as file:
        file.write(call + "\\n")
    if os.environ.get("KILL") == call:
        os.kill(os.getpid(), signal.SIGKILL)

class Scripted(BaseLlm):
    model: str = "scripted"
    async def generate_content_async(self, llm_request, stream=False):
        last = llm_request.contents[-1].parts[-1].function_response
        paid = last is not None and (last.response or {}).get("paid")
        enter("model 1" if last else "model 0")
        if last is None:
            parts = [types.Part(function_call=types.FunctionCall(id="c1", name="pay", args={"amount": 30}))]
        else:
            parts = [types.Part(text=f"Paid {paid}." if paid else "Not paid.")]
        yield LlmResponse(content=types.Content(role="model", parts=parts))

def pay(amount: int, tool_context) -> dict:
    "Pay an amount."
    enter("pay")
    tool_context.state["paid"] = amount
    tool_context.state["user:spent"] = tool_context.state.get("user:spent", 0) + amount
    tool_context.state["app:sold"] = tool_context.state.get("app:sold", 0) + 1
    return {"paid": amount}

agent = LlmAgent(name="clerk", model=Scripted(), tools=[FunctionTool(pay, require_confirmation=True)])
config = ResumabilityConfig(is_resumable=True) if os.environ.get("RESUMABLE", "yes") == "yes" else None
app = App(name="shop", root_agent=agent, resumability_config=config)
runner = resume(Runner(app=app, session_service=SessionService("s.db"), auto_create_session=True))

async def main():
    message = types.UserContent("Buy it.")
    async for event in runner.run_async(user_id="ann@example.com", session_id="7", new_message=message):
        pass

if __name__ == "__main__":
    asyncio.run(main())
"""
Shell = Callable[..., str]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "app.py").write_text(APP)

    def run(*command: str, code: int = 0, **environment: str) -> str:
        arguments = [sys.executable, *(command if command[0] == "app.py" else ("-m", "everstep", *command, "--store", "s.db"))]
        done = warm.run(arguments, cwd=tmp_path, env=os.environ | environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stdout + done.stderr
        return str(done.stdout) + str(done.stderr)

    return run


def gate_of(folder: Path) -> str:
    with everstep.open(folder / "s.db") as store:
        (gate,) = store.questions()
        return str(gate.name)


def state_of(folder: Path) -> tuple[object, ...]:
    with everstep.open(folder / "s.db") as store:
        assert store.verify("full").ok
        states = [store.load(run)["state"] for run in (everstep.quote(RUN), everstep.quote("user:shop/ann@example.com"), "app:shop")]
        return tuple(states)


def test_a_session_in_the_shell(shell: Shell, tmp_path: Path) -> None:
    shell("app.py")
    assert "adk:shop" in shell("runs", "--workflow", "adk:shop")
    log = shell("log", RUN)
    assert "clerk calls pay" in log
    assert "$" not in log
    inbox = shell("inbox")
    assert 'Let the agent call pay({"amount": 30})?' in inbox
    assert shell("diff", f"{everstep.quote(RUN)}@2").strip() == "+ events[0]: human: Buy it."
    assert "ai clerk: -> pay(amount=30)" in shell("diff", f"{everstep.quote(RUN)}@3")
    assert "$adk" not in shell("state", RUN)
    assert "$adk" in shell("state", RUN, "--all")
    gate = gate_of(tmp_path)
    assert "confirm-pay" in gate
    shell("answer", RUN, gate, "perhaps", code=2)
    shell("answer", RUN, gate, "yes")
    assert "succeeded" in shell("resume", RUN, "--import", "app")
    assert "Paid 30." in shell("state", RUN)
    assert "pay returned" in shell("blame", RUN, "state.paid")
    assert state_of(tmp_path) == ({"paid": 30}, {"spent": 30}, {"sold": 1})
    shell("fork", f"{everstep.quote(RUN)}@2", everstep.quote("shop/ann@example.com/8"))
    assert "Buy it." in shell("state", "shop/ann@example.com/8")
    shell("verify", "--depth", "full")
    assert (tmp_path / "ledger").read_text().split("\n") == ["model 0", "pay", "model 1", ""]


@pytest.mark.parametrize(("answer", "spent"), [("yes", 30), ("no", None)])
def test_a_worker_continues_after_the_answer(shell: Shell, tmp_path: Path, answer: str, spent: int | None) -> None:
    shell("app.py")
    shell("answer", RUN, gate_of(tmp_path), answer)
    shell("worker", "--import", "app", "--until-idle")
    with everstep.open(tmp_path / "s.db") as store:
        assert store.get(everstep.quote(RUN)).status == "succeeded"
        assert store.load(everstep.quote(RUN))["state"].get("paid") == spent
        assert (list(store.questions()), store.due()) == ([], [])


@pytest.mark.parametrize("where", ["pay", "model 1"])
def test_the_answer_survives_kill_9(shell: Shell, tmp_path: Path, where: str) -> None:
    shell("app.py")
    shell("answer", RUN, gate_of(tmp_path), "yes")
    shell("resume", RUN, "--import", "app", KILL=where, code=-signal.SIGKILL)
    assert "succeeded" in shell("resume", RUN, "--import", "app")
    assert state_of(tmp_path) == ({"paid": 30}, {"spent": 30}, {"sold": 1})
    assert "Paid 30." in shell("state", RUN)
    made = (tmp_path / "ledger").read_text().splitlines()
    assert (made.count("model 0"), made.count("pay")) == (1, 2 if where == "pay" else 1)


def test_an_app_that_is_not_resumable_says_so_after_a_kill(shell: Shell, tmp_path: Path) -> None:
    shell("app.py", KILL="model 0", code=-signal.SIGKILL)
    assert "is not resumable" in shell("resume", RUN, "--import", "app", RESUMABLE="no", code=1)
    assert "waiting" in shell("resume", RUN, "--import", "app")
    assert "confirm-pay" in gate_of(tmp_path)
