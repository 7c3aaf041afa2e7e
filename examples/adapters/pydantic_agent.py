"""An agent of pydantic-ai that is killed in a tool call, resumes, and waits for an approval: python examples/adapters/pydantic_agent.py

Needs pydantic-ai-slim. The model is scripted: no key, no network. The first process kills itself with SIGKILL while it looks for a hotel. The
second one resumes the run and stops at the booking, which a person must approve. The third one books. Each call is written to a ledger.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import everstep
from everstep.adapters.pydantic_ai import durable

FOLDER = Path(os.environ.get("EXAMPLE_FOLDER", "."))


def bill(call: str) -> None:
    with (FOLDER / "ledger").open("a") as ledger:
        ledger.write(f"{call}\n")


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stands for a real model: looks for a flight and a hotel, books, answers."""
    told = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    bill(f"model {len(told)}")
    if len(told) < 2:
        return ModelResponse(parts=[ToolCallPart("find", {"what": ("flight", "hotel")[len(told)]})])
    if len(told) == 2:
        return ModelResponse(parts=[ToolCallPart("book", {"what": "flight and hotel"})])
    return ModelResponse(parts=[TextPart("Your trip is booked.")])


agent = Agent(FunctionModel(scripted), name="Travel")


@agent.tool_plain
async def find(what: str) -> str:
    """Find an offer."""
    bill(f"find {what}")
    if what == "hotel" and not (FOLDER / "killed").exists():
        (FOLDER / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return f"a {what} for 100"


@agent.tool_plain(requires_approval=True)
async def book(what: str) -> str:
    """Book it."""
    bill(f"book {what}")
    return "booked"


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="everstep-pydantic-"))
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
        result = durable(agent, store=FOLDER / "store.db").run_sync("Plan a trip", id="trip-1")
        print(f"{result.status}: {result.output} ({result.outcome.report.kept} steps kept, {result.outcome.report.executed} steps run)")
    else:
        main()
