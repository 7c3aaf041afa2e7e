"""An agent of openai-agents that is killed in a tool call, resumes, and waits for an approval: python examples/adapters/openai_agent.py

Needs openai-agents. The model is scripted: no key, no network. The first process kills itself with SIGKILL while it looks for a hotel. The
second one resumes the run and stops at the booking, which a person must approve. The third one books. Each call is written to a ledger.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, Usage, function_tool, set_tracing_disabled
from agents.testing import assistant_message, function_call

import everstep
from everstep.adapters import openai_agents

FOLDER = Path(os.environ.get("EXAMPLE_FOLDER", "."))
set_tracing_disabled(True)


def bill(call: str) -> None:
    with (FOLDER / "ledger").open("a") as ledger:
        ledger.write(f"{call}\n")


class Scripted(Model):
    """Stands for a real model: looks for a flight and a hotel, books, answers."""

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **options: Any) -> ModelResponse:
        told = [item for item in input if item.get("type") == "function_call_output"]
        bill(f"model {len(told)}")
        answers: dict[int, list[Any]] = {
            0: [function_call("find", {"what": "flight"}, call_id="c1")],
            1: [function_call("find", {"what": "hotel"}, call_id="c2")],
            2: [function_call("book", {"what": "flight and hotel"}, call_id="c3")],
            3: [assistant_message("Your trip is booked.")],
        }
        return ModelResponse(output=answers[len(told)], usage=Usage(requests=1, total_tokens=100), response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError


@function_tool
async def find(what: str) -> str:
    """Find an offer."""
    bill(f"find {what}")
    if what == "hotel" and not (FOLDER / "killed").exists():
        (FOLDER / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return f"a {what} for 100"


@function_tool(needs_approval=True)
async def book(what: str) -> str:
    """Book it."""
    bill(f"book {what}")
    return "booked"


agent = Agent(name="Travel", model=Scripted(), tools=[find, book])


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="everstep-openai-"))
    print(f"Everything happens in {folder}\n")

    def process() -> str:
        command = [sys.executable, __file__, "run"]
        done = subprocess.run(command, env=os.environ | {"EXAMPLE_FOLDER": str(folder)}, stdout=subprocess.PIPE, text=True)
        return f"was killed by signal {-done.returncode}" if done.returncode < 0 else done.stdout.strip()

    print(f"1. The first process {process()}.")
    print(f"2. The second process says: {process()}")
    with everstep.open(folder / "store.db") as store:
        (gate,) = store.gates("trip-1")
        print(f"3. A person is asked: {gate.ask}")
        store.answer("trip-1", gate.name, "yes", by="ann")  # or: everstep answer trip-1 approve-book yes
    print(f"4. The third process says: {process()}")
    print("\nThe calls that were made; only the one that was cut off was made twice:")
    print((folder / "ledger").read_text())


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        result = openai_agents.run_sync(agent, "Plan a trip", id="trip-1", store=FOLDER / "store.db")
        print(
            f"{result.status}: {result.final_output} ({result.outcome.report.kept} steps kept, {result.outcome.report.executed} steps run)"
        )
    else:
        main()
