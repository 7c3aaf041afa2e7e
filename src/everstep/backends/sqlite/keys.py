"""The wrapped keys of an encrypted store in SQLite. Relies on a transaction and on a reader."""

from __future__ import annotations

from collections.abc import Sequence

from everstep.backends.sqlite.files.parts import KEYS
from everstep.backends.sqlite.reader import SQL, Reader
from everstep.backends.sqlite.rows import property_from, property_values
from everstep.backends.sqlite.transaction import Transaction
from everstep.errors import Damaged
from everstep.records import ENCRYPTION
from everstep.records import unkeyed as header_seal  # the header must be readable before the key is known


def header(reader: Reader) -> str | None:
    """Return what the store says about its encryption; None if it is not encrypted."""
    with reader.snapshot() as cursor:
        found = cursor.execute(SQL["property"], (ENCRYPTION,)).fetchone()
    return None if found is None else property_from(found, header_seal)[1]


def encrypt(transaction: Transaction, header: str) -> bool:
    """Make an empty store an encrypted one."""
    known = transaction.rows("property", (ENCRYPTION,))
    if known or transaction.created or transaction.rows("properties", ("",)):
        return bool(known)
    transaction.leave_no_copies()
    transaction.need(KEYS)
    transaction.set_property(ENCRYPTION, property_values(ENCRYPTION, header, header_seal))
    return True


def replace_header(transaction: Transaction, asked: tuple[str, str]) -> bool:
    """Replace the property if it is still the one that the caller knows."""
    old, new = asked
    known = transaction.rows("property", (ENCRYPTION,))
    if not known or property_from(known[0], header_seal)[1] != old:
        return False
    transaction.set_property(ENCRYPTION, property_values(ENCRYPTION, new, header_seal))
    return True


def replace_keys(transaction: Transaction, changes: Sequence[tuple[bytes, bytes, bytes]]) -> int:
    """Replace wrapped keys that are still those that the caller knows; return how many."""
    if not transaction.has(KEYS):
        return 0
    return sum(transaction.change("replace_key", (new, family, old)) for family, old, new in changes)


def family_keys(reader: Reader, families: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the wrapped keys of those families that have one."""
    out: dict[bytes, bytes] = {}
    with reader.snapshot() as cursor:
        for family in families:
            for (wrapped,) in cursor.execute(SQL["family_key"], (family,)):
                out[family] = _blob(wrapped)
    return out


def key_page(reader: Reader, after: bytes, limit: int) -> list[tuple[bytes, bytes]]:
    """Return families beyond `after`, in order, with their wrapped keys."""
    with reader.snapshot() as cursor:
        return [(_blob(family), _blob(wrapped)) for family, wrapped in cursor.execute(SQL["key_page"], (after, limit))]


def _blob(value: object) -> bytes:
    if type(value) is not bytes:
        raise Damaged("a key in the store is damaged")
    return value
