"""Sets and removes values of a state by path: in dicts and lists, and in fields of objects, also if this process does not know their class.

Dicts and lists are changed in place, objects are rebuilt: their class may be frozen, and its setters must not run. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everstep.codec.kinds import Unknown, has_structure, kind_of
from everstep.errors import InvalidArgument
from everstep.views.stored.paths import shown

Change = Callable[[Any, Any], None]
_PRINT = "Print the state: `everstep state REF`."


def put(state: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Set the value at a path; return the state."""

    def change(holder: Any, key: Any) -> None:
        holder[key] = value

    def change_field(fields: Any, name: Any) -> None:
        if value is not None and _fields(fields[name]) is not None and _fields(value) is None:
            raise InvalidArgument(
                f"{name!r:.100} is an object, and cannot become {value!r:.60}",
                remedy=f"Set its fields: {', '.join(f'{name}.{one}' for one in _names(_fields(fields[name])))}.",
            )
        fields[name] = value

    return _change(state, path, change, change_field)


def remove(state: Any, path: tuple[Any, ...]) -> Any:
    """Remove the value at a path; return the state."""

    def change(holder: Any, key: Any) -> None:
        del holder[key]

    def change_field(_: Any, name: Any) -> None:
        raise InvalidArgument(f"{name!r:.100} cannot be removed: it is a field of an object", remedy="Set another value instead: --set.")

    return _change(state, path, change, change_field)


def _change(state: Any, path: tuple[Any, ...], change: Change, change_field: Change) -> Any:
    if not path:
        raise InvalidArgument("the path must not be empty", remedy="To replace the whole state, use --state FILE.")
    fields = _fields(state)
    key, rest = path[0], path[1:]
    if fields is not None:
        if key not in _names(fields):
            raise InvalidArgument(f"the state has no field {key!r:.100}", remedy=f"Fields of this object: {', '.join(_names(fields))}.")
        if rest:
            fields[key] = _change(fields[key], rest, change, change_field)
        else:
            change_field(fields, key)
        return _rebuilt(state, fields)
    if rest:
        return _inside(state, key, lambda value: _change(value, rest, change, change_field))
    if not isinstance(state, (dict, list)) or (isinstance(state, list) and not isinstance(key, int)):
        raise InvalidArgument(
            f"{key!r:.100} cannot be changed: it is inside a value of type {type(state).__name__}, not a dict, list or object"
        )
    try:
        change(state, key)
    except (KeyError, IndexError):
        raise InvalidArgument(f"the state has no value at {shown(path):.100}", remedy=_PRINT) from None
    return state


def _inside(holder: Any, key: Any, change: Callable[[Any], Any]) -> Any:
    try:
        value = holder[key]
    except (KeyError, IndexError, TypeError):
        raise InvalidArgument(f"the state has no {key!r:.100}, so no value inside it can be changed", remedy=_PRINT) from None
    changed = change(value)
    if changed is not value and not isinstance(holder, (dict, list)):
        raise InvalidArgument(
            f"{key!r:.100} cannot be changed: it is inside a value of type {type(holder).__name__}, not a dict, list or object"
        )
    if changed is not value:
        holder[key] = changed
    return holder


def _fields(value: Any) -> dict[str, Any] | None:
    """Return a copy of the fields of an object; None for other values."""
    if type(value) is Unknown:
        return dict(value.fields)
    kind = kind_of(type(value)) if has_structure(type(value)) else None
    return None if kind is None else dict(kind.take(value))


def _names(fields: dict[str, Any] | None) -> list[str]:
    """Return the names of fields; those that begin with "__" are bookkeeping of a library."""
    return [name for name in fields or () if name[:2] != "__"]


def _rebuilt(value: Any, fields: dict[str, Any]) -> Any:
    if type(value) is Unknown:
        return Unknown(value.name, value.version, fields)
    kind = kind_of(type(value))
    assert kind is not None
    return kind.make(fields)
