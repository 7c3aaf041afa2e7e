"""The command line on workflows of Agent Framework: answers from the shell, resume and workers after kill -9 at each save, and forks."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import warm

import everstep

pytest.importorskip("agent_framework", reason="agent-framework-core is not installed: pip install 'everstep[dev-adapters]'")

RUN = "pay:7"
APP = """
import os, signal
from agent_framework import Executor, WorkflowBuilder, WorkflowContext, handler, response_handler
from everstep.adapters.agent_framework import CheckpointStorage, resume

saves = 0

class Killing(CheckpointStorage):
    async def save(self, checkpoint):
        global saves
        id = await super().save(checkpoint)
        saves += 1
        if os.environ.get("KILL") == str(saves):
            os.kill(os.getpid(), signal.SIGKILL)
        return id
    def of_run(self, run, *, strict=None):
        return Killing(self.store, run=run)

def enter(call):
    with open("ledger", "a") as file:
        file.write(call + "\\n")

class Price(Executor):
    @handler
    async def price(self, what: str, ctx: WorkflowContext[int]) -> None:
        enter("price")
        await ctx.send_message(30)

class Pay(Executor):
    @handler
    async def ask(self, amount: int, ctx: WorkflowContext[int]) -> None:
        enter("ask")
        await ctx.request_info(f"Pay {amount}?", bool)
    @response_handler
    async def pay(self, asked: str, yes: bool, ctx: WorkflowContext[str]) -> None:
        enter("pay" if yes else "do not pay")
        ctx.set_state("paid", yes)
        await ctx.send_message("paid" if yes else "not paid")

class Report(Executor):
    @handler
    async def report(self, what: str, ctx: WorkflowContext[None, str]) -> None:
        enter("report")
        await ctx.yield_output(what)

storage = Killing("s.db", scope="7")

def build():
    price, pay, report = Price("price"), Pay("pay"), Report("report")
    made = WorkflowBuilder(name="pay", start_executor=price, checkpoint_storage=storage, output_from=[report])
    return made.add_edge(price, pay).add_edge(pay, report).build()

resume(build, storage)
"""
# The framework compares the modules of the executors, so they must not be in the file that is run.
MAIN = """
import asyncio, app
asyncio.run(app.build().run("book"))
"""
Shell = Callable[..., str]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "main.py").write_text(MAIN)

    def run(*command: str, code: int = 0, **environment: str) -> str:
        arguments = [sys.executable, *(command if command[0] == "main.py" else ("-m", "everstep", *command, "--store", "s.db"))]
        done = warm.run(arguments, cwd=tmp_path, env=os.environ | environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stdout + done.stderr
        return str(done.stdout) + str(done.stderr)

    return run


def gate_of(folder: Path) -> str:
    with everstep.open(folder / "s.db") as store:
        (gate,) = store.questions()
        return str(gate.name)


def check(folder: Path, calls: list[str]) -> None:
    assert (folder / "ledger").read_text().splitlines() == calls
    with everstep.open(folder / "s.db") as store:
        assert store.verify("full").ok
        assert store.get(RUN).status == "succeeded"
        assert (list(store.questions()), store.due()) == ([], [])


def test_a_workflow_in_the_shell_and_a_fork_that_is_answered_differently(shell: Shell, tmp_path: Path) -> None:
    shell("main.py")
    assert "Pay 30?" in shell("inbox")
    gate = gate_of(tmp_path)
    with everstep.open(tmp_path / "s.db") as store:
        asked = store.checkpoints(RUN, limit=1)[0].number
    assert "waiting" in shell("resume", RUN, "--import", "app")
    shell("answer", RUN, gate, "perhaps", code=2)
    shell("answer", RUN, gate, "yes")
    assert "succeeded" in shell("resume", RUN, "--import", "app")
    check(tmp_path, ["price", "ask", "pay", "report"])
    shell("fork", f"{RUN}@{asked}", "pay:8")
    assert "waiting" in shell("resume", "pay:8", "--import", "app")
    shell("answer", "pay:8", gate_of(tmp_path), "no")
    assert "succeeded" in shell("resume", "pay:8", "--import", "app")
    with everstep.open(tmp_path / "s.db") as store:
        assert [store.load(run)["state"]["paid"] for run in (RUN, "pay:8")] == [True, False]
    check(tmp_path, ["price", "ask", "pay", "report", "do not pay", "report"])


def test_every_command_prints_what_people_understand(shell: Shell, tmp_path: Path) -> None:
    shell("main.py")
    assert RUN in shell("runs", "--workflow", "pay")
    log = shell("log", RUN)
    for note in ("input for price", "superstep 1: price", "superstep 2", "Pay 30?"):
        assert note in log
    shell("answer", RUN, gate_of(tmp_path), "yes")
    shell("resume", RUN, "--import", "app")
    assert "response for pay" in shell("log", RUN)
    with everstep.open(tmp_path / "s.db") as store:
        last = store.get(RUN).checkpoints
    changes = [shell("diff", f"{RUN}@{n}", f"{RUN}@{n + 1}").splitlines() for n in range(1, last)]
    assert changes[0] == [
        '- messages.internal:price: ["internal:price -> price: book"]',
        '+ messages.price: ["price: 30"]',
    ]
    assert [line.partition(": ")[2] for line in changes[1]] == ['["price: 30"]', "pay asks: Pay 30?"]
    assert "+ state.paid: true" in changes[3]
    printed = shell("state", RUN) + "".join(map(str, changes))
    for internal in ("$agent_framework", "graph_signature_hash", "checkpoint_id", "timestamp", "MessageType", "order"):
        assert internal not in printed
    assert "graph_signature_hash" in shell("state", RUN, "--all")
    blame = shell("blame", RUN, "state.paid")
    assert "superstep 3: pay" in blame
    assert "all good" in shell("verify", "--depth", "full")


@pytest.mark.parametrize(("answer", "call"), [("yes", "pay"), ("false", "do not pay")])
def test_a_worker_continues_after_the_answer(shell: Shell, tmp_path: Path, answer: str, call: str) -> None:
    shell("main.py")
    shell("answer", RUN, gate_of(tmp_path), answer)
    shell("worker", "--import", "app", "--until-idle")
    check(tmp_path, ["price", "ask", call, "report"])


@pytest.mark.parametrize("save", ["1", "2", "3"])
def test_resume_continues_a_program_that_was_killed_after_a_save(shell: Shell, tmp_path: Path, save: str) -> None:
    shell("main.py", KILL=save, code=-signal.SIGKILL)
    assert "waiting" in shell("resume", RUN, "--import", "app")
    shell("answer", RUN, gate_of(tmp_path), "yes")
    assert "succeeded" in shell("resume", RUN, "--import", "app")
    check(tmp_path, ["price", "ask", "pay", "report"])


@pytest.mark.parametrize("save", ["1", "2", "3"])
def test_the_answer_survives_a_kill_of_resume(shell: Shell, tmp_path: Path, save: str) -> None:
    shell("main.py")
    shell("answer", RUN, gate_of(tmp_path), "yes")
    shell("resume", RUN, "--import", "app", KILL=save, code=-signal.SIGKILL)
    assert "succeeded" in shell("resume", RUN, "--import", "app")
    check(tmp_path, ["price", "ask", "pay", "report"])
