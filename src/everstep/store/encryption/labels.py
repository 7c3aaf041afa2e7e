"""Labels in an encrypted store: note, tags and metadata of a run or a checkpoint, as they are stored.

    note    PREFIX, and the three of them encrypted together: MessagePack [note, tags, meta], bound to their place
    tags    the keyed hash of each, so that a tag can be searched for; those of PLAIN_TAGS as they are
    meta    JSON object: the keyed hash of each key to that of key and scalar; of a run, `queue` as it is

A tag that was added later is a row with the keyed hash, and a row beside it, whose name is COMPANION, the hash and the encrypted tag.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ormsgpack import MsgpackDecodeError, packb, unpackb

from everstep.backends.contract.query_semantics import meta_scalars, wanted_scalar
from everstep.codec.encryption import EncryptedFrames, FamilyKey, as_text, hashed
from everstep.codec.frame import Framer
from everstep.errors import DamagedFrame
from everstep.records import SEALED_LABELS, Labels, Place

PLAIN_TAGS = frozenset({"dead-letter"})  # the runtime itself sets and removes it
PLAIN_META = "queue"  # names of queues are not encrypted
HASH, COMPANION = "#", "="
_HASH_LENGTH = len(HASH) + len(as_text(bytes(16)))


class Index:
    """Hashes labels under the key of a store, for searching."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes):
        self._key = key

    def tag(self, name: str) -> str:
        return name if name in PLAIN_TAGS else HASH + hashed(self._key, "tag", name)

    def meta(self, scalars: Mapping[str, str], of_run: bool) -> dict[str, str]:
        """Return hashes of keys and of their scalars, which are JSON texts."""
        found = {HASH + hashed(self._key, "key", key): hashed(self._key, "meta", key, text) for key, text in scalars.items()}
        if of_run and PLAIN_META in scalars:
            del found[HASH + hashed(self._key, "key", PLAIN_META)]
            found[PLAIN_META] = json.loads(scalars[PLAIN_META])
        return dict(sorted(found.items()))

    def wanted(self, meta: Mapping[str, Any], of_run: bool) -> dict[str, Any]:
        """Return what to search for, given metadata that must be equal."""
        return self.meta({key: wanted_scalar(key, value) for key, value in meta.items()}, of_run)


class RunFrames(EncryptedFrames):
    """The frames of one run, with its labels."""

    __slots__ = ("_index",)

    def __init__(self, inner: Framer, key: FamilyKey, store: bytes, family: bytes, owner: bytes, index: Index):
        super().__init__(inner, key, store, family, owner)
        self._index = index

    def seal_labels(self, labels: Labels, place: Place) -> Labels:
        note, tags, meta = labels
        if note is None and not tags and meta is None:
            return labels
        sealed = SEALED_LABELS + self.seal_text(packb([note, [tag for tag in tags if tag not in PLAIN_TAGS], meta]), place)
        hashes = self._index.meta(meta_scalars(meta), of_run=place == ("labels",))
        text = None if meta is None else json.dumps(hashes, ensure_ascii=False, separators=(",", ":"))
        return sealed, tuple(dict.fromkeys(self._index.tag(tag) for tag in tags)), text

    def open_labels(self, labels: Labels, place: Place) -> Labels:
        note, tags, meta = labels
        if note is None and meta is None and PLAIN_TAGS.issuperset(tags):
            return labels
        if note is None or not note.startswith(SEALED_LABELS):
            raise DamagedFrame("labels of an encrypted store are not encrypted")
        try:
            match unpackb(self.open_text(note.removeprefix(SEALED_LABELS), place)):
                case [str() | None as said, list() as names, str() | None as text]:
                    return said, (*names, *(tag for tag in tags if tag in PLAIN_TAGS)), text
        except MsgpackDecodeError:
            pass
        raise DamagedFrame("encrypted labels are damaged")

    def companion(self, name: str, number: int) -> str:
        """Return the row beside that of a tag which was added later: its name, encrypted."""
        tag = self._index.tag(name)
        return COMPANION + tag + self.seal_text(name.encode(), ("tag", tag, number))

    def named(self, companion: str, number: int) -> tuple[str, str]:
        """Return the hash and the name in such a row."""
        tag, text = companion[1 : 1 + _HASH_LENGTH], companion[1 + _HASH_LENGTH :]
        return tag, self.open_text(text, ("tag", tag, number)).decode()
