"""The acknowledgement log: the outcome of each operation of a program, one JSON line each, outside the store's folder.

    {"at": "begin", "what": "checkpoint", "run": "loop", "key": "turn 3, try 7", "digest": "…"}      about to be called
    {"at": "done", …, "number": 3}                                                                     the call returned
    {"at": "refused", …, "written": "no", "code": "E404", "error": "…"}                               it raised

`begin` is written before the call and `done` after it, each in one unbuffered write, so that the log of a killed process is right: an
operation that is done was acknowledged, and one that is only begun may or may not have happened. The power stays on here: a harness that
cuts the power overrides `write` and keeps the lines in the order of the file operations.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from everstep.codec.values import encode
from everstep.errors import EverstepError


def digest_of(value: Any) -> str:
    """Return a digest that identifies a value, types included."""
    return sha256(encode(value)).hexdigest()[:24]


@dataclass(slots=True)
class Entry:
    """One line."""

    at: str
    what: str
    run: str = ""
    key: str = ""
    digest: str = ""
    number: int = 0
    written: str = ""
    code: str = ""
    error: str = ""
    more: list[Any] = field(default_factory=list)

    def line(self) -> bytes:
        said = {name: value for name in Entry.__slots__ if (value := getattr(self, name))}
        return json.dumps(said, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def read_log(path: Path) -> list[Entry]:
    """Read all lines, except a last one that was cut off."""
    content = path.read_bytes() if path.exists() else b""
    return [Entry(**json.loads(line)) for line in content.split(b"\n")[:-1]]


class Log:
    """A log that is being written; the lines of earlier processes come before those of this one."""

    def __init__(self, path: Path):
        self.entries = read_log(path)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, line: bytes) -> None:
        os.write(self._descriptor, line)

    def close(self) -> None:
        os.close(self._descriptor)

    def say(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.write(entry.line())

    def is_done(self, what: str, run: str = "", key: str = "") -> bool:
        return any((e.at, e.what, e.run, e.key) == ("done", what, run, key) for e in self.entries)

    def is_begun(self, what: str, run: str = "", key: str = "") -> bool:
        return any((e.at, e.what, e.run, e.key) == ("begin", what, run, key) for e in self.entries)

    @contextmanager
    def op(
        self, what: str, run: str = "", key: str = "", value: Any = None, *, digest: str = "", more: list[Any] | None = None
    ) -> Iterator[Entry]:
        """Log one operation. Inside the block, `number` may be set; an error is logged with its `written`."""
        digest = digest or (digest_of(value) if value is not None else "")
        self.say(Entry("begin", what, run, key, digest, more=more or []))
        done = Entry("done", what, run, key, digest, more=more or [])
        try:
            yield done
        except EverstepError as error:
            self.say(Entry("refused", what, run, key, digest, written=error.written, code=error.code, error=error.message))
            raise
        self.say(done)
