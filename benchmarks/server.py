"""A PostgreSQL server for the rows that need one: real, with fsync, on the disk that the other rows are measured on.

Within a row all programs use the same server, each with its own database, reached by the same address. `TEST_POSTGRES_URL` names another
server; then its disk is measured.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.options import Options
from everstep.testing.postgres import Server


@contextmanager
def started(options: Options, fsync: bool = True) -> Iterator[Server]:
    """Start a server for one row. Its settings are PostgreSQL's own, except for the number of connections. One without fsync shows the cost
    without the disk.
    """
    # The server's folder must be beside ours, not in it: ours is closed to the user that the server runs as.
    before, tempfile.tempdir = tempfile.tempdir, str(options.folder.parent)
    try:
        server = Server.start(fsync=fsync, max_connections=300)
    finally:
        tempfile.tempdir = before
    with server:
        settings = {name: server.execute(f"SHOW {name}")[0][0] for name in ("fsync", "synchronous_commit", "full_page_writes")}
        if fsync and set(settings.values()) != {"on"}:
            raise RuntimeError(f"a figure from a server that does not wait for its disk means nothing: {settings}")
        yield server


def version(server: Server) -> str:
    """Return the version of the server, for notes."""
    return f"PostgreSQL {str(server.execute('SHOW server_version')[0][0]).split()[0]}"
