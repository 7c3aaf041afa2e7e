"""Takes an exception apart into args, attributes and members, and puts it together again without running any code of its class.

Attributes are the content of its `__dict__`. Members are values that its class stores elsewhere: `__slots__`, and the fields of built-in classes
such as `errno`. Traceback, cause and context are not included. No I/O.
"""

from __future__ import annotations

import builtins
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

Fields = dict[str, Any]
_dict_of: Any = vars(BaseException)["__dict__"].__get__
_args: Any = vars(BaseException)["args"]
NOTES = "__notes__"


def take_error(error: BaseException) -> Fields:
    """The parts of an exception. `args` is None for a group whose args are its message and its exceptions."""
    attributes = {name: value for name, value in attributes_of(error).items() if name == NOTES or not name.startswith("__")}
    fields: Fields = {"args": _args.__get__(error)}
    storage = _storage(type(error))
    if storage:
        fields["members"] = _members(error, storage)
    if isinstance(error, BaseExceptionGroup):
        usual = _are_usual(fields["args"], error)
        exceptions = fields["args"][1] if usual else list(error.exceptions)
        fields["members"] = fields.get("members", {}) | {"message": error.message, "exceptions": exceptions}
        fields["args"] = None if usual else fields["args"]
    return fields | {"attributes": attributes} if attributes else fields


def attributes_of(error: BaseException) -> dict[str, Any]:
    """The `__dict__` of an exception, whatever its class does to hide it."""
    found: dict[str, Any] = _dict_of(error)
    return found


def make_error(cls: type[BaseException], fields: Fields) -> BaseException:
    """Fill an exception without running its own constructor, whose parameters need not be its args."""
    unknown = set(fields) - {"args", "attributes", "members"}
    if unknown:
        raise TypeError(f"it has no field {', '.join(sorted(map(repr, unknown)))}")
    args, attributes, members = fields["args"], fields.get("attributes", {}), fields.get("members")
    if (
        members is None
    ):  # the class stores nothing but its args, or the record is of an earlier version, which kept what built-in constructors take
        error, args = _of_args(cls, args), None
    else:
        error = _of_members(cls, dict(members))
    if type(error) is not cls:
        raise TypeError(f"it became a {type(error).__qualname__}")
    fill(error, args, attributes)
    return error


def builtin_of(cls: type[BaseException]) -> Any:
    """The nearest class of Python's own that an exception class derives from."""
    return next(c for c in cls.__mro__ if vars(builtins).get(c.__name__) is c)


def _of_args(cls: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    builtin = builtin_of(cls)
    error: BaseException = builtin.__new__(cls, *args)
    builtin.__init__(error, *args)
    return error


def _of_members(cls: type[BaseException], members: dict[str, Any]) -> BaseException:
    builtin = builtin_of(cls)
    if issubclass(cls, BaseExceptionGroup):
        message, exceptions = members.pop("message"), members.pop("exceptions")
        error: BaseException = builtin.__new__(cls, message, exceptions)
    else:
        error = builtin.__new__(cls)
    storage = _storage(cls)
    for name in [name for name in members if name in storage]:
        storage[name].__set__(error, members.pop(name))
    fill(error, None, members)  # the class may have had slots when the error was recorded
    return error


def fill(error: BaseException, args: Any, attributes: dict[str, Any]) -> None:
    """Set args, unless they are None, and attributes. Writes into the `__dict__`: `setattr` would run property setters on stored data."""
    if args is not None:
        if type(args) is not tuple:
            raise TypeError(f"its args must be a tuple, got {type(args).__name__}")
        _args.__set__(error, args)
    for name, value in attributes.items():
        if type(name) is not str or (name.startswith("__") and not _are_notes(name, value)):
            raise TypeError(f"it cannot have an attribute {name!r}")
        attributes_of(error)[name] = value


def _are_notes(name: str, value: Any) -> bool:
    return name == NOTES and type(value) is list and all(type(note) is str for note in value)


def _members(error: BaseException, storage: dict[str, Any]) -> Fields:
    found = {}
    for name, descriptor in storage.items():
        try:
            value = descriptor.__get__(error)
        except (AttributeError, TypeError):  # a slot that was never set
            continue
        if value is not None or not _is_builtin(descriptor):  # an unset field of a built-in class reads as None
            found[name] = value
    return found


def _storage(cls: type) -> dict[str, Any]:
    """The descriptors that only store a value. Those of the classes in front win."""
    found: dict[str, Any] = {}
    for owner in cls.__mro__:
        if owner is BaseException or owner is BaseExceptionGroup:
            continue
        for name, value in vars(owner).items():
            if type(value) is MemberDescriptorType or (type(value) is GetSetDescriptorType and _is_builtin(value)):
                if not name.startswith("__"):
                    found.setdefault(name, value)
    return found


def _is_builtin(descriptor: Any) -> bool:
    owner = descriptor.__objclass__
    return vars(builtins).get(owner.__name__) is owner


def _are_usual(args: Any, group: BaseExceptionGroup[Any]) -> bool:
    """Whether the args of a group are its message and its exceptions."""
    if len(args) != 2 or args[0] is not group.message or type(args[1]) not in (list, tuple) or len(args[1]) != len(group.exceptions):
        return False
    return all(one is other for one, other in zip(args[1], group.exceptions, strict=True))
