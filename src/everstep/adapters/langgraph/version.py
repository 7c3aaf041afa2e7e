"""Checks that the installed LangGraph is one that this adapter was tested with. Imports nothing of it."""

from __future__ import annotations

import warnings
from importlib.metadata import PackageNotFoundError, version

TESTED = {"langgraph": ((1, 2, 20), (1, 3)), "langgraph-checkpoint": ((4, 3, 1), (4, 4))}
_INSTALL = "pip install 'everstep[langgraph]'"


def check() -> None:
    """Raise ImportError if LangGraph is missing or too old; warn if it is newer than the tested versions."""
    for package, (least, below) in TESTED.items():
        try:
            found = version(package)
        except PackageNotFoundError:
            raise ImportError(f"everstep.adapters.langgraph needs {package}: {_INSTALL}") from None
        parts = tuple(int(part) for part in found.split(".")[:3] if part.isdigit())
        if parts < least:
            raise ImportError(f"everstep.adapters.langgraph needs {package} {_text(least)} or newer, found {found}: {_INSTALL}")
        if parts >= below:
            warnings.warn(
                f"{package} {found} is newer than the versions that everstep.adapters.langgraph was tested with (before {_text(below)})",
                stacklevel=3,
            )


def _text(parts: tuple[int, ...]) -> str:
    return ".".join(map(str, parts))
