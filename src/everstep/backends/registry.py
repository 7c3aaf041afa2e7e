"""Opens the backend for an address. The only module that opens a concrete backend; it imports each one on first use.

None                          .everstep/store.db, searched upward from the working folder like .git, else created in it
a path                        SQLite
sqlite:///relative.db         SQLite; four slashes for an absolute path
postgresql://user@host/base   PostgreSQL; ?namespace=name or ?schema=name chooses the schema
memory://                     a fresh store in memory; memory://name is shared by name within the process
scheme://...                  a backend of another package: its entry point `scheme` in the group `everstep.backends`, called with the whole address

The object that an entry point names is called with the address and the options, and returns a backend. It may also have
`damaged(source, private)` and `builder(target)`, which make its stores repairable (`contract.recovery`), and `formats(address)`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from everstep.backends.contract.capability import whole
from everstep.backends.contract.core import Backend
from everstep.errors import InvalidArgument, MissingCapability, UnknownBackend
from everstep.records import Seal, unkeyed

if TYPE_CHECKING:  # only repair uses these
    from everstep.backends.contract.recovery import Builder, DamagedStore
    from everstep.backends.sqlite.recovery.exchange import Exchange

_LOOKALIKES = (":memory:", "memory", "sqlite")
_POSTGRES = ("postgresql://", "postgres://")
_OWN = ("memory", "sqlite", "postgresql", "postgres")
GROUP = "everstep.backends"
FOLDER = ".everstep"
FILE = "store.db"


def open_backend(url: str | os.PathLike[str] | None = None, **options: Any) -> Backend:
    """Open the backend that serves `url`. `options` are passed to it unchanged."""
    if url is None:
        return _open_sqlite(default_path(Path.cwd()), options)
    if isinstance(url, os.PathLike):
        return _open_sqlite(Path(url), options)
    if not isinstance(url, str) or not url or "\0" in url:
        raise InvalidArgument(f"the address of a store must be a path or a URL, got {url!r:.100}")
    scheme, separator, rest = url.partition("://")
    if not separator and (url in _LOOKALIKES or url.startswith(("file:", "sqlite:", "memory:"))):
        raise InvalidArgument(
            f"{url!r} looks like an address, but is not a valid one", remedy="Use memory://, sqlite:///path, or a plain path."
        )
    if not separator:
        return _open_sqlite(Path(url), options)
    if scheme == "memory":
        return _open_memory(rest, options)
    if scheme == "sqlite":
        return _open_sqlite(_sqlite_path(url, rest), options)
    if is_database(url):
        return _open_postgres(url, options)
    return whole(_of_package(url)(url, **options))


def _of_package(url: str) -> Any:
    """Return the object that another package has registered for the scheme of an address."""
    from importlib.metadata import entry_points  # imported here: it takes as long as half of this library

    scheme, asked = url.partition("://")[0], _without_password(url)
    found = {point.value: point for point in entry_points(group=GROUP, name=scheme)}
    if not found:
        raise UnknownBackend(
            f"no backend supports the address {asked!r}",
            remedy=f"{UnknownBackend.remedy} Another package can add a backend with an entry point named {scheme!r} in the group {GROUP!r}.",
        )
    if len(found) > 1:
        raise UnknownBackend(
            f"several packages support {scheme}://: {', '.join(sorted(found))}",
            remedy=f"Uninstall all but one of the packages that have an entry point {scheme!r} in the group {GROUP!r}.",
        )
    ((value, point),) = found.items()
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise UnknownBackend(
            f"the backend for {scheme}:// cannot be imported from {value!r}: {error}",
            remedy=f"Install or repair the package that has the entry point {scheme!r} in the group {GROUP!r}.",
        ) from error


def _recovering(url: object, name: str) -> Any:
    """Return the repair function of another package's backend, None for our own addresses."""
    if not _is_foreign(url):
        return None
    made = getattr(_of_package(url), name, None)
    if made is None:
        raise MissingCapability(_without_password(url), "recovery")
    return made


def _is_foreign(url: object) -> TypeGuard[str]:
    return isinstance(url, str) and "://" in url and url.partition("://")[0] not in _OWN


def open_damaged(source: str | os.PathLike[str], private: str, seal: Seal = unkeyed) -> DamagedStore:
    """Open a damaged store for reading. `private` is a prefix for the names of the copies that this needs."""
    if (opener := _recovering(source, "damaged")) is not None:
        damaged: DamagedStore = opener(source, private)
        return damaged
    if is_database(source):
        with driver(source):
            from everstep.backends.postgres.recovery.damaged import DamagedPostgresStore
        return DamagedPostgresStore(source)
    from everstep.backends.sqlite.recovery.damaged import DamagedSqliteStore

    return DamagedSqliteStore(_file(source), private, seal)


def open_builder(target: str | os.PathLike[str], seal: Seal = unkeyed) -> Builder:
    """Begin a new store, to be filled from a damaged one."""
    if (build := _recovering(target, "builder")) is not None:
        builder: Builder = build(target)
        return builder
    if is_database(target):
        with driver(target):
            from everstep.backends.postgres.recovery.rebuild import PostgresBuilder
        return PostgresBuilder(target)
    from everstep.backends.sqlite.recovery.rebuild import SqliteBuilder

    return SqliteBuilder(_file(target), seal)


def open_exchange(source: str | os.PathLike[str] | None) -> Exchange:
    """Prepare to put another store in the place of one in a file, which no process may have open."""
    from everstep.backends.sqlite.recovery.exchange import Exchange

    return Exchange(default_path(Path.cwd()) if source is None else _file(source))


def finish_exchange(source: str | os.PathLike[str] | None, shredded: bool) -> list[Path]:
    """Do what a killed process has left to do after such an exchange; return the old stores that are beside this one then."""
    from everstep.backends.sqlite.recovery.exchange import finish

    return finish(default_path(Path.cwd()) if source is None else _file(source), shredded)


def formats(url: str | os.PathLike[str] | None) -> tuple[int, int]:
    """Return the format of a store, 0 if there is none, and the format that opening it would bring it to. Changes nothing."""
    if (known := _recovering(url, "formats")) is not None:
        found: tuple[int, int] = known(url)
        return found
    if is_database(url):
        with driver(url):
            from everstep.backends.postgres.format import formats_of
        return formats_of(url)
    from everstep.backends.sqlite.files.format import FORMAT
    from everstep.backends.sqlite.files.store_file import format_of

    return format_of(default_path(Path.cwd()) if url is None else _file(url)), FORMAT


def shown(url: str | os.PathLike[str]) -> str:
    """Return an address without its password, for printing."""
    if is_database(url):
        with driver(url):
            from everstep.backends.postgres.connections.connect import Address
        return Address(url).url
    return _without_password(url) if _is_foreign(url) else os.fspath(url)


def is_database(url: object) -> TypeGuard[str]:
    """Return whether an address is one of PostgreSQL."""
    return isinstance(url, str) and url.startswith(_POSTGRES)


def _file(url: str | os.PathLike[str]) -> Path:
    """Return the path of a store in a file."""
    if isinstance(url, os.PathLike):
        return Path(url)
    scheme, separator, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
    if not isinstance(url, str) or not url or (separator and scheme != "sqlite"):
        shown = _without_password(url) if separator else url
        raise InvalidArgument(
            f"the address must be a path or a postgresql:// address, got {shown!r:.60}",
            remedy="Only stores in SQLite files and in PostgreSQL can be repaired.",
        )
    return _sqlite_path(url, rest) if separator else Path(url)


def default_path(start: Path) -> Path:
    """Return the store path for `start`: that of the nearest folder above which has one, else a new one in `start`."""
    for folder in (start, *start.parents):
        if (folder / FOLDER / FILE).exists():
            return folder / FOLDER / FILE
    return start / FOLDER / FILE


def _sqlite_path(url: str, rest: str) -> Path:
    if not rest.startswith("/") or len(rest) < 2:
        raise InvalidArgument(f"{url!r} does not name a file", remedy="Write sqlite:///relative.db or sqlite:////absolute.db.")
    from urllib.parse import unquote  # imported here: it takes longer than all of this module

    return Path(unquote(rest[1:]))


def _without_password(url: str) -> str:
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"


def _open_sqlite(path: Path, options: dict[str, Any]) -> Backend:
    from everstep.backends.sqlite.backend import SqliteBackend

    return SqliteBackend(path, **_known(SqliteBackend, options))


def _open_memory(name: str, options: dict[str, Any]) -> Backend:
    from everstep.backends.memory.backend import MemoryBackend

    return MemoryBackend(name or None, **_known(MemoryBackend, options))


def _open_postgres(url: str, options: dict[str, Any]) -> Backend:
    with driver(url):
        from everstep.backends.postgres.backend import PostgresBackend
    return PostgresBackend(url, **_known(PostgresBackend, options))


def _known(backend: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options, if the backend has all of them."""
    code = backend.__init__.__code__
    names = code.co_varnames[2 : code.co_argcount + code.co_kwonlyargcount]  # without `self` and the address
    for option in options:
        if option not in names:
            which = f"The options of such a store: {', '.join(names)}" if names else "Such a store has no options of its own"
            raise InvalidArgument(
                f"everstep.open has no option {option!r:.60} for this store",
                remedy=f"{which}; help(everstep.open) lists the options of all stores.",
            )
    return options


@contextmanager
def driver(url: str) -> Iterator[None]:
    """Run an import that needs the PostgreSQL driver; if it is missing, say what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("psycopg"):
            raise
        raise UnknownBackend(
            f"{_without_password(url)!r} needs the driver psycopg, which is not installed", remedy="pip install 'everstep[postgres]'"
        ) from error
