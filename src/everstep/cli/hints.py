"""What to do next with a run, in one line. Only a run of a workflow can be resumed; any other one needs its own program. No I/O."""

from __future__ import annotations

from typing import Any


def who_goes_on(run: Any) -> str:
    """Who goes on with a run: a command, or the program that drives it."""
    return f"everstep resume {run.id}" if run.workflow else "the program that drives it"
