"""The output of the demo: headings, ticks, figures, differences, printed line by line as they happen. Moves no cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from everstep.cli.draw.text import cut, plural, safe
from everstep.snapshot.diff import Change

Say = Callable[[str], None]
Style = Callable[[str, str], str]
_NOTE = 56  # columns


class Voice:
    """Prints the parts of the demo. `say` prints a line, `style` colours a text, or returns it unchanged."""

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
        """Set the cost of a run before the next line, which shows the difference."""
        self._cost = cost

    def follow(self, news: Iterable[dict[str, Any]]) -> dict[str, Any]:
        """Print the messages of a worker as they arrive, and return the last one."""
        said: dict[str, Any] = {}
        for said in news:
            if said["what"] == "saved" and said["note"]:
                self._tick(said)
        return said

    def _tick(self, said: dict[str, Any]) -> None:
        """Print a checkpoint: the step before it, its result, and its price."""
        price = said["used"]["cost"] - self._cost
        self.spent(said["used"]["cost"])
        note = cut(safe(said["note"]), _NOTE)
        if said["tags"]:
            self.dim(f"⚑ {'':<9} {note} (tag {said['tags'][0]})")
        else:
            self.say(f"  {self.style('✓', 'green')} {said['step']:<9} {note:<{_NOTE}} {money(price):>8}".rstrip())

    def differ(self, changes: Sequence[Change], one: str, other: str) -> None:
        """Print the differences of the state's own fields, and the number of others."""
        self.say(f"  The two results differ: {self.style(f'- {one}', 'red')} and {self.style(f'+ {other}', 'green')}")
        top = [change for change in changes if len(change.path) == 1]
        for change in top:
            self.say(self.style(f"  - {change.path[0]!s:<7} {safe(str(change.before))}", "red"))
            self.say(self.style(f"  + {change.path[0]!s:<7} {safe(str(change.after))}", "green"))
        self.dim(f"and {plural(len(changes) - len(top), 'message')} of their conversations")


def money(dollars: float) -> str:
    """Format an amount of money; empty for 0."""
    return f"${dollars:.4f}" if dollars > 0.00001 else ""
