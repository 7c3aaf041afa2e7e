"""A program with an agent of the Claude Agent SDK, for processes of their own: run by tests, and imported by `everstep resume --import`.

    python claude_program.py STORE FOLDER ID WAIT KILL

KILL is when it dies: `answer` (when the answer has come, before Claude hears of it), `tool` (a payment was made, its result was not saved), `N` or `-N`
(after or before its commit of that number), or `none`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

import everstep
from everstep.adapters.claude import durable, resume

CLI = Path(__file__).parents[2] / "examples" / "adapters" / "scripted_claude.py"
SCRIPT = [["Find", {"what": "bike"}], ["Pay", {"eur": 5}], ["Pay", {"eur": 5}]]


def options(folder: Path) -> ClaudeAgentOptions:
    env = {"CLAUDE_CONFIG_DIR": str(folder / "home"), "CLAUDE_SCRIPT": json.dumps(SCRIPT), "CLAUDE_LEDGER": str(folder / "ledger")}
    return ClaudeAgentOptions(cli_path=CLI, cwd=folder, env=env)


def mortal(backend: Any, number: int) -> None:
    """Let the process be killed after its commit of this number, or before it if the number is negative."""
    commit, submit, made = backend.commit, backend.submit, [0]

    def reached(mine: int) -> None:
        if mine == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def mortal_commit(given: Any) -> Any:
        made[0] = mine = made[0] + 1
        reached(-mine)
        found = commit(given)
        reached(mine)
        return found

    def mortal_submit(given: Any, done: Any) -> None:
        made[0] = mine = made[0] + 1
        reached(-mine)
        submit(given, lambda outcome: (reached(mine), done(outcome)))

    backend.commit, backend.submit = mortal_commit, mortal_submit


async def ask(store: Any, folder: Path, id: str, wait: float | None = None, kill: str = "none") -> ResultMessage | None:
    made = await durable(options(folder), id=id, store=store, wait=wait)
    approve: Any = made.can_use_tool

    async def deadly(tool: str, input: Any, context: Any) -> Any:
        answer = await approve(tool, input, context)
        if kill == "answer" and tool == "Pay":
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    made.can_use_tool = deadly
    last = None
    async for message in query(prompt="Buy a bike", options=made):
        if isinstance(message, ResultMessage):
            last = message
    return last


if os.environ.get("CLAUDE_FOLDER"):  # imported by a command or a worker
    resume(options(Path(os.environ["CLAUDE_FOLDER"])), store=os.environ["CLAUDE_STORE"])

if __name__ == "__main__":
    path, place, session, seconds, when = sys.argv[1:]
    if when == "tool":
        os.environ["CLAUDE_KILL"] = "Pay"
    with everstep.open(path) as opened:
        if when.lstrip("-").isdigit():
            mortal(opened.backend, int(when))
        found = asyncio.run(ask(opened, Path(place), session, float(seconds) if seconds else None, when))
    print(found.result if found else None)
