"""The meaning of the fields of a Query, in Python: the reference for backends whose engine evaluates queries. No I/O.

Meta values are compared as JSON scalars: numbers by value (1 equals 1.0), true and 1 differ, text exactly.
"""

from __future__ import annotations

import json
from typing import Any

from everstep.backends.contract.core import Query
from everstep.errors import DamagedFrame, InvalidArgument
from everstep.records import Record, RunRow


def scalar(value: Any) -> str | None:
    """Return a text for a JSON scalar, the same for equal ones; None for a value that is not a scalar."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return json.dumps(value)
    return None


def wanted_scalar(key: str, value: Any) -> str:
    text = scalar(value)
    if text is None:
        raise InvalidArgument(f"meta {key!r} must be compared with text, a number, true, false or null, got {type(value).__name__}")
    return text


def meta_scalars(meta: str | None) -> dict[str, str]:
    """Return the top-level keys of a meta text that hold scalars, each with its scalar text."""
    if meta is None:
        return {}
    try:
        value = json.loads(meta)
    except (ValueError, RecursionError) as error:
        raise DamagedFrame("the metadata of a run is not valid JSON") from error
    if not isinstance(value, dict):
        return {}
    return {key: text for key, item in value.items() if (text := scalar(item)) is not None}


def fits_run(row: RunRow, query: Query) -> bool:
    exact = ((query.status, row.status), (query.workflow, row.workflow), (query.session, row.session), (query.parent, row.parent))
    return (
        all(wanted is None or wanted == has for wanted, has in exact)
        and (query.prefix is None or row.id.startswith(query.prefix))
        and set(query.tags) <= set(row.tags)
        and _fits_labels(row.note, row.meta, row.created_at, query)
    )


def fits_checkpoint(record: Record, query: Query) -> bool:
    return set(query.tags) <= set(record.tags) and _fits_labels(record.note, record.meta, record.at, query)


def _fits_labels(note: str | None, meta: str | None, at: int, query: Query) -> bool:
    if (query.since is not None and at < query.since) or (query.until is not None and at >= query.until):
        return False
    if query.note is not None and (note is None or _lower(query.note) not in _lower(note)):
        return False
    if not query.meta:
        return True
    has = meta_scalars(meta)
    return all(has.get(key) == wanted_scalar(key, value) for key, value in query.meta.items())


def _lower(text: str) -> str:
    """Return a text with its ASCII letters in lower case, as databases without a locale do it."""
    return "".join(chr(ord(c) + 32) if "A" <= c <= "Z" else c for c in text)
