"""Loads the named statements of `sql/*.sql`. A statement is `-- name: x`, a sentence, and SQL with bound parameters only."""

from __future__ import annotations

import pkgutil


def script(name: str) -> str:
    """The whole text of one file."""
    data = pkgutil.get_data("everstep.backends", f"sql/{name}.sql")
    if data is None:
        raise FileNotFoundError(f"everstep/backends/sql/{name}.sql is not installed")
    return data.decode()


def load(name: str) -> dict[str, str]:
    """The statements of one file by their names, comments taken out."""
    statements: dict[str, str] = {}
    for block in script(name).split("-- name: ")[1:]:
        title, _, text = block.partition("\n")
        statements[title.strip()] = "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()
    return statements
