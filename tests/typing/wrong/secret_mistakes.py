"""Mistakes with secrets."""

from __future__ import annotations

import everstep
from everstep import Secret


@everstep.workflow
def order(key: Secret) -> int:
    return len(key)  # error


def main(store: everstep.Store, key: Secret, raw: Secret[bytes]) -> None:
    Secret(5)  # error
    Secret(None)  # error
    key.value = "other"  # error
    "key " + key  # error
    store.start(order, "text")  # error
    store.start(order, raw)  # error
    text: str = key  # error
    data: bytes = key.reveal()  # error
    print(text, data, key < key)  # error
