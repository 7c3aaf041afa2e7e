"""The classes of recorded errors. Knows only classes that this program has defined or imported; imports none."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, cast

from everstep.codec.exceptions import attributes_of

LONGEST_NAME = 1_000
_dict_of_class: Any = vars(type)["__dict__"].__get__


def name_of_class(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


class Classes:
    """The exception classes that this program has defined or imported, by name: the one in its module, otherwise the newest."""

    def __init__(self) -> None:
        self._others: dict[str, type[Exception]] | None = None

    def named(self, name: Any) -> type[Exception] | None:
        if type(name) is not str or len(name) > LONGEST_NAME:
            return None
        found = _in_module(name)
        if found is None:
            if self._others is None:
                self._others = _all_by_name()  # once for all errors in one record, which may be forged and name thousands
            found = self._others.get(name)
        return found


def _in_module(name: str) -> type[Exception] | None:
    """Find a class in the dicts of modules and classes only: reading an attribute, even `__class__`, could import what the name says."""
    parts = ("builtins." + name if "." not in name else name).split(".")
    for cut in range(len(parts) - 1, 0, -1):
        found: Any = sys.modules.get(".".join(parts[:cut]))
        content = object.__getattribute__(found, "__dict__") if issubclass(type(found), ModuleType) else {}
        for part in parts[cut:]:
            found = content.get(part)
            content = _dict_of_class(found) if issubclass(type(found), type) else {}
        if issubclass(type(found), type) and issubclass(found, Exception) and name_of_class(found) == name and not issubclass(found, Told):
            return cast("type[Exception]", found)
    return None


def _all_by_name() -> dict[str, type[Exception]]:
    found: dict[str, type[Exception]] = {}
    waiting: list[type[Exception]] = [Exception]
    seen: set[type] = {Exception}
    while waiting:
        for sub in type.__subclasses__(waiting.pop()):
            if sub not in seen and not issubclass(sub, Told):
                seen.add(sub)
                waiting.append(sub)
                found[name_of_class(sub)] = sub
    return found


class Told:
    """Shows the recorded text of an error whose class would build it from parts that were not kept."""

    __slots__ = ()
    text = "__everstep_text__"

    def __init_subclass__(cls) -> None:
        """Prevent the `__init_subclass__` of the error's class from running."""

    def __str__(self) -> str:
        return str(attributes_of(self)[Told.text])  # type: ignore[arg-type]


def told(cls: type[Exception]) -> type[Exception]:
    """Return a subclass that shows the recorded text. Raises TypeError if that would run code of a metaclass."""
    if type(cls) is not type:
        raise TypeError("a class with a metaclass")
    for sub in type.__subclasses__(cls):
        if issubclass(sub, Told):
            return sub
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls.__name__, (Told, cls), names)
