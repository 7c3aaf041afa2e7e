"""The keys of one open store: the root key, what is derived from it, and the keys of families, which are read when they are needed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from secrets import token_bytes

from everstep.codec.encryption import KEY_BYTES, FamilyKey, derive, keyed_seal
from everstep.errors import DamagedKey, OldKey, WrongKey
from everstep.records import Seal
from everstep.store.encryption.header import Header
from everstep.store.encryption.kek import Wrapping, unwrapped, wrapped, wrapped_by
from everstep.store.encryption.sources import Scrypt, Source

MOST_KEYS = 4096
MOST_NEW = 256  # a commit may be built again, and must have the same key
Read = Callable[[Sequence[bytes]], Mapping[bytes, bytes]]


class Keyring:
    """Wraps and unwraps the keys of a store. The first key wraps new keys; the others only unwrap."""

    def __init__(self, header: Header, keks: Sequence[Wrapping], root: bytes, given: Sequence[Source] = ()):
        self.header = header
        self._given = given
        self._keks = {kek.id: kek for kek in reversed(keks)}
        self.kek = keks[0]
        self.seal: Seal = keyed_seal(derive(root, "seal"))
        self.index = derive(root, "index")
        self.store = FamilyKey(derive(root, "store"))
        self._known: OrderedDict[bytes, FamilyKey] = OrderedDict()
        self._made: OrderedDict[bytes, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Keyring(store={self.header.store.hex()}, key={self.kek.id!r})"

    def create(self, family: bytes) -> bytes:
        """Make the key of a new family, or return the one that was made; wrapped, for the commit that creates the family."""
        with self._lock:
            made = self._made.get(family)
        if made is not None:
            return made if self.is_current(made) else self.wrap(family, self.unwrap(family, made))
        key = token_bytes(KEY_BYTES)
        self._remember(family, FamilyKey(key))
        stored = self.wrap(family, key)
        with self._lock:
            self._made[family] = stored
            while len(self._made) > MOST_NEW:
                self._made.popitem(last=False)
        return stored

    def family(self, family: bytes, read: Read) -> FamilyKey:
        """Return the key of a family. Raises `DamagedKey` if the store has none."""
        with self._lock:
            found = self._known.get(family)
            if found is not None:
                self._known.move_to_end(family)
                return found
        stored = read([family]).get(family)
        if stored is None:
            raise DamagedKey(
                f"the key of family {family.hex()[:16]} is not in the store",
                remedy="Restore a backup. If the last run of the family was deleted, its data cannot be read any more.",
            )
        return self._remember(family, FamilyKey(self.unwrap(family, stored)))

    def forget(self, families: Iterable[bytes]) -> None:
        """Drop the keys of families that were deleted."""
        with self._lock:
            for family in families:
                self._known.pop(family, None)
                self._made.pop(family, None)

    def wrap(self, family: bytes, key: bytes) -> bytes:
        """Return the key of a family as it is stored, under the first key."""
        return wrapped(self.kek, key, self.header.about_family(family))

    def unwrap(self, family: bytes, stored: bytes) -> bytes:
        """Return the key of a family, given what is stored."""
        name, data = wrapped_by(stored)
        kek = self._keks.get(name)
        if kek is None:
            raise OldKey(f"the key of family {family.hex()[:16]} is wrapped with key {name}, which was not given")
        return unwrapped(kek, data, self.header.about_family(family))

    def follow(self, header: Header) -> None:
        """Wrap new keys as the store now says: with the first given key that it knows, since another process may be replacing keys.

        Raises `OldKey` if none of the given keys is one that the store still uses.
        """
        if header.text() == self.header.text():
            return
        if header.store != self.header.store:
            raise DamagedKey("the property of the store about its encryption is that of another store")
        known = [kek for source in self._given for kek in keys_of(header, source)]
        keks = {kek.id: kek for kek in reversed([*known, *self._keks.values()])}
        current = next((kek for kek in [*known, *self._keks.values()] if kek.id in header.roots), None)
        if current is None:
            raise OldKey(f"the key of the store was replaced while it was open: its keys are now wrapped with {' or '.join(header.roots)}")
        self._keks, self.kek, self.header = keks, current, header

    def adopt(self, kek: Wrapping, header: Header) -> None:
        """Wrap new keys with this key from now on."""
        self._keks = {**self._keks, kek.id: kek}
        self.kek, self.header = kek, header

    def root(self, header: Header) -> bytes:
        """Return the root key, which any key that the store knows unwraps."""
        for name, stored in header.roots.items():
            kek = self._keks.get(name)
            if kek is not None:
                return unwrapped(kek, wrapped_by(stored)[1], header.about_root())
        raise OldKey(f"the root key is wrapped with {' or '.join(header.roots)}, which was not given")

    @property
    def keks(self) -> list[Wrapping]:
        """The keys that were given, and those that replaced them."""
        return list(self._keks.values())

    def knows(self, name: str) -> bool:
        """Return whether the key with this id was given."""
        return name in self._keks

    def is_current(self, stored: bytes) -> bool:
        """Return whether a stored key is wrapped with the first key."""
        return wrapped_by(stored)[0] == self.kek.id

    def _remember(self, family: bytes, key: FamilyKey) -> FamilyKey:
        with self._lock:
            self._known[family] = key
            while len(self._known) > MOST_KEYS:
                self._known.popitem(last=False)
        return key


def new_keyring(given: Source) -> Keyring:
    """Make the keys of a new store."""
    scrypt = Scrypt.new() if given.is_passphrase else None
    kek = given.kek(scrypt)
    assert kek is not None
    root, header = token_bytes(KEY_BYTES), Header(token_bytes(16), {})
    header.roots[kek.id] = wrapped(kek, root, header.about_root())
    if scrypt is not None:
        header.scrypt[kek.id] = scrypt
    return Keyring(header, [kek], root, [given])


def open_keyring(header: Header, given: Sequence[Source], where: str) -> Keyring:
    """Return the keys of a store, opened by the first of the given keys that fits. The first one given wraps new keys."""
    keks = [kek for source in given for kek in keys_of(header, source)]
    for kek in keks:
        if kek.id in header.roots:
            name, data = wrapped_by(header.roots[kek.id])
            if name != kek.id:
                raise DamagedKey("the stored root key is wrapped with another key than it says")
            first = keks[0] if keks[0].id in header.roots else kek
            others = [other for other in keks if other is not first]
            return Keyring(header, [first, *others], unwrapped(kek, data, header.about_root()), given)
    for kek in keks:
        if kek.id in header.retired:
            raise OldKey(
                f"{where} was encrypted with this key, which was replaced: its keys are now wrapped with {' or '.join(header.roots)}"
            )
    raise WrongKey(f"{where} is encrypted with another key: it needs {' or '.join(header.roots)}, got {' or '.join(_names(keks))}")


def keys_of(header: Header, source: Source) -> list[Wrapping]:
    """Return what a given key may be: a passphrase with each of the stored parameters, else the key itself."""
    if not source.is_passphrase:
        kek = source.kek(None)
        return [] if kek is None else [kek]
    return [kek for scrypt in header.scrypt.values() if (kek := source.kek(scrypt)) is not None]


def _names(keks: Sequence[Wrapping]) -> list[str]:
    return [kek.id for kek in keks] or ["a passphrase"]
