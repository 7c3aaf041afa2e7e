"""The run ids of transcripts: `claude/PROJECT/SESSION`, and `claude/PROJECT/SESSION/SUBPATH` for subagents.

A part is quoted like any run id, and `/` in a project or session is escaped, so two keys never share a run. A part that is too long is
shortened to `%z`, a digest and its end; `%z` never begins an escape. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

import everstep
from everstep.errors import InvalidArgument

PREFIX = "claude/"
_MOST = (70, 50, 70)  # characters of a project, a session and a subpath: an id has at most 200
_SHORT = "%z"
_DIGEST = 24


def run_of(key: Mapping[str, Any]) -> str:
    """Return the run id of a transcript."""
    names = ["project_key", "session_id"] + (["subpath"] if key.get("subpath") is not None else [])
    for name in names:
        if not isinstance(key.get(name), str) or not key[name]:
            raise InvalidArgument(f"{name} of a session key must be a text that is not empty, got {key.get(name)!r:.60}")
    return _run(*(key[name] for name in names))


def project_prefix(project_key: str) -> str:
    """Return how the ids of all transcripts of a project begin."""
    return PREFIX + _part(project_key, _MOST[0]) + "/"


def split(run: str) -> tuple[str, str | None]:
    """Return the session and the subpath in a run id, quoted as they are there."""
    parts = run.removeprefix(PREFIX).split("/", 2)
    return parts[1], parts[2] if len(parts) == 3 else None


def plain(part: str) -> str | None:
    """Return the text of a quoted part, or None if it was shortened."""
    return None if _SHORT in part else everstep.unquote("x" + part.replace("%2F", "/"))[1:]


@lru_cache(1_024)
def _run(project: str, session: str, subpath: str | None = None) -> str:
    run = project_prefix(project) + _part(session, _MOST[1])
    return run if subpath is None else f"{run}/{_part(subpath, _MOST[2], '/')}"


def _part(text: str, most: int, keep: str = "") -> str:
    quoted = "".join(c if c in keep else "%2F" if c == "/" else everstep.quote("x" + c)[1:] for c in text)
    if len(quoted) <= most:
        return quoted
    tail = quoted[-(most - len(_SHORT) - _DIGEST - 1) :]
    return f"{_SHORT}{sha256(text.encode()).hexdigest()[:_DIGEST]}-{tail.replace(_SHORT, '')}"
