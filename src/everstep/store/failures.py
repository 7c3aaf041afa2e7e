"""Errors in the journal: what is kept of one, and how it comes back. Owns the format of a recorded error.

    {type, message, traceback, fields, more}      fields (encoded): args, attributes, members; or `object` (encoded) if its class is registered
                                                  more (encoded): dropped, cause, suppress, notes

An error comes back as its own class if this program has defined or imported that class. It is put together from its parts: no constructor
of the class runs, and no name found in a store is imported. A part that cannot be stored is replaced by `NotKept` and named in
`__everstep_dropped__`. An error that cannot be put together comes back as `StepFailed`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from everstep.codec.exceptions import attributes_of, fill, make_error, take_error
from everstep.codec.kinds import Unknown, kind_of, revive
from everstep.codec.values import Decoder, encode, revived
from everstep.errors import StepFailed
from everstep.store.carried import VALIDATION, NotKept, make, make_validation, not_kept, take, take_validation

DROPPED = "__everstep_dropped__"
MAX_BYTES = 256 * 1024  # of all parts of one error
MAX_ERRORS = 1_000  # in one error: members of groups, causes, errors among the arguments
MAX_DEPTH = 8  # of errors inside each other
MAX_ITEMS = 1_000  # of a container that holds something that cannot be stored
MESSAGE, SHORT_MESSAGE = 2_000, 100
_PREFIX = "everstep:"
Fields = dict[str, Any]


def error_body(error: BaseException, clean: Callable[[str], str] = str) -> dict[str, Any]:
    """What is kept of an error: enough to show it, and to put it together where its class is known.

    `clean` sees its texts before they are cut: a secret that is cut through would not be recognised.
    """
    import traceback

    text = clean(_text("".join(traceback.format_exception(error))))[-20_000:]
    said = _Keeper(clean).said(error)
    body = {"type": said.pop("type"), "message": said.pop("message"), "traceback": text}
    for name in ("object", "fields"):
        if name in said:
            body[name] = encode(said.pop(name))
    if said:
        body["more"] = encode(said)
    return body


def rebuilt(error: dict[str, Any], address: str) -> BaseException:
    """The recorded error as its own class, if this program has that class, otherwise `StepFailed`."""
    said = {name: error.get(name) for name in ("type", "message", "traceback")}
    try:
        more = Decoder().decode(error["more"]) if "more" in error else {}
        said |= {name: more[name] for name in ("dropped", "cause", "suppress", "notes") if name in more}
        said |= {name: Decoder().decode(error[name]) for name in ("object", "fields") if name in error}
    except Exception:  # noqa: BLE001 - a forged record can hold anything
        said.pop("object", None)
        said.pop("fields", None)
    return _Maker(address).error(said)


class _Keeper:
    """Takes one error apart into values that can be stored, within the limits above."""

    def __init__(self, clean: Callable[[str], str]):
        self._clean = clean
        self._left = MAX_BYTES
        self._errors = MAX_ERRORS
        self._open: list[int] = []  # the errors that this one is part of

    def said(self, error: BaseException) -> Fields:
        """The record of an error that stands anywhere: on top, as a cause, in a group, among arguments."""
        self._errors -= 1
        self._open.append(id(error))
        said: Fields = {"type": _type_name(error), "message": self._cut(_message(error))}
        dropped: list[str] = []
        try:
            said |= self._parts(error, dropped)
        except Exception:  # noqa: BLE001 - an error as odd as this comes back as StepFailed
            dropped.clear()
        if error.__cause__ is not None and (cause := self._nested(error.__cause__)) is not None:
            said["cause"] = cause
        elif error.__cause__ is not None:
            dropped.append("__cause__")
        if error.__suppress_context__:
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
        if _name_of_type(type(error)) == VALIDATION:
            lines = take_validation(error)
            for line in lines["lines"]:
                line["input"] = self._value(line.get("input"), "input", dropped, repr)
            kept["validation"] = self._value(lines, "errors", dropped)
        args = fields["args"]
        shown = str if args is not None and len(args) == 1 else repr  # how its text shows it
        kept["args"] = None if args is None else tuple(self._value(arg, f"args[{n}]", dropped, shown) for n, arg in enumerate(args))
        return kept

    def _value(self, value: Any, path: str, dropped: list[str], shown: Callable[[Any], str] | None = None, depth: int = 0) -> Any:
        """The value, or what stands for it."""
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
        return Unknown(f"{_PREFIX}{taken[0]}", 1, taken[1])

    def _lost(self, value: Any, path: str, dropped: list[str], shown: Callable[[Any], str] | None) -> Unknown:
        dropped.append(path)
        if isinstance(value, NotKept):
            return Unknown(f"{_PREFIX}lost", 1, value.taken())
        text = None
        if shown is not None:
            try:
                text = self._cut(shown(value))
            except Exception:  # noqa: BLE001 - a value that cannot be shown
                text = None
        return Unknown(f"{_PREFIX}lost", 1, {"what": path, "type": _name_of_type(type(value)), "text": text})

    def _nested(self, error: BaseException) -> Unknown | None:
        if id(error) in self._open or len(self._open) > MAX_DEPTH or self._errors <= 0:
            return None
        return Unknown(f"{_PREFIX}error", 1, self.said(error))

    def _fits(self, value: Any) -> bool:
        """Whether a value can be stored as it is; if so, its size is counted."""
        try:
            size = len(encode(value))
        except Exception:  # noqa: BLE001 - the program's own functions take its values apart
            return False
        if size > self._left:
            return False
        self._left -= size
        return True

    def _cut(self, text: str) -> str:
        text = self._clean(_text(text))[: MESSAGE if self._left > 0 else SHORT_MESSAGE]
        self._left -= len(text)
        return text


class _Maker:
    """Puts one recorded error together, with all errors inside it."""

    def __init__(self, address: str):
        self._address = address
        self._classes: dict[str, type[Exception]] | None = None

    def error(self, said: Fields) -> BaseException:
        try:
            made = self._own(said)
        except Exception:  # noqa: BLE001 - a class may be as odd as it likes: the reader must not fail with it
            made = None
        if made is None:
            made = StepFailed(self._address, str(said.get("type")), str(said.get("message")), str(said.get("traceback") or ""))
        with suppress(Exception):  # a forged record: the error itself is good
            self._finish(made, said)
        return made

    def _own(self, said: Fields) -> BaseException | None:
        if "object" in said:
            made = revived(said["object"])
            return made if isinstance(made, Exception) else None
        cls = self._class(said["type"]) if "fields" in said else None
        if cls is None:
            return None
        fields = {name: self._value(value) for name, value in said["fields"].items()}
        made = self._filled(cls, dict(fields))
        if _same_text(_text(_message(made)), said["message"]):
            return made
        told = self._filled(_told(cls), dict(fields))
        attributes_of(told)[_Told.text] = str(said["message"])
        return told

    def _filled(self, cls: type[Exception], fields: Fields) -> BaseException:
        lines = fields.pop("validation", None)
        if lines is None:
            made = make_error(cls, fields)
        else:
            made = make_validation(cls, lines)
            fill(made, fields["args"], fields.get("attributes", {}))
        lost = [name for name, value in fields.get("attributes", {}).items() if isinstance(value, (Unknown, NotKept))]
        if lost:
            attributes_of(made)[DROPPED] = tuple(lost)
        return made

    def _finish(self, made: BaseException, said: Fields) -> None:
        dropped = tuple(name for name in said.get("dropped", ()) if type(name) is str)
        dropped += tuple(name for name in attributes_of(made).get(DROPPED, ()) if name not in dropped)
        if dropped:
            attributes_of(made)[DROPPED] = dropped
        cause = self._value(said["cause"]) if "cause" in said else None
        if isinstance(cause, BaseException):
            _cause.__set__(made, cause)
        _suppress.__set__(made, said.get("suppress") is True)
        notes = said.get("notes")
        if type(notes) is list and all(type(note) is str for note in notes):
            attributes_of(made)["__notes__"] = notes

    def _value(self, value: Any) -> Any:
        kind = type(value)
        if kind is list or kind is tuple:
            return kind(self._value(item) for item in value)
        if kind is dict:
            return {key: self._value(item) for key, item in value.items()}
        if kind is not Unknown:
            return revived(value)
        if not value.name.startswith(_PREFIX):
            return revive(value.name, value.version, {name: self._value(item) for name, item in value.fields.items()})
        return self._part(value.name.removeprefix(_PREFIX), value.fields)

    def _part(self, kind: str, fields: Fields) -> Any:
        if kind == "error":
            return self.error(fields)
        if kind == "lost":
            return not_kept(fields)
        try:
            return make(kind, fields)
        except Exception:  # noqa: BLE001 - the library is not imported here, or is another version
            return NotKept("this part", kind)

    def _class(self, name: Any) -> type[Exception] | None:
        if self._classes is None:
            self._classes = _classes()
        return self._classes.get(name) if isinstance(name, str) else None


class _Told:
    """Shows the recorded text of an error whose class would make it from parts that were not kept."""

    __slots__ = ()
    text = "__everstep_text__"

    def __init_subclass__(cls) -> None:
        """Keeps the `__init_subclass__` of the error's class from running."""

    def __str__(self) -> str:
        return str(attributes_of(self)[_Told.text])  # type: ignore[arg-type]


_cause: Any = vars(BaseException)["__cause__"]
_suppress: Any = vars(BaseException)["__suppress_context__"]


def _told(cls: type[Exception]) -> type[Exception]:
    """A subclass that shows the recorded text. Raises TypeError where that would run code of a metaclass."""
    if type(cls) is not type:
        raise TypeError("a class of a metaclass")
    for sub in type.__subclasses__(cls):
        if issubclass(sub, _Told):
            return sub
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls.__name__, (_Told, cls), names)


def _same_text(text: str, recorded: Any) -> bool:
    return text == recorded or (type(recorded) is str and len(recorded) in (MESSAGE, SHORT_MESSAGE) and text.startswith(recorded))


def _message(error: BaseException) -> str:
    if isinstance(error, StepFailed):
        return error.error_message
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an error that cannot even be shown must not hide that it happened
        return "(its message cannot be shown)"


def _text(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _type_name(error: BaseException) -> str:
    if isinstance(error, StepFailed):
        return error.type_name
    return _name_of_type(type(error))


def _name_of_type(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _classes() -> dict[str, type[Exception]]:
    """The exception classes that this program has defined or imported, by name. Nothing is imported here.

    Of several classes with one name, the one that its module holds now, otherwise the newest.
    """
    found: dict[str, type[Exception]] = {"Exception": Exception}
    waiting: list[type[Exception]] = [Exception]
    seen: set[type] = {Exception}
    while waiting:
        for sub in type.__subclasses__(waiting.pop()):
            if sub in seen or issubclass(sub, _Told):
                continue
            seen.add(sub)
            waiting.append(sub)
            name = _name_of_type(sub)
            if name not in found or not _is_at_home(found[name]):
                found[name] = sub
    return found


def _is_at_home(cls: type) -> bool:
    """Whether a module holds a class under the name of the class. No `__getattr__` of a module runs: it could import."""
    place: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        if not hasattr(place, "__dict__"):
            return False
        place = vars(place).get(part)
    return place is cls
