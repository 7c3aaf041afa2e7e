"""Draws the events of a run, one per line: time, sign, text and cost."""

from __future__ import annotations

from datetime import datetime
from shlex import quote
from typing import TYPE_CHECKING, Any

from everstep.cli.app import App
from everstep.cli.draw.text import cell, duration, plural, safe
from everstep.cli.draw.values import gate_names, shown
from everstep.views.journal import EventView
from everstep.views.runs import seen_status
from everstep.views.states import is_bookkeeping
from everstep.views.stored.values import iso

if TYPE_CHECKING:
    from everstep.api import Store

_SIGNS = {
    "run_created": ("●", "bold"), "run_forked": ("●", "bold"), "run_running": ("▶", "cyan"), "run_waiting": ("◇", "yellow"),
    "run_succeeded": ("■", "green"), "run_failed": ("■", "red"), "run_cancelled": ("■", "dim"), "step_succeeded": ("✓", "green"),
    "step_failed": ("✗", "red"), "step_retrying": ("↻", "yellow"), "step_started": ("…", "dim"), "checkpoint_created": ("◆", "blue"),
    "gate_opened": ("?", "yellow"), "gate_answered": ("!", "green"), "gate_cancelled": ("✗", "dim"), "base_written": ("", None),
}  # fmt: skip


class Timeline:
    """The timeline of one run, or of all runs."""

    def __init__(self, app: App, store: Store, run: str | None):
        self._out = app.out
        self._store, self._all = store, run is None
        self._run = run or ""
        self._forks: dict[int, list[str]] = {}
        for fork in () if run is None else store.runs(parent=run, limit=1_000):
            self._forks.setdefault(fork.parent_number or 0, []).append(fork.id)
        self._day: str | None = None
        self._last: int | None = None

    def head(self, after: int) -> None:
        info = self._store.get(self._run)
        self._out.line(
            f"{self._out.style(info.id, 'bold')}  {self._out.status(seen_status(self._store, info)[0])}  {cell(info.workflow or '', 60)}".rstrip()
        )
        if after:
            self._out.say(f"{plural(after, 'earlier entry', 'earlier entries')}: use --all to show them")

    def event(self, event: EventView) -> None:
        sign, colour = _SIGNS.get(event.name, ("·", "dim"))
        if not sign or (event.name == "attached" and is_bookkeeping(event.data.get("name"))):
            return
        if not self._all:
            self._attempt(event)
        run = f"{self._out.style(safe(event.run), 'bold')}  " if self._all else ""
        self._out.line(f"{self._out.style(self._time(event.at), 'dim')}  {run}{self._out.style(sign, colour)} {self._text(event)}".rstrip())
        if event.name == "checkpoint_created":
            for fork in self._forks.get(event.data.get("number", 0), ()):
                self._out.line(f"{' ' * len(self._time(event.at))}  └─ fork {self._out.style(fork, 'bold')}")

    def _attempt(self, event: EventView) -> None:
        """Draw a line where another process took over: a killed process writes nothing about its end."""
        before, self._last = self._last, event.attempt or self._last
        if before and self._last and self._last > before and not event.name.startswith("run_"):
            self._out.line(f"{' ' * len(self._time(event.at))}  {self._out.style('▶', 'cyan')} attempt {self._last}")

    def end(self) -> None:
        gates = self._store.gates(self._run) if self._store.get(self._run).status == "waiting" else []
        for name in gate_names(gate for gate in gates if gate.open):
            self._out.say(f"Waiting for an answer: everstep answer {self._run} {quote(name)} VALUE", "yellow")

    def _time(self, at: datetime) -> str:
        """Format a time: the local time of day on a terminal, with a line for each new day; the full time otherwise."""
        if not self._out.terminal or self._out.exact_times:
            return iso(at)
        local = at.astimezone()
        day = local.strftime("%Y-%m-%d")
        if day != self._day:
            self._day = day
            self._out.line(self._out.style(day, "dim"))
        return f"{local:%H:%M:%S}"

    def _text(self, event: EventView) -> str:
        data: dict[str, Any] = event.data
        kind, _, what = event.name.partition("_")
        if kind == "step":
            return self._step(what, data)
        if kind == "checkpoint":
            return self._checkpoint(data)
        if kind == "gate":
            return self._gate(what, data)
        if kind == "attached":
            at = self._out.style(f"at @{data.get('number')}", "dim")
            return f"{cell(str(data.get('name', '')), 200)}  {at}"
        rest = ", ".join(f"{name} {shown(value, 100)}" for name, value in data.items() if value not in (None, "", [], {}))
        words = (what if kind == "run" else event.name).replace("_", " ")
        return f"{words}  {self._out.style(rest, 'dim')}".rstrip()

    def _step(self, what: str, data: dict[str, Any]) -> str:
        parts = [cell(str(data.get("step", "")), 60)]
        if what != "succeeded":
            parts.append(what)
        if data.get("attempt", 1) > 1 or what == "retrying":
            parts.append(f"attempt {data['attempt']}")
        parts += [duration(data["seconds"])] if "seconds" in data else []
        parts += [f"{data['tokens']:,} tokens"] if data.get("tokens") else []
        parts += [f"${data['cost']:,.4f}"] if data.get("cost") else []
        error = data.get("error")
        if error:
            parts.append(self._out.style(cell(" ".join(f"{error.get('type')}: {error.get('message')}".split("\n")), 200), "red"))
        return "  ".join(parts)

    def _checkpoint(self, data: dict[str, Any]) -> str:
        parts = [f"checkpoint @{data.get('number')}", str(data.get("kind", "")) if data.get("kind") != "manual" else ""]
        parts += [cell(", ".join(data.get("tags") or ()), 60), cell(data.get("note") or "", 200)]
        return "  ".join(part for part in parts if part)

    def _gate(self, what: str, data: dict[str, Any]) -> str:
        name = cell(str(data.get("gate", "")), 60)
        if what == "opened":
            return f"gate {name}: {cell(data.get('ask') or '', 200)}"
        if what == "cancelled":
            return f"gate {name} cancelled by the program"
        by = f" by {cell(data['by'], 60)}" if data.get("by") else ""
        return f"gate {name} {what}{by}: {shown(data.get('value'), 200)}"
