"""What a command prints: data on stdout, talk on stderr, JSON when asked for, colour and progress only on a terminal.

Every text that comes from a store goes through `text.safe` before it gets here; JSON is ASCII. A JSON answer is one object,
{"everstep": 1, "kind": what, "data": …}, or one such object in each line where a command streams.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any, TextIO

from everstep.cli.draw.capture import to_stderr
from everstep.cli.draw.text import ago, cut, safe, width
from everstep.cli.exit_codes import UNHEARD
from everstep.views.stored.values import dumps, iso

FORMAT = 1
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_OF_STATUS = {
    "running": "cyan",
    "waiting": "yellow",
    "queued": "blue",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "dim",
    "differs": "yellow",
}
_PATIENCE = 0.9
_PLAIN = re.compile(r"[ -~\n\t]*")
_COLOURS = re.compile(r"(\x1b\[\d{1,2}m)")


class Output:
    """Where a command's words go."""

    def __init__(self, as_json: bool = False, colour: str = "auto", quiet: bool = False):
        self.as_json = as_json
        self.quiet = quiet
        self.terminal = sys.stdout.isatty()
        self.colour = colour == "always" or (colour == "auto" and self.terminal and _wanted())
        self._talk_colour = colour == "always" or (colour == "auto" and sys.stderr.isatty() and _wanted())

    @property
    def columns(self) -> int:
        """How wide a line may be; without a terminal nothing is cut."""
        return shutil.get_terminal_size((100, 24)).columns if self.terminal else 10_000

    def style(self, text: str, name: str | None) -> str:
        return f"\x1b[{_STYLES[name]}m{text}\x1b[0m" if self.colour and name and text else text

    def status(self, status: str) -> str:
        return self.style(status, self.colour_of(status))

    @staticmethod
    def colour_of(status: str) -> str | None:
        return _OF_STATUS.get(status)

    def when(self, moment: datetime | None) -> str:
        """A time as a person wants it: how long ago on a terminal, exactly otherwise."""
        return "" if moment is None else ago(moment) if self.terminal else iso(moment)

    def apart(self) -> AbstractContextManager[object]:
        """While programs run: with --json, what they and their commands print goes to stderr, because stdout is for one object."""
        return to_stderr() if self.as_json else nullcontext()

    def line(self, text: str = "") -> None:
        sys.stdout.write(_guarded(text) + "\n")

    def say(self, text: str, style: str | None = None) -> None:
        """A word to the person, not part of the data."""
        if not self.quiet:
            sys.stdout.flush()
            text = _guarded(text)
            sys.stderr.write((f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if style and self._talk_colour else text) + "\n")
            sys.stderr.flush()

    def data(self, kind: str, data: Any) -> None:
        """The answer of a command as JSON."""
        self.line(dumps({"everstep": FORMAT, "kind": kind, "data": data}, indent=2))

    def item(self, kind: str, data: Any) -> None:
        """One line of an answer that streams."""
        self.line(dumps({"everstep": FORMAT, "kind": kind, "data": data}))
        sys.stdout.flush()

    def table(
        self, head: Sequence[str], rows: Iterable[Sequence[str]], styles: dict[int, Any] | None = None, right: Sequence[int] = ()
    ) -> None:
        """Columns as wide as they need; the last one is cut at the edge of a terminal. `styles` colours the cells of a column."""
        body = [list(row) for row in rows]
        keep = [i for i in range(len(head)) if not head[i] or any(row[i] for row in body)]
        widths = {i: max([width(head[i]), *(width(row[i]) for row in body)]) for i in keep}
        self.line(self.style(cut("  ".join(_pad(head[i], widths[i], i in right) for i in keep).rstrip(), self.columns), "dim"))
        for row in body:
            self.line(self._row(row, keep, widths, styles or {}, right))

    def _row(self, row: list[str], keep: list[int], widths: dict[int, int], styles: dict[int, Any], right: Sequence[int]) -> str:
        out, left = [], self.columns
        for i in keep:
            text = cut(row[i], left) if left > 0 else ""
            padded = _pad(text, widths[i], i in right) if i != keep[-1] or i in right else text
            out.append(styles[i](padded) if i in styles else padded)
            left -= widths[i] + 2
        return "  ".join(out).rstrip()

    def pairs(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Names and what they are, aligned; those that are empty are left out."""
        shown = [(name, text) for name, text in pairs if text]
        longest = max((width(name) for name, _ in shown), default=0)
        for name, text in shown:
            self.line(f"{self.style(_pad(name, longest, False), 'dim')}  {text}")

    def progress(self, what: str) -> Progress:
        return Progress(what, sys.stderr, not self.quiet and not self.as_json and sys.stderr.isatty())


class Progress:
    """A bar for what takes more than a second, on a terminal only. Called with how much is done and of how much."""

    def __init__(self, what: str, stream: TextIO, shown: bool):
        self._what, self._stream, self._shown = what, stream, shown
        self._begun = self._told = time.monotonic()
        self._drawn = False

    def __call__(self, done: float, total: float, *_: Any) -> None:
        now = time.monotonic()
        if not self._shown or now - self._begun < _PATIENCE or now - self._told < 0.1:
            return
        self._told, self._drawn = now, True
        share = min(1.0, done / total) if total else 0.0
        filled = int(24 * share)
        self._stream.write(f"\r{self._what} [{'█' * filled}{'·' * (24 - filled)}] {share:4.0%}\x1b[K")
        self._stream.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def unheard() -> int:
    """Whoever read us has seen enough: the rest goes nowhere. Gives the exit code that a shell expects then."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return UNHEARD


def _guarded(text: str) -> str:
    """The last look at a line: ids and tags, which may hold marks of no width, are printed as they are. Our own colours stay."""
    return (
        text
        if _PLAIN.fullmatch(text)
        else "".join(part if i % 2 else safe(part, lines=True) for i, part in enumerate(_COLOURS.split(text)))
    )


def _wanted() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _pad(text: str, columns: int, right: bool) -> str:
    space = " " * (columns - width(text))
    return space + text if right else text + space
