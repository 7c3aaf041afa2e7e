"""From an address to an open backend. The only module that knows concrete backends, each imported when it is asked for.

None                          .everstep/store.db, searched upward from the working folder like .git, else made in it
a path                        SQLite
sqlite:///relative.db         SQLite; four slashes for an absolute path
postgresql://user@host/base   PostgreSQL; ?namespace=name or ?schema=name chooses the schema
memory://                     a fresh store in memory; memory://name is shared by name within the process
scheme://...                  a backend of another package: its entry point `scheme` in the group `everstep.backends`, called with the whole address

What an entry point names is called with the address and the options, and gives a backend. It may have `damaged(source, private)` and
`builder(target)` besides, which make it repairable (`contract.recovery`), and `formats(address)`.
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

if TYPE_CHECKING:  # what only a repair uses
    from everstep.backends.contract.recovery import Builder, Wreck

_LOOKALIKES = (":memory:", "memory", "sqlite")
_POSTGRES = ("postgresql://", "postgres://")
_OWN = ("memory", "sqlite", "postgresql", "postgres")
GROUP = "everstep.backends"
FOLDER = ".everstep"
FILE = "store.db"


def open_backend(url: str | os.PathLike[str] | None = None, **options: Any) -> Backend:
    """Open the backend that serves `url`. `options` go to it unchanged."""
    if url is None:
        return _open_sqlite(default_path(Path.cwd()), options)
    if isinstance(url, os.PathLike):
        return _open_sqlite(Path(url), options)
    if not isinstance(url, str) or not url or "\0" in url:
        raise InvalidArgument(f"{url!r:.100} is neither a path nor a URL")
    scheme, separator, rest = url.partition("://")
    if not separator and (url in _LOOKALIKES or url.startswith(("file:", "sqlite:", "memory:"))):
        raise InvalidArgument(f"{url!r} looks like an address, but is none", remedy="Use memory://, sqlite:///path, or a plain path.")
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
    """What another package has registered for the scheme of an address."""
    from importlib.metadata import entry_points  # only here: it takes as long to import as half of this library

    scheme, asked = url.partition("://")[0], _without_password(url)
    found = {point.value: point for point in entry_points(group=GROUP, name=scheme)}
    if not found:
        raise UnknownBackend(
            f"no backend serves {scheme}:// (asked for by {asked!r})",
            remedy=f"{UnknownBackend.remedy} A package adds a backend by an entry point named {scheme!r} in the group {GROUP!r}.",
        )
    if len(found) > 1:
        raise UnknownBackend(
            f"several packages serve {scheme}://: {', '.join(sorted(found))}",
            remedy=f"Uninstall all but one of the packages that have an entry point {scheme!r} in the group {GROUP!r}.",
        )
    ((value, point),) = found.items()
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise UnknownBackend(
            f"the backend for {scheme}:// cannot be imported from {value!r}: {error}",
            remedy=f"Install or repair the package whose entry point {scheme!r} in the group {GROUP!r} that is.",
        ) from error


def _recovering(url: object, name: str) -> Any:
    """What repairs stores of another package's backend, None for addresses of our own."""
    if not _is_foreign(url):
        return None
    made = getattr(_of_package(url), name, None)
    if made is None:
        raise MissingCapability(_without_password(url), "recovery")
    return made


def _is_foreign(url: object) -> TypeGuard[str]:
    return isinstance(url, str) and "://" in url and url.partition("://")[0] not in _OWN


def open_wreck(source: str | os.PathLike[str], private: str, seal: Seal = unkeyed) -> Wreck:
    """What is left of a damaged store. `private` is how the names of the copies begin that this needs."""
    if (damaged := _recovering(source, "damaged")) is not None:
        wreck: Wreck = damaged(source, private)
        return wreck
    if is_database(source):
        with driver(source):
            from everstep.backends.postgres.recovery.damaged import PostgresWreck
        return PostgresWreck(source)
    from everstep.backends.sqlite.recovery.damaged import SqliteWreck

    return SqliteWreck(_file(source), private, seal)


def open_builder(target: str | os.PathLike[str], seal: Seal = unkeyed) -> Builder:
    """A new store, for what is left of a damaged one."""
    if (build := _recovering(target, "builder")) is not None:
        builder: Builder = build(target)
        return builder
    if is_database(target):
        with driver(target):
            from everstep.backends.postgres.recovery.rebuild import PostgresBuilder
        return PostgresBuilder(target)
    from everstep.backends.sqlite.recovery.rebuild import SqliteBuilder

    return SqliteBuilder(_file(target), seal)


def formats(url: str | os.PathLike[str] | None) -> tuple[int, int]:
    """The format that a store has, 0 if there is none, and the one that opening it brings it to. Changes nothing."""
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
    """An address as it may be printed: without its password."""
    if is_database(url):
        with driver(url):
            from everstep.backends.postgres.connections.connect import Address
        return Address(url).url
    return _without_password(url) if _is_foreign(url) else os.fspath(url)


def is_database(url: object) -> TypeGuard[str]:
    """Whether an address is one of PostgreSQL."""
    return isinstance(url, str) and url.startswith(_POSTGRES)


def _file(url: str | os.PathLike[str]) -> Path:
    """The path of a store in a file."""
    if isinstance(url, os.PathLike):
        return Path(url)
    scheme, separator, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
    if not isinstance(url, str) or not url or (separator and scheme != "sqlite"):
        shown = _without_password(url) if separator else url
        raise InvalidArgument(
            f"{shown!r:.60} is no file",
            remedy="Stores in SQLite files and in PostgreSQL can be repaired: give paths or postgresql:// addresses.",
        )
    return _sqlite_path(url, rest) if separator else Path(url)


def default_path(start: Path) -> Path:
    """The store of `start`: that of the nearest folder above which has one, else a new one right there."""
    for folder in (start, *start.parents):
        if (folder / FOLDER / FILE).exists():
            return folder / FOLDER / FILE
    return start / FOLDER / FILE


def _sqlite_path(url: str, rest: str) -> Path:
    if not rest.startswith("/") or len(rest) < 2:
        raise InvalidArgument(f"{url!r} names no file", remedy="Write sqlite:///relative.db or sqlite:////absolute.db.")
    from urllib.parse import unquote  # only here, because importing it takes longer than all of this module

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
    """The options, if the backend has them all."""
    code = backend.__init__.__code__
    names = code.co_varnames[2 : code.co_argcount + code.co_kwonlyargcount]  # not itself, and not the place
    for option in options:
        if option not in names:
            which = f"Such a store has {', '.join(names)}" if names else "Such a store has none of its own"
            raise InvalidArgument(
                f"everstep.open has no option {option!r:.60} for this store", remedy=f"{which}; help(everstep.open) has those of all."
            )
    return options


@contextmanager
def driver(url: str) -> Iterator[None]:
    """Around an import that needs the driver of PostgreSQL: where it is missing, say what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("psycopg"):
            raise
        raise UnknownBackend(
            f"{_without_password(url)!r} needs the driver psycopg, which is not installed", remedy="pip install 'everstep[postgres]'"
        ) from error
