"""The classes of a typed state: `store.run(id, state=MyModel())` gives them, so a stored state comes back as `MyModel` in any process.

A class counts if its structure is known: a dataclass, NamedTuple, Enum, pydantic model or msgspec Struct. The classes in the annotations of
its fields count, too. A stored object is matched by its name in storage, or, if its module has moved, by the name of its class alone.
Nothing is imported: only classes that the program gave are candidates. No I/O.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from everstep.codec.kinds import Kind, Unknown, has_structure, kind_named, kind_without_warning
from everstep.codec.values import FROZEN, revived
from everstep.errors import TypeConflict


def models_of(state: Any) -> dict[str, Kind] | None:
    """Register the class of a state and the classes of its fields; return them by their own names. None for a state without such a class."""
    cls = type(state)
    if cls is dict or cls is list or cls in FROZEN:
        return None
    if not has_structure(cls):
        return None
    found: dict[type, None] = {}
    _collect(cls, found)
    with suppress(RecursionError):  # the encoder explains what is wrong with such a state
        _collect_values(state, found)
    kinds = [kind_without_warning(one) for one in found]
    count = Counter(kind.cls.__name__ for kind in kinds)
    return {kind.cls.__name__: kind for kind in kinds if count[kind.cls.__name__] == 1}


def restored(value: Any, state: Any, run: str) -> Any:
    """Return a loaded state, with objects as `Unknown`, as an instance of the class of `state`; raise if it is something else."""
    models = models_of(state)
    if models is None:
        return revived(value)
    cls = type(state)
    found = revived(_renamed(value, models))
    if type(found) is dict:
        found = _from_dict(cls, found, run, alone=len(models) == 1)
    if isinstance(found, cls):
        return found
    was = found.name if type(found) is Unknown else type(found).__name__
    raise TypeConflict(
        f"the state of run {run!r} is a stored {was}, but the program opened it with a {cls.__qualname__}",
        remedy=f"Open the run with a state of its own class. If the class was renamed, register it: everstep.register({cls.__name__}, name={was!r}).",
    )


def _from_dict(cls: Any, state: dict[Any, Any], run: str, alone: bool) -> Any:
    """Return a state that was saved as a dict, before the program had a class for it, as that class. `alone`: its fields hold no other class."""
    try:
        if hasattr(cls, "model_validate"):
            return cls.model_validate(state)
        if hasattr(cls, "__struct_fields__"):
            import msgspec

            return msgspec.convert(state, cls)
        return cls(**state) if alone else state
    except (TypeError, ValueError) as error:
        raise TypeConflict(
            f"the state of run {run!r} is a dict that does not fit {cls.__qualname__}: {error}",
            remedy="Open the run without state=, change the dict so that it fits, save it, and open it again.",
        ) from error


def _renamed(value: Any, models: dict[str, Kind]) -> Any:
    """Give objects whose module has moved the name of their class in this program."""
    cls = type(value)
    if cls in FROZEN:
        return value
    if cls is Unknown:
        fields = {name: _renamed(field, models) for name, field in value.fields.items()}
        name = value.name
        if kind_named(name) is None and ":" in name:
            kind = models.get(name.rpartition(":")[2].rpartition(".")[2])
            name = name if kind is None else kind.name
        return Unknown(name, value.version, fields)
    if cls is dict or cls is OrderedDict or cls is Counter:
        for key in list(value):
            dict.__setitem__(value, key, _renamed(value[key], models))
    elif cls is list:
        value[:] = [_renamed(item, models) for item in value]
    elif cls is tuple or cls is set or cls is frozenset:
        return cls(_renamed(item, models) for item in value)
    elif cls is deque:
        return deque((_renamed(item, models) for item in value), value.maxlen)
    return value


def _collect(cls: type, found: dict[type, None]) -> None:
    if cls in found or not has_structure(cls) or issubclass(cls, BaseException):
        return
    found[cls] = None
    for hint in _hints(cls):
        for one in _classes(hint):
            _collect(one, found)


def _collect_values(value: Any, found: dict[type, None]) -> None:
    """Collect the classes of the objects in a first state: annotations cannot always be resolved."""
    cls = type(value)
    if cls in FROZEN:
        return
    if isinstance(value, dict):
        parts: Any = value.values()
    elif isinstance(value, (list, tuple, set, frozenset, deque)) and not hasattr(cls, "_fields"):
        parts = value
    elif has_structure(cls) and not issubclass(cls, BaseException):
        _collect(cls, found)
        parts = kind_without_warning(cls).take(value).values()
    else:
        return
    for part in parts:
        _collect_values(part, found)


def _hints(cls: Any) -> list[Any]:
    """Return the types of the fields of a class; none if they cannot be resolved, as those of a class inside a function may not."""
    from typing import get_type_hints

    if isinstance(getattr(cls, "model_fields", None), dict):
        return [field.annotation for field in cls.model_fields.values()]
    try:
        return list(get_type_hints(cls).values())
    except Exception:  # noqa: BLE001 - an annotation may be any expression; a class that is missed comes back as Unknown
        return []


def _classes(hint: Any) -> Iterator[type]:
    from typing import get_args

    if isinstance(hint, type):
        yield hint
    for part in get_args(hint):
        yield from _classes(part)
