"""Loads the named statements of an engine's `sql/*.sql`. A statement is `-- name: x`, a sentence, and SQL with bound parameters only."""

from __future__ import annotations

import pkgutil


def script(engine: str, name: str) -> str:
    """Return the whole text of one file."""
    data = pkgutil.get_data(f"everstep.backends.{engine}", f"sql/{name}.sql")
    if data is None:
        raise FileNotFoundError(f"everstep/backends/{engine}/sql/{name}.sql is not installed")
    return data.decode()


def load(engine: str, name: str) -> dict[str, str]:
    """Return the statements of one file by name, without comments."""
    statements: dict[str, str] = {}
    for block in script(engine, name).split("-- name: ")[1:]:
        title, _, text = block.partition("\n")
        statements[title.strip()] = "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()
    return statements
