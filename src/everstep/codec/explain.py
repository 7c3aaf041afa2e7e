"""Explains where and why a value cannot be stored: a slow walk that runs only after the fast encoder has refused.

Relies on `values` for the rules of storing and on `kinds` for the program's types. No I/O.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import Any, NoReturn

from everstep.codec.kinds import Unknown, kind_of
from everstep.codec.values import FROZEN, MAX_DEPTH, MAX_NESTED, TRANSPARENT, hook, named, pack
from everstep.errors import EverstepError, LimitExceeded, Unstorable
from everstep.secret import Secret


def explain(value: Any, path: str = "state") -> None:
    """Raise the error that says where and why a value cannot be stored; return if it can be."""
    _explain(value, path, 0, 0, frozenset())


def _explain(value: Any, path: str, depth: int, nested: int, above: frozenset[int]) -> None:
    if id(value) in above:
        raise Unstorable(path, "contains itself", remedy="Break the cycle: keep an id or a key instead of the object.")
    nested += type(value) not in (list, dict) and type(value) not in TRANSPARENT
    if depth > MAX_DEPTH or nested > MAX_NESTED:
        raise LimitExceeded(
            f"{path:.80}… is nested too deeply: the limits are {MAX_DEPTH} levels, {MAX_NESTED} of them tuples, sets or objects"
        )
    inside = above | {id(value)}
    for step, child in _children(value, path):
        _explain(child, step, depth + 1, nested, inside)


def secret_in(value: Any, path: str) -> str | None:
    """Return the path to the first Secret in a value that can be stored; None if there is none."""
    if type(value) is Secret:
        return path
    found = (secret_in(child, step) for step, child in _children(value, path))
    return next((one for one in found if one is not None), None)


def _children(value: Any, path: str) -> list[tuple[str, Any]]:
    """List the children of a value with their paths; raise if the value itself cannot be stored."""
    cls = type(value)
    if cls is str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Unstorable(
                path, "is text with a lone surrogate", remedy="Clean the text: text.encode('utf-8', 'replace').decode()."
            ) from None
        return []
    if cls in FROZEN or cls is bytearray:
        _probe(value, path)
        return []
    plain = TRANSPARENT[cls](value) if cls in TRANSPARENT else value
    if type(plain) in (OrderedDict, Counter) and plain.__dict__:
        names = ", ".join(map(shown, plain.__dict__))
        raise Unstorable(path, f"has attributes ({names}), which a stored {cls.__qualname__} cannot keep", remedy="Keep them under keys.")
    if type(plain) in (dict, OrderedDict, Counter):
        keys = [(f"{path} (key {shown(k)})", k) for k in plain if type(k) is not str or not k.isascii()]
        return keys + [(f"{path}[{shown(k)}]", v) for k, v in dict.items(plain)]
    if type(plain) in (list, tuple, deque):
        return [(f"{path}[{i}]", v) for i, v in enumerate(plain)]
    if cls in (set, frozenset):
        return [(f"{path} (member {shown(v)})", v) for v in value]
    if cls is Unknown:
        return [(f"{path}.{k}", v) for k, v in value.fields.items()]
    kind = kind_of(cls)
    if kind is not None:
        fields = kind.take(value)
        if not named(fields):
            raise Unstorable(path, f"is a {cls.__qualname__} whose encode function did not return a dict with text keys")
        return [(f"{path}.{k}", v) for k, v in fields.items()]
    _probe(value, path)
    return []


def shown(value: Any) -> str:
    """Return a short repr of a value for a message; never raises, whatever its own repr does."""
    try:
        return repr(value)[:60]
    except Exception:  # noqa: BLE001 - the repr is the program's code, and that of an int has a limit of digits; use its type instead
        return f"a {type(value).__qualname__}"


def _probe(value: Any, path: str) -> None:
    try:
        pack(value, hook)
    except (TypeError, ValueError, EverstepError) as error:
        _refuse(value, path, error)


_HINTS: dict[str, str] = {
    "defaultdict": "Use a plain dict with setdefault; the factory is code and cannot be stored.",
    "function": "Keep the function's name and look it up when you need it.",
    "memoryview": "Store bytes(view).",
    "coroutine": "Write await before the async call that returned it.",
    "generator": "Store list(generator), or the data it is made from.",
    "module": "Keep the module's name.",
    "ndarray": "Only arrays of numbers, text and times can be stored: convert it, or store array.tolist().",
}


def _refuse(value: Any, path: str, error: Exception) -> NoReturn:
    name = type(value).__qualname__
    known = type(value) in FROZEN
    article = "an" if name[:1] in "AEIOUaeiou" else "a"
    reason = f"is {article} {name} that cannot be stored: {error}" if known else f"is {article} {name}, which cannot be stored"
    raise Unstorable(path, reason, remedy=_HINTS.get(name)) from None
