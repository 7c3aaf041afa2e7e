"""Exit codes of commands, for scripts. No I/O.

0 ok    1 failed    2 usage    3 not found    4 conflict or locked    5 damaged data    6 a check found something    130 interrupted
141 the reader of the output closed the pipe
"""

from __future__ import annotations

from everstep import errors

OK, FAILED, USAGE, NOT_FOUND, CONFLICT, DAMAGED, FOUND, INTERRUPTED, UNHEARD = 0, 1, 2, 3, 4, 5, 6, 130, 141

_BY_CLASS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], int], ...] = (
    ((errors.Damaged, errors.RolledBack, errors.ForeignWal), DAMAGED),
    ((errors.NotFound, errors.AmbiguousRef), NOT_FOUND),
    (
        (
            errors.RunExists, errors.LeaseHeld, errors.LostLease, errors.Conflict, errors.RunBusy, errors.StoreBusy,
            errors.AlreadyAnswered, errors.IllegalTransition,
        ),
        CONFLICT,
    ),
    ((errors.InvalidArgument, errors.BadAnswer, errors.InvalidWorkflow, errors.UnknownBackend), USAGE),
)  # fmt: skip


def code_of(error: BaseException) -> int:
    """Return the exit code for an error of Everstep."""
    if isinstance(error, errors.Interrupted):
        return getattr(error, "exit_code", None) or INTERRUPTED
    return next((code for kinds, code in _BY_CLASS if isinstance(error, kinds)), FAILED)
