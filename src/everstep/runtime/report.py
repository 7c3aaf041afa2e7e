"""The report of an attempt: how many steps came from the journal, and what that saved. No I/O."""

from __future__ import annotations

from everstep.fields import Shape, field
from everstep.runtime.steps.difference import Difference


class Report(Shape):
    """One attempt at a run: the steps it took from the journal, and the steps it executed."""

    run: str = ""
    attempt: int = 1
    kept: int = 0
    executed: int = 0
    seconds_saved: float = 0.0
    tokens_saved: int = 0
    cost_saved: float = 0.0
    seconds: float = 0.0
    changed: str = ""
    """The difference between the definition that the run began with and the present one, as a unified diff."""
    unused: list[str] = field(default_factory=list)
    """Recorded steps that the program did not call again."""
    handled: list[str] = field(default_factory=list)
    """The failed steps of a failed run that a resume would not run again."""
    deaths: int = 0
    """How many processes had died with the run when it was given up (see WorkerDied); otherwise 0."""
    differences: list[Difference] = field(default_factory=list)
    """The differences that `replay="validate"` found."""
    new: list[str] = field(default_factory=list)
    """Steps that the validated program called and that are not recorded."""
    not_reached: list[str] = field(default_factory=list)
    """Recorded steps that were not compared, because a new step ended the validation."""

    def __str__(self) -> str:
        lines = [f"{self.run}: {_steps(self.kept)} kept, {_steps(self.executed)} run in {_seconds(self.seconds)}"]
        if self.kept:
            lines[0] += f"; saved {_seconds(self.seconds_saved)}"
            lines[0] += f", {self.tokens_saved:,} tokens" if self.tokens_saved else ""
            lines[0] += f", ${self.cost_saved:,.4f}" if self.cost_saved else ""
        if self.unused and not self.not_reached:
            lines.append(f"recorded, but no longer called: {', '.join(self.unused)}")
        if self.handled:
            lines.append(handled_hint(self.run, self.handled))
        if self.changed:
            lines.append("the definition has changed since the run began")
        lines += [str(difference) for difference in self.differences]
        if self.new:
            lines.append(f"called now, but not recorded: {', '.join(self.new)}")
        if self.not_reached:
            lines.append(f"the comparison ended there; recorded, but not compared: {', '.join(self.not_reached)}")
        return "\n".join(lines)


def handled_hint(run: str, steps: list[str]) -> str:
    """Return why a resume gives the same failure again, and how to run the step again."""
    first, more = steps[-1], f" and {len(steps) - 1:,} more" if len(steps) > 1 else ""
    return (
        f"{first}{more} failed, and the run recorded more after that, so a resume replays the failure. To run the step again in a fork: "
        f"store.resume({run!r}, from_step={first!r}). To run it again in this run: store.retry({run!r}, {first!r}), then store.resume({run!r})"
    )


def _steps(n: int) -> str:
    return f"{n:,} step" if n == 1 else f"{n:,} steps"


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min"
