"""The result of a repair: the contents of the new store, and every loss. Plain data."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from everstep.fields import Shape, field

_SHOWN = 50


class Loss(Shape, frozen=True):
    """One thing that could not be saved. `run` is None if it belongs to no run, or to an unknown one.

    `what` is `run`, `checkpoint`, `note` (of a checkpoint whose state was saved), `step` (also `gate`, `answer`, `timer`, `event`,
    `status`, `start`), `record` (of unknown kind), `end`, `row`, `tag`, `feed`, `manifest`, `writes` or `bytes`; `number`, `seq` and `name`
    identify it.
    """

    run: str | None
    what: str
    reason: str
    number: int | None = None
    seq: int | None = None
    name: str | None = None

    @property
    def which(self) -> str:
        """A text that names it."""
        if self.what in ("checkpoint", "note"):
            return f"{'' if self.what == 'checkpoint' else 'note of '}{self.run}@{self.number}"
        detail = f" {self.name}" if self.name is not None else f" {self.seq}" if self.seq is not None else ""
        return f"{self.what}{detail}" + (f" of {self.run}" if self.run is not None else "")

    def __str__(self) -> str:
        return f"{self.which}: {self.reason}"


class Repaired(Shape):
    """The result of a repair: what was written and what was lost. `ok`: nothing was lost."""

    source: str
    target: str
    runs: int = 0
    records: int = 0
    """The number of records of the old store that were kept; substitutes for lost ones are not counted."""
    checkpoints: int = 0
    """The number of checkpoints whose state can be loaded."""
    chunks: int = 0
    healed: int = 0
    """The number of flipped bits that were corrected."""
    paused: list[str] = field(default_factory=list)
    """The runs that were paused, because they might repeat finished work."""
    lost: list[Loss] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.lost

    def __str__(self) -> str:
        held = f"{self.runs} runs, {self.records} records, {self.checkpoints} checkpoints, {self.chunks} chunks"
        held += f"; {self.healed} flipped bits corrected" if self.healed else ""
        lines = [f"repaired {self.source} into {self.target}: {held}"]
        if not self.lost:
            return lines[0] + "; nothing was lost"
        counts = Counter(loss.what for loss in self.lost)
        lines.append("lost: " + ", ".join(f"{count} {what}" for what, count in counts.items()))
        shown = _together(self.lost)
        lines += shown[:_SHOWN] + ([f"… and {len(shown) - _SHOWN} more lines; .lost has them all"] if len(shown) > _SHOWN else [])
        return "\n".join(lines + [f"paused: {', '.join(self.paused)}"] * bool(self.paused))


def _together(losses: list[Loss]) -> list[str]:
    """Return one line for neighbours that were lost for the same reason."""
    lines = []
    for (_, _, reason), group in groupby(losses, lambda loss: (loss.run, loss.what, loss.reason)):
        same = list(group)
        which = same[0].which if len(same) == 1 else f"{same[0].which} to {same[-1].which}"
        lines.append(f"  {which}: {reason}")
    return lines
