"""The property `encryption` of a store: which store it is, and its root key, wrapped. JSON:

    version     1
    store       32 hex digits, random: no frame of another store can be opened here
    roots       object: the id of a wrapping key to the wrapped root key, Base64. Two while keys are replaced
    retired     array of the ids of wrapping keys that were replaced
    scrypt      object: the id of a wrapping key that came from a passphrase to [salt as hex digits, n, r, p]

Its check is never keyed: it must be readable before a key is known. The wrapped root key proves that it belongs to this store.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any

from everstep.errors import Damaged
from everstep.fields import Shape, field
from everstep.records import ENCRYPTION
from everstep.store.encryption.sources import Scrypt

__all__ = ["ENCRYPTION", "Header"]
_VERSION = 1


class Header(Shape):
    """The id of a store, and its wrapped root key. Nothing in it is secret."""

    store: bytes
    roots: dict[str, bytes]
    retired: tuple[str, ...] = ()
    scrypt: dict[str, Scrypt] = field(default_factory=dict)

    def text(self) -> str:
        said = {
            "version": _VERSION,
            "store": self.store.hex(),
            "roots": {name: b64encode(root).decode() for name, root in self.roots.items()},
            "retired": list(self.retired),
            "scrypt": {name: [s.salt.hex(), s.n, s.r, s.p] for name, s in self.scrypt.items()},
        }
        return json.dumps(said, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Header:
        try:
            said: Any = json.loads(text)
            version = said["version"]
            if version == _VERSION:
                made = cls(
                    bytes.fromhex(said["store"]),
                    {str(name): b64decode(root, validate=True) for name, root in said["roots"].items()},
                    tuple(str(name) for name in said["retired"]),
                    {str(name): Scrypt(bytes.fromhex(salt), int(n), int(r), int(p)) for name, (salt, n, r, p) in said["scrypt"].items()},
                )
                if len(made.store) == 16 and made.roots:
                    return made
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(f"the property {ENCRYPTION} of the store is damaged: {type(error).__name__}") from error
        raise Damaged(f"the property {ENCRYPTION} of the store is damaged, or of a newer version")

    def about_root(self) -> bytes:
        """Return what a wrapped root key is bound to."""
        return b"everstep root key\0" + self.store

    def about_family(self, family: bytes) -> bytes:
        """Return what a wrapped key of a family is bound to."""
        return b"everstep family key\0" + self.store + family
