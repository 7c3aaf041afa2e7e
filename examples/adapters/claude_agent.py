"""A session of the Claude Agent SDK that is killed in a tool call, and asks a person before each call: python examples/adapters/claude_agent.py

Needs claude-agent-sdk. In place of the `claude` program runs scripted_claude.py: no key, no network. It looks for a flight and a hotel, and
books. The first process is killed with SIGKILL when the hotel was found, before it gets the result. The next one resumes the session and asks
again, because the call may have been made. From then on, each process ends when it has a question, and continues after the answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from claude_agent_sdk import ClaudeAgentOptions, query

import everstep
from everstep.adapters.claude import durable, resume

FOLDER = Path(os.environ.get("EXAMPLE_FOLDER", "."))
SESSION = "5f0c1a34-77aa-4b1e-9f52-3a0d6d0f1c11"
SCRIPT = [["FindFlight", {"to": "Rome"}], ["FindHotel", {"in": "Rome"}], ["Book", {"what": "flight and hotel"}]]


def options() -> ClaudeAgentOptions:
    scripted = {"CLAUDE_SCRIPT": json.dumps(SCRIPT), "CLAUDE_LAST_WORD": "Your trip is booked.", "CLAUDE_LEDGER": str(FOLDER / "ledger")}
    environment = {"CLAUDE_CONFIG_DIR": str(FOLDER / "home"), **scripted}
    return ClaudeAgentOptions(cli_path=Path(__file__).with_name("scripted_claude.py"), cwd=FOLDER, env=environment)


async def begin() -> None:
    async for _ in query(prompt="Plan a trip", options=await durable(options(), id=SESSION, store=FOLDER / "store.db")):
        pass


def process() -> None:
    """Begin the session, or continue it as `everstep resume` and workers do."""
    with everstep.open(FOLDER / "store.db") as store:
        begun = [run.id for run in store.runs(workflow="claude")]
        if begun:
            resume(options(), store=FOLDER / "store.db")
            outcome = store.resume(begun[0])
            print(f"{outcome.status}: {outcome.result}")
    if not begun:
        asyncio.run(begin())


def answer(folder: Path) -> None:
    """Answer the questions of the session, as a person would in another window: everstep answer RUN GATE yes."""
    if (folder / "store.db").exists():
        with everstep.open(folder / "store.db") as store:
            for gate in store.questions():
                print(f"   A person is asked: {gate.ask}")
                store.answer(gate.run, gate.name, "yes", by="ann")


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="everstep-claude-"))
    print(f"Everything happens in {folder}\n")

    def child(**more: str) -> str:
        command = [sys.executable, __file__, "run"]
        running = subprocess.Popen(command, env=os.environ | {"EXAMPLE_FOLDER": str(folder)} | more, stdout=subprocess.PIPE, text=True)
        while running.poll() is None:
            answer(folder)
            time.sleep(0.2)
        said = running.communicate()[0].strip()
        return f"was killed by signal {-running.returncode}" if running.returncode < 0 else f"says: {said}"

    print(f"The first process {child(CLAUDE_KILL='FindHotel')}.")
    said = "says: waiting"
    while said.startswith("says: waiting"):
        said = child()
        print(f"The {'next' if 'waiting' in said else 'last'} process {said}")
        answer(folder)
    print("\nThe calls that were made; only the one that was cut off was made twice:")
    print("\n".join(line.split()[0] for line in (folder / "ledger").read_text().splitlines()))


if __name__ == "__main__":
    process() if sys.argv[1:] == ["run"] else main()
