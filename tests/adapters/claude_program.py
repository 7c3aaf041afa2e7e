"""A program with an agent of the Claude Agent SDK, for processes of their own: run by tests, and imported by `everstep resume --import`.

    python claude_program.py STORE FOLDER ID WAIT KILL

KILL is `ask` (dies while a question is open), `answer` (dies when the answer has come, before the tool is used), or `none`.
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

from everstep.adapters.claude import durable, resume

SCRIPT = [["Find", {"what": "bike"}], ["Pay", {"eur": 5}], ["Pay", {"eur": 5}]]


def options(folder: Path) -> ClaudeAgentOptions:
    env = {"CLAUDE_CONFIG_DIR": str(folder / "home"), "CLAUDE_SCRIPT": json.dumps(SCRIPT), "CLAUDE_LEDGER": str(folder / "ledger")}
    return ClaudeAgentOptions(cli_path=Path(__file__).with_name("claude_cli.py"), cwd=folder, env=env)


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
    found = asyncio.run(ask(path, Path(place), session, float(seconds) if seconds else None, when))
    print(found.result if found else None)
