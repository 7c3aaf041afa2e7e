"""A wire between a store and its server that can be cut before the request or before the reply, and that counts round trips."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit


class Proxy:
    """Listens on a socket of its own and passes bytes on. Cuts concern connections that are open when the next bytes come."""

    def __init__(self, url: str, folder: Path):
        self._parts = urlsplit(url)
        self._target = f"{dict(parse_qsl(self._parts.query))['host']}/.s.PGSQL.5432"
        self._folder = folder
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self.cut: str | None = None  # "request", "reply", or None
        self.refuse = False
        self.requests = 0
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        query = [(k, v) for k, v in parse_qsl(self._parts.query) if k != "host"] + [("host", str(self._folder))]
        return urlunsplit(self._parts._replace(query=urlencode(query, quote_via=quote)))

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refuse:
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with client, server, suppress(OSError):  # one that broke off has ended, and the other hears of it
            self._pass(client, server)

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        """Bytes of the client that follow bytes of the server are a new request."""
        answered = True
        while True:
            readable, _, _ = select.select([client, server], [], [])
            source = readable[0]
            data = source.recv(1 << 16)
            if not data:
                break
            if source is client:
                self.requests += answered
                answered = False
                if self.cut == "request":
                    self.cuts += 1
                    self.cut = None
                    break
                server.sendall(data)
            else:
                answered = True
                if self.cut == "reply":
                    self.cuts += 1
                    self.cut = None
                    break
                client.sendall(data)

    def close(self) -> None:
        self._listener.close()
