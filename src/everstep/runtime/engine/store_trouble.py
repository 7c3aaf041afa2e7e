"""Finds the store's own errors among those of a program: the store was unreachable, full, busy or broken, and the program did not fail. No I/O."""

from __future__ import annotations

from urllib.parse import unquote

from everstep.errors import Conflict, LostLease, StoreBusy, StoreError, StoreFailed, StoreFull, StoreUnreachable, TransactionUnknown

TROUBLE = (StoreError, LostLease, Conflict, TransactionUnknown)
"""Errors of the store itself. They never make a run fail, whatever its program does with them."""
_PASSES = (StoreUnreachable, StoreFailed, StoreFull, StoreBusy)


def trouble_in(error: BaseException | None, url: str, known: BaseException | None = None) -> StoreError | None:
    """Return the error of the store at `url` that caused an error: the error itself, its cause, its context, or one of its group.

    `known` is an error that this store raised. An error that was recorded and rebuilt does not count, nor does one of another store.
    """
    addresses = (url, unquote(url.removeprefix("sqlite:///")))
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, StoreError) and (one is known or (isinstance(one, _PASSES) and one.address in addresses)):
            return one
        waiting += [one.__cause__, one.__context__]
        waiting += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
    return None
