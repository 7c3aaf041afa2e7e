"""Converts JSON back to values: reads the tagged forms that `values.as_json` and `exact` write. No I/O.

    {"$bytes": "base64"}, {"$float": "nan"}, {"$complex": [real, imaginary]}, {"$dict": [[key, value], …]}
    {"$value": "a text for people", "$data": "base64"}     any value in Everstep's own encoding; `exact` writes it
    {"$secret": "[redacted]"}                              a Secret; with "$value" a value that holds one. Only its place says which one it is

An object counts as a tag only if writing its value gives the same object again; any other is a plain dict. So a script in
any language gets back each JSON value that it saved.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from everstep.codec.explain import secret_in
from everstep.codec.secret_bytes import may_hold
from everstep.codec.values import decode, encode
from everstep.errors import EverstepError, InvalidArgument
from everstep.secret import MASK, Secret
from everstep.views.stored.values import as_json, dumps

_NATIVE = frozenset({str, int, float, bool, type(None), bytes, complex})


def from_json(value: Any) -> Any:
    """Return the value that a JSON value represents."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    _refuse_repeated(value)
    if _is_hidden(value):
        raise InvalidArgument(
            f"$secret stands for a Secret, whose value is not given out, got {dumps(value)[:60]} in a place without one",
            remedy="Leave it where `everstep restore --exact` printed it, or remove it. Nothing was written.",
        )
    found = _tagged(value) if any(key.startswith("$") for key in value) else None
    return {key: from_json(item) for key, item in value.items()} if found is None else found[0]


def _tagged(value: dict[str, Any]) -> tuple[Any] | None:
    """Return the value of a tag, in a tuple; None if it is not a tag."""
    try:
        if value.keys() == {"$value", "$data"}:
            made = decode(b64decode(value["$data"], validate=True))
            return (made,) if exact(made) == value else None
        if len(value) != 1:
            return None
        [(name, inner)] = value.items()
        made = _READERS[name](inner)
        return (made,) if dumps(as_json(made)) == dumps(value) else None
    except (EverstepError, LookupError, ValueError, TypeError, AttributeError, RecursionError):
        return None


def _is_hidden(value: Any) -> bool:
    """Whether this is what `exact` writes for a Secret, or for a value that holds one."""
    return isinstance(value, dict) and value.get("$secret") == MASK and value.keys() <= {"$secret", "$value"}


def _dict(pairs: Any) -> Any:
    made = {_key(key): from_json(item) for key, item in pairs}
    if len(made) != len(pairs):
        raise ValueError
    return made


def _refuse_repeated(value: dict[str, Any]) -> None:
    """Refuse a `$dict` with a repeated key: one of the values would be lost."""
    repeated = _repeated(value)
    if repeated is not None:
        raise InvalidArgument(
            f"$dict must have each key once, got {dumps(repeated[0])[:60]} twice", remedy="Leave one of them out. Nothing was written."
        )


def _repeated(value: dict[str, Any]) -> tuple[Any] | None:
    """Return the repeated key of a `$dict`, in a tuple."""
    pairs = value.get("$dict") if len(value) == 1 else None
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        return None
    seen: set[Any] = set()
    for key, _ in pairs:
        try:
            made = _key(key)
            if made in seen:
                return (key,)
            seen.add(made)
        except (EverstepError, TypeError, RecursionError):
            return None  # a dict cannot have such a key, so it is not a tag
    return None


def _key(value: Any) -> Any:
    """Return a key; a list represents a tuple, because a key cannot be a list."""
    value = from_json(value)
    return tuple(map(_key, value)) if isinstance(value, list) else value


_READERS: dict[str, Any] = {
    "$bytes": lambda text: b64decode(text, validate=True),
    "$float": float,
    "$complex": lambda parts: complex(from_json(parts[0]), from_json(parts[1])),
    "$dict": _dict,
}


def exact(value: Any) -> Any:
    """Return a stored value as JSON that `from_json` converts back exactly: non-JSON values are included in Everstep's encoding."""
    cls = type(value)
    if cls is Secret:
        return {"$secret": MASK}
    if cls is list:
        return [exact(item) for item in value]
    if cls is dict and all(type(key) is str for key in value):
        plain = {key: exact(item) for key, item in value.items()}
        return plain if not is_tag(plain) else _data(value)
    if cls not in _NATIVE:
        return _data(value)
    plain = as_json(value)
    return plain if encode(from_json(plain)) == encode(value) else _data(value)  # NaNs may differ in their bits


def _data(value: Any) -> Any:
    text = dumps(as_json(value))
    shown, data = text if len(text) <= 200 else f"{text[:200]}…", encode(value)
    if may_hold(data) and secret_in(value, "") is not None:
        return {"$value": shown, "$secret": MASK}
    return {"$value": shown, "$data": b64encode(data).decode()}


def reconciled(stored: Any, given: Any) -> Any:
    """Return the value of a JSON state. A part that equals what `restore` prints for the stored part keeps the stored value: a tuple stays a tuple."""
    if dumps(as_json(stored)) == dumps(given) or (_is_hidden(given) and exact(stored) == given):
        return stored
    if type(stored) is dict and isinstance(given, dict) and all(type(key) is str for key in stored) and not is_tag(given):
        return {key: reconciled(stored[key], item) if key in stored else from_json(item) for key, item in given.items()}
    if type(stored) is list and isinstance(given, list):
        return [reconciled(stored[k], item) if k < len(stored) else from_json(item) for k, item in enumerate(given)]
    return from_json(given)


def is_tag(value: dict[str, Any]) -> bool:
    """Return whether an object would be read as a tag."""
    return any(key.startswith("$") for key in value) and (_is_hidden(value) or _tagged(value) is not None or _repeated(value) is not None)
