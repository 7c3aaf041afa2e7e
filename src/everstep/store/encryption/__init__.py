"""Encryption of a store: the keys, where they come from, and what is made of them.

kek          the key that wraps all others: bytes, or an object of the user
sources      where it comes from: text, file, command, keyring, passphrase
header       the property of a store that says under which keys it is
keyring      the root key, and the keys of families
begin        opens a store with a key: decides which store is accepted, and creates an encrypted one
labels       notes, tags and metadata, as they are stored and as they are shown
"""
