"""The keys of a damaged store: candidates for the wrapped key of each family, of which those are used that can be unwrapped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from everstep.backends.contract.recovery import DamagedStore
from everstep.codec.frame import Framer
from everstep.errors import Damaged, MissingKey
from everstep.records import ENCRYPTION, Framing
from everstep.store.encryption.framing import EncryptedFraming
from everstep.store.encryption.header import Header
from everstep.store.encryption.keyring import open_keyring
from everstep.store.encryption.sources import Source


def unlocked(source: DamagedStore, where: str, framer: Framing, keys: Sequence[Any]) -> EncryptedFraming | None:
    """Return the framing of a damaged store, opened with one of these keys; None if it is not encrypted.

    If the property `encryption` is lost, no key can open anything.
    """
    wrapped = source.keys()
    text = source.properties(False).get(ENCRYPTION) or source.properties(True).get(ENCRYPTION) if wrapped or keys else None
    text = text or source.properties(False).get(ENCRYPTION)
    if text is None and wrapped:
        raise Damaged(f"{where} is encrypted, and its property {ENCRYPTION} is lost: no key opens it", remedy="Restore a backup.")
    if text is None:
        return None
    if not keys:
        raise MissingKey(f"{where} is encrypted, and no key was given")
    ring = open_keyring(Header.parse(text), [Source(key) for key in keys], where)

    def read(families: Sequence[bytes]) -> Mapping[bytes, bytes]:
        return {family: good for family in families if (good := _first_good(family, wrapped.get(family, ()))) is not None}

    def _first_good(family: bytes, candidates: Sequence[bytes]) -> bytes | None:
        for stored in candidates:
            try:
                ring.unwrap(family, stored)
            except Damaged:
                continue
            return stored
        return None

    return EncryptedFraming(cast(Framer, framer.inner), ring, read)


def good_key(framer: Framing, family: bytes) -> bytes:
    """Return the wrapped key of a family as it was stored."""
    return cast(EncryptedFraming, framer).stored_key(family)
