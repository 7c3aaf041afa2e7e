"""Checks that the installed Agent Framework is one that this adapter was tested with. Imports nothing of it."""

from __future__ import annotations

import warnings
from importlib.metadata import PackageNotFoundError, version

PACKAGE, LEAST, BELOW = "agent-framework-core", (1, 23), (1, 24)
_INSTALL = "pip install 'everstep[agent-framework]'"
_WHO = "everstep.adapters.agent_framework"


def check() -> None:
    """Raise ImportError if the framework is missing or too old; warn if it is newer than the tested versions."""
    try:
        found = version(PACKAGE)
    except PackageNotFoundError:
        raise ImportError(f"{_WHO} needs {PACKAGE}: {_INSTALL}") from None
    parts = tuple(int(part) for part in found.split(".")[:3] if part.isdigit())
    if parts < LEAST:
        raise ImportError(f"{_WHO} needs {PACKAGE} {_text(LEAST)} or newer, found {found}: {_INSTALL}")
    if parts >= BELOW:
        warnings.warn(f"{PACKAGE} {found} is newer than the versions that {_WHO} was tested with (before {_text(BELOW)})", stacklevel=3)


def _text(parts: tuple[int, ...]) -> str:
    return ".".join(map(str, parts))
