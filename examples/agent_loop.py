"""An agent that is killed in the middle of its work and resumes: python examples/agent_loop.py

A scripted model replaces a real one, so nothing leaves this machine; its calls are counted as paid. A child process runs the agent and is
killed with SIGKILL during its fourth tool call. A second run of the same program resumes it, stops at an action that a person must approve,
and ends after the answer. The plan is not made again, and finished work is not paid for twice.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import everstep
from everstep import Decision

TASK = "Compare the storage engines and publish a note."
PAGES = {"btree": "reads are quick", "lsm": "writes are quick", "log": "both are simple"}


def model(turn: int, results: list[Any]) -> dict[str, Any]:
    """Return the reply of a chat model, turn by turn."""

    def call(tool: str, **given: str) -> dict[str, Any]:
        return {"tool": tool, "input": given}

    script: list[Any] = [
        [call("search", query="storage engines")],
        [call("read", page="btree"), call("read", page="lsm")],
        [call("read", page="log")],
        [call("publish", text="; ".join(map(str, results[1:])))],
    ]
    return {"actions": script[turn]} if turn < len(script) else {"answer": f"Published: {results[-1]}"}


def make_agent(folder: Path, hang_at: str = "") -> everstep.AgentLoop:
    """Build the agent: how it thinks, its tools, and the actions that need approval."""

    def pay(what: str) -> None:
        with (folder / "bill.txt").open("a") as bill:
            bill.write(f"{what}\n")
        if what == hang_at:
            time.sleep(60)  # the parent kills this process here

    def plan(state: everstep.AgentState) -> list[str]:
        pay("plan")
        return ["search", "read", "publish"]

    def think(state: everstep.AgentState) -> Decision:
        pay(f"think {state.turn + 1}")
        state.memory[f"turn {state.turn + 1}"] = f"knew {len(state.tool_results)} things"
        return Decision(**model(state.turn, list(state.tool_results.values())), tokens=1_200, cost=0.02)

    def search(query: str) -> list[str]:
        pay(f"search {query}")
        return list(PAGES)

    def read(page: str) -> str:
        pay(f"read {page}")
        return f"{page}: {PAGES[page]}"

    def publish(text: str) -> str:
        pay("publish")
        return f"note 1 ({text})"

    tools = [search, read, publish]
    return everstep.AgentLoop(think, plan=plan, tools=tools, approve=lambda action: action.tool == "publish", agent="researcher")


def work(folder: Path) -> None:
    """Run the agent in the child process."""
    with everstep.open(folder / "store.db") as store:
        make_agent(folder, hang_at="read log").run(store, "research", TASK)


def kill_in_the_middle(folder: Path) -> None:
    child = subprocess.Popen([sys.executable, __file__, "work", str(folder)])
    bill = folder / "bill.txt"
    while not (bill.exists() and "read log\n" in bill.read_text()):
        if child.poll() is not None:
            raise SystemExit(f"the child ended on its own with {child.returncode}")
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    print(f"1. Process {child.pid} was killed (SIGKILL) in turn 3, while it read the third page.")


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="everstep-agent-"))
    print(f"Everything happens in {folder}\n")
    kill_in_the_middle(folder)
    agent = make_agent(folder)
    with everstep.open(folder / "store.db") as store:
        out = agent.run(store, "research")
        print(f"2. It resumed and is {out.status}: {out.gates[0].ask}")
        print(f"   {out.report}")
        store.answer("research", out.gates[0].name, {"answer": "yes", "reason": "short enough"}, by="editor")

        out = agent.run(store, "research")
        print(f"3. {out.result}")
        state = everstep.AgentState(store.load("research"))
        print(f"   {state}")
        print(
            f"   plan {state.plan}, approvals {[(a['tool'], a['answer'], a['reason']) for a in state.approvals]}, used {state.tool_counts}"
        )

    paid = (folder / "bill.txt").read_text().splitlines()
    twice = sorted({what for what in paid if paid.count(what) > 1})
    print(f"4. {len(paid)} calls were sent; paid for twice: {', '.join(twice)}, which was in flight when the process died.")
    if out.status != "succeeded" or twice != ["read log"]:
        raise SystemExit(1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(Path(sys.argv[2]))
    else:
        main()
