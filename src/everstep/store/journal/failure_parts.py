"""Takes an error apart into values that can be stored. A part that cannot be stored is replaced and named; sizes are limited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everstep.codec.exceptions import attributes_of, take_error
from everstep.codec.kinds import Unknown, kind_of
from everstep.codec.secret_bytes import may_hold
from everstep.codec.values import encode
from everstep.errors import StepFailed
from everstep.store.journal.carried import VALIDATION, NotKept, take, take_validation
from everstep.store.journal.failure_classes import name_of_class

DROPPED = "__everstep_dropped__"
MAX_BYTES = 1024 * 1024  # of all parts of one error
MAX_ERRORS = 1_000  # in one error: members of groups, causes, errors among the arguments
MAX_DEPTH = 8  # of errors inside each other
MAX_ITEMS = 1_000  # of a container with a part that cannot be stored
MESSAGE, SHORT_MESSAGE = 2_000, 100
PREFIX = "everstep:"  # of the names of placeholders for errors, responses and lost parts
Fields = dict[str, Any]
CAUSE: Any = vars(BaseException)["__cause__"]
SUPPRESS: Any = vars(BaseException)["__suppress_context__"]


class ErrorPacker:
    """Takes one error apart into values that can be stored, within the limits above."""

    def __init__(self, clean: Callable[[str], str]):
        self._clean = clean
        self._left = MAX_BYTES
        self._errors = MAX_ERRORS
        self._open: list[int] = []  # the errors that contain this one

    def said(self, error: BaseException) -> Fields:
        """Return the record of an error at any position: on top, as a cause, in a group, among arguments."""
        self._errors -= 1
        self._open.append(id(error))
        said: Fields = {"type": shown_type(error), "message": self._cut(shown_message(error))}
        dropped: list[str] = []
        try:
            said |= self._parts(error, dropped)
        except Exception:  # noqa: BLE001 - an error as odd as this comes back as StepFailed
            dropped.clear()
        cause = CAUSE.__get__(error)
        if cause is not None and (nested := self._nested(cause)) is not None:
            said["cause"] = nested
        elif cause is not None:
            dropped.append("__cause__")
        if SUPPRESS.__get__(error):
            said["suppress"] = True
        dropped += [name for name in attributes_of(error).get(DROPPED, ()) if name not in dropped]
        if dropped:
            said["dropped"] = dropped
        self._open.pop()
        return said

    def _parts(self, error: BaseException, dropped: list[str]) -> Fields:
        if isinstance(error, StepFailed):
            return {}
        if kind_of(type(error)) is not None and self._fits(error):
            notes = attributes_of(error).get("__notes__")
            return {"object": error, "notes": notes} if notes and self._fits(notes) else {"object": error}
        return {"fields": self._fields(error, dropped)}

    def _fields(self, error: BaseException, dropped: list[str]) -> Fields:
        fields = take_error(error)
        kept: Fields = {name: {} for name in ("members", "attributes") if name in fields}
        for name in kept:
            kept[name] = {key: self._value(value, key, dropped) for key, value in fields[name].items()}
        if name_of_class(type(error)) == VALIDATION:
            lines = take_validation(error)
            for line in lines["lines"]:
                line["input"] = self._value(line.get("input"), "input", dropped, repr)
            kept["validation"] = self._value(lines, "errors", dropped)
        args = fields["args"]
        shown = str if args is not None and len(args) == 1 else repr  # how the text of the error shows it
        kept["args"] = None if args is None else tuple(self._value(arg, f"args[{n}]", dropped, shown) for n, arg in enumerate(args))
        return kept

    def _value(self, value: Any, path: str, dropped: list[str], shown: Callable[[Any], str] | None = None, depth: int = 0) -> Any:
        """Return the value, or its placeholder."""
        if self._fits(value):
            return value
        if isinstance(value, BaseException) and (nested := self._nested(value)) is not None:
            return nested
        kind = type(value)
        if kind in (list, tuple) and len(value) <= MAX_ITEMS and depth < MAX_DEPTH:
            return kind(self._value(item, f"{path}[{n}]", dropped, depth=depth + 1) for n, item in enumerate(value))
        if kind is dict and len(value) <= MAX_ITEMS and depth < MAX_DEPTH and all(type(key) is str for key in value):
            return {key: self._value(item, f"{path}[{key!r}]", dropped, depth=depth + 1) for key, item in value.items()}
        known = None if isinstance(value, NotKept) else self._known(value, path, dropped)
        return self._lost(value, path, dropped, shown) if known is None else known

    def _known(self, value: Any, path: str, dropped: list[str]) -> Unknown | None:
        try:
            taken = take(value)
        except Exception:  # noqa: BLE001 - another version of the library
            return None
        if taken is None or not self._fits(taken[1]):
            return None
        dropped += [f"{path}.{part}" for part in taken[2]]
        return Unknown(f"{PREFIX}{taken[0]}", 1, taken[1])

    def _lost(self, value: Any, path: str, dropped: list[str], shown: Callable[[Any], str] | None) -> Unknown:
        dropped.append(path)
        if isinstance(value, NotKept):
            return Unknown(f"{PREFIX}lost", 1, value.taken())
        text = None
        if shown is not None:
            try:
                text = self._cut(shown(value))
            except Exception:  # noqa: BLE001 - a value that cannot be shown
                text = None
        return Unknown(f"{PREFIX}lost", 1, {"what": path, "type": name_of_class(type(value)), "text": text})

    def _nested(self, error: BaseException) -> Unknown | None:
        if id(error) in self._open or len(self._open) > MAX_DEPTH or self._errors <= 0:
            return None
        return Unknown(f"{PREFIX}error", 1, self.said(error))

    def _fits(self, value: Any) -> bool:
        """Whether a value can be stored as it is; if so, its size is counted. A Secret is not: an error can be read without it."""
        try:
            data = encode(value)
            size = len(data)
        except Exception:  # noqa: BLE001 - the program's own functions take its values apart
            return False
        if size > self._left or may_hold(data):
            return False
        self._left -= size
        return True

    def _cut(self, text: str) -> str:
        text = self._clean(writable(text))[: MESSAGE if self._left > 0 else SHORT_MESSAGE]
        self._left -= len(text)
        return text


def shown_message(error: BaseException) -> str:
    if isinstance(error, StepFailed):
        return error.error_message
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an error that cannot even be shown must not hide that it happened
        return "(its message cannot be shown)"


def writable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def shown_type(error: BaseException) -> str:
    if isinstance(error, StepFailed):
        return error.type_name
    return name_of_class(type(error))
