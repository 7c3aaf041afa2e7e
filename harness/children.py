"""The environment of child processes: they find this package and the same Everstep as their parent. No I/O."""

from __future__ import annotations

import os
from pathlib import Path

import everstep


def environment(**more: str) -> dict[str, str]:
    """Return the variables of this process, with both packages on PYTHONPATH, and some more."""
    paths = [str(Path(__file__).parents[1]), str(Path(everstep.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **more}
