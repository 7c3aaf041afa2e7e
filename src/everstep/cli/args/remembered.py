"""Remembers, in a file of the user, which modules defined a workflow when it last ran, to suggest them. They are printed, never imported.

The file is $XDG_STATE_HOME/everstep/workflows.json, or the same in ~/.local/state: {store: {workflow: [modules]}}. A file that cannot be
read or written means that nothing is remembered.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_MOST = 200


def file() -> Path | None:
    """Return the file; None for a user without a home."""
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        folder = given if given.is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return folder / "everstep" / "workflows.json"


def remember(store: str | None, workflow: str | None, modules: Sequence[str]) -> None:
    """Note that these modules defined a workflow of a store."""
    path = file()
    if path is None or not store or not workflow or not modules:
        return
    known = _read(path)
    found = [_absolute(module) for module in modules]
    if known.get(store, {}).get(workflow) == found:
        return
    of_store = {**known.pop(store, {}), workflow: found}
    known[store] = dict(list(of_store.items())[-_MOST:])
    with suppress(OSError, ValueError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        from everstep.cli.files import replace

        with suppress(Exception):  # a full disk or a folder without permission: it is only a suggestion
            replace(path, json.dumps(dict(list(known.items())[-_MOST:])))


def last(store: str, workflow: str | None) -> list[str]:
    """Return the modules that defined a workflow when it last ran, as they can be typed here; empty if one of them is gone."""
    path = file()
    found = _read(path).get(store, {}).get(workflow, []) if path is not None and workflow else []
    if not isinstance(found, list) or not all(isinstance(module, str) for module in found):
        return []
    if any(_is_file(module) and not Path(module).is_file() for module in found):
        return []
    return [_near(module) for module in found]


def _read(path: Path) -> dict[str, Any]:
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) and all(isinstance(one, dict) for one in known.values()) else {}


def _is_file(module: str) -> bool:
    return module.endswith((".py", ".yaml", ".yml"))


def _absolute(module: str) -> str:
    return str(Path(module).absolute()) if _is_file(module) else module


def _near(module: str) -> str:
    """Return a path as it is typed from the working folder."""
    here = Path.cwd()
    return str(Path(module).relative_to(here)) if _is_file(module) and Path(module).is_relative_to(here) else module
