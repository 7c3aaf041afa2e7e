"""Common code of the recorders of SQLite's file calls. Relies on apsw; changes nothing that SQLite sees."""

from __future__ import annotations

import apsw


class RecordedFile(apsw.VFSFile):
    """A file of SQLite's own VFS, made through Python."""

    def xLock(self, level: int) -> None:  # noqa: N802 - SQLite's names
        """Take a lock. SQLite asks for a lock that a file open for reading cannot have, and accepts any refusal; apsw raises all but one."""
        try:
            super().xLock(level)
        except apsw.IOError as error:
            raise apsw.BusyError(str(error)) from error
