"""The recorded error of a run or a step as text for its page. The remedy of one of our own errors becomes commands for this run."""

from __future__ import annotations

import re
from textwrap import indent

from everstep.cli.draw.text import cell, cut, safe
from everstep.cli.failures import in_commands

_LONGEST, _MOST_LINES = 1_000, 50
_OURS = re.compile(r"(.*\[E\d{3}\])\n(.*)", re.DOTALL)
_NAMELESS = re.compile(r"\brun_id\b")


def error_words(run: str, kind: str, message: str) -> str:
    """Return an error with the lines of its message, cut if it is long."""
    ours = _OURS.fullmatch(message[: 4 * _LONGEST])
    if ours:
        message = f"{ours[1]}\n{in_commands(_NAMELESS.sub(repr(run), ours[2]))}"
    lines = safe(f"{kind}: {message}"[: 4 * _LONGEST], lines=True).rstrip().split("\n")
    return "\n".join(cut(line, _LONGEST) for line in lines[:_MOST_LINES]) + ("\n…" if len(lines) > _MOST_LINES else "")


def error_cell(kind: str, message: str) -> str:
    """Return an error in one line, for a table."""
    return cell(" ".join(f"{kind}: {message[:_LONGEST]}".split("\n")), 200)


def traceback_words(message: str, traceback: str | None) -> str:
    """Return an indented traceback, so that no line of it looks like a row of the page. Empty if it has no frames and only repeats the message."""
    text = (traceback or "").rstrip()
    kind, _, said = text.partition(": ")
    return "" if "\n" not in kind and said.strip() == message.strip() else indent(safe(text, lines=True), "  ")
