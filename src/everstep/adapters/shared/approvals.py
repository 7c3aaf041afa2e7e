"""The answers to approvals: `yes`, `no`, true, false, or an object with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ANSWERS = {
    "anyOf": [
        {"enum": ["yes", "no"]},
        {"type": "boolean"},
        {
            "type": "object",
            "properties": {"answer": {"enum": ["yes", "no"]}, "reason": {"type": "string"}, "always": {"type": "boolean"}},
            "required": ["answer"],
            "additionalProperties": False,
        },
    ]
}


def read_answer(said: Any) -> tuple[bool, str | None, bool]:
    """Return whether an answer approves, its reason, and whether it holds for all further calls of the tool."""
    if isinstance(said, Mapping):
        return said["answer"] == "yes", said.get("reason"), bool(said.get("always"))
    return said in (True, "yes"), None, False
