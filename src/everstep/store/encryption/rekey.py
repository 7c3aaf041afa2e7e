"""Replaces the key of a store: wraps its other keys again with a new one. No data is written again. Beside writers.

    1. The header gets the root key wrapped with the new key, beside the old one. From now on either opens the store.
    2. The keys of families are replaced in batches, each only if it is still the one that was read.
    3. When no key is left under the old one, the header drops it and remembers its id, so that it is refused by name.
    4. Writers follow the header within `FOLLOW_SECONDS`. Keys that they made until then are found by a last pass.

A process that is killed at any point leaves a store that the new key opens together with the old one, and the next call continues. Two calls
with different new keys: the second is refused until the first has ended, or takes over if it is given the first one's key as an old one.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from everstep.backends.contract.capability import need
from everstep.backends.contract.core import Backend
from everstep.backends.contract.keys import Keys
from everstep.backends.contract.properties import Properties
from everstep.errors import Conflict, KeySourceFailed, MissingKey, NotEncrypted, OldKey
from everstep.fields import Shape, replace
from everstep.records import ENCRYPTION
from everstep.store.encryption.framing import FOLLOW_SECONDS, EncryptedFraming
from everstep.store.encryption.header import Header
from everstep.store.encryption.kek import Foreign, Wrapping, unwrapped, wrapped, wrapped_by
from everstep.store.encryption.keyring import Keyring, keys_of
from everstep.store.encryption.sources import Scrypt, Source
from everstep.store.progress import Pace, Progress

_AT_ONCE = 1000
_AT_ONCE_FOREIGN = 50  # a key service takes milliseconds for each: a killed process has little to repeat
_REMEMBERED = 20
_TRIES = 10


class Rekeyed(Shape, frozen=True):
    """What `Store.rekey` did, or would do: the id of the new key, how many keys the store has with its root key, and how many were replaced."""

    key: str
    keys: int
    replaced: int
    dry_run: bool = False

    def __str__(self) -> str:
        if self.replaced == 0:
            return f"all {self.keys:,} keys are under this key"
        return f"{'would replace' if self.dry_run else 'replaced'} {self.replaced:,} of {self.keys:,} keys"


def rekey(backend: Backend, framing: Any, key: Any, dry_run: bool = False, progress: Progress | None = None) -> Rekeyed:
    """Wrap all keys of a store with `key`. The framing of the store has the former one."""
    need(backend, Keys, Properties)
    if not framing.encrypted:
        raise NotEncrypted(
            f"{backend.url} is not encrypted, so it has no key to replace", remedy="Encrypt it: everstep encrypt. Nothing was changed."
        )
    if not isinstance(framing, EncryptedFraming):
        raise MissingKey(f"{backend.url} is encrypted, and it was opened without a key")
    return _Rekey(backend, framing.ring, Source(key), Pace(progress, None)).all(dry_run)


class _Rekey:
    def __init__(self, backend: Backend, ring: Keyring, source: Source, pace: Pace):
        self._backend, self._ring, self._source, self._pace = backend, ring, source, pace
        self._made: tuple[Wrapping, Scrypt | None] | None = None
        self._left: Counter[str] = Counter()
        """Keys under a key that was not given."""

    def all(self, dry_run: bool) -> Rekeyed:
        text, header = self._read()
        kek, scrypt = self._key(header)
        keys, old = self._count(kek)
        roots = int(set(header.roots) != {kek.id})
        if dry_run:
            return Rekeyed(kek.id, keys + 1, old + roots, True)
        self._pace.total = old + 1
        header = self._begin(text, header, kek, scrypt)
        self._ring.adopt(kek, header)
        replaced = found = self._pass(kek)
        while found:
            found = self._pass(kek)
            replaced += found
        self._refuse_left(kek)
        if self._end(kek):
            time.sleep(1.5 * FOLLOW_SECONDS)
            replaced += self._pass(kek)
            self._refuse_left(kek)
        self._pace.end("keys")
        return Rekeyed(kek.id, self._count(kek)[0] + 1, replaced + roots)

    def _read(self) -> tuple[str, Header]:
        text = self._backend.get_property(ENCRYPTION)
        if text is None:
            raise NotEncrypted(f"{self._backend.url} is not encrypted")
        return text, Header.parse(text)

    def _key(self, header: Header) -> tuple[Wrapping, Scrypt | None]:
        """Return the new key. A passphrase gets parameters of its own, unless an earlier call that was killed has stored them."""
        known = next((kek for kek in keys_of(header, self._source) if kek.id in header.roots), None)
        if known is not None:
            return known, header.scrypt.get(known.id)
        if self._made is None:
            scrypt = Scrypt.new() if self._source.is_passphrase else None
            kek = self._source.kek(scrypt)
            assert kek is not None
            self._made = kek, scrypt
        return self._made

    def _count(self, kek: Wrapping) -> tuple[int, int]:
        """Return how many families have a key, and how many of these are not under the new one."""
        keys = old = 0
        after = b""
        while page := self._backend.key_page(after, _AT_ONCE):
            after = page[-1][0]
            keys += len(page)
            old += sum(wrapped_by(stored)[0] != kek.id for _, stored in page)
        return keys, old

    def _begin(self, text: str, header: Header, kek: Wrapping, scrypt: Scrypt | None) -> Header:
        """Add the new key to the header, which then has both."""
        for _ in range(_TRIES):
            self._refuse_another(header, kek)
            if kek.id in header.roots:
                return header
            root = self._ring.root(header)
            made = wrapped(kek, root, header.about_root())
            if unwrapped(kek, wrapped_by(made)[1], header.about_root()) != root:
                raise KeySourceFailed(f"the key service {kek.id!r} does not unwrap what it has wrapped. Nothing was changed")
            now = replace(
                header,
                roots={**header.roots, kek.id: made},
                retired=tuple(name for name in header.retired if name != kek.id),
                scrypt=header.scrypt if scrypt is None else {**header.scrypt, kek.id: scrypt},
            )
            if self._backend.replace_header(text, now.text()):
                return now
            text, header = self._read()
            kek = self._key(header)[0]
        raise Conflict("other processes keep changing the keys of the store", remedy="Try again when they have finished.")

    def _refuse_another(self, header: Header, kek: Wrapping) -> None:
        others = [name for name in header.roots if name != kek.id and not self._ring.knows(name)]
        if others and len(header.roots) > 1:
            raise OldKey(
                f"the keys of {self._backend.url} are being replaced by {' or '.join(others)}, which was not given",
                remedy="Let that call of rekey end, or repeat it, with the same new key. Or give that key in old_keys, too.",
            )

    def _pass(self, kek: Wrapping) -> int:
        """Replace every key that is not under the new one; return how many."""
        replaced, after, about = 0, b"", self._ring.header.about_family
        self._left.clear()
        foreign = isinstance(kek, Foreign) or any(type(other) is Foreign for other in self._ring.keks)
        while page := self._backend.key_page(after, _AT_ONCE_FOREIGN if foreign else _AT_ONCE):
            after = page[-1][0]
            changes = []
            for family, stored in page:
                name = wrapped_by(stored)[0]
                if name == kek.id:
                    continue
                if self._ring.knows(name):
                    changes.append((family, stored, wrapped(kek, self._ring.unwrap(family, stored), about(family))))
                else:
                    self._left[name] += 1
            if changes:
                replaced += self._backend.replace_keys(changes)
                self._pace.on(len(changes), "keys")
        return replaced

    def _refuse_left(self, kek: Wrapping) -> None:
        if self._left:
            raise OldKey(
                f"{self._left.total():,} keys are still wrapped with {' and '.join(sorted(self._left))}, which was not given; "
                f"the others are now under {kek.id}",
                remedy="Give that key in old_keys, and repeat the call.",
            )

    def _end(self, kek: Wrapping) -> bool:
        """Drop all other keys from the header; return whether there were any. A process that still uses one of them is then refused."""
        for _ in range(_TRIES):
            text, header = self._read()
            others = [name for name in header.roots if name != kek.id]
            if not others:
                return False
            self._refuse_another(header, kek)
            retired = (*(name for name in header.retired if name not in others), *others)[-_REMEMBERED:]
            phrases = [name for name in header.scrypt if name != kek.id][
                -1:
            ]  # to know the last one again; each costs its time at every opening
            now = replace(
                header,
                roots={kek.id: header.roots[kek.id]},
                retired=retired,
                scrypt={name: scrypt for name, scrypt in header.scrypt.items() if name == kek.id or name in phrases},
            )
            if self._backend.replace_header(text, now.text()):
                self._ring.adopt(kek, now)
                return True
        raise Conflict("other processes keep changing the keys of the store", remedy="Try again when they have finished.")
