"""Keys: their forms, how they wrap each other, and that they are shown nowhere."""

from __future__ import annotations

import hmac
import sys
import threading
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pace import ALL

from everstep.codec.encryption import OVERHEAD, Cipher, EncryptedFrames, FamilyKey, derive, keyed_seal
from everstep.codec.frame import Framer
from everstep.errors import Damaged, DamagedFrame, DamagedKey, EverstepError, InvalidArgument, KeySourceFailed, OldKey, WrongKey
from everstep.store.encryption.header import Header
from everstep.store.encryption.kek import Kek, unwrapped, wrapped, wrapped_by
from everstep.store.encryption.keyring import new_keyring, open_keyring
from everstep.store.encryption.sources import Scrypt, Source

MANY = 1_000_000 if ALL else 100_000
KEY = bytes(range(100, 132))
OTHER = bytes(range(32))
PASSPHRASE = "passphrase:four words of noise"


def frames(key: bytes = KEY, store: bytes = b"s" * 16, family: bytes = b"f" * 16, run: bytes = b"r" * 16) -> EncryptedFrames:
    return EncryptedFrames(Framer(), FamilyKey(key), store, family, run)


def test_a_derived_key_is_that_of_hkdf() -> None:
    assert derive(KEY, "seal") == HKDF(SHA256(), 32, salt=None, info=b"seal").derive(KEY)
    assert derive(KEY, "seal") != derive(KEY, "index")


def test_the_seal_is_hmac_sha256() -> None:
    for size in (0, 1, 63, 64, 65, 1000):
        assert keyed_seal(KEY)(bytes(size)) == hmac.digest(KEY, bytes(size), "sha256")


def test_a_frame_is_aes_gcm_over_an_inner_frame_and_its_place() -> None:
    from ormsgpack import packb

    frame = frames().wrap(b"content", ("record", 7, "step"))
    assert frame[:2] == b"\x01\x08"
    about = packb([1, b"s" * 16, b"f" * 16, b"r" * 16]) + packb(["record", 7, "step"])
    assert AESGCM(KEY).decrypt(frame[2:14], frame[14:], about) == Framer().wrap(b"content")
    assert len(frame) == len(Framer().wrap(b"content")) + OVERHEAD


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({}, ("record", 8, "step")),
        ({}, ("record", 7, "status")),
        ({}, ("message", "7")),
        ({"run": b"R" * 16}, ("record", 7, "step")),
        ({"family": b"F" * 16}, ("record", 7, "step")),
        ({"store": b"S" * 16}, ("record", 7, "step")),
        ({"key": OTHER}, ("record", 7, "step")),
    ],
)
def test_a_frame_cannot_be_opened_in_another_place(changed: dict[str, bytes], place: tuple[str | int, ...]) -> None:
    frame = frames().wrap(b"content", ("record", 7, "step"))
    assert frames().unwrap(frame, ("record", 7, "step")) == b"content"
    with pytest.raises(DamagedFrame, match="another place"):
        frames(**changed).unwrap(frame, place)


def test_every_flipped_bit_of_a_frame_is_noticed() -> None:
    frame = frames().wrap(b"some content", ("message", "answer:gate"))
    for bit in range(len(frame) * 8):
        bad = bytearray(frame)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedFrame):
            frames().unwrap(bytes(bad), ("message", "answer:gate"))
    for length in range(len(frame)):
        with pytest.raises(DamagedFrame):
            frames().unwrap(frame[:length], ("message", "answer:gate"))


def test_a_plain_frame_is_refused() -> None:
    with pytest.raises(DamagedFrame, match="not encrypted"):
        frames().unwrap(Framer().wrap(b"content"), ("record", 1, "start"))


def test_a_chunk_has_a_keyed_name_and_is_bound_to_it_and_its_family() -> None:
    inner = Framer().wrap(b"part of a state")
    ((name, frame),) = frames().stored([(b"d" * 32, inner)])
    assert name != b"d" * 32
    assert frames(key=OTHER).chunk_name(b"d" * 32) != name == frames(run=b"x" * 16).chunk_name(b"d" * 32)
    assert frames(run=b"x" * 16).fetcher(lambda names: dict.fromkeys(names, frame))([b"d" * 32]) == {b"d" * 32: inner}
    for other, as_name in (
        (frames(), b"n" * 32),
        (frames(family=b"F" * 16), name),
        (frames(store=b"S" * 16), name),
        (frames(key=OTHER), name),
    ):
        with pytest.raises(DamagedFrame):
            Framer().unwrap(other.open_chunk(as_name, frame))
    with pytest.raises(DamagedFrame):
        Framer().unwrap(frames().open_chunk(name, inner))


def test_threads_share_a_cipher() -> None:
    cipher, wrong = Cipher(KEY), []

    def work(n: int) -> None:
        for i in range(2000):
            content = bytes([n]) * (i % 50)
            if cipher.open(cipher.seal(content, b"x"), b"x") != content:
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_nonces_never_repeat() -> None:
    seen, cipher = set(), Cipher(KEY)
    for _ in range(MANY):
        seen.add(cipher.seal(b"", b"")[:12])
    assert len(seen) == MANY


def test_every_form_of_a_key_is_the_same_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Kek(KEY).id
    raw, text = tmp_path / "raw", tmp_path / "text"
    raw.write_bytes(KEY)
    text.write_text(KEY.hex() + "\n")
    monkeypatch.setitem(
        sys.modules, "keyring", SimpleNamespace(get_password=lambda service, name: KEY.hex() if (service, name) == ("a/b", "c") else None)
    )
    program = f"command:{sys.executable} -c \"print('{KEY.hex()}')\""
    for form in (
        KEY,
        KEY.hex(),
        KEY.hex().upper(),
        b64encode(KEY).decode(),
        urlsafe_b64encode(OTHER).decode(),
        f"file:{raw}",
        f"file:{text}",
        program,
        "keyring:a/b/c",
    ):
        kek = Source(form).kek(None)
        assert kek is not None
        assert kek.id == (Kek(OTHER).id if form == urlsafe_b64encode(OTHER).decode() else expected)


@pytest.mark.parametrize(
    "form",
    [
        b"short",
        "swordfish",
        "swordfish" * 20,
        "a" * 32,
        "00" * 31,
        "vault:swordfish",
        "passphrase:swordfish",
        "keyring:swordfish",
        7,
        None,
        "file:",
        "command:",
    ],
)
def test_a_bad_key_is_refused_and_not_shown(form: object) -> None:
    with pytest.raises((InvalidArgument, KeySourceFailed)) as refused:
        Source(form)
    assert "swordfish" not in str(refused.value).replace("keyring:swordfish", "") or "keyring" in str(form)
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("file:/nowhere/key", "No such file"),
        ("command:/nowhere/program", "No such file"),
        (f"command:{sys.executable} -c \"import sys; print('hunter2', file=sys.stderr); sys.exit(3)\"", "exit code 3"),
        ("keyring:service/nothing", "keyring"),
    ],
)
def test_a_source_that_fails_says_so(form: str, said: str) -> None:
    with pytest.raises(KeySourceFailed, match=said) as failed:
        Source(form)
    assert "hunter2" not in str(failed.value)


def test_what_a_file_or_program_gives_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hunter2hunter2")
    for form in (f"file:{tmp_path / 'key'}", f"command:cat {tmp_path / 'key'}"):
        with pytest.raises(InvalidArgument) as refused:
            Source(form)
        assert "hunter2" not in str(refused.value)


def test_a_passphrase_makes_a_key_with_the_stored_parameters() -> None:
    ring = new_keyring(Source(PASSPHRASE))
    header = Header.parse(ring.header.text())
    assert open_keyring(header, [Source(PASSPHRASE)], "it").seal(b"x") == ring.seal(b"x")
    with pytest.raises(WrongKey):
        open_keyring(header, [Source("passphrase:four words of silence")], "it")
    with pytest.raises(WrongKey):
        open_keyring(header, [Source(KEY)], "it")
    with pytest.raises(WrongKey):
        open_keyring(Header.parse(new_keyring(Source(KEY)).header.text()), [Source(PASSPHRASE)], "it")


def test_hostile_parameters_of_a_passphrase_are_refused() -> None:
    for bad in (Scrypt(b"s" * 16, n=1 << 40), Scrypt(b"s" * 16, n=12345), Scrypt(b"s" * 16, r=10**6), Scrypt(b""), Scrypt(b"s" * 16, n=2)):
        with pytest.raises(Damaged):
            bad.key(b"four words of noise")


def test_a_wrapped_key_opens_for_its_family_alone() -> None:
    ring = new_keyring(Source(KEY))
    stored = ring.create(b"a" * 16)
    assert ring.unwrap(b"a" * 16, stored)
    with pytest.raises(DamagedKey, match="another store or family"):
        ring.unwrap(b"b" * 16, stored)
    with pytest.raises(DamagedKey):
        new_keyring(Source(KEY)).unwrap(b"a" * 16, stored)
    with pytest.raises(DamagedKey):
        ring.unwrap(b"a" * 16, b"rubbish")
    with pytest.raises(DamagedKey):
        ring.family(b"c" * 16, lambda families: {})
    assert ring.is_current(stored)


def test_a_wrong_an_old_and_a_former_key_are_three_things() -> None:
    ring = new_keyring(Source(KEY))
    header, family = ring.header, b"a" * 16
    stored = ring.create(family)
    header.roots = {
        Kek(OTHER).id: wrapped(
            Kek(OTHER), unwrapped(Kek(KEY), wrapped_by(header.roots[Kek(KEY).id])[1], header.about_root()), header.about_root()
        )
    }
    header.retired = (Kek(KEY).id,)
    with pytest.raises(OldKey) as old:
        open_keyring(header, [Source(KEY)], "it")
    with pytest.raises(WrongKey) as wrong:
        open_keyring(header, [Source(bytes(32))], "it")
    assert type(wrong.value) is WrongKey
    with pytest.raises(OldKey):
        open_keyring(header, [Source(OTHER)], "it").unwrap(family, stored)
    both = open_keyring(header, [Source(OTHER), Source(KEY)], "it")
    assert both.unwrap(family, stored) == ring.unwrap(family, stored)
    assert not both.is_current(stored)
    for error in (old.value, wrong.value):
        assert KEY.hex() not in str(error)


class Service:
    """A key service, as a user writes it."""

    id = "kms/alias/everstep"

    def wrap(self, data: bytes, about: bytes) -> bytes:
        return Kek(KEY).wrap(data, about)

    def unwrap(self, data: bytes, about: bytes) -> bytes:
        return Kek(KEY).unwrap(data, about)


def test_a_key_service_wraps_keys() -> None:
    ring = new_keyring(Source(Service()))
    assert open_keyring(Header.parse(ring.header.text()), [Source(Service())], "it").seal(b"x") == ring.seal(b"x")


@pytest.mark.parametrize("broken", [lambda *_: 1 / 0, lambda *_: None, lambda *_: b""])
def test_a_key_service_that_fails_is_named(broken: object) -> None:
    service = Service()
    service.wrap = broken  # type: ignore[assignment, method-assign]
    with pytest.raises(KeySourceFailed, match="kms/alias/everstep"):
        new_keyring(Source(service))
    service.id = ""
    with pytest.raises(InvalidArgument):
        Source(service)


def test_no_text_form_shows_a_key() -> None:
    source = Source(KEY)
    ring = new_keyring(source)
    ring.create(b"a" * 16)
    for thing in (source, source.kek(None), ring, Cipher(KEY), FamilyKey(KEY), frames(), Source(PASSPHRASE)):
        shown = repr(thing) + str(thing)
        assert KEY.hex() not in shown
        assert repr(KEY) not in shown
        assert "noise" not in shown


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"version":2}', '{"version":1,"store":"00","roots":{},"retired":[],"scrypt":{}}', "null"]
)
def test_a_damaged_header_is_refused(text: str) -> None:
    with pytest.raises(EverstepError) as refused:
        Header.parse(text)
    assert isinstance(refused.value, Damaged)
