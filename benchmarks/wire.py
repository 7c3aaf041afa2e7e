"""A wire between a program and its PostgreSQL server that counts round trips and statements.

A round trip is a request that follows an answer: what a pipeline sends together is one. A statement is a message that has the server execute
something. The messages are read as they pass, so nothing is assumed of the program; it needs a connection without TLS.
"""

from __future__ import annotations

import select
import socket
import struct
import tempfile
import threading
from types import TracebackType
from typing import Self
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

_EXECUTE, _QUERY = ord("E"), ord("Q")
_PORT = 5432


class Wire:
    """`with Wire(url) as wire:` connect to `wire.url`; `trips` and `statements` grow with all connections."""

    def __init__(self, url: str) -> None:
        self._asked = conninfo_to_dict(url)
        # The path of a socket is limited to about a hundred characters, so the folder is not inside that of the benchmark.
        self._folder = tempfile.TemporaryDirectory(prefix="wire")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{self._folder.name}/.s.PGSQL.{_PORT}")
        self._listener.listen(64)
        self._lock = threading.Lock()
        self.trips = 0
        self.statements = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        user, password, database = (quote(str(self._asked.get(name) or ""), safe="") for name in ("user", "password", "dbname"))
        who = f"{user}:{password}" if password else user
        return f"postgresql://{who}@/{database}?host={quote(self._folder.name, safe='')}&port={_PORT}"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass, args=(client, self._connected()), daemon=True).start()

    def _connected(self) -> socket.socket:
        host, port = str(self._asked.get("host") or "localhost"), int(self._asked.get("port") or _PORT)
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
        return server

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        answered, messages = True, Messages()
        with client, server:
            while True:
                source = select.select([client, server], [], [])[0][0]
                data = source.recv(1 << 16)
                if not data:
                    return
                if source is client:
                    with self._lock:
                        self.trips += answered
                        self.statements += messages.executed(data)
                answered = source is server
                (server if source is client else client).sendall(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._listener.close()
        self._folder.cleanup()


class Messages:
    """Splits a client's bytes into messages: a type and a length, except for the first, which has no type."""

    def __init__(self) -> None:
        self._held = b""
        self._first = True

    def executed(self, data: bytes) -> int:
        """Return the number of statements in the messages that are complete by now."""
        self._held += data
        count = 0
        while True:
            head = 0 if self._first else 1
            if len(self._held) < head + 4:
                return count
            end = head + struct.unpack_from("!I", self._held, head)[0]
            if len(self._held) < end:
                return count
            count += not self._first and self._held[0] in (_EXECUTE, _QUERY)
            self._first = False
            self._held = self._held[end:]
