"""A wire to a PostgreSQL server that breaks at a chosen message and stays broken for a while: an outage at any moment of a program."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from harness.workers.wire import Wire


class Outage(Wire):
    """Passes bytes on. `arm` chooses the message at which the server is gone, and how many attempts to connect fail before it is back."""

    def __init__(self, url: str, folder: Path):
        self._change = threading.Lock()
        self.away = self.armed = False
        self.seen = 0
        self._at, self._where, self._length = 0, "request", 0
        super().__init__(url, folder, every=1)

    def arm(self, at: int, where: str, length: int) -> None:
        """The server is gone at the message number `at` from now on: before this "request", before this "reply", or "after" it. 0: never, messages are only counted."""
        with self._change:
            self.seen, self.away, self.armed = 0, False, at > 0
            self._at, self._where, self._length = at, where, length

    def _cut(self, where: str) -> bool:
        with self._change:
            if self.away:
                return True
            if where != ("reply" if self._where == "after" else self._where):
                return False
            self.seen += 1
            if self.armed and self.seen == self._at:
                self.away, self.armed = True, False
            return self.away and self._where != "after"

    def _join(self, client: socket.socket) -> None:
        with self._change:
            refused = self.away
            if refused:
                self._length -= 1
                self.away = self._length > 0
        if refused:
            client.close()
        else:
            super()._join(client)
