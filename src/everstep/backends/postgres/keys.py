"""The wrapped keys of an encrypted store in PostgreSQL. Relies on Readers and on the writer's connection.

A deleted key stays in a dead row until the server's VACUUM, and in its WAL: docs/encryption.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from everstep.backends.postgres.connections.connect import Connection, execute
from everstep.backends.postgres.connections.readers import Readers
from everstep.backends.postgres.rows import property_from
from everstep.errors import NotAStore
from everstep.records import ENCRYPTION, property_check


def header(readers: Readers) -> str | None:
    """Return what the store says about its encryption; None if it is not encrypted, or its tables are damaged."""
    try:
        found = readers.rows("property", ENCRYPTION)
    except NotAStore:  # every other read says what is missing; an encrypted frame is never taken for a plain one
        return None
    return property_from(found[0])[1] if found else None


def encrypt(connection: Connection, sql: dict[str, bytes], bucket: int, header: str) -> None:
    """Make an empty store an encrypted one."""
    with connection.transaction():
        execute(connection, sql["lock_property"], (ENCRYPTION,))
        if execute(connection, sql["is_used"]) == [(False,)]:
            execute(connection, sql["set_property"], (bucket, ENCRYPTION, header, property_check(ENCRYPTION, header)))


def replace_header(connection: Connection, sql: dict[str, bytes], bucket: int, old: str, new: str) -> bool:
    """Replace the property if it is still the one that the caller knows."""
    with connection.transaction():
        execute(connection, sql["lock_property"], (ENCRYPTION,))
        found = execute(connection, sql["locked_property"], (ENCRYPTION,))
        known = property_from(found[0])[1] if found else None
        if known == old:
            execute(connection, sql["set_property"], (bucket, ENCRYPTION, new, property_check(ENCRYPTION, new)))
        return known in (old, new)


def replace_keys(connection: Connection, sql: dict[str, bytes], changes: Sequence[tuple[bytes, bytes, bytes]]) -> int:
    """Replace wrapped keys that are still those that the caller knows; return how many."""
    columns = tuple(map(list, zip(*changes, strict=True))) if changes else ([], [], [])
    return len(execute(connection, sql["replace_keys"], columns))
