"""What to do about a store that cannot be opened, as a command that works on exactly this store.

A hint must not name a command that would fail with the same error: a store that cannot be opened cannot be verified, only repaired.
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from everstep.backends.registry import default_path, is_database, shown
from everstep.errors import Damaged, EverstepError, NotAStore

_MAGIC = b"SQLite format 3\x00"


def mend(error: EverstepError, address: str | None, asked: str | None, create: bool) -> None:
    """Give an error that opening a store raised a remedy for the command line. `asked` is the store as it was typed."""
    if isinstance(error, NotAStore):
        _not_a_store(error, address, asked, create)
    elif isinstance(error, Damaged) and error.remedy == Damaged.remedy:
        error.remedy = (
            f"The store cannot be opened. Copy all undamaged data into a new one: `{repair_command(address)}`. Or restore a backup."
        )


def _not_a_store(error: NotAStore, address: str | None, asked: str | None, create: bool) -> None:
    if error.missing:
        where = "" if asked is None else f" --store {quote(asked)}"
        create_it = f"Create {'its tables' if is_database(address) else 'one'}: `everstep init{where}`"
        error.remedy = f"{create_it}. Or name another one with --store, or try `everstep demo`."
    elif error.remedy != NotAStore.remedy:
        return
    elif _may_have_been_a_store(address):
        error.remedy = f"If it was a store, copy what is undamaged into a new one: `{repair_command(address)}`. Otherwise name another store with --store."
    elif not create:
        error.remedy = "Name another store with --store, or create one with `everstep init`."


def repair_command(address: str | None) -> str:
    """Return the command that repairs a store into a new one beside it."""
    if is_database(address):
        return f"everstep repair {quote(shown(address))} NEW_URL"
    path = _path(address)
    new, number = path.with_name(f"{path.stem}-repaired{path.suffix}"), 2
    while new.exists():
        new, number = path.with_name(f"{path.stem}-repaired-{number}{path.suffix}"), number + 1
    return f"everstep repair {quote(str(path))} {quote(str(new))}"


def _path(address: str | None) -> Path:
    return default_path(Path.cwd()) if address is None else Path(str(address).removeprefix("sqlite:///"))


def _may_have_been_a_store(address: str | None) -> bool:
    """Return whether a file looks like a part of a store: it has its name, or begins like one."""
    path = _path(address)
    try:
        with path.open("rb") as file:
            begins = file.read(len(_MAGIC))
    except OSError:
        return False
    return path.suffix in (".db", ".sqlite", ".sqlite3") or (bool(begins) and _MAGIC.startswith(begins))
