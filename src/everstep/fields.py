"""Classes that consist of fields, like those of `dataclasses`, for modules that every program and every command imports.

    class Point(Shape, frozen=True):
        x: int
        y: int = 0

A dataclass generates and compiles its methods on import, half a millisecond each: a fifth of the time of `import everstep`. Here, a class
has its slots at once, and its constructor is compiled for the first instance. `dataclasses.fields`, `replace`, `asdict` and `is_dataclass`
accept these classes.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from inspect import Signature

S = TypeVar("S", bound="Shape")


class _More:
    """The options of a field other than its type."""

    __slots__ = ("compare", "factory", "repr")

    def __init__(self, factory: Callable[[], Any] | None, repr: bool, compare: bool):
        self.factory, self.repr, self.compare = factory, repr, compare


_PLAIN = _More(None, True, True)


def field(*, default_factory: Callable[[], Any] | None = None, repr: bool = True, compare: bool = True) -> Any:
    """Set options of a field: a factory for its default, whether repr shows it, whether equality compares it."""
    return _More(default_factory, repr, compare)


def _refuse(self: Shape, name: str, value: object = None) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot change field {name!r} of a {type(self).__qualname__}")


def _make_first(self: Shape, *args: Any, **kwargs: Any) -> None:
    """Create the first instance of a class: compiles the constructor that creates the next ones."""
    cls = type(self)
    type.__setattr__(cls, "__init__", made := _constructor(cls))
    made(self, *args, **kwargs)


@dataclass_transform(field_specifiers=(field,))
class _Shaped(type):
    """Turns annotations into slots. `_fields` maps names to types in order; `_said` holds the defaults and `field(...)` options."""

    _fields: dict[str, str]
    _said: dict[str, Any]

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], frozen: bool = False) -> _Shaped:
        own = body.get("__annotations__", {})
        before = bases[0] if bases else None
        inherited, said = (before._fields, before._said) if isinstance(before, _Shaped) else ({}, {})
        if own or not inherited:
            body["__slots__"] = tuple(name for name in own if name not in inherited)
            body.setdefault("__init__", _make_first)
        body["_said"] = said = {**said, **{name: body.pop(name) for name in own if name in body}}
        body["_fields"] = fields = {**inherited, **own}
        body["__match_args__"] = tuple(fields)
        body["_compared"] = attrgetter("__class__", *(name for name in fields if getattr(said.get(name), "compare", True)))
        if frozen:
            body["__setattr__"] = body["__delattr__"] = _refuse
        elif not inherited:
            body.setdefault("__hash__", None)
        return super().__new__(cls, name, bases, body)

    @property
    def __signature__(cls) -> Signature:
        """The signature for `inspect` and `help`."""
        from inspect import signature

        made = signature(_constructor(cls))
        return made.replace(parameters=list(made.parameters.values())[1:])


class _Fields:
    """The fields in the form of `dataclasses`, created on first access."""

    def __get__(self, obj: object, cls: _Shaped) -> dict[str, Any]:
        import dataclasses

        def said(name: str) -> Any:
            value = cls._said.get(name, _PLAIN)
            if not isinstance(value, _More):
                return dataclasses.field(default=value)
            made: Any = value.factory or dataclasses.MISSING
            return dataclasses.field(default_factory=made, repr=value.repr, compare=value.compare)

        twin: Any = dataclasses.make_dataclass(cls.__name__, [(name, kind, said(name)) for name, kind in cls._fields.items()])
        made: dict[str, Any] = twin.__dataclass_fields__
        type.__setattr__(cls, "__dataclass_fields__", made)
        return made


class Shape(metaclass=_Shaped):
    """A class that consists of fields; with `frozen=True` they never change and it can be hashed. Calls `__post_init__` like a dataclass."""

    if TYPE_CHECKING:
        _fields: ClassVar[dict[str, str]]
        _said: ClassVar[dict[str, Any]]
        _compared: ClassVar[attrgetter[Any]]

    __slots__ = ()
    __dataclass_fields__ = _Fields()

    def __eq__(self, other: object) -> bool:
        return self._compared(self) == self._compared(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._compared(self))

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self._fields if getattr(self._said.get(name), "repr", True))
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, name) for name in self._fields)


def replace(shape: S, **changes: Any) -> S:
    """Copy an instance with other values in some fields."""
    return type(shape)(**{**as_dict(shape), **changes})


def as_dict(shape: Shape) -> dict[str, Any]:
    """Return the fields by name, with unchanged values."""
    return {name: getattr(shape, name) for name in shape._fields}


def kinds(shape: Shape | type[Shape]) -> dict[str, str]:
    """Return the types of the fields by name, in order, as written."""
    return shape._fields


def _constructor(cls: _Shaped) -> Callable[..., None]:
    """Compile the `__init__` of a class: generated code is the fastest."""
    known: dict[str, Any] = {"_none_given": object()}
    parameters, lines = ["self"], []
    frozen = getattr(cls, "__setattr__") is _refuse  # noqa: B009 - the type checker assumes object's own
    for name in cls._fields:
        said = cls._said.get(name, _PLAIN)
        value = name
        if not isinstance(said, _More):
            known[f"_default_{name}"] = said
            parameters.append(f"{name}=_default_{name}")
        elif said.factory is not None:
            known[f"_make_{name}"] = said.factory
            parameters.append(f"{name}=_none_given")
            value = f"_make_{name}() if {name} is _none_given else {name}"
        else:
            parameters.append(name)
        if frozen:
            known[f"_set_{name}"] = getattr(cls, name).__set__
            lines.append(f"_set_{name}(self, {value})")
        else:
            lines.append(f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n    " + "\n    ".join(lines or ["pass"]), known)  # noqa: S102 - only names of our own fields
    made: Callable[..., None] = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made
