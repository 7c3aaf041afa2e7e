"""Keeps typed lines in a file of the user, which no other user can read: the newest 1,000, one per line.

Never keeps a line that looks like it contains a secret. If the file cannot be written, history lasts as long as the shell.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from everstep.cli.draw.text import safe
from everstep.redact import Redactor

MOST = 1_000


def path() -> Path | None:
    """Return the history file: $XDG_STATE_HOME/everstep/history, or the same in ~/.local/state. None for a user without a home."""
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        folder = given if given.is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return folder / "everstep" / "history"


class History:
    """The lines of this shell and of earlier ones."""

    def __init__(self, file: Path | None, redactor: Redactor):
        self._file = file
        self._redactor = redactor
        self.lines = self._read()[-MOST:]

    def add(self, line: str) -> bool:
        """Add a line; return False if it is not kept."""
        if not line.strip() or safe(line) != line or self._redactor.text(line) != line or self.lines[-1:] == [line]:
            return False
        self.lines.append(line)
        with suppress(OSError):  # kept in memory only
            self._append(line)
        return True

    def close(self) -> None:
        """Cut the file to its newest lines. Another shell may have added some."""
        lines = self._read()
        if self._file is None or len(lines) <= MOST:
            return
        beside = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        with suppress(OSError):  # the file stays too long, but the next shell reads only its end
            beside.touch(0o600)
            beside.write_text("".join(f"{line}\n" for line in lines[-MOST:]), encoding="utf-8")
            beside.replace(self._file)

    def _read(self) -> list[str]:
        try:
            return [] if self._file is None else self._file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []  # missing, or not readable

    def _append(self, line: str) -> None:
        if self._file is None:
            return
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.fchmod(handle, 0o600)
            os.write(handle, f"{line}\n".encode())
        finally:
            os.close(handle)
