"""The seal of a store: a function from bytes to 32 bytes, which makes and verifies digests of records and checks of rows. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from everstep.errors import MissingKey

Seal = Callable[[bytes], bytes]


def unkeyed(data: bytes) -> bytes:
    """The seal of a store without a key."""
    return sha256(data).digest()


class ServerSeal:
    """The seal of an encrypted store whose server changes rows itself. The server has no key: checks of run rows, tags, tombstones and
    properties are not keyed. Digests of records and checks of messages, prune marks and added bases are.
    """

    __slots__ = ("of_records",)

    def __init__(self, seal: Seal):
        self.of_records = seal

    def __call__(self, data: bytes) -> bytes:
        return self.of_records(data)


def of_rows(seal: Seal) -> Seal:
    """Return the seal of rows that a server may write itself."""
    return unkeyed if type(seal) is ServerSeal else seal


class LockedSeal:
    """The seal of an encrypted store that was opened without its key: everything seems to match, and nothing can be written."""

    __slots__ = ()

    def __call__(self, data: bytes) -> bytes:
        return Unproved(32)


def is_locked(seal: Seal) -> bool:
    """Return whether the seal is that of a store that was opened without its key."""
    return type(seal) is LockedSeal or (type(seal) is ServerSeal and type(seal.of_records) is LockedSeal)


class Unproved(bytes):
    """A digest that cannot be computed without the key. It equals every other one: a locked store is read, but not proved."""

    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, bytes)

    def __ne__(self, other: object) -> bool:
        return not isinstance(other, bytes)

    def __bytes__(self) -> bytes:
        raise MissingKey("an encrypted store was opened without a key: nothing can be written to it")
