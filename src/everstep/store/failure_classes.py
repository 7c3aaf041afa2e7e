"""The classes that recorded errors come back as. Knows only those that this program has defined or imported; imports none."""

from __future__ import annotations

import sys
from typing import Any

from everstep.codec.exceptions import attributes_of


def name_of_class(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def known_classes() -> dict[str, type[Exception]]:
    """The exception classes that this program has defined or imported, by name. Nothing is imported here.

    Of several classes with one name, the one that its module holds now, otherwise the newest.
    """
    found: dict[str, type[Exception]] = {"Exception": Exception}
    waiting: list[type[Exception]] = [Exception]
    seen: set[type] = {Exception}
    while waiting:
        for sub in type.__subclasses__(waiting.pop()):
            if sub in seen or issubclass(sub, Told):
                continue
            seen.add(sub)
            waiting.append(sub)
            name = name_of_class(sub)
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


class Told:
    """Shows the recorded text of an error whose class would make it from parts that were not kept."""

    __slots__ = ()
    text = "__everstep_text__"

    def __init_subclass__(cls) -> None:
        """Keeps the `__init_subclass__` of the error's class from running."""

    def __str__(self) -> str:
        return str(attributes_of(self)[Told.text])  # type: ignore[arg-type]


def told(cls: type[Exception]) -> type[Exception]:
    """A subclass that shows the recorded text. Raises TypeError where that would run code of a metaclass."""
    if type(cls) is not type:
        raise TypeError("a class of a metaclass")
    for sub in type.__subclasses__(cls):
        if issubclass(sub, Told):
            return sub
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls.__name__, (Told, cls), names)
