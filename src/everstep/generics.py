"""Type variables with a default, so that `Run` alone means `Run[Any]` and `Outcome` alone `Outcome[Any]`. No I/O.

Python has such defaults from 3.13 on. Type checkers know them from the stub of `typing_extensions`, which each of them brings along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    S = TypeVar("S", default=Any)
    T = TypeVar("T", default=Any)
    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
else:
    from typing import ParamSpec, TypeVar

    S = TypeVar("S")  # a state
    T = TypeVar("T")  # the result of a workflow
    P = ParamSpec("P")  # the parameters of a workflow
    R = TypeVar("R")  # what a call of it returns: a coroutine, if it is async
