"""The last frames of an error in a program, in a few lines: those of the program itself, not those of Everstep around it."""

from __future__ import annotations

import traceback
from pathlib import Path

_SHOWN = 3
OWN = str(Path(__file__).parents[2])


def last_frames(error: BaseException) -> list[str]:
    """Return lines such as `flows.py:12, in price: raise OSError("busy")`, the innermost call last."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith((OWN, "<frozen"))]
    return [f"{_near(frame.filename)}:{frame.lineno}, in {frame.name}: {(frame.line or '').strip()}"[:300] for frame in frames[-_SHOWN:]]


def _near(file: str) -> str:
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file
