"""Converts the values of a workflow to data that Everstep stores and every process can read, and back with the same types.

Plain data stays as it is. Anything else is a dict with the key `@`:

    {"@": "user", "content": …}                        a message (see `messages`)
    {"@": "sent", "from": …, "to": …, "data": …}       a message between executors that was not delivered yet
    {"@": "request", "id": …, "from": …, "data": …}    a request for information that waits for its response
    {"@": "object", "type": "app.Order", "fields": …}  an instance of an allowed class; an Enum has `value`, a list or dict has `items`
    {"@": "type", "name": "str"}                       a type (see `classes`)
    {"@": "set", …}, {"@": "defaultdict", …}           a set of other things than plain data, a defaultdict
    {"@": "timezone", …}, {"@": "slice", …}            a fixed offset from UTC, a slice
    {"@": "dict", "items": …}                          a dict of the user that has the key `@`

A type that is not allowed is refused when it is saved, before anything is written. No I/O, no pickle.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import timezone
from enum import Enum
from typing import Any

from agent_framework import Content, Message, WorkflowEvent, WorkflowEventSource, WorkflowMessage
from agent_framework._workflows._runner_context import MessageType

from everstep.adapters.agent_framework import messages
from everstep.adapters.agent_framework.classes import ATOMS, TAG, Classes, name_of
from everstep.adapters.agent_framework.objects import fields_of, made_of
from everstep.errors import InvalidArgument, Unstorable

_SENT, _REQUEST = "sent", "request"
_SENT_KEYS = frozenset({"data", "source_id", "target_id", "type", "trace_contexts", "source_span_ids", "original_request_info_event"})
_SENT_NAMES = {"source_id": "from", "target_id": "to", "original_request_info_event": "request"}
_REQUEST_NAMES = {"_request_id": "id", "_source_executor_id": "from", "_request_type": "asks_with", "_response_type": "answer_type"}
_REQUEST_KEYS = frozenset({"type", "data", "origin", "state", "details", "executor_id", "iteration", *_REQUEST_NAMES})
_CONTAINERS = frozenset({tuple, set, frozenset, deque, OrderedDict, Counter, defaultdict, bytearray})


class Encoding:
    """Encodes the values of one checkpoint."""

    def __init__(self, classes: Classes):
        self._classes = classes

    def whole(self, value: Any, path: str) -> Any:
        """Return a value as storable data; raise Unstorable with its path."""
        try:
            return self.value(value, path)
        except RecursionError:
            raise Unstorable(path, "contains itself, or is nested too deeply") from None

    def value(self, value: Any, path: str) -> Any:
        cls = value.__class__
        if cls in ATOMS:
            return value
        if cls is Message and messages.is_message(value):
            return messages.message_to_plain(value, path, self.value)
        if cls is list:
            return [self.value(item, f"{path}[{i}]") for i, item in enumerate(value)]
        if cls is dict:
            out = self._items(value, path)
            return {TAG: "dict", "items": out} if TAG in out else out
        if cls is Content and messages.is_content(value):
            return messages.content_to_plain(value, path, self.value)
        if cls is WorkflowMessage and vars(value).keys() == _SENT_KEYS:
            drop = ("type",) if value.type is MessageType.STANDARD else ()
            return self._named(_SENT, vars(value), _SENT_NAMES, path, keep=("data", "source_id"), drop=drop)
        if cls is WorkflowEvent and value.type == "request_info" and vars(value).keys() == _REQUEST_KEYS:
            usual = ("origin",) if value.origin is WorkflowEventSource.EXECUTOR else ()
            return self._named(_REQUEST, vars(value), _REQUEST_NAMES, path, keep=("data",), drop=("type", *usual))
        if cls in _CONTAINERS:
            return self._container(value, path)
        if cls is timezone:
            return {TAG: "timezone", "parts": list(value.__getinitargs__())}
        if cls is slice:
            return {TAG: "slice", "parts": [self.value(part, path) for part in (value.start, value.stop, value.step)]}
        return self._other(value, path)

    def _items(self, value: Any, path: str) -> dict[Any, Any]:
        return {self._key(key, path): self.value(item, f"{path}.{key}") for key, item in value.items()}

    def _key(self, key: Any, path: str) -> Any:
        if key.__class__ in ATOMS or (key.__class__ is tuple and all(part.__class__ in ATOMS for part in key)):
            return key
        raise Unstorable(path, f"has a key of type {name_of(key.__class__)}", remedy="Use text, numbers or tuples of them as keys.")

    def _named(self, tag: str, fields: Any, names: Any, path: str, *, keep: tuple[str, ...], drop: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return the fields of an object of the framework under shorter names; those that are None are left out."""
        out: dict[str, Any] = {TAG: tag}
        for name, value in fields.items():
            if name not in drop and (value is not None or name in keep):
                out[names.get(name, name)] = self.value(value, f"{path}.{name.lstrip('_')}")
        return out

    def _container(self, value: Any, path: str) -> Any:
        cls = value.__class__
        if cls is bytearray:
            return bytearray(value)
        if cls is defaultdict:
            factory = None if value.default_factory is None else self.value(value.default_factory, f"{path}.default_factory")
            return {TAG: "defaultdict", "factory": factory, "items": self._items(value, path)}
        if cls in (OrderedDict, Counter):
            return cls(self._items(value, path))
        if cls in (set, frozenset):
            if all(item.__class__ in ATOMS for item in value):
                return cls(self.value(item, path) for item in value)
            return {TAG: "set", "frozen": cls is frozenset, "items": sorted((self.value(item, path) for item in value), key=repr)}
        items = [self.value(item, f"{path}[{i}]") for i, item in enumerate(value)]
        return deque(items, value.maxlen) if cls is deque else tuple(items)

    def _other(self, value: Any, path: str) -> Any:
        cls = value.__class__
        numpy = sys.modules.get("numpy")
        if numpy is not None and (cls is numpy.ndarray or isinstance(value, numpy.generic)):
            return value
        if self._classes.allows(cls):
            return {TAG: "object", "type": name_of(cls), **fields_of(value, path, self.value)}
        found = self._classes.encode_type(value) if not isinstance(value, Enum) else None
        if found is not None:
            return found
        if isinstance(value, type):
            raise Unstorable(
                path, f"is the type {name_of(value)}, which is not allowed", remedy=f"CheckpointStorage(types=[{value.__name__}])"
            )
        raise Unstorable(
            path,
            f"is of type {name_of(cls)}, which this storage does not restore",
            remedy=f"Allow it: CheckpointStorage(types=[{cls.__name__}]), or keep plain data in the state.",
        )


class Decoding:
    """Decodes the values of one checkpoint."""

    def __init__(self, classes: Classes):
        self._classes = classes

    def value(self, stored: Any) -> Any:
        cls = stored.__class__
        if cls in ATOMS:
            return stored
        if cls is list:
            return [self.value(item) for item in stored]
        if cls is dict:
            return self._tagged(stored[TAG], stored) if TAG in stored else self._items(stored)
        if cls is tuple:
            return tuple(self.value(item) for item in stored)
        if cls in (set, frozenset):
            return cls(self.value(item) for item in stored)
        if cls is deque:
            return deque((self.value(item) for item in stored), stored.maxlen)
        if cls in (OrderedDict, Counter):
            return cls(self._items(stored))
        return stored.copy() if cls is bytearray else stored

    def _items(self, stored: Any) -> dict[Any, Any]:
        return {key: self.value(item) for key, item in stored.items()}

    def _tagged(self, tag: Any, stored: dict[str, Any]) -> Any:
        if tag in messages.KINDS:
            return messages.message_from_plain(stored, self.value)
        if tag == messages.CONTENT:
            return messages.content_from_plain(stored, self.value)
        if tag == _SENT:
            return self._filled(WorkflowMessage, stored, _SENT_KEYS, _SENT_NAMES, "type", MessageType.STANDARD)
        if tag == _REQUEST:
            stored = {**stored, "type": "request_info"}
            return self._filled(WorkflowEvent, stored, _REQUEST_KEYS, _REQUEST_NAMES, "origin", WorkflowEventSource.EXECUTOR)
        if tag == "object":
            return self._object(stored)
        if tag == "type":
            return self._type(stored)
        if tag == "set":
            return (frozenset if stored["frozen"] else set)(self.value(item) for item in stored["items"])
        if tag == "defaultdict":
            return defaultdict(self.value(stored["factory"]), self._items(stored["items"]))
        if tag in ("timezone", "slice"):
            return (timezone if tag == "timezone" else slice)(*map(self.value, stored["parts"]))
        if tag == "dict":
            return self._items(stored["items"])
        raise InvalidArgument(f"it holds a value of kind {tag!r:.60}", remedy="Upgrade Everstep: a newer version has written it.")

    def _filled(self, cls: type, stored: dict[str, Any], keys: frozenset[str], names: dict[str, str], usual: str, value: Any) -> Any:
        """Return an object of the framework with these fields; `usual` is left out if it has its usual value."""
        made: Any = object.__new__(cls)
        made.__dict__ = {name: self.value(stored.get(names.get(name, name))) for name in keys}
        if usual not in stored:
            made.__dict__[usual] = value
        return made

    def _object(self, stored: dict[str, Any]) -> Any:
        cls = self._classes.find(stored["type"])
        if cls is None:
            raise _not_allowed(stored["type"])
        return made_of(cls, stored, self.value)

    def _type(self, stored: dict[str, Any]) -> Any:
        try:
            return self._classes.decode_type(stored)
        except LookupError as error:
            raise _not_allowed(str(error.args[0])) from None


def _not_allowed(name: str) -> InvalidArgument:
    return InvalidArgument(
        f"it holds a value of type {name:.200}, which this storage does not restore",
        remedy=f"Import the class and allow it: CheckpointStorage(types=[{name.rpartition('.')[2]}]).",
    )
