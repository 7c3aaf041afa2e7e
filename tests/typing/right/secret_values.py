"""A Secret keeps the type of its value: text by default, or bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

import everstep
from everstep import Secret


@dataclass
class Login:
    user: str
    key: Secret
    raw: Secret[bytes]


@everstep.step
def sign_in(login: Login) -> Secret:
    assert_type(login.key.reveal(), str)
    assert_type(login.raw.reveal(), bytes)
    return Secret(login.user + login.key.reveal())


@everstep.workflow
def order(key: Secret) -> int:
    assert_type(sign_in(Login("ann", key, Secret(b"raw"))), Secret[str])
    return len(key.reveal())


def main() -> None:
    with everstep.open("memory://", plain_secrets=True) as store:
        assert_type(store.encrypted, bool)
        assert_type(Secret("text"), Secret[str])
        assert_type(Secret(b"bytes"), Secret[bytes])
        store.start(order, Secret("text"), id="o1")
        with store.run("r", state=Login("ann", Secret("text"), Secret(b"raw"))) as run:
            assert_type(run.state.key.reveal(), str)
        assert bool(Secret("text") == Secret("text"))
