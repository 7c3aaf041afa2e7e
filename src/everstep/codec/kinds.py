"""The program's own types: how each is converted to named fields and back.

A type is restored only if the *reading program* has registered it; a name found in stored data is looked up here and never imported. Values
of other types come back as `Unknown`, which can be shown and saved again unchanged. Saving an instance of a dataclass, NamedTuple, Enum,
pydantic model or msgspec Struct registers its type for this process; an exception class must be registered explicitly. No I/O; nothing here
runs code from storage.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from enum import Enum, Flag
from typing import Any, TypeVar, overload

from everstep.errors import InvalidArgument, NewerFormat, TypeConflict
from everstep.fields import Shape

T = TypeVar("T")
Fields = dict[str, Any]
Shaped = tuple[Callable[[Any], Fields], Callable[[Fields], Any]]


class Unknown:
    """A stored value whose type this process has not registered: its name, version and fields, without behaviour."""

    __slots__ = ("fields", "name", "version")

    def __init__(self, name: str, version: int, fields: Fields):
        self.name = name
        self.version = version
        self.fields = fields

    def __getattr__(self, name: str) -> Any:
        """Explain a missing attribute; called only for names that an Unknown does not have."""
        raise AttributeError(
            f"a stored {object.__getattribute__(self, 'name')!r} came back as Unknown, which has no {name!r}: this process has not registered "
            "its type (everstep.register)"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Unknown):
            return NotImplemented
        return (self.name, self.version, self.fields) == (other.name, other.version, other.fields)

    def __hash__(self) -> int:
        return hash((self.name, self.version))

    def __redacted__(self, mask: Callable[[Fields], Fields]) -> Unknown:
        """Return a copy with masked fields; called by `redact`."""
        masked = mask(self.fields)
        return self if masked is self.fields else Unknown(self.name, self.version, masked)

    def __repr__(self) -> str:
        return f"Unknown({self.name!r}, {self.version}, {self.fields!r})"


class Kind(Shape, frozen=True):
    """How to take instances of one type apart and build them again."""

    cls: type
    name: str
    version: int
    upgrades: Mapping[int, Callable[[Fields], Fields]]
    take: Callable[[Any], Fields]
    make: Callable[[Fields], Any]
    explicit: bool


_lock = threading.RLock()  # a finalizer may save in the middle of a save
_by_type: dict[type, Kind] = {}
_by_name: dict[str, Kind] = {}
FROZEN: set[type] = set()
"""Types whose instances never change; `values` adds the built-in ones."""


@overload
def register(
    cls: type[T],
    *,
    name: str | None = None,
    version: int = 1,
    upgrades: Mapping[int, Callable[[Fields], Fields]] | None = None,
    encode: Callable[[T], Fields] | None = None,
    decode: Callable[[Fields], T] | None = None,
    frozen: bool = False,
) -> type[T]: ...


@overload
def register(
    cls: None = None,
    *,
    name: str | None = None,
    version: int = 1,
    upgrades: Mapping[int, Callable[[Fields], Fields]] | None = None,
    encode: Callable[[Any], Fields] | None = None,
    decode: Callable[[Fields], Any] | None = None,
    frozen: bool = False,
) -> Callable[[type[T]], type[T]]: ...


def register(
    cls: type[T] | None = None,
    *,
    name: str | None = None,
    version: int = 1,
    upgrades: Mapping[int, Callable[[Fields], Fields]] | None = None,
    encode: Callable[[Any], Fields] | None = None,
    decode: Callable[[Fields], Any] | None = None,
    frozen: bool = False,
) -> Any:
    """Register a type, so that its instances can be stored and restored; also usable as a decorator.

    `name` is the name in storage (default: module and qualified name), so that a class can move. `version` counts changes of its fields;
    `upgrades[n]` converts the fields of version n to those of version n + 1. Types other than a dataclass, NamedTuple, Enum, exception,
    pydantic model or msgspec Struct also need `encode` (to a dict) and `decode` (back). `frozen` promises that an instance never changes:
    a save does not look at one again that is the same object, so a change in it would be lost.
    """
    if cls is None:
        return lambda c: register(c, name=name, version=version, upgrades=upgrades, encode=encode, decode=decode, frozen=frozen)
    if not isinstance(cls, type):
        raise InvalidArgument(f"everstep.register takes a class, got {cls!r}", remedy="Pass a class to everstep.register.")
    if type(version) is not int or version < 1:
        raise InvalidArgument(f"version of {cls.__qualname__} must be an integer of at least 1, got {version!r}")
    if (encode is None) != (decode is None):
        raise InvalidArgument(f"{cls.__qualname__} has only one of encode and decode", remedy="Pass both, or neither.")
    shape = (encode, decode) if encode and decode else _shape(cls)
    if shape is None:
        raise InvalidArgument(
            f"{cls.__qualname__} is not a dataclass, NamedTuple, Enum, exception, pydantic model or msgspec Struct",
            remedy="Pass encode= (instance to dict) and decode= (dict to instance).",
        )
    _enter(Kind(cls, name or _default_name(cls), version, dict(upgrades or {}), *shape, explicit=True))
    (FROZEN.add if frozen else FROZEN.discard)(cls)
    return cls


def kind_of(cls: type) -> Kind | None:
    """Return the kind of a type; registers it for this process if its structure is known. None if it can't be stored."""
    kind = _by_type.get(cls)
    if kind is None and not issubclass(cls, BaseException) and (shape := _shape(cls)) is not None:
        kind = Kind(cls, _default_name(cls), 1, {}, *shape, explicit=False)
        _enter(kind)
        import warnings  # only for the first instance of an unregistered type

        warnings.warn(f"{kind.name} is saved without everstep.register: another process will read it as Unknown", stacklevel=2)
    return kind


def has_structure(cls: type) -> bool:
    """Whether a type can be stored: it is registered, or its structure is known."""
    return cls in _by_type or _shape(cls) is not None


def kind_without_warning(cls: type) -> Kind:
    """Return the kind of a type with a known structure that the program gave to be restored: no other process will miss it."""
    kind = _by_type.get(cls)
    if kind is None:
        shape = _shape(cls)
        assert shape is not None
        kind = Kind(cls, _default_name(cls), 1, {}, *shape, explicit=False)
        _enter(kind)
    return kind


def kind_named(name: str) -> Kind | None:
    """Return the kind that this process registered under a stored name."""
    return _by_name.get(name)


def revive(name: str, version: int, fields: Fields) -> Any:
    """Restore a stored object as the type that this process registered under its name, or as `Unknown`."""
    kind = _by_name.get(name)
    if kind is None:
        return Unknown(name, version, fields)
    if version > kind.version:
        raise NewerFormat(
            f"a stored {name} has version {version}, but this program supports at most version {kind.version}",
            remedy="Run the newer program, or register the newer version of the type.",
        )
    while version < kind.version:
        if version not in kind.upgrades:
            raise TypeConflict(
                f"a stored {name} has version {version}, and there is no upgrade to version {version + 1}",
                remedy=f"Register the type with upgrades={{{version}: function}}.",
            )
        fields = _upgraded(kind, version, fields)
        version += 1
    try:
        return kind.make(fields)
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise TypeConflict(
            f"a stored {name} of version {version} does not fit {kind.cls.__qualname__}: {error}",
            remedy="Register the type with a higher version, and upgrades that bring stored fields up to it.",
        ) from error


def _upgraded(kind: Kind, version: int, fields: Fields) -> Fields:
    try:
        newer: Any = kind.upgrades[version](fields)
    except Exception as error:
        raise TypeConflict(
            f"the upgrade of a stored {kind.name} from version {version} failed: {type(error).__name__}: {error}",
            remedy=f"Correct upgrades[{version}]; store.upgrades() tries it on every stored state without writing anything.",
        ) from error
    if type(newer) is not dict:
        raise TypeConflict(
            f"the upgrade of a stored {kind.name} from version {version} must return a dict of fields, got {newer!r:.60}",
            remedy=f"Return the fields of version {version + 1} from upgrades[{version}].",
        )
    return newer


def _enter(kind: Kind) -> None:
    with _lock:
        held = _by_name.get(kind.name)
        if held is not None and held.cls is not kind.cls and held.explicit:
            same_source = (held.cls.__module__, held.cls.__qualname__) == (kind.cls.__module__, kind.cls.__qualname__)
            if not same_source:  # a reloaded module defines its classes again; anything else is a conflict
                raise TypeConflict(f"{kind.cls!r} and {held.cls!r} have the same name in storage: {kind.name!r}")
        _by_name[kind.name] = kind
        _by_type[kind.cls] = kind


def _default_name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _shape(cls: type) -> tuple[Callable[[Any], Fields], Callable[[Fields], Any]] | None:
    """Return the pair of functions for a type whose structure is known."""
    if issubclass(cls, BaseException):  # before dataclasses: object.__new__ cannot create an exception that is a dataclass
        from everstep.codec.exceptions import make_error, take_error  # few programs store exceptions

        return take_error, lambda fields: make_error(cls, fields)
    if issubclass(cls, Enum):
        return _take_enum, lambda fields: _make_enum(cls, fields)
    if (msgspec := sys.modules.get("msgspec")) and issubclass(cls, msgspec.Struct):
        struct_names = cls.__struct_fields__  # type: ignore[attr-defined]
        return _with_extra(cls, struct_names, lambda obj: {n: getattr(obj, n) for n in struct_names}, lambda fields: cls(**fields))
    if hasattr(cls, "__dataclass_fields__"):
        import dataclasses

        names = tuple(f.name for f in dataclasses.fields(cls))  # type: ignore[arg-type]
        return _with_extra(
            cls, names, lambda obj: {n: getattr(obj, n) for n in names if hasattr(obj, n)}, lambda fields: _make_bare(cls, fields)
        )
    if issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        return _with_extra(cls, cls._fields, lambda obj: obj._asdict(), lambda fields: cls(**fields))  # type: ignore[attr-defined]
    if (pydantic := sys.modules.get("pydantic")) and issubclass(cls, pydantic.BaseModel):
        return _take_model, lambda fields: _make_model(cls, fields)
    return None


_EXTRA = "__extra__"


def _with_extra(cls: type, names: tuple[str, ...], take: Callable[[Any], Fields], make: Callable[[Fields], Any]) -> Shaped:
    """Extend a pair of functions to keep attributes that are not fields: those of the instance, and of the slots of its bases.

    The value of a cached_property is left out: it is computed again on access.
    """
    fields, slots, cached = frozenset(names), _slots(cls, names), _cached(cls)

    def taken(obj: Any) -> Fields:
        found = take(obj)
        held = getattr(obj, "__dict__", None)
        if slots or (held and not fields.issuperset(held)):
            extra = {n: v for n, v in (held or {}).items() if n not in fields and n not in cached}
            extra.update((n, getattr(obj, n)) for n in slots if hasattr(obj, n))
            if extra:
                found[_EXTRA] = extra
        return found

    def made(fields: Fields) -> Any:
        extra = fields.pop(_EXTRA, None)
        obj = make(fields)
        for name, value in (extra or {}).items():
            if name in slots:
                object.__setattr__(obj, name, value)
            else:
                obj.__dict__[name] = value  # a Struct refuses object.__setattr__, a frozen type its own
        return obj

    return taken, made


def _slots(cls: type, names: tuple[str, ...]) -> tuple[str, ...]:
    """List the slots of a class and its bases that are not fields; a private one has its mangled name."""
    found = []
    for base in cls.__mro__:
        if base.__module__ in ("builtins", "msgspec", "msgspec._core"):
            continue
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            if name.startswith("__") and not name.endswith("__"):
                name = f"_{base.__name__.lstrip('_')}{name}"
            if name not in names and name not in ("__dict__", "__weakref__"):
                found.append(name)
    return tuple(found)


def _cached(cls: type) -> frozenset[str]:
    """Return the names under which a cached_property keeps its value in the instance."""
    from functools import cached_property

    return frozenset(n for base in cls.__mro__ for n, v in vars(base).items() if isinstance(v, cached_property))


def _take_enum(member: Any) -> Fields:
    return {"name": member._name_, "value": member._value_}


def _make_enum(cls: type[Enum], fields: Fields) -> Enum:
    return cls(fields["value"]) if issubclass(cls, Flag) else cls[fields["name"]]


def _make_bare(cls: type[T], fields: Fields) -> T:
    """Fill a dataclass without running its constructor: it was valid when it was saved, and may be frozen.

    A field that was added later takes its default; any other difference is left to the program's upgrades.
    """
    import dataclasses

    known = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    _refuse_unknown(set(fields) - set(known))
    obj = object.__new__(cls)
    for name, field in known.items():
        if name in fields:
            object.__setattr__(obj, name, fields[name])
        elif field.default_factory is not dataclasses.MISSING:
            object.__setattr__(obj, name, field.default_factory())
        elif field.default is not dataclasses.MISSING:
            object.__setattr__(obj, name, field.default)
        elif field.init:
            raise TypeError(f"field {name!r} is missing")
    return obj


def _refuse_unknown(names: set[str]) -> None:
    if names:
        raise TypeError(f"it has no field {', '.join(sorted(map(repr, names)))}")


def _take_model(obj: Any) -> Fields:
    """Take the fields of a pydantic model and, under names that no field can have, everything else that equality compares."""
    fields: Fields = {n: v for n, v in obj.__dict__.items() if n in type(obj).model_fields}
    if len(fields) != len(obj.__dict__) and (held := _more_attributes(obj)):
        fields["__held__"] = held
    if obj.__pydantic_fields_set__ != set(fields) - {"__held__"}:
        fields["__set__"] = sorted(obj.__pydantic_fields_set__)
    if obj.__pydantic_extra__ is not None:
        fields["__extra__"] = dict(obj.__pydantic_extra__)
    if obj.__pydantic_private__ is not None:
        fields["__private__"] = dict(obj.__pydantic_private__)
    return fields


def _more_attributes(obj: Any) -> Fields:
    """Return the attributes that object.__setattr__ added to a model."""
    cached = _cached(type(obj))
    return {n: v for n, v in obj.__dict__.items() if n not in type(obj).model_fields and n not in cached}


def _make_model(cls: Any, fields: Fields) -> Any:
    """Fill a pydantic model without validating it again: it was valid when it was saved."""
    extra, private, held = fields.pop("__extra__", None), fields.pop("__private__", None), fields.pop("__held__", None)
    chosen = fields.pop("__set__", None)
    chosen = set(fields if chosen is None else chosen)
    _refuse_unknown(set(fields) - set(cls.model_fields))
    for name, field in cls.model_fields.items():
        if name not in fields:
            if field.is_required():
                raise TypeError(f"field {name!r} is missing")
            fields[name] = field.get_default(call_default_factory=True)
    obj = cls.__new__(cls)
    object.__setattr__(obj, "__dict__", {**fields, **held} if held else fields)
    object.__setattr__(obj, "__pydantic_fields_set__", chosen)
    object.__setattr__(obj, "__pydantic_extra__", extra)
    object.__setattr__(obj, "__pydantic_private__", private)
    return obj
