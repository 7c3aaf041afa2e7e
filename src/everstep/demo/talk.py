"""How the demo talks: headings, ticks, figures, differences, in lines that a person reads as they come. Moves no cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from everstep.cli.draw.text import cut, plural, safe
from everstep.snapshot.diff import Change

Say = Callable[[str], None]
Style = Callable[[str, str], str]
_NOTE = 56  # columns


class Voice:
    """Says each thing in its own way. `say` puts a line where it belongs, `style` colours a text, or doesn't."""

    def __init__(self, say: Say, style: Style):
        self.say, self.style = say, style
        self._cost = 0.0

    def head(self, title: str) -> None:
        self.say(self.style(title, "bold"))

    def dim(self, text: str) -> None:
        self.say(self.style(f"  {text}", "dim"))

    def figures(self, *pairs: tuple[str, str]) -> None:
        for name, text in pairs:
            self.say(f"  {self.style(f'{name:<11}', 'dim')} {text}")

    def yes(self, good: bool) -> str:
        return self.style("yes", "green") if good else self.style("NO", "red")

    def thinking(self, step: str) -> None:
        self.say(f"  {self.style('…', 'yellow')} {step:<9} {self.style('the model is thinking, and is being paid for it', 'yellow')}")

    def killing(self, pid: int) -> None:
        self.say(self.style(f"  ✗ kill -9 {pid}", "red"))

    def spent(self, cost: float) -> None:
        """What a run had cost before the next line, which tells what was added."""
        self._cost = cost

    def follow(self, news: Iterable[dict[str, Any]]) -> dict[str, Any]:
        """Say what a worker tells while it tells it, and return the last thing."""
        said: dict[str, Any] = {}
        for said in news:
            if said["what"] == "saved" and said["note"]:
                self._tick(said)
        return said

    def _tick(self, said: dict[str, Any]) -> None:
        """A line for a checkpoint: the step before it, what came of it, and its price."""
        price = said["used"]["cost"] - self._cost
        self.spent(said["used"]["cost"])
        note = cut(safe(said["note"]), _NOTE)
        if said["tags"]:
            self.dim(f"⚑ {'':<9} {note} (tag {said['tags'][0]})")
        else:
            self.say(f"  {self.style('✓', 'green')} {said['step']:<9} {note:<{_NOTE}} {money(price):>8}".rstrip())

    def differ(self, changes: Sequence[Change], one: str, other: str) -> None:
        """What a person wants to see of a difference: the fields of the state itself, and how much else there is."""
        self.say(f"  How the two endings differ, {self.style(f'- {one}', 'red')} and {self.style(f'+ {other}', 'green')}:")
        top = [change for change in changes if len(change.path) == 1]
        for change in top:
            self.say(self.style(f"  - {change.path[0]!s:<7} {safe(str(change.before))}", "red"))
            self.say(self.style(f"  + {change.path[0]!s:<7} {safe(str(change.after))}", "green"))
        self.dim(f"and {plural(len(changes) - len(top), 'message')} of their conversations")


def money(dollars: float) -> str:
    """An amount; nothing for what costs nothing."""
    return f"${dollars:.4f}" if dollars > 0.00001 else ""
