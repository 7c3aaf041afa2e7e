"""JSON back to the values that it was made of: reads the tagged forms that `values.as_json` and `exact` write. No I/O.

    {"$bytes": "base64"}, {"$float": "nan"}, {"$complex": [real, imaginary]}, {"$dict": [[key, value], …]}
    {"$value": "a text for people", "$data": "base64"}     any value in Everstep's own encoding; `exact` writes it

An object is taken for a tag only if writing its value gives that very object again; any other is the dict that it seems to be. So a script in
any language gets back each JSON value that it saved.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from everstep.codec.values import decode, encode
from everstep.errors import EverstepError, InvalidArgument
from everstep.views.stored.values import as_json, dumps

_NATIVE = frozenset({str, int, float, bool, type(None), bytes, complex})


def from_json(value: Any) -> Any:
    """The value that a JSON value stands for."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    _refuse_repeated(value)
    found = _tagged(value) if any(key.startswith("$") for key in value) else None
    return {key: from_json(item) for key, item in value.items()} if found is None else found[0]


def _tagged(value: dict[str, Any]) -> tuple[Any] | None:
    """What a tag stands for, in a tuple; None if it is no tag."""
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


def _dict(pairs: Any) -> Any:
    made = {_key(key): from_json(item) for key, item in pairs}
    if len(made) != len(pairs):
        raise ValueError
    return made


def _refuse_repeated(value: dict[str, Any]) -> None:
    """A dict that has a key twice is a mistake of whoever wrote it, and one of the values would be lost."""
    repeated = _repeated(value)
    if repeated is not None:
        raise InvalidArgument(
            f"$dict must have each key once, got {dumps(repeated[0])[:60]} twice", remedy="Leave one of them out. Nothing was written."
        )


def _repeated(value: dict[str, Any]) -> tuple[Any] | None:
    """The key that a `$dict` has twice, in a tuple."""
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
            return None  # no dict has such a key, so it is no tag
    return None


def _key(value: Any) -> Any:
    """A key, which can be no list: one was written for a tuple."""
    value = from_json(value)
    return tuple(map(_key, value)) if isinstance(value, list) else value


_READERS: dict[str, Any] = {
    "$bytes": lambda text: b64decode(text, validate=True),
    "$float": float,
    "$complex": lambda parts: complex(from_json(parts[0]), from_json(parts[1])),
    "$dict": _dict,
}


def exact(value: Any) -> Any:
    """A stored value as JSON from which `from_json` makes the same value: what JSON has no word for goes in by its own encoding."""
    cls = type(value)
    if cls is list:
        return [exact(item) for item in value]
    if cls is dict and all(type(key) is str for key in value):
        plain = {key: exact(item) for key, item in value.items()}
        return plain if not is_tag(plain) else _data(value)
    if cls not in _NATIVE:
        return _data(value)
    plain = as_json(value)
    return plain if encode(from_json(plain)) == encode(value) else _data(value)  # a NaN may have bits of its own


def _data(value: Any) -> Any:
    text = dumps(as_json(value))
    return {"$value": text if len(text) <= 200 else f"{text[:200]}…", "$data": b64encode(encode(value)).decode()}


def reconciled(stored: Any, given: Any) -> Any:
    """The value of a JSON state, in which each part that is what `restore` prints for the stored one is the stored one: a tuple stays a tuple."""
    if dumps(as_json(stored)) == dumps(given):
        return stored
    if type(stored) is dict and isinstance(given, dict) and all(type(key) is str for key in stored) and not is_tag(given):
        return {key: reconciled(stored[key], item) if key in stored else from_json(item) for key, item in given.items()}
    if type(stored) is list and isinstance(given, list):
        return [reconciled(stored[k], item) if k < len(stored) else from_json(item) for k, item in enumerate(given)]
    return from_json(given)


def is_tag(value: dict[str, Any]) -> bool:
    """Whether an object would be taken for a tag."""
    return any(key.startswith("$") for key in value) and (_tagged(value) is not None or _repeated(value) is not None)
