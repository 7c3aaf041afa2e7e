"""Opens a store with its key, or locks it: decides which store is accepted, and makes a new one encrypted. Never falls back to plain frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from everstep.backends.contract.capability import need
from everstep.backends.contract.keys import Keys
from everstep.codec.frame import Framer
from everstep.errors import InvalidArgument, NotEncrypted
from everstep.records import ENCRYPTION, Framing
from everstep.seals import LockedSeal

if TYPE_CHECKING:
    from everstep.store.encryption.framing import EncryptedFraming


def framing_of(backend: Any, inner: Framer, key: Any = None, old_keys: Sequence[Any] = ()) -> Framing:
    """Return the framing of a store that was just opened, and set its seal.

    Without a key: that of a plain store, or one that opens nothing. With a key: a new store becomes encrypted, and a plain one is refused.
    """
    text: str | None = getattr(backend, "header", None)
    if text is None and key is None:
        if old_keys:
            raise InvalidArgument("old_keys were given without a key", remedy="Give the newest key as `key`.")
        return inner
    if key is None:
        from everstep.store.encryption.framing import LockedFraming

        backend.set_seal(LockedSeal())
        return LockedFraming(inner, backend.url)
    return _unlocked(backend, inner, text, key, old_keys)


def _unlocked(backend: Any, inner: Framer, text: str | None, key: Any, old_keys: Sequence[Any]) -> EncryptedFraming:
    from everstep.store.encryption.framing import EncryptedFraming
    from everstep.store.encryption.header import Header
    from everstep.store.encryption.keyring import new_keyring, open_keyring
    from everstep.store.encryption.sources import Source

    if isinstance(old_keys, (str, bytes)) or not isinstance(old_keys, (list, tuple)):
        raise InvalidArgument(f"old_keys must be a list of keys, got {type(old_keys).__name__}")
    given = [Source(key), *(Source(old) for old in old_keys)]
    need(backend, Keys)
    ring = None
    if text is None:
        ring = new_keyring(given[0])
        text = backend.encrypt(ring.header.text())
        if text is None:
            raise NotEncrypted(f"{backend.url} is not encrypted, and a key was given")
    if ring is None or text != ring.header.text():
        ring = open_keyring(Header.parse(text), given, backend.url)
    backend.set_seal(ring.seal)
    return EncryptedFraming(inner, ring, backend.family_keys, lambda: backend.get_property(ENCRYPTION))
