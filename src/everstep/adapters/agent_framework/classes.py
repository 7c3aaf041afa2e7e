"""Which classes stored values may have, and types as data: `{"@": "type", "name": "list", "args": […]}`.

A class is found by its name among the allowed ones: those that the program lists or registers with the framework, and the data classes of
the framework's modules. A name found in data is never imported, and no constructor runs. No I/O.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import types
import typing
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cache, reduce
from operator import or_
from pathlib import PosixPath, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID

import agent_framework as af
from agent_framework._workflows import _checkpoint_encoding
from pydantic import BaseModel

from everstep import Secret
from everstep.errors import InvalidArgument

TAG = "@"
ATOMS = frozenset(
    {type(None), bool, int, float, str, bytes, complex, datetime, date, time, timedelta, UUID, Decimal, Fraction, range}
    | {PosixPath, PurePosixPath, PureWindowsPath, Secret}
)
_PLAIN = (*ATOMS, object, bytearray, list, dict, tuple, set, frozenset, deque, OrderedDict, Counter, defaultdict)
_PREFIXES = ("agent_framework.", "agent_framework_orchestrations.", "openai.types.")
# Classes of the framework that hold data without being dataclasses. Its other classes do work: tools, clients, executors.
_DATA = frozenset(
    {af.Message, af.Content, af.ChatResponse, af.ChatResponseUpdate, af.AgentResponse, af.AgentResponseUpdate}
    | {af.AgentSession, af.Embedding, af.GeneratedEmbeddings, af.WorkflowEvent}
)
_UNIONS = {types.UnionType: "|", typing.Union: "typing.Union"}
_LITERAL, _ANY = "typing.Literal", "typing.Any"


def name_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


class Classes:
    """The classes that values may have."""

    def __init__(self, given: Iterable[type]):
        self._known: dict[str, type] = {(name_of(cls) if cls.__module__ != "builtins" else cls.__name__): cls for cls in _PLAIN}
        self._given: dict[str, type] = {}
        for cls in given:
            if not isinstance(cls, type) or not _can_be_taken_apart(cls):
                raise InvalidArgument(
                    f"types must be classes of data (dataclass, pydantic model, NamedTuple, Enum, or with plain attributes), got {cls!r:.100}",
                    remedy="CheckpointStorage(types=[Order])",
                )
            self._given[name_of(cls)] = cls

    def find(self, name: str) -> type | None:
        """Return the class of a value that is restored, or None."""
        found = self._given.get(name)
        return found if found is not None else _of_framework(name) or _registered(name)

    def allows(self, cls: type) -> bool:
        """Whether instances of a class can be stored and restored."""
        return self.find(name_of(cls)) is cls

    # Types as values: the request and response types of a pending request, the factory of a defaultdict.

    def encode_type(self, found: Any) -> dict[str, Any] | None:
        """Return a type as data; None if it is not one that can be restored."""
        if found is Any:
            return {TAG: "type", "name": _ANY}
        origin = typing.get_origin(found)
        if origin is None:
            name = self._name(found) if isinstance(found, type) else None
            return None if name is None else {TAG: "type", "name": name}
        if origin is typing.Literal:
            values = list(typing.get_args(found))
            return {TAG: "type", "name": _LITERAL, "values": values} if all(type(value) in ATOMS for value in values) else None
        outer = _UNIONS.get(origin) or self._name(origin)
        args = [None if part is ... else self.encode_type(part) for part in typing.get_args(found)]
        if outer is None or any(made is None and part is not ... for made, part in zip(args, typing.get_args(found), strict=True)):
            return None
        return {TAG: "type", "name": outer, "args": args}

    def decode_type(self, stored: Mapping[str, Any]) -> Any:
        """Return the type that was encoded; raise LookupError if it is not allowed."""
        name = stored["name"]
        if name == _ANY:
            return Any
        if name == _LITERAL:
            return typing.Literal[tuple(stored["values"])]
        args = tuple(... if part is None else self.decode_type(part) for part in stored.get("args", ()))
        if name == _UNIONS[typing.Union]:
            return typing.Union[args]  # noqa: UP007 - the members are only known now
        if name == _UNIONS[types.UnionType]:
            return reduce(or_, args)
        cls: Any = self._known.get(name) or self.find(name)
        if cls is None:
            raise LookupError(name)
        return cls[args] if "args" in stored else cls

    def _name(self, cls: type) -> str | None:
        name = cls.__name__ if cls.__module__ == "builtins" else name_of(cls)
        return name if self._known.get(name) is cls or self.allows(cls) else None


def is_shaped(cls: type) -> bool:
    """Whether instances have named fields, or are one of several named values."""
    return dataclasses.is_dataclass(cls) or issubclass(cls, (BaseModel, Enum)) or (issubclass(cls, tuple) and hasattr(cls, "_fields"))


def _can_be_taken_apart(cls: type) -> bool:
    if is_shaped(cls):
        return True
    found: Any = cls
    plain = found.__reduce_ex__ is object.__reduce_ex__ and found.__reduce__ is object.__reduce__
    return plain and not issubclass(cls, (BaseException, type)) and cls.__module__ != "builtins"


def _registered(name: str) -> type | None:
    """Return a class that the program has registered with `agent_framework.register_checkpoint_type`."""
    keys = getattr(_checkpoint_encoding, "_REGISTERED_CHECKPOINT_TYPE_KEYS", ())
    for key in [key for key in keys if key.replace(":", ".") == name]:
        module, _, path = key.partition(":")
        found: Any = sys.modules.get(module)
        for part in path.split("."):
            found = getattr(found, part, None)
        if isinstance(found, type) and name_of(found) == name and _can_be_taken_apart(found):
            return found
    return None


@cache
def _load_framework() -> None:
    """Load all modules of the framework, which it does lazily: a new process may read a value before it uses the module. Independent of the data."""
    for name in af.__all__:
        with contextlib.suppress(Exception):  # one that needs a package that is not installed
            getattr(af, name)


def _of_framework(name: str) -> type | None:
    """Return a class of data from a module of the framework that is loaded."""
    if not name.startswith(_PREFIXES):
        return None
    module, _, last = name.rpartition(".")
    if module not in sys.modules and name.startswith(_PREFIXES[0]):
        _load_framework()
    found = getattr(sys.modules.get(module), last, None)
    return found if isinstance(found, type) and name_of(found) == name and (found in _DATA or is_shaped(found)) else None
