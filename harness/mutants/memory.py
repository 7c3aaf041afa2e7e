"""Breaks functions of this process, which has Everstep imported: a fork needs no new import. Writes no file.

A break inside of a function replaces the code of every function object made from it. A break that acts on import (a constant of a module, a default
value, the body of a class) cannot be made this way: `Functions.replace` says so.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator
from types import CodeType, FunctionType

from harness.mutants.places import Place

_FUNCTION = 0x1  # CO_OPTIMIZED: not the code of a module or a class
_Key = tuple[str, int]


class Functions:
    """All functions of Everstep that exist now. Make it before gc.freeze, which hides them."""

    def __init__(self, folder: str):
        self._found: dict[str, dict[_Key, list[FunctionType]]] = defaultdict(lambda: defaultdict(list))
        for found in gc.get_objects():
            if isinstance(found, FunctionType) and found.__code__.co_filename.startswith(folder):
                code = found.__code__
                self._found[code.co_filename][_key(code)].append(found)

    def replace(self, place: Place, path: str, source: bytes) -> bool:
        """Break the functions of this process. False if the break acts on import, or on functions that are made elsewhere."""
        changed = changes(compile(source, path, "exec"), compile(place.apply(source), path, "exec"))
        if not changed or any(not old.co_flags & _FUNCTION for old, _ in changed):
            return False
        functions = self._found[path]
        if not any(functions.get(_key(old)) for old, _ in changed):
            return False
        for old, new in changed:  # functions inside of others that exist already, too
            for function in functions.get(_key(old), []):
                if len(function.__code__.co_freevars) != len(new.co_freevars):
                    return False
                function.__code__ = new
        return True


def changes(old: CodeType, new: CodeType) -> list[tuple[CodeType, CodeType]]:
    """The pieces of code whose own instructions or constants differ, with the pieces around them that are functions, outermost first."""
    return list(_changes(old, new))


def _changes(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    inner = list(zip(_nested(old), _nested(new), strict=False))
    below = [pair for one, other in inner for pair in _changes(one, other)]
    same = _own(old) == _own(new) and len(_nested(old)) == len(_nested(new))
    if not same or (below and old.co_flags & _FUNCTION):
        yield old, new
    yield from below


def _nested(code: CodeType) -> list[CodeType]:
    return [const for const in code.co_consts if isinstance(const, CodeType)]


def _own(code: CodeType) -> tuple[object, ...]:
    consts = tuple((type(const), const) for const in code.co_consts if not isinstance(const, CodeType))
    return code.co_code, repr(consts), code.co_names, code.co_varnames, code.co_freevars


def _key(code: CodeType) -> _Key:
    return code.co_qualname, code.co_firstlineno
