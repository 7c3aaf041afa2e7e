#!/usr/bin/env python3
"""A scripted `claude` program: speaks the stream-json protocol of the CLI, so that the real SDK runs with a real process. Only the model is scripted.

CLAUDE_SCRIPT is a list of tool calls in JSON, `[["Pay", {"eur": 5}], …]`. It makes the calls that the transcript has no result of, asks for
permission before each, writes those that are made to CLAUDE_LEDGER, and answers CLAUDE_LAST_WORD, by default "Done.". After the first call of the
tool CLAUDE_KILL, it kills the program that has started it, before that program gets the result. claude_agent.py and the tests use it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import uuid
from pathlib import Path
from typing import Any


class Session:
    def __init__(self) -> None:
        options = dict(word[2:].split("=", 1) for word in sys.argv if word.startswith("--") and "=" in word)
        self.id = options.get("resume") or options.get("session-id") or str(uuid.uuid4())
        home = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
        folder = home / "projects" / re.sub(r"[^a-zA-Z0-9]", "-", os.path.realpath("."))
        self.file = folder / f"{self.id}.jsonl"
        self.entries: list[Any] = []
        if "resume" in options:
            if not self.file.exists():
                sys.exit(f"No conversation found with session ID: {self.id}")
            self.entries = [json.loads(line) for line in self.file.read_text().splitlines()]
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, role: str, content: Any) -> None:
        parent = self.entries[-1]["uuid"] if self.entries else None
        entry = {
            "type": role,
            "uuid": str(uuid.uuid4()),
            "parentUuid": parent,
            "sessionId": self.id,
            "message": {"role": role, "content": content},
        }
        self.entries.append(entry)
        with self.file.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        if "--session-mirror" in sys.argv:
            say({"type": "transcript_mirror", "filePath": str(self.file), "entries": [entry]})

    def made(self) -> int:
        parts = [part for one in self.entries if isinstance(one["message"]["content"], list) for part in one["message"]["content"]]
        return sum(part["type"] == "tool_result" and not part.get("is_error") for part in parts)


def say(message: Any) -> None:
    print(json.dumps(message), flush=True)


def hear() -> Any:
    line = sys.stdin.readline()
    if not line:
        os._exit(0)
    return json.loads(line)


def permission(tool: str, input: Any, call: str) -> Any:
    request = {"subtype": "can_use_tool", "tool_name": tool, "input": input, "tool_use_id": call, "permission_suggestions": []}
    say({"type": "control_request", "request_id": call, "request": request})
    while True:
        heard = hear()
        if heard["type"] == "control_response":
            response = heard["response"]
            return response["response"] if response["subtype"] == "success" else {"behavior": "deny", "message": response["error"]}


def turn(session: Session, prompt: Any) -> None:
    session.add("user", prompt)
    script, text, bad = json.loads(os.environ.get("CLAUDE_SCRIPT", "[]")), os.environ.get("CLAUDE_LAST_WORD", "Done."), False
    while (n := session.made()) < len(script):
        (tool, input), call = script[n], f"toolu_{uuid.uuid4().hex[:12]}"
        use = [{"type": "tool_use", "id": call, "name": tool, "input": input}]
        session.add("assistant", use)
        say({"type": "assistant", "message": {"role": "assistant", "model": "scripted", "content": use}, "session_id": session.id})
        answer = permission(tool, input, call)
        result = {"type": "tool_result", "tool_use_id": call, "content": "made"}
        if answer["behavior"] == "allow":
            with Path(os.environ["CLAUDE_LEDGER"]).open("a") as ledger:
                ledger.write(f"{tool} {json.dumps(answer['updatedInput'])}\n")
            if os.environ.get("CLAUDE_KILL") == tool:
                os.kill(os.getppid(), signal.SIGKILL)
                os._exit(0)
        else:
            result |= {"content": answer["message"], "is_error": True}
        session.add("user", [result])
        if answer["behavior"] != "allow":
            bad, text = bool(answer.get("interrupt")), f"Not made: {answer['message']}"
            break
    if not bad:
        session.add("assistant", [{"type": "text", "text": text}])
        content = [{"type": "text", "text": text}]
        say({"type": "assistant", "message": {"role": "assistant", "model": "scripted", "content": content}, "session_id": session.id})
    subtype = "error_during_execution" if bad else "success"
    about = {"duration_ms": 1, "duration_api_ms": 1, "num_turns": 1, "total_cost_usd": 0.01, "session_id": session.id}
    say({"type": "result", "subtype": subtype, "is_error": bad, "result": None if bad else text, **about})


def main() -> None:
    if "-v" in sys.argv or "--version" in sys.argv:
        print("99.0.0 (Claude Code)")
        return
    session = Session()
    while True:
        heard = hear()
        if heard["type"] == "control_request":
            response = {"subtype": "success", "request_id": heard["request_id"], "response": {"commands": []}}
            say({"type": "control_response", "response": response})
        elif heard["type"] == "user":
            turn(session, heard["message"]["content"])


main()
