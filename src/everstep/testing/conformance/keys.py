"""The wrapped keys of an encrypted store: `contract.keys`. A backend keeps them and never opens one."""

from __future__ import annotations

import hmac

import pytest

from everstep.backends.contract.core import Backend, Commit
from everstep.errors import MissingKey
from everstep.records import RunRow, Seal
from everstep.testing.conformance.suite import OpenHandle, Suite
from everstep.testing.rows import new_run


def keyed(data: bytes) -> bytes:
    """The seal of the key that these stores are opened with."""
    return hmac.digest(b"a key", data, "sha256")


def created(backend: Backend, name: str, family: bytes | None = None, parent: str | None = None, key: bytes | None = None) -> RunRow:
    """Create a run, and its family with this wrapped key if it is the first one of it."""
    row = new_run(name, **({} if family is None else {"family": family, "parent": parent}))
    row = row.sealed(backend.seal)
    backend.commit(Commit(row, None, family_key=key))
    return row


class KeysSuite(Suite):
    def encrypted(self, backend: Backend, seal: Seal = keyed) -> None:
        assert [backend.header, backend.encrypt("header"), backend.header] == [None, "header", "header"]
        backend.set_seal(seal)

    def test_an_empty_store_is_encrypted_once(self, backend: Backend, open_handle: OpenHandle) -> None:
        self.encrypted(backend)
        assert backend.encrypt("another header") == "header"
        other = open_handle()
        try:
            assert other.header == "header"
        finally:
            other.close()
        assert backend.replace_header("wrong", "new") is False
        assert backend.replace_header("header", "new") is True
        assert backend.header == "new"

    def test_a_store_that_has_runs_is_not(self, backend: Backend) -> None:
        created(backend, "r")
        assert backend.encrypt("header") is None
        assert backend.header is None

    def test_a_key_comes_with_its_family_and_goes_with_the_last_run(self, backend: Backend) -> None:
        self.encrypted(backend)
        first = created(backend, "a", key=b"\x93wrapped a")
        created(backend, "b", key=b"\x93wrapped b")
        fork = created(backend, "c", first.family, "a")
        assert backend.family_keys([first.family, b"x" * 16]) == {first.family: b"\x93wrapped a"}
        backend.delete(first)
        assert backend.family_keys([first.family]) == {first.family: b"\x93wrapped a"}
        backend.delete_many([fork])
        assert backend.family_keys([first.family]) == {}
        assert [wrapped for _, wrapped in backend.key_page()] == [b"\x93wrapped b"]

    def test_keys_are_listed_in_pages_and_replaced(self, backend: Backend) -> None:
        self.encrypted(backend)
        for n in range(5):
            created(backend, f"r{n}", key=b"\x93%d" % n)
        everything = backend.key_page(limit=10)
        assert everything == sorted(everything)
        assert len(everything) == 5
        assert backend.key_page(everything[1][0], 2) == everything[2:4]
        (one, old), (two, _) = everything[:2]
        assert backend.replace_keys([(one, old, b"\x93new and longer"), (two, b"wrong", b"\x93never")]) == 1
        assert backend.replace_keys([]) == 0
        assert backend.key_page(limit=2) == [(one, b"\x93new and longer"), everything[1]]

    def test_a_handle_without_the_key_does_not_write(self, backend: Backend, open_handle: OpenHandle) -> None:
        plain = open_handle()
        try:
            self.encrypted(backend)
            if plain.url.startswith("postgresql"):
                pytest.skip("a server does not know which of its clients have the key")
            with pytest.raises(MissingKey):
                created(plain, "r")
        finally:
            plain.close()
        assert backend.run("r") is None
