"""Writes views as JSON: each class of fields becomes an object with those fields, in order. No I/O.

The type of a field determines its form:

    Stored          a value of the user, masked: written by `values.as_json`
    Beside[...]     only for code that draws the view: not part of its JSON
    datetime        a text in UTC with milliseconds
    anything else   itself; views in it are written as views
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, TypeAlias, TypeVar

from everstep.fields import Shape, kinds
from everstep.views.stored.values import as_json, iso

T = TypeVar("T")
Json: TypeAlias = Any
Stored: TypeAlias = Any
Beside = Annotated[T, "not in JSON"]


def to_json(view: object) -> Json:
    """Return a view, or a list of views, as JSON values."""
    if isinstance(view, Shape):
        return {name: _field(kind, getattr(view, name)) for name, kind in kinds(view).items() if not kind.startswith("Beside[")}
    if isinstance(view, (list, tuple)):
        return [to_json(item) for item in view]
    if isinstance(view, Mapping):
        return {key: to_json(item) for key, item in view.items()}
    return iso(view) if isinstance(view, datetime) else view


def _field(kind: str, value: object) -> Json:
    return as_json(value) if kind.startswith("Stored") else to_json(value)
