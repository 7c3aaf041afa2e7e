"""Encryption of a store: the keys, where they come from, and what is made of them. A plain store uses `frames` alone.

frames      the frames of a run, encrypted or not: the place that each is bound to
kek         the key that wraps all others: bytes, or an object of the user
sources     where it comes from: text, file, command, keyring, passphrase
header      the property of a store that has its wrapped root key
keyring     the root key, and the keys of families
begin       opens a store with a key: decides which store is accepted, and creates an encrypted one
framing     encrypted frames; and those of a locked store, which open nothing
rekey       replaces the key that wraps the others
old_keys    finds keys that are still under a former one
encrypt     changes a plain store to an encrypted one
conversion  writes its rows and records again
labels      notes, tags and metadata, as they are stored and as they are shown
"""
