"""An agent of Google ADK that is killed in a tool call, resumes, and waits for a confirmation: python examples/adapters/adk_agent.py

Needs google-adk. The model is scripted: no key, no network. The first process kills itself with SIGKILL while it looks for a hotel. The second
one resumes the session and stops at the booking, which a person must confirm. The third one books. Each call is written to a ledger.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.apps.app import ResumabilityConfig
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.tools import FunctionTool
from google.genai import types

import everstep
from everstep.adapters.adk import SessionService, resume

FOLDER = Path(os.environ.get("EXAMPLE_FOLDER", "."))
RUN = "travel/ann/trip-1"  # app, user, session


def bill(call: str) -> None:
    with (FOLDER / "ledger").open("a") as ledger:
        ledger.write(f"{call}\n")


class Scripted(BaseLlm):
    """Stands for a real model: looks for a flight and a hotel, books, answers."""

    model: str = "scripted"

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        parts = [part for content in llm_request.contents for part in content.parts or ()]
        told = sum(part.function_response is not None for part in parts)
        bill(f"model {told}")
        calls = [("find", "flight"), ("find", "hotel"), ("book", "flight and hotel")]
        if told < len(calls):
            name, what = calls[told]
            part = types.Part(function_call=types.FunctionCall(id=f"c{told}", name=name, args={"what": what}))
        else:
            part = types.Part(text="Your trip is booked.")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def find(what: str) -> dict[str, str]:
    """Find an offer."""
    bill(f"find {what}")
    if what == "hotel" and not (FOLDER / "killed").exists():
        (FOLDER / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"offer": f"a {what} for 100"}


def book(what: str) -> dict[str, str]:
    """Book it."""
    bill(f"book {what}")
    return {"booked": what}


agent = LlmAgent(name="travel_agent", model=Scripted(), tools=[find, FunctionTool(book, require_confirmation=True)])
app = App(name="travel", root_agent=agent, resumability_config=ResumabilityConfig(is_resumable=True))


async def begin(runner: Runner) -> None:
    message = types.UserContent("Plan a trip")
    async for _ in runner.run_async(user_id="ann", session_id="trip-1", new_message=message):
        pass


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="everstep-adk-"))
    print(f"Everything happens in {folder}\n")

    def process() -> str:
        command = [sys.executable, __file__, "run"]
        done = subprocess.run(command, env=os.environ | {"EXAMPLE_FOLDER": str(folder)}, stdout=subprocess.PIPE, text=True)
        return f"was killed by signal {-done.returncode}" if done.returncode < 0 else done.stdout.strip()

    print(f"1. The first process {process()}.")
    print(f"2. The second process says: {process()}")
    with everstep.open(folder / "store.db") as store:
        (gate,) = store.questions()
        print(f"3. A person is asked: {gate.ask}")
        store.answer(RUN, gate.name, "yes", by="ann")  # or: everstep answer travel/ann/trip-1 GATE yes
    print(f"4. The third process says: {process()}")
    print("\nThe calls that were made; only the one that was cut off was made twice:")
    print((folder / "ledger").read_text())


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        with everstep.open(FOLDER / "store.db") as store:
            runner = resume(Runner(app=app, session_service=SessionService(store), auto_create_session=True))
            if any(run.id == RUN for run in store.runs()):
                outcome = store.resume(RUN)  # as `everstep resume` and workers do
                print(f"{outcome.status}: {outcome.result}")
            else:
                asyncio.run(begin(runner))
    else:
        main()
