"""The recorded error of a run or a step as text for its page. The remedy of one of our own errors becomes commands for this run."""

from __future__ import annotations

import re
from textwrap import indent

from everstep.cli.app import App
from everstep.cli.draw.text import cell, cut, plural, safe
from everstep.cli.failures import in_commands
from everstep.cli.layout.frames import OWN

_LONGEST, _MOST_LINES = 1_000, 50
_OURS = re.compile(r"(.*\[E\d{3}\])\n(.*)", re.DOTALL)
_FRAME = re.compile(r'  File "(.*)", line \d+')


def error_words(run: str, kind: str, message: str) -> str:
    """Return an error with the lines of its message, cut if it is long."""
    ours = _OURS.fullmatch(message[: 4 * _LONGEST])
    if ours:
        message = f"{ours[1]}\n{in_commands(ours[2], run)}"
    lines = safe(f"{kind}: {message}"[: 4 * _LONGEST], lines=True).rstrip().split("\n")
    return "\n".join(cut(line, _LONGEST) for line in lines[:_MOST_LINES]) + ("\n…" if len(lines) > _MOST_LINES else "")


def error_cell(kind: str, message: str) -> str:
    """Return an error in one line, for a table."""
    return cell(" ".join(f"{kind}: {message[:_LONGEST]}".split("\n")), 200)


def print_traceback(app: App, message: str, traceback: str | None, full: bool) -> None:
    """Print a recorded traceback, indented, so that no line of it looks like a row of the page; nothing if it has no frames and only repeats the
    message. The frames of Everstep between those of the program are left out unless `full`.
    """
    text = (traceback or "").rstrip()
    kind, _, said = text.partition(": ")
    if "\n" not in kind and said.strip() == message.strip():
        return
    text, left_out = (text, 0) if full else without_own_frames(text)
    app.out.line()
    app.out.line(app.out.style("TRACEBACK", "dim"))
    app.out.raw(indent(safe(text, lines=True), "  "))
    if left_out:
        app.out.say(f"{plural(left_out, 'frame')} of Everstep {'is' if left_out == 1 else 'are'} left out: --full shows all.", "dim")


def without_own_frames(traceback: str) -> tuple[str, int]:
    """Return a traceback without the frames of Everstep, and their number. The frame that raised the error always stays."""
    blocks: list[list[str]] = []  # a frame with its code and marks, or one other line
    for line in traceback.split("\n"):
        if blocks and _FRAME.match(blocks[-1][0]) and line.startswith("  ") and not _FRAME.match(line):
            blocks[-1].append(line)
        else:
            blocks.append([line])
    after = [*blocks[1:], [""]]
    own = [n for n, block in enumerate(blocks) if _is_own(block[0]) and _FRAME.match(after[n][0])]
    return "\n".join("\n".join(block) for n, block in enumerate(blocks) if n not in set(own)), len(own)


def _is_own(line: str) -> bool:
    frame = _FRAME.match(line)
    return frame is not None and (frame[1].startswith(f"{OWN}/") or "/site-packages/everstep/" in frame[1])
