"""A connection between workers and a PostgreSQL server, cut repeatedly: before a request reaches the server, or before its reply comes
back.

Only for a server that listens on a socket of its folder. A cut ends the connection that it hits, as a broken network does.
"""

from __future__ import annotations

import random
import select
import socket
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

_NAME = ".s.PGSQL.5432"


class Wire:
    """Passes bytes on, and cuts about one of `every` messages."""

    def __init__(self, url: str, folder: Path, every: int, seed: int = 0):
        self._parts = urlsplit(url)
        self._target = f"{dict(parse_qsl(self._parts.query))['host']}/{_NAME}"
        self._folder = folder
        self._every = every
        self._rng = random.Random(seed)  # noqa: S311
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / _NAME))
        self._listener.listen(200)
        self.whole = False
        self.cuts = {"request": 0, "reply": 0}
        threading.Thread(target=self._accept, name="wire", daemon=True).start()

    @property
    def url(self) -> str:
        query = [(k, v) for k, v in parse_qsl(self._parts.query) if k != "host"] + [("host", str(self._folder))]
        return urlunsplit(self._parts._replace(query=urlencode(query, quote_via=quote)))

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._join, args=(client,), name="wire", daemon=True).start()

    def _join(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):  # a closed end closes the other one
            server.connect(self._target)
            while self._pass_on(client, server):
                continue

    def _pass_on(self, client: socket.socket, server: socket.socket) -> bool:
        """Pass the next bytes on; False at the end, or at a cut."""
        source = select.select([client, server], [], [])[0][0]
        data = source.recv(1 << 16)
        if not data or self._cut("request" if source is client else "reply"):
            return False
        (server if source is client else client).sendall(data)
        return True

    def _cut(self, where: str) -> bool:
        if self.whole or self._rng.randrange(self._every):
            return False
        self.cuts[where] += 1
        return True

    def close(self) -> None:
        self._listener.close()
