"""Files of signed heads and keys: hostile ones are refused with a named error, and a key is never overwritten or shown."""

from __future__ import annotations

import base64
import os
import random
import shutil
import stat
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import warm

import everstep
from everstep.errors import InvalidArgument, RolledBack, UntrustedHeads
from everstep.store.verify import heads
from everstep.store.verify.signing_keys import PublicKey, new_file, public_key, signing_key


class Signed:
    """A store in a file, and its signed heads."""

    def __init__(self, folder: Path, made: bool = False):
        self.folder, self.path = folder, folder / "store.db"
        self.key, self.file = folder / "signing.key", folder / "heads.txt"
        if made:
            self.public = self.key.with_name("signing.key.pub").read_text()
            return
        self.public = new_file(self.key).text
        with everstep.open(self.path) as store:
            for number in range(20):
                with store.run(f"run-{number}", state={"n": number}) as run:
                    run.checkpoint()
            self.file.write_text("".join(store.heads(self.key)))

    def verify(self) -> everstep.store.verify.report.Report:
        with everstep.open(self.path) as store:
            return store.verify("records", against=self.file, public_key=self.public)

    def refused(self, changed: bytes) -> str:
        """Return why a changed file is refused."""
        self.file.write_bytes(changed)
        with pytest.raises(UntrustedHeads) as error:
            self.verify()
        return error.value.message


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Signed(tmp_path_factory.mktemp("signed")).folder


@pytest.fixture
def signed(template: Path, tmp_path: Path) -> Signed:
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return Signed(tmp_path, made=True)


def lines(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[bytes], bytes]:
    return lambda whole: b"".join(change(whole.splitlines(keepends=True)))


def swapped(every: list[bytes]) -> list[bytes]:
    return [*every[:5], every[6], every[5], *every[7:]]


HOSTILE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda whole: b"", "it is empty"),
    "of another kind": (lambda whole: b"hello\n" * 9, "does not begin as"),
    "of a newer version": (lambda whole: whole.replace(b"heads 1\n", b"heads 2\n", 1), "has version 2, and this Everstep reads version 1"),
    "of an endless version": (lambda whole: whole.replace(b"heads 1\n", b"heads " + b"9" * 4_000 + b"\n", 1), "does not begin as"),
    "without a signature": (lines(lambda every: every[:-1]), "its last line is not a signature"),
    "cut in the middle of a line": (lambda whole: whole[:-30], "too long, has no end"),
    "without its last head": (lines(lambda every: [*every[:-3], *every[-2:]]), "its signature does not match"),
    "with a changed digest": (lambda whole: _flip(whole, b"run 7 ", 60), "its signature does not match"),
    "with another time": (lambda whole: whole.replace(b'"at":"2', b'"at":"3', 1), "its signature does not match"),
    "with two lines swapped": (lines(swapped), "its signature does not match"),
    "with a line twice": (lines(lambda every: [*every[:5], every[4], *every[5:]]), "its signature does not match"),
    "with a line after the signature": (lambda whole: whole + b"run 1\n", "its last line is not a signature"),
    "with a second signature": (lines(lambda every: [*every, every[-1]]), "its signature does not match"),
    "with Windows line ends": (lambda whole: whole.replace(b"\n", b"\r\n"), "does not begin as"),
    "with a line that never ends": (lambda whole: whole + b"x" * 50_000_000, "too long"),
    "with other bytes": (lambda whole: whole.replace(b"run-7", b"run-\xff", 1), "not ASCII"),
    "with a broken signature": (lambda whole: whole[:-4] + b"!!!\n", "its signature cannot be read"),
    "with the signature of zeros": (
        lines(lambda every: [*every[:-1], b" ".join([*every[-1].split(b" ")[:2], base64.b64encode(bytes(64))]) + b"\n"]),
        "its signature does not match",
    ),
    "signed by another key": (lambda whole: whole.replace(b"signature ", b"signature 00", 1), "and the given public key is"),
}


def _flip(whole: bytes, after: bytes, distance: int) -> bytes:
    at = whole.index(after) + distance
    return whole[:at] + (b"0" if whole[at : at + 1] != b"0" else b"1") + whole[at + 1 :]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused(signed: Signed, name: str) -> None:
    change, why = HOSTILE[name]
    assert why in signed.refused(change(signed.file.read_bytes()))


def test_no_changed_byte_is_accepted(signed: Signed) -> None:
    whole = signed.file.read_bytes()
    chance = random.Random(7)
    for at in {0, len(whole) - 1, *(chance.randrange(len(whole)) for _ in range(300))}:
        changed = bytes([whole[at] ^ (1 << chance.randrange(8))])
        try:
            signed.refused(whole[:at] + changed + whole[at + 1 :])
        except pytest.fail.Exception:
            # The last characters of Base64 may have bits without a meaning: then the signature is the same.
            assert at >= len(whole) - 5
    signed.file.write_bytes(whole)
    assert signed.verify().ok


def test_a_file_that_is_replaced_while_it_is_read_is_refused(signed: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = signed.file.read_bytes()
    forged = _flip(whole, b"run 7 ", 60)
    first = heads.HeadsFile._signed_by

    def then_change(file: heads.HeadsFile, key: PublicKey) -> bytes:
        digest = first(file, key)
        with signed.file.open("r+b") as opened:  # the same file: the handle sees it
            opened.write(forged)
        return digest

    monkeypatch.setattr(heads.HeadsFile, "_signed_by", then_change)
    with pytest.raises(UntrustedHeads, match="it was changed while it was read"):
        signed.verify()


def test_a_large_file_takes_little_memory(signed: Signed) -> None:
    with signed.file.open("wb") as file:
        file.write(b"everstep-heads 1\n")
        for _ in range(100):
            file.write((b"run 1 " + b"x" * 4_000 + b"\n") * 200)
    tracemalloc.start()
    try:
        with pytest.raises(UntrustedHeads, match="its last line is not a signature"):
            signed.verify()
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "device"])
def test_only_a_regular_file_is_read(signed: Signed, kind: str) -> None:
    signed.file.unlink()
    if kind == "folder":
        signed.file.mkdir()
    elif kind == "pipe":
        os.mkfifo(signed.file)
    elif kind == "device":
        signed.file.symlink_to("/dev/zero")
    with pytest.raises(InvalidArgument, match="heads"):
        signed.verify()


# Rolled back, with real files.


def test_a_store_that_was_replaced_by_an_older_copy_is_found_where_nothing_else_remembers_the_newer_one(signed: Signed) -> None:
    with everstep.open(signed.path) as store:
        store.delete("run-3")
    backup = signed.folder / "backup.db"
    shutil.copy(signed.path, backup)
    with everstep.open(signed.path) as store:
        with store.run("run-7") as run:
            run.state["n"] = -1
            run.checkpoint()
        with store.run("paid", state={}) as run:
            run.checkpoint()
        signed.file.write_text("".join(store.heads(signed.key)))
    for one in signed.folder.glob("store.db*"):
        shutil.rmtree(one) if one.is_dir() else one.unlink()  # the rollback guard, too
    shutil.copy(backup, signed.path)
    found = signed.verify()
    said = [str(problem) for problem in found.problems]
    assert said[0].startswith("store: it is older than the signed heads: it was written ")
    assert any(line.startswith("run run-7: it was cut off or rolled back: it ends at record ") for line in said)
    assert any(line.startswith("run paid: it is gone, and there is no tombstone") for line in said)
    assert len(said) == 3
    with everstep.open(signed.path) as store:
        assert store.verify("full").ok, "the copy is whole in itself"


def test_the_rollback_guard_and_the_heads_agree(signed: Signed) -> None:
    """The guard refuses to open the older copy on the machine that has seen the newer one; heads need no such machine."""
    shutil.copy(signed.path, signed.folder / "backup.db")
    with everstep.open(signed.path) as store, store.run("more", state={}) as run:
        run.checkpoint()
    shutil.copy(signed.folder / "backup.db", signed.path)
    (signed.folder / "store.db-wal").unlink(missing_ok=True)
    with pytest.raises(RolledBack):
        signed.verify()


def test_a_repaired_store_keeps_the_history_of_its_runs(signed: Signed) -> None:
    repaired = signed.folder / "repaired.db"
    assert everstep.repair(signed.path, repaired).ok
    with everstep.open(repaired) as store:
        found = store.verify("records", against=signed.file, public_key=signed.public)
    assert found.against is not None
    assert found.against.unchanged == 20
    assert all(problem.where == "store" for problem in found.problems), "only the counter of writes begins again"


# Keys.


def test_a_new_key_is_for_its_owner_alone_and_is_never_overwritten(tmp_path: Path) -> None:
    os.umask(before := os.umask(0))
    path = tmp_path / "signing.key"
    made = new_file(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.with_name("signing.key.pub").read_text() == made.text + "\n"
    assert os.umask(before) == before
    kept = path.read_bytes()
    with pytest.raises(InvalidArgument, match="already exists; no key was written"):
        new_file(path)
    path.with_name("other.pub").touch()
    with pytest.raises(InvalidArgument, match=r"other\.pub already exists"):
        new_file(tmp_path / "other")
    assert not (tmp_path / "other").exists()
    dangling = tmp_path / "link"
    dangling.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidArgument, match="already exists"):
        new_file(dangling)
    assert path.read_bytes() == kept


def test_a_signing_key_comes_from_a_file_the_environment_or_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = new_file(tmp_path / "k e y")
    monkeypatch.setenv("MY_KEY", (tmp_path / "k e y").read_text())
    for source in (str(tmp_path / "k e y"), tmp_path / "k e y", f"file:{tmp_path}/k e y", "env:MY_KEY", f"command:cat '{tmp_path}/k e y'"):
        assert signing_key(source).public.id == made.id, source
    for source in (made.text, tmp_path / "k e y.pub", f"file:{tmp_path}/k e y.pub", f"command:cat '{tmp_path}/k e y.pub'"):
        assert public_key(source).id == made.id, source


def test_keys_that_openssl_wrote_are_accepted(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    private, public = tmp_path / "a.pem", tmp_path / "a.pub.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    assert signing_key(private).public.id == public_key(public).id == public_key(public.read_text()).id
    subprocess.run(["openssl", "genrsa", "-out", private, "2048"], check=True, capture_output=True)
    with pytest.raises(InvalidArgument, match="a signing key must be"):
        signing_key(private)


def test_what_is_no_key_is_refused_and_never_shown(tmp_path: Path) -> None:
    new_file(tmp_path / "key")
    secret = (tmp_path / "key").read_text().strip()
    tail = secret.rpartition(":")[2]
    broken = tmp_path / "broken"
    tries: list[tuple[Callable[[object], object], object, str]] = [
        (signing_key, None, "there is no signing key"),
        (signing_key, secret, "got the key itself"),
        (signing_key, b"x" * 32, "got a bytes"),
        (signing_key, tmp_path / "key.pub", "got the other key of the pair"),
        (signing_key, "file:/nonexistent", "cannot be read"),
        (signing_key, tmp_path, "cannot be read"),
        (signing_key, "env:NOT_SET_AT_ALL", "is not set"),
        (signing_key, "command:false", "exit code 1"),
        (signing_key, "command:/nonexistent", "No such file"),
        (signing_key, "command:'", "No closing quotation"),
        (signing_key, "command:", "failed"),
        (signing_key, f"command:sh -c 'cat {tmp_path}/key; exit 3'", "exit code 3"),
        (signing_key, "command:yes", "must have at most"),
        (signing_key, "file:/dev/zero", "must have at most"),
        (public_key, None, "none was given"),
        (public_key, secret, "got the other key of the pair"),
        (public_key, tmp_path / "key", "got the other key of the pair"),
    ]
    for content in (
        b"",
        b"\xff\xfe",
        b"everstep-signing-key:" + b"A" * 7,
        b"everstep-signing-key:" + tail.encode()[:-4],
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n",
    ):
        name = tmp_path / f"broken-{len(content)}"
        name.write_bytes(content)
        tries.append((signing_key, name, "must be"))
    for make, source, why in tries:
        with pytest.raises(InvalidArgument) as error:
            make(source)
        assert why in str(error.value), (source, str(error.value))
        assert tail not in str(error.value) + repr(error.value) + repr(error.value.__cause__)
    assert not broken.exists()
    assert tail not in repr(signing_key(tmp_path / "key")) + repr(vars(signing_key(tmp_path / "key").public))


def test_without_the_package_the_error_names_the_command(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "import everstep\n"
        "with everstep.open('memory://') as store:\n"
        "    try: store.heads('file:key')\n"
        "    except everstep.errors.InvalidArgument as error: print(error)\n"
    )
    (tmp_path / "key").write_text("everstep-signing-key:AAAA")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "pip install 'everstep[crypto]'", done.stdout + done.stderr
    assert "need the package cryptography, which is not installed" in done.stdout


def test_importing_everstep_imports_no_cryptography() -> None:
    code = "import sys, everstep, everstep.cli.main; everstep.open('memory://').close(); print('cryptography' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_other_processes_sign_while_one_writes(signed: Signed) -> None:
    """Heads that are signed beside a writer always fit the store, whenever they are compared."""
    program = (
        "import sys, everstep\n"
        "with everstep.open(sys.argv[1]) as store:\n"
        "    for number in range(150):\n"
        "        with store.run(f'busy-{number % 9}', state={'n': 0}) as run:\n"
        "            run.state['n'] += 1; run.checkpoint()\n"
        "        if number % 20 == 19: store.delete(f'busy-{number % 9}')\n"
    )
    writer = warm.Popen([sys.executable, "-c", program, str(signed.path)])
    made = 0
    with everstep.open(signed.path) as store:
        while writer.poll() is None or not made:
            signed.file.write_text("".join(store.heads(signed.key)))
            found = store.verify("quick", against=signed.file, public_key=signed.public)
            assert found.ok, str(found)
            made += 1
            time.sleep(0.02)
    assert writer.wait() == 0
    assert signed.verify().ok
