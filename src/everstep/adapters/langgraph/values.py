"""Converts the values of a graph to data that Everstep stores and every process can read, and back with the same types.

Plain data stays as it is. Anything else is a dict with the key `@`:

    {"@": "human", "content": …}                       a message (see `messages`)
    {"@": "object", "type": "app.Order", "fields": …}  a dataclass, pydantic model or NamedTuple; an Enum has `value` instead of `fields`
    {"@": "send", "node": …, "arg": …, "timeout": …}   work that a node has sent
    {"@": "snapshot", "value": …}                      the full value of a delta channel
    {"@": "set", "frozen": …, "items": …}              a set of other things than plain data
    {"@": "dict", "items": …}                          a dict of the user that has the key `@`
    everstep.Opaque                                    bytes of LangGraph's serializer, for the types that only it knows

A class is found among the allowed ones by its name; a name found in data is never imported. A type that is not allowed is refused when it is
saved, before anything is written. No I/O.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PosixPath, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID

from langchain_core.documents import Document
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Command, Interrupt, Overwrite, Send, TimeoutPolicy
from pydantic import BaseModel

from everstep import Opaque, Secret  # imported before anything is read: the import registers it
from everstep.adapters.langgraph import messages
from everstep.adapters.langgraph.messages import TAG
from everstep.errors import InvalidArgument, Unstorable

ATOMS = frozenset(
    {type(None), bool, int, float, str, bytes, complex, datetime, date, time, timedelta, UUID, Decimal, Fraction, range}
    | {PosixPath, PurePosixPath, PureWindowsPath, Secret}
)
_BUILT_IN: tuple[type, ...] = (Document, Interrupt, Command, Overwrite, TimeoutPolicy)
_OPAQUE = "langgraph/"
_watch = threading.local()


def _on_event(event: SerdeEvent) -> None:
    """Note a type that the serializer did not restore, for the thread that tries it out."""
    if "blocked" in event["kind"] and getattr(_watch, "blocked", None) is not None:
        _watch.blocked.append(f"{event['module']}.{event['name']}")


register_serde_event_listener(_on_event)


@contextmanager
def watched() -> Iterator[list[str]]:
    """Collect the names of types that LangGraph's serializer does not restore in this block, because they are not allowed."""
    found: list[str] = []
    before, _watch.blocked = getattr(_watch, "blocked", None), found
    try:
        yield found
    finally:
        _watch.blocked = before


def name_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def is_shaped(cls: type) -> bool:
    """Whether instances of a class can be taken apart into named fields."""
    return dataclasses.is_dataclass(cls) or issubclass(cls, (BaseModel, Enum)) or (issubclass(cls, tuple) and hasattr(cls, "_fields"))


class Values:
    """Encodes and decodes values, with the types that the program allows."""

    def __init__(self, types: Iterable[type]):
        self._allowed: dict[str, type] = {name_of(cls): cls for cls in _BUILT_IN}
        for cls in types:
            if not isinstance(cls, type) or not is_shaped(cls):
                raise InvalidArgument(
                    f"types must be classes (dataclass, pydantic model, NamedTuple or Enum), got {cls!r:.100}",
                    remedy="Saver(types=[Order])",
                )
            self._allowed[name_of(cls)] = cls

    # Encoding.

    def encode(self, value: Any, path: str, serde: SerializerProtocol) -> Any:
        """Return a value as storable data; raise Unstorable with its path."""
        return _Encoding(self._allowed, serde).value(value, path)

    def decode(self, stored: Any, serde: SerializerProtocol) -> Any:
        """Return the value that was encoded."""
        return _Decoding(self._allowed, serde).value(stored)


class _Encoding:
    def __init__(self, allowed: Mapping[str, type], serde: SerializerProtocol):
        self._allowed = allowed
        self._serde = serde

    def value(self, value: Any, path: str) -> Any:
        cls = value.__class__
        if cls in ATOMS:
            return value
        if cls in messages.NAMES:
            return messages.to_plain(value, path, self.value)
        if cls is list:
            return [item if item.__class__ is str else self.value(item, f"{path}[{i}]") for i, item in enumerate(value)]
        if cls is dict:
            out = {self._key(key, path): self.value(item, f"{path}.{key}") for key, item in value.items()}
            return {TAG: "dict", "items": out} if TAG in out else out
        if cls in _CONTAINERS:
            return self._container(value, path)
        if cls is Send:
            timeout = self.value(value.timeout, f"{path}.timeout")
            return {TAG: "send", "node": value.node, "arg": self.value(value.arg, f"{path}.arg"), "timeout": timeout}
        if cls is _DeltaSnapshot:
            return {TAG: "snapshot", "value": self.value(value.value, path)}
        if isinstance(value, BaseException):
            return repr(value)  # as LangGraph's own savers do: an error is shown, never raised again
        return self._object(value, path)

    def _key(self, key: Any, path: str) -> Any:
        if key.__class__ in ATOMS or (key.__class__ is tuple and all(part.__class__ in ATOMS for part in key)):
            return key
        raise Unstorable(path, f"has a key of type {name_of(key.__class__)}", remedy="Use text, numbers or tuples of them as keys.")

    def _container(self, value: Any, path: str) -> Any:
        cls = value.__class__
        if cls is bytearray:
            return bytearray(value)
        if cls in (OrderedDict, Counter):
            return cls({self._key(key, path): self.value(item, f"{path}.{key}") for key, item in value.items()})
        if cls in (set, frozenset):
            if all(item.__class__ in ATOMS for item in value):
                return cls(value)
            return {TAG: "set", "frozen": cls is frozenset, "items": sorted((self.value(item, path) for item in value), key=repr)}
        items = [self.value(item, f"{path}[{i}]") for i, item in enumerate(value)]
        return deque(items, value.maxlen) if cls is deque else tuple(items)

    def _object(self, value: Any, path: str) -> Any:
        cls = value.__class__
        numpy = sys.modules.get("numpy")
        if numpy is not None and (cls is numpy.ndarray or isinstance(value, numpy.generic)):
            return value
        name = name_of(cls)
        if self._allowed.get(name) is cls:
            return {TAG: "object", "type": name, **self._fields(value, path)}
        if is_shaped(cls):
            raise Unstorable(
                path,
                f"is of type {name}, which this saver does not restore",
                remedy=f"Allow it: Saver(types=[{cls.__name__}]).",
            )
        form, data = self._serialized(value, path, name)
        return Opaque(_OPAQUE + form, data, f"<{name} {len(data):,} bytes>")

    def _fields(self, value: Any, path: str) -> dict[str, Any]:
        if isinstance(value, Enum):
            return {"value": self.value(value.value, path)}
        if isinstance(value, BaseModel):
            out: dict[str, Any] = {"fields": self._named(value.__dict__, path), "set": sorted(value.__pydantic_fields_set__)}
            if value.__pydantic_extra__:
                out["extra"] = self._named(value.__pydantic_extra__, path)
            if value.__pydantic_private__:
                out["private"] = self._named(value.__pydantic_private__, path)
            return out
        if isinstance(value, tuple):
            return {"fields": self._named(value._asdict(), path)}  # type: ignore[attr-defined]
        names = [field.name for field in dataclasses.fields(value)]
        return {"fields": self._named({name: getattr(value, name) for name in names if hasattr(value, name)}, path)}

    def _named(self, fields: Mapping[str, Any], path: str) -> dict[str, Any]:
        return {name: self.value(item, f"{path}.{name}") for name, item in fields.items()}

    def _serialized(self, value: Any, path: str, name: str) -> tuple[str, bytes]:
        """Return the bytes of LangGraph's serializer, if they come back as the same type."""
        try:
            with watched() as blocked:
                done = self._serde.dumps_typed(value)
                back = self._serde.loads_typed(done)
        except Exception as error:
            raise Unstorable(path, f"is of type {name}, which cannot be stored: {error}") from error
        if blocked or back.__class__ is not value.__class__:
            what = f"contains {blocked[0]}" if blocked else f"would come back as {back.__class__.__name__}"
            raise Unstorable(path, f"is of type {name} and {what}", remedy="Convert it to plain data, or allow its type: Saver(types=[…]).")
        return done


class _Decoding:
    def __init__(self, allowed: Mapping[str, type], serde: SerializerProtocol):
        self._allowed = allowed
        self._serde = serde

    def value(self, stored: Any) -> Any:
        cls = stored.__class__
        if cls in ATOMS:
            return stored
        if cls is list:
            return [item if item.__class__ is str else self.value(item) for item in stored]
        if cls is dict:
            tag = stored.get(TAG)
            return {key: self.value(item) for key, item in stored.items()} if tag is None else self._tagged(tag, stored)
        if cls is tuple:
            return tuple(self.value(item) for item in stored)
        if cls is deque:
            return deque((self.value(item) for item in stored), stored.maxlen)
        if cls is OrderedDict:
            return OrderedDict((key, self.value(item)) for key, item in stored.items())
        if cls is Opaque and stored.type.startswith(_OPAQUE):
            return self._serde.loads_typed((stored.type.removeprefix(_OPAQUE), stored.data))
        return stored

    def _tagged(self, tag: str, stored: dict[str, Any]) -> Any:
        message = messages.CLASSES.get(tag)
        if message is not None:
            return messages.from_plain(message, stored, self.value)
        if tag == "object":
            return self._object(stored)
        if tag == "send":
            timeout = self.value(stored["timeout"])
            return Send(stored["node"], self.value(stored["arg"]), **({} if timeout is None else {"timeout": timeout}))
        if tag == "snapshot":
            return _DeltaSnapshot(self.value(stored["value"]))
        if tag == "set":
            return (frozenset if stored["frozen"] else set)(self.value(item) for item in stored["items"])
        if tag == "dict":
            return {key: self.value(item) for key, item in stored["items"].items()}
        raise InvalidArgument(f"the thread holds a value of kind {tag!r:.60}", remedy="Upgrade Everstep: a newer version has written it.")

    def _object(self, stored: dict[str, Any]) -> Any:
        cls: Any = self._allowed.get(stored["type"])
        if cls is None:
            name = stored["type"]
            raise InvalidArgument(
                f"the thread holds a value of type {name}, which this saver does not restore",
                remedy=f"Import the class and allow it: Saver(types=[{name.rpartition('.')[2]}]).",
            )
        if issubclass(cls, Enum):
            return cls(self.value(stored["value"]))
        fields = {name: self.value(item) for name, item in stored["fields"].items()}
        if issubclass(cls, BaseModel):
            return _model(cls, fields, self.value(stored.get("extra")), self.value(stored.get("private")), set(stored["set"]))
        if issubclass(cls, tuple):
            return cls(**fields)
        made = object.__new__(cls)
        for name, item in fields.items():
            object.__setattr__(made, name, item)
        return made


def _model(cls: type[BaseModel], fields: dict[str, Any], extra: Any, private: Any, given: set[str]) -> BaseModel:
    """Fill a pydantic model without validating it again: it was valid when it was saved."""
    made = cls.model_construct(_fields_set=given, **fields)
    for name, item in fields.items():  # an alias would have hidden a field from model_construct
        made.__dict__[name] = item
    if extra is not None:
        object.__setattr__(made, "__pydantic_extra__", extra)
    if private is not None:
        object.__setattr__(made, "__pydantic_private__", private)
    return made


_CONTAINERS = frozenset({tuple, set, frozenset, deque, OrderedDict, Counter, bytearray})
