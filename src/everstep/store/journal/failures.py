"""Errors in the journal: how an error is recorded, and how it comes back. Owns the format of a recorded error.

    {type, message, traceback, fields, more}      fields (encoded): args, attributes, members; or `object` (encoded) if its class is registered
                                                  more (encoded): dropped, cause, suppress, notes

An error comes back as its own class if this program has defined or imported that class. It is put together from its parts: no constructor
of the class runs, and no name found in a store is imported. A part that cannot be stored is replaced by `NotKept` and named in
`__everstep_dropped__`. An error that cannot be put together comes back as `StepFailed`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from everstep.codec.exceptions import attributes_of, fill, make_error
from everstep.codec.kinds import Unknown, revive
from everstep.codec.values import Decoder, encode, revived
from everstep.errors import StepFailed
from everstep.store.journal.carried import VALIDATION, NotKept, make, make_validation, not_kept
from everstep.store.journal.failure_classes import Classes, Told, name_of_class, told
from everstep.store.journal.failure_parts import (
    CAUSE,
    DROPPED,
    MESSAGE,
    PREFIX,
    SHORT_MESSAGE,
    SUPPRESS,
    ErrorPacker,
    Fields,
    shown_message,
    writable,
)


def error_body(error: BaseException, clean: Callable[[str], str] = str) -> dict[str, Any]:
    """Return the record of an error: enough to show it, and to rebuild it if its class is known.

    `clean` gets its texts before they are cut: a secret that is cut in half would not be recognised.
    """
    import traceback

    text = clean(writable("".join(traceback.format_exception(error))))[-20_000:]
    said = ErrorPacker(clean).said(error)
    body = {"type": said.pop("type"), "message": said.pop("message"), "traceback": text}
    for name in ("object", "fields"):
        if name in said:
            body[name] = encode(said.pop(name))
    if said:
        body["more"] = encode(said)
    return body


def rebuilt(error: dict[str, Any], address: str) -> BaseException:
    """Return the recorded error as its own class, if this program has that class, otherwise as `StepFailed`."""
    said = {name: error.get(name) for name in ("type", "message", "traceback")}
    try:
        more = Decoder().decode(error["more"]) if "more" in error else {}
        said |= {name: more[name] for name in ("dropped", "cause", "suppress", "notes") if name in more}
        said |= {name: Decoder().decode(error[name]) for name in ("object", "fields") if name in error}
    except Exception:  # noqa: BLE001 - a forged record can hold anything
        said.pop("object", None)
        said.pop("fields", None)
    return _Maker(address).error(said)


class _Maker:
    """Rebuilds one recorded error, with all errors inside it."""

    def __init__(self, address: str):
        self._address = address
        self._classes = Classes()

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
        cls = self._classes.named(said["type"]) if "fields" in said else None
        if cls is None:
            return None
        fields = {name: self._value(value) for name, value in said["fields"].items()}
        made = self._filled(cls, dict(fields))
        if _same_text(writable(shown_message(made)), said["message"]):
            return made
        made = self._filled(told(cls), dict(fields))
        attributes_of(made)[Told.text] = str(said["message"])
        return made

    def _filled(self, cls: type[Exception], fields: Fields) -> BaseException:
        lines = fields.pop("validation", None)
        if lines is None:
            made = make_error(cls, fields)
        elif name_of_class(cls) != VALIDATION:
            raise TypeError("only pydantic's ValidationError is made of lines")
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
            CAUSE.__set__(made, cause)
        SUPPRESS.__set__(made, said.get("suppress") is True)
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
        if not value.name.startswith(PREFIX):
            return revive(value.name, value.version, {name: self._value(item) for name, item in value.fields.items()})
        return self._part(value.name.removeprefix(PREFIX), value.fields)

    def _part(self, kind: str, fields: Fields) -> Any:
        if kind == "error":
            return self.error(fields)
        if kind == "lost":
            return not_kept(fields)
        try:
            return make(kind, fields)
        except Exception:  # noqa: BLE001 - the library is not imported here, or is another version
            return NotKept("this part", kind)


def _same_text(text: str, recorded: Any) -> bool:
    return text == recorded or (type(recorded) is str and len(recorded) in (MESSAGE, SHORT_MESSAGE) and text.startswith(recorded))
