"""A program at a real terminal. Never forked from this process, which has threads: the child might hang before it begins."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from typing import Any

import warm
from pexpect import EOF, fdpexpect

# The child makes the terminal its own, so that Ctrl-C reaches it as a signal, and becomes the program.
_BECOME = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvpe(sys.argv[1], sys.argv[1:], os.environ)"


class Terminal(fdpexpect.fdspawn):  # type: ignore[misc]
    """Talks like `pexpect.spawn`: `expect`, `send`, `before`; `ended` waits for the end and gives the exit code."""

    def __init__(
        self,
        *command: str,
        rows: int = 40,
        columns: int = 100,
        timeout: float = 60,
        encoding: str | None = "utf-8",
        new: bool = False,
        **options: Any,
    ):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        try:
            options |= {"stdin": theirs, "stdout": theirs, "stderr": theirs, "start_new_session": True}
            if not new and warm.can(command, options.get("env")):
                self.process = warm.Popen(command, terminal=True, **options)
            else:
                self.process = subprocess.Popen([sys.executable, "-c", _BECOME, *command], **options)
        finally:
            os.close(theirs)
        super().__init__(ours, timeout=timeout, encoding=encoding, maxread=65_536)
        self.delaybeforesend = None

    def sendintr(self) -> None:
        """Type Ctrl-C."""
        self.send("\x03")

    def sendeof(self) -> None:
        """Type Ctrl-D."""
        self.send("\x04")

    def ended(self) -> int:
        """The exit code, as a shell has it."""
        self.expect(EOF)
        code = self.process.wait(timeout=60)
        self.close()
        return code if code >= 0 else 128 - code

    def stop(self) -> None:
        """End it, however it stands."""
        self.process.kill()
        self.process.wait()
        if not self.closed:
            self.close()
