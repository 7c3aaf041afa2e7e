"""Finds keys of a store that are under a former key. Needs no key: a wrapped key names the one that wraps it."""

from __future__ import annotations

from everstep.backends.contract.core import Backend
from everstep.store.encryption.header import Header
from everstep.store.encryption.kek import wrapped_by
from everstep.store.verify.findings import Finding

_AT_ONCE = 1000


def finding(backend: Backend, text: str) -> Finding:
    """Return what doctor says about the keys of an encrypted store, given its header."""
    roots = Header.parse(text).roots
    keys = old = 0
    after = b""
    while page := backend.key_page(after, _AT_ONCE):
        after = page[-1][0]
        keys += len(page)
        old += sum(wrapped_by(stored)[0] not in roots for _, stored in page)
    if len(roots) > 1:
        said = f"a replacement of the key has not ended: the store opens with {' and with '.join(roots)}"
        return Finding("warn", "keys", said, "Repeat it with the same new key: everstep rekey.")
    if old:
        said = f"{old:,} of {keys:,} keys are still under a former key, so their runs cannot be read with the new one alone"
        return Finding("warn", "keys", said, "Run `everstep rekey` again, with the former key in old_keys.")
    return Finding("ok", "keys", f"encrypted: all keys of {keys:,} families are under {' and '.join(roots)}")
