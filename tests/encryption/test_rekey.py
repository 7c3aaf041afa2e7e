"""A key is replaced by another one: beside writers, in steps that may be repeated, and without writing any data again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from secrets import token_bytes
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import everstep
from everstep.errors import EverstepError, KeySourceFailed, MissingKey, NotEncrypted, OldKey, WrongKey
from everstep.records import ENCRYPTION
from everstep.store.encryption import framing
from everstep.store.encryption import rekey as rekeying
from everstep.store.encryption.header import Header
from everstep.store.encryption.kek import wrapped_by
from everstep.store.encryption.sources import Scrypt

A, B, C = bytes(range(1, 33)), bytes(range(2, 34)), bytes(range(3, 35))
PHRASE, OTHER_PHRASE = "passphrase:four words of noise", "passphrase:another set of words"


class Service:
    """A key service, with a key of its own."""

    def __init__(self, id: str = "projects/a/keys/b"):
        self.id = id
        self._aead = AESGCM(C)

    def wrap(self, data: bytes, about: bytes) -> bytes:
        return b"n" * 12 + self._aead.encrypt(b"n" * 12, data, about)

    def unwrap(self, data: bytes, about: bytes) -> bytes:
        return self._aead.decrypt(data[:12], data[12:], about)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "FOLLOW_SECONDS", 0.02)
    monkeypatch.setattr(rekeying, "FOLLOW_SECONDS", 0.02)
    monkeypatch.setattr(Scrypt, "new", classmethod(lambda cls: cls(token_bytes(16), 1 << 14)))


def _fill(store: everstep.Store, runs: int = 5, word: str = "r") -> None:
    for n in range(runs):
        with store.run(f"{word}{n}", state={"said": f"{word}{n}"}) as run:
            run.checkpoint(note="a note")


def _reads_all(store: everstep.Store, runs: int = 5, word: str = "r") -> bool:
    return all(store.load(f"{word}{n}") == {"said": f"{word}{n}"} for n in range(runs)) and store.verify("full").ok


def _under(store: everstep.Store) -> set[str]:
    return {wrapped_by(stored)[0] for _, stored in store.backend.key_page()}


@pytest.mark.parametrize(
    ("old", "new"),
    [(A, B), (PHRASE, B), (A, PHRASE), (PHRASE, OTHER_PHRASE), (A, Service()), (Service(), A)],
    ids=["key-key", "phrase-key", "key-phrase", "phrase-phrase", "key-service", "service-key"],
)
def test_a_key_of_any_form_is_replaced_by_one_of_any_form(places: Any, old: Any, new: Any) -> None:
    with places.open(key=old) as store:
        _fill(store)
        done = store.rekey(new)
        assert (done.keys, done.replaced) == (6, 6)
        _fill(store, word="later")
        assert _under(store) == {done.key}
    with places.open(key=new) as store:
        assert _reads_all(store)
        assert _reads_all(store, word="later")
        assert store.rekey(new).replaced == 0
        assert store.doctor()["keys"].level == "ok"
    with pytest.raises(OldKey):
        places.open(key=old)
    with pytest.raises(WrongKey), places.open(key=bytes(32)):
        pass


def test_a_dry_run_counts_and_changes_nothing(places: Any) -> None:
    with places.open(key=A) as store:
        _fill(store)
        before = store.backend.get_property(ENCRYPTION), store.backend.key_page()
        found = store.rekey(PHRASE, dry_run=True)
        assert (found.keys, found.replaced, found.dry_run) == (6, 6, True)
        assert before == (store.backend.get_property(ENCRYPTION), store.backend.key_page())
    with places.open(key=A) as store:
        assert _reads_all(store)


def test_only_an_encrypted_store_has_a_key_to_replace(places: Any) -> None:
    with places.open(key=None) as store, pytest.raises(NotEncrypted, match="not encrypted"):
        store.rekey(B)


def test_a_store_without_its_key_is_refused(places: Any) -> None:
    with places.open(key=A) as store:
        _fill(store)
    with places.open(key=None) as store, pytest.raises(MissingKey):
        store.rekey(B)


class _Stop(Exception):
    """Stands for the end of the process: nothing after it is done."""


def _calls(backend: Any, names: tuple[str, ...], stop_at: int, after: bool) -> Callable[[], int]:
    """End the n-th call that changes keys, before or after it was done; return the count of calls."""
    count = 0

    def wrapped(name: str) -> Callable[..., Any]:
        real = getattr(backend, name)

        def call(*args: Any) -> Any:
            nonlocal count
            count += 1
            if count == stop_at and not after:
                raise _Stop
            done = real(*args)
            if count == stop_at:
                raise _Stop
            return done

        return call

    for name in names:
        setattr(backend, name, wrapped(name))
    return lambda: count


@pytest.mark.parametrize("after", [False, True])
def test_a_call_that_ends_at_any_change_is_finished_by_the_next(places: Any, monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    monkeypatch.setattr(rekeying, "_AT_ONCE", 2)
    keys = [bytes([n]) * 32 for n in range(40, 60)]
    with places.open(key=keys[0]) as store:
        _fill(store, 5)
    for turn, (old, new) in enumerate(pairwise(keys), 1):
        with places.open(key=old) as store:
            _calls(store.backend, ("replace_header", "replace_keys"), turn, after)
            try:
                store.rekey(new)
            except _Stop:
                finished = False
            else:
                finished = True
        with places.open(key=new, old_keys=[old]) as store:
            assert _reads_all(store)
            store.rekey(new)
        with places.open(key=new) as store:
            assert _reads_all(store)
            assert len(_under(store)) == 1
        with pytest.raises(OldKey):
            places.open(key=old)
        if finished:
            assert turn == 6  # the header, three batches, the header
            return
    pytest.fail("it never came to its end")


def test_doctor_names_keys_that_are_still_under_an_old_key(places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rekeying, "_AT_ONCE", 2)
    with places.open(key=A) as store:
        _fill(store)
        assert store.doctor()["keys"].level == "ok"
        _calls(store.backend, ("replace_header", "replace_keys"), 2, True)
        with pytest.raises(_Stop):
            store.rekey(B)
        found = store.doctor()["keys"]
        assert found.level == "warn"
        assert "everstep rekey" in (found.remedy or "")


def test_keys_of_families_that_writers_create_meanwhile_are_replaced(places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rekeying, "_AT_ONCE", 3)
    with places.open(key=A) as store:
        _fill(store, 10)
    stop, made, errors = threading.Event(), [0, 0], []

    def write(index: int) -> None:
        try:
            with places.open(key=B, old_keys=[A]) as store:
                while not stop.is_set():
                    _fill(store, 1, f"w{index}-{made[index]}-")
                    made[index] += 1
        except EverstepError as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    while min(made) < 2 and not errors:
        threading.Event().wait(0.01)
    with places.open(key=A) as store:
        done = store.rekey(B)
    before = list(made)
    while min(now - then for now, then in zip(made, before, strict=True)) < 2 and not errors:
        threading.Event().wait(0.01)
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors
    with places.open(key=B) as store:
        assert _under(store) == {done.key}
        assert _reads_all(store, 10)
        assert all(_reads_all_of(store, f"w{n}-{m}-") for n in range(2) for m in range(made[n]))


def _reads_all_of(store: everstep.Store, word: str) -> bool:
    return bool(store.load(f"{word}0") == {"said": f"{word}0"})


def test_a_writer_with_the_old_key_alone_creates_no_run_after_it(places: Any) -> None:
    with places.open(key=A) as old:
        _fill(old)
        with places.open(key=A) as store:
            store.rekey(B)
        threading.Event().wait(0.05)
        with pytest.raises(OldKey, match="was replaced while it was open"):
            _fill(old, word="more")
        assert _reads_all(old)


def test_a_second_call_with_another_new_key_is_refused_until_the_first_has_ended(places: Any) -> None:
    with places.open(key=A) as store:
        _fill(store)
        _calls(store.backend, ("replace_header", "replace_keys"), 1, True)
        with pytest.raises(_Stop):
            store.rekey(B)
    with places.open(key=A) as store, pytest.raises(OldKey, match="being replaced by"):
        store.rekey(C)
    with places.open(key=B, old_keys=[A]) as store:
        store.rekey(C)
    with places.open(key=C) as store:
        assert _reads_all(store)


def test_a_key_that_is_missing_is_named_and_the_others_are_replaced(places: Any) -> None:
    with places.open(key=A) as store:
        _fill(store)
        family, stored = store.backend.key_page()[0]
        name, data = wrapped_by(stored)
        from ormsgpack import packb

        store.backend.replace_keys([(family, stored, packb([1, "unknown", data]))])
        with pytest.raises(OldKey, match="1 keys are still wrapped with unknown"):
            store.rekey(B)
        assert len(_under(store)) == 2
        assert name in Header.parse(store.backend.get_property(ENCRYPTION) or "").roots


def test_a_key_service_that_cannot_unwrap_is_refused_before_anything_is_changed(places: Any) -> None:
    class Broken(Service):
        def unwrap(self, data: bytes, about: bytes) -> bytes:
            return bytes(32)

    with places.open(key=A) as store:
        _fill(store)
        with pytest.raises(KeySourceFailed, match="does not unwrap"):
            store.rekey(Broken())
    with places.open(key=A) as store:
        assert _reads_all(store)


def test_a_former_key_can_become_the_key_again(places: Any) -> None:
    with places.open(key=A) as store:
        _fill(store)
        store.rekey(B)
        store.rekey(A)
    with places.open(key=A) as store:
        assert _reads_all(store)
    with pytest.raises(OldKey):
        places.open(key=B)


def test_the_progress_ends_at_the_number_of_keys(tmp_path: Path) -> None:
    told: list[tuple[int, int, str]] = []
    with everstep.open(tmp_path / "s.db", key=A) as store:
        _fill(store)
        store.rekey(B, progress=lambda done, total, what: told.append((done, total, what)))
    assert told[-1] == (6, 6, "keys")


@pytest.fixture
def raw(tmp_path: Path) -> Callable[[], bytes]:
    return lambda: b"".join(path.read_bytes() for path in tmp_path.glob("s.db*") if path.is_file())


def test_no_key_under_the_old_key_stays_in_the_file_or_its_wal(tmp_path: Path, raw: Callable[[], bytes]) -> None:
    with everstep.open(tmp_path / "s.db", key=A) as store:
        _fill(store, 20)
        before = [wrapped_by(stored)[1] for _, stored in store.backend.key_page()]
        store.backend.shrink(0)
        assert all(key in raw() for key in before), "the search finds nothing at all"
        store.rekey(B)
        assert not any(key in raw() for key in before)
    assert not any(key in raw() for key in before)
