"""The table of step results in a user's database, opened by the address of that database. Each kind is imported when it is first needed.

    everstep_runs   (run, epoch, at)                           which attempt of a run may write: the fence
    everstep_steps  (run, address, epoch, at, content, digest) results of steps whose record the journal may lack

A step's row is committed with the statements of its function; the journal's record follows. If the record is missing, the next attempt at the
run finds the row. Rows are deleted when the journal has the record; the fence stays, 50 bytes for each run.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import RLock

from everstep.backends.contract.transactions import StepResults
from everstep.errors import InvalidArgument

_POSTGRES = ("postgresql://", "postgres://")
_open: dict[str, StepResults] = {}
_lock = RLock()


def address_of(address: object) -> str:
    """Return the address: a PostgreSQL URL, or the absolute path of a SQLite file."""
    if isinstance(address, os.PathLike):
        address = os.fspath(address)
    if not isinstance(address, str) or not address or address == ":memory:":
        raise InvalidArgument(f"transactional must be True or the address of a database, got {address!r:.60}", remedy=_REMEDY)
    if address.startswith(_POSTGRES):
        return address
    scheme, separator, rest = address.partition("://")
    if separator and scheme != "sqlite":
        raise InvalidArgument(f"transactional must name a SQLite or PostgreSQL database, got {scheme}://", remedy=_REMEDY)
    if separator and (not rest.startswith("/") or len(rest) < 2):
        raise InvalidArgument(f"{address!r:.60} does not name a file", remedy="Write sqlite:///relative.db or sqlite:////absolute.db.")
    return str(Path(rest[1:] if separator else address).absolute())


_REMEDY = "Pass True for the database of the store, the path of a SQLite file, or postgresql://user@host/database."


def open_results(address: str) -> StepResults:
    """Return the step results at an address; one object for each address in a process."""
    with _lock:
        if address not in _open:
            _open[address] = _made(address)
        return _open[address]


def _made(address: str) -> StepResults:
    if not address.startswith(_POSTGRES):
        from everstep.transactions.sqlite import SqliteResults

        return SqliteResults(address)
    from everstep.backends.registry import driver

    with driver(address):
        from everstep.transactions.postgres import PostgresResults
    return PostgresResults(address)


def _in_child() -> None:
    """Start empty in a forked child: it must not use the parent's connections, nor locks that a thread of the parent held."""
    global _lock
    _lock = RLock()
    _open.clear()


os.register_at_fork(after_in_child=_in_child)
