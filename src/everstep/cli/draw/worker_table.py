"""The live table of a worker: its runs, its queues and the last events. Redrawn in place, never larger than the terminal.

Uses only escapes that every terminal knows: up, erase to the end of a line, erase below. The cursor stays visible and below the table, so
a killed process leaves the terminal usable. Output of programs appears above the table.
"""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty
from typing import TYPE_CHECKING, Any, TextIO

from everstep.cli.app import App
from everstep.cli.draw import queue_text
from everstep.cli.draw.text import cell, cut, duration, plural, safe, width
from everstep.cli.draw.worker_events import BAD, Listener, count_label, name_of, words
from everstep.clock import clock
from everstep.errors import EverstepError
from everstep.views.queues import MINUTES, QueueView, queues

if TYPE_CHECKING:
    from everstep.api import Store

_FRAME, _BUSY_FRAME, _LOOK = 0.25, 0.15, 1.0
_KEPT = 50
_NAMED = 3
_DEPTHS = ("QUEUE", "READY", "LATER", "WAITING", "RUNNING", "OLDEST", f"LAST {MINUTES} MIN", "LIMITS")
_JOBS = ("RUN", "WORKFLOW", "QUEUE", "FOR")
_COUNTS = ("taken", "succeeded", "failed", "waiting", "cancelled", "taken_over", "given_back", "lost", "dead")
_COLOURS = {
    "failed": "red",
    "dead_letter": "red",
    "trouble": "red",
    "refused": "red",
    "left": "yellow",
    "lost": "yellow",
    "succeeded": "green",
}

Line = tuple[str, str | None]


class Board(Listener):
    """Draws the activity of a worker, a few times a second."""

    def __init__(self, app: App, stream: TextIO, store: Store):
        super().__init__(app, stream)
        self._store = store
        self._name = ""
        self._began = time.monotonic()
        self._signal: str | None = None
        self._good: deque[tuple[int, Line]] = deque(maxlen=_KEPT)
        self._bad: deque[tuple[int, Line]] = deque(maxlen=_KEPT)
        self._depths: dict[str, QueueView] = {}
        self._looked = 0.0
        self._drawn: list[int] = []  # widths of the lines of the last frame

    def note(self, line: str) -> None:
        """Show a line that a program printed."""
        self._events.put(line)

    def _work(self) -> None:
        going = True
        while going:
            received = self._next()
            going = None not in received
            for event in received:
                if isinstance(event, dict):
                    self._add(event)
            self._look()
            size = shutil.get_terminal_size((100, 24))
            self._draw([text for text in received if isinstance(text, str)], self._frame(size.columns, size.lines), size.columns)
            time.sleep(_BUSY_FRAME if going and len(received) else 0)

    def _next(self) -> list[Any]:
        """Return everything received since the last frame; an empty list if nothing came for a while."""
        received: list[Any] = []
        with suppress(Empty):
            received.append(self._events.get(timeout=_FRAME))
            while True:
                received.append(self._events.get_nowait())
        return received

    def _add(self, event: dict[str, Any]) -> None:
        name = name_of(event)
        if name == "started":
            self._name = str(event["worker"])
        elif name == "stopping":
            self._signal = str(event["signal"])
        text = words(self.app, event)
        if text:
            at = time.strftime("%H:%M:%S", time.localtime(event["at"] / 1e6))
            (self._bad if name in BAD else self._good).append((event["at"], (f"{at}  {text}", _COLOURS.get(name))))

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked >= _LOOK:
            self._looked = now
            with suppress(EverstepError):  # the worker gets the same error and reports it
                self._depths = {one.queue: one for one in queues(self._store)}

    def _frame(self, columns: int, rows: int) -> list[Line]:
        """Return the lines to show, at most as many as the terminal has."""
        most = max(1, rows - 1)
        head, foot = self._head(), self._foot()
        left = most - len(head) - len(foot)
        depths = _fitted(_table(_DEPTHS, self._depth_rows(), right=(1, 2, 3, 4)), max(2, left // 3), columns)
        jobs = _fitted(_table(_JOBS, self._job_rows(), right=(3,)), max(2, (left - len(depths)) // 2), columns)
        events = self._last_events(left - len(depths) - len(jobs))
        lines = [*head, *depths, *jobs, *events][: most - len(foot)] + foot
        return [(cut(text, columns - 1), style) for text, style in lines]

    def _head(self) -> list[Line]:
        worker = self.worker
        queues = ", ".join(cell(queue, 40) for queue in worker.queues)
        up = duration(time.monotonic() - self._began)
        counts = [f"{getattr(worker.counts, name):,} {count_label(name)}" for name in _COUNTS if getattr(worker.counts, name)]
        busy = f"{len(worker.jobs)} of {worker.concurrency} busy"
        return [(f"worker {cell(self._name, 60)}  {busy}  up {up}  {queues}", "bold"), (", ".join(counts) or "no runs taken yet", None)]

    def _foot(self) -> list[Line]:
        if not self.worker.stopping:
            return []
        jobs = sorted(self.worker.jobs.values(), key=lambda job: job.began)
        if not jobs:
            return [(f"{self._signal or 'stopping'}: drained", "yellow")]
        named = ", ".join(cell(job.run, 24) for job in jobs[:_NAMED]) + (", …" if len(jobs) > _NAMED else "")
        return [
            (
                f"{self._signal or 'stopping'}: takes no more runs, waits for the current steps of {plural(len(jobs), 'run')}: {named}",
                "yellow",
            ),
            ("Press Ctrl-C again to exit at once; other workers take over", "yellow"),
        ]

    def _depth_rows(self) -> list[list[str]]:
        return [self._depth_row(queue, self._depths.get(queue)) for queue in self.worker.queues]

    def _depth_row(self, queue: str, found: QueueView | None) -> list[str]:
        if found is None:
            return [cell(queue, 40), "0", "0", "0", "0", "", "", ""]
        counts = [f"{n:,}" for n in (found.ready, found.later, found.waiting, found.running)]
        oldest = "" if found.oldest is None else duration(max(0.0, clock.now_us() / 1e6 - found.oldest.timestamp()))
        return [cell(queue, 40), *counts, oldest, queue_text.lately(found.lately), queue_text.limits(found.limits)]

    def _job_rows(self) -> list[list[str]]:
        now = time.monotonic()
        jobs = sorted(self.worker.jobs.values(), key=lambda job: job.began)
        return [[cell(job.run, 36), cell(job.workflow or "", 30), cell(job.queue or "", 30), f"{now - job.began:,.1f} s"] for job in jobs]

    def _last_events(self, room: int) -> list[Line]:
        """Return the last events; successes never push out failures."""
        if room <= 1:
            return []
        bad = list(self._bad)[-max(1, room // 2) :]
        good = list(self._good)[-max(0, room - 1 - len(bad)) :] if room - 1 > len(bad) else []
        lines = [line for _, line in sorted([*bad, *good], key=lambda one: one[0])]
        return [("", None), *lines] if lines else []

    def _draw(self, above: Sequence[str], lines: list[Line], columns: int) -> None:
        up = sum(
            max(1, -(-wide // max(1, columns))) for wide in self._drawn
        )  # lines that the terminal has wrapped since take more than one
        out = ["\r", f"\x1b[{up}A" if up else ""]
        out += [f"{text}\x1b[K\n" for text in above]
        out += [f"{self.app.out.style(safe(text), style)}\x1b[K\n" for text, style in lines]
        self._drawn = [width(safe(text)) for text, _ in lines]
        self.stream.write("".join(out) + "\x1b[J")
        self.stream.flush()


def _table(head: Sequence[str], rows: list[list[str]], right: Sequence[int]) -> list[Line]:
    """Return a table with columns as wide as needed; nothing if there is no row."""
    if not rows:
        return []
    widths = [max(width(row[i]) for row in (head, *rows)) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            " " * (widths[i] - width(text)) + text if i in right else text + " " * (widths[i] - width(text)) for i, text in enumerate(cells)
        ]
        return "  ".join(padded).rstrip()

    return [("", None), (line(head), "dim"), *((line(row), None) for row in rows)]


def _fitted(lines: list[Line], most: int, columns: int) -> list[Line]:
    """Shorten a table to this many lines; the last one counts the missing rows."""
    if len(lines) <= most:
        return lines
    shown = max(0, most - 1)
    return [*lines[:shown], (f"… and {len(lines) - max(2, shown):,} more", "dim")]
