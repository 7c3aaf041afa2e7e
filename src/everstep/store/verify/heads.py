"""Signed heads: a file that names the newest record of every run, signed with a key of its own. Writes and reads the file.

    everstep-heads 1
    {"at":"2026-11-18T20:33:19.000Z","created":7,"store":"9f…","writes":52}
    run 1 KEY SEQ DIGEST ORIGIN "o1"
    run 2 …
    end 2
    signature KEYID SIGNATURE

The lines are ASCII and end with a line feed. Line 2 is JSON: the time; how many runs were ever created; an identity of the store, 32 hex
digits; how often the store was written. Then one line for each run, in the order of creation: its position, its key (hex), the seq and the
digest (hex) of its newest record, `H(pack([family, workflow, session, parent, parent_number, created_at]))` (hex, the first 16 bytes), and its
id as JSON. KEYID are the first 16 hex digits of `H(public key)`; SIGNATURE is Ed25519 (Base64) over

    "everstep-heads 1" || 0x00 || H(all lines before it)

The digest of a record covers all records before it, so the file proves the whole history of each run. Positions up to `created` that the
file does not list belonged to deleted runs. Reading takes a line at a time, and nothing is used before the signature was verified.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ormsgpack import packb

from everstep.backends.contract.core import Backend, Query
from everstep.clock import clock, iso
from everstep.errors import InvalidArgument, UntrustedHeads
from everstep.records import RunRow
from everstep.store.progress import Pace, Progress
from everstep.store.refs import verified
from everstep.store.verify.signing_keys import PublicKey, SigningKey, signing_key

IDENTITY = "identity:"
"""The beginning of the names of the properties that hold identities of the store. Usually there is one; two processes may make two."""
_FORMAT, _VERSION = "everstep-heads", 1
_DOMAIN = f"{_FORMAT} {_VERSION}".encode("ascii") + b"\x00"
_LINE = 4_096  # an id has at most 200 characters, each at most 12 bytes in JSON
_AT_ONCE = 2_000
_RUN = re.compile(r'run ([1-9]\d{0,18}) ([0-9a-f]{32}) (\d{1,10}) ([0-9a-f]{64}) ([0-9a-f]{32}) (".*")')
_HEADER = {"at": str, "created": int, "store": str, "writes": int}


class Head(NamedTuple):
    """The newest record of one run when the heads were written."""

    position: int
    key: bytes
    seq: int
    digest: bytes
    origin: bytes
    run: str


class Header(NamedTuple):
    """The figures of the store in its heads."""

    at: str
    created: int
    store: str
    writes: int


def origin_of(row: RunRow) -> bytes:
    """Return a digest of the fields of a run row that never change and that no record proves."""
    return sha256(packb([row.family, row.workflow, row.session, row.parent, row.parent_number, row.created_at])).digest()[:16]


def identities(backend: Backend) -> list[str]:
    return sorted(name.removeprefix(IDENTITY) for name in backend.properties(IDENTITY))


def write_heads(backend: Backend, key: object, progress: Progress | None = None) -> Iterator[str]:
    """Return the lines of the heads of a store. The first heads give the store an identity. Others may write meanwhile."""
    signer, pace = signing_key(key), Pace(progress, None)  # refused now, not when the first line is read
    if not identities(backend):
        backend.set_property(IDENTITY + secrets.token_hex(16), iso(clock.now_us()))
    return _signed(backend, signer, pace)


def _signed(backend: Backend, key: SigningKey, pace: Pace) -> Iterator[str]:
    pace.total = backend.manifest().runs
    digest = sha256()
    for line in _lines(backend):
        data = line.encode("ascii")
        digest.update(data)
        pace.on(1, "runs")
        yield line
    yield f"signature {key.public.id} {base64.b64encode(key.sign(_DOMAIN + digest.digest())).decode('ascii')}\n"
    pace.end("all")


def _lines(backend: Backend) -> Iterator[str]:
    manifest = backend.manifest()  # before the runs: one that is created meanwhile is left out, one that is deleted is missing
    said = {"at": iso(clock.now_us()), "created": manifest.created, "store": identities(backend)[0], "writes": manifest.writes}
    yield f"{_FORMAT} {_VERSION}\n"
    yield json.dumps(said, separators=(",", ":")) + "\n"
    count = after = 0
    while True:
        rows = backend.runs(Query(oldest_first=True, after=after, limit=_AT_ONCE))
        for position, row in rows:
            if position > manifest.created:
                break
            verified(row, backend.seal)
            yield f"run {position} {row.key.hex()} {row.head_seq} {row.head_digest.hex()} {origin_of(row).hex()} {json.dumps(row.id)}\n"
            count += 1
        if len(rows) < _AT_ONCE or rows[-1][0] >= manifest.created:
            break
        after = rows[-1][0]
    yield f"end {count}\n"


class HeadsFile:
    """An open file of heads whose signature was verified. Raises `UntrustedHeads` for anything else."""

    def __init__(self, path: str | os.PathLike[str], key: PublicKey):
        self.path = Path(path)
        self._file = _opened(self.path)
        try:
            self._digest = self._signed_by(key)
            self._file.seek(0)
            lines = self._lines()
            next(lines)
            self.header = self._header(next(lines))
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> HeadsFile:
        return self

    def __exit__(self, *problem: object) -> None:
        self._file.close()

    def heads(self) -> Iterator[Head]:
        """Yield the heads in order of position. At the end, the file is compared with what was signed, in case it was replaced meanwhile."""
        self._file.seek(0)
        digest, count, last = sha256(), 0, 0
        ended = False
        for number, line in enumerate(self._lines(), 1):
            if line.startswith("signature "):
                break
            digest.update(line.encode("ascii") + b"\n")
            if number <= 2:
                continue
            if line.startswith("run "):
                head = self._head(number, line)
                if ended or not last < head.position <= self.header.created:
                    raise self._refused(f"line {number} is not in the order of creation")
                last, count = head.position, count + 1
                yield head
            elif line == f"end {count}" and not ended:
                ended = True
            else:
                raise self._refused(f"line {number} is not a head, or the number of heads is wrong")
        if not ended or digest.digest() != self._digest:
            raise self._refused("it was changed while it was read, or its end is missing")

    def _signed_by(self, key: PublicKey) -> bytes:
        """Verify the signature over everything before it; return the digest of that."""
        digest, last = sha256(), ""
        for number, line in enumerate(self._lines(), 1):
            if number == 1:
                self._check_version(line)
            else:
                digest.update(last.encode("ascii") + b"\n")
            last = line
        words = last.split(" ")
        if len(words) != 3 or words[0] != "signature":
            raise self._refused("its last line is not a signature: the file is cut off, or something was appended")
        try:
            signature = base64.b64decode(words[2], validate=True)
        except (binascii.Error, ValueError):
            raise self._refused("its signature cannot be read") from None
        if words[1] != key.id:
            raise self._refused(f"it was signed with the key {words[1]:.16}, and the given public key is {key.id}")
        if not key.fits(signature, _DOMAIN + digest.digest()):
            raise self._refused("its signature does not match its content: a line was changed, added, removed or moved")
        return digest.digest()

    def _lines(self) -> Iterator[str]:
        """Yield lines without their end. No line is longer than a head can be, so any file is read with little memory."""
        number = 0
        while line := self._file.readline(_LINE + 1):
            number += 1
            if len(line) > _LINE or not line.endswith(b"\n") or not line.isascii():
                raise self._refused(f"line {number} is too long, has no end, or is not ASCII")
            yield line[:-1].decode("ascii")
        if not number:
            raise self._refused("it is empty")

    def _check_version(self, line: str) -> None:
        name, _, version = line.partition(" ")
        if name != _FORMAT or not version.isdigit() or len(version) > 9:
            raise self._refused("it does not begin as a file of heads does")
        if version != str(_VERSION):
            raise UntrustedHeads(
                f"{self._name} has version {version}, and this Everstep reads version {_VERSION}",
                remedy="Use the version of Everstep that wrote it, or a newer one.",
            )

    def _header(self, line: str) -> Header:
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict) or {name: type(value) for name, value in said.items()} != _HEADER:
            raise self._refused("line 2 does not describe a store")
        return Header(**said)

    def _head(self, number: int, line: str) -> Head:
        found = _RUN.fullmatch(line)
        try:
            run = json.loads(found[6]) if found is not None else None
        except ValueError:
            run = None
        if found is None or not isinstance(run, str):
            raise self._refused(f"line {number} is not a head")
        return Head(int(found[1]), bytes.fromhex(found[2]), int(found[3]), bytes.fromhex(found[4]), bytes.fromhex(found[5]), run)

    @property
    def _name(self) -> str:
        return f"the file of heads {str(self.path)!r}"

    def _refused(self, why: str) -> UntrustedHeads:
        return UntrustedHeads(f"{self._name} cannot be trusted: {why}")


def _opened(path: Path) -> BinaryIO:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not block
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidArgument(f"the file of heads {str(path)!r:.200} cannot be read: {why}", remedy="Check the path.") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InvalidArgument(
            f"the heads must be in a regular file, got {str(path)!r:.200}", remedy="Save them to a file: it is read twice."
        )
    return os.fdopen(descriptor, "rb", buffering=1 << 16)
