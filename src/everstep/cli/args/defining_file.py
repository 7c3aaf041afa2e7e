"""Finds the .py file of the working folder that seems to define a workflow, to name it in a hint. It reads text, and imports nothing."""

from __future__ import annotations

import re
from pathlib import Path

_MOST_FILES, _MOST_BYTES = 200, 1_000_000


def defining_file(workflow: str | None) -> list[str]:
    """Return the one file that defines the workflow; empty if there is none, or more than one."""
    if not workflow:
        return []
    name = re.escape(workflow)
    defines = re.compile(rf"^\s*(async\s+)?def\s+{name}\s*\(|\bname\s*=\s*(['\"]){name}\2", re.MULTILINE)
    try:
        files = [path for path in sorted(Path().glob("*.py"))[:_MOST_FILES] if path.stat().st_size <= _MOST_BYTES]
        texts = {path.name: path.read_text(encoding="utf-8", errors="replace") for path in files}
    except OSError:
        return []
    found = [name for name, text in texts.items() if "everstep" in text and defines.search(text)]
    return found if len(found) == 1 else []
