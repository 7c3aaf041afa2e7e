"""A program: two processes use one store file by two paths. Prints, as JSON, what became of each kind of path and order of events.

python second_paths.py FOLDER [broken | ORDER]      in a mount namespace of its own, if bind mounts are to be tried
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import everstep
from everstep.backends.sqlite.files import store_file, watch
from everstep.errors import EverstepError, LeaseHeld

KINDS = ("hard link", "hard link elsewhere", "link", "link to folder", "bind file", "bind folder", "moved", "copy")
ONE_STORE = ("link", "link to folder", "bind folder")
ORDERS = (
    "Ao As Bo Bs As Bs Bc Ac", "Bo Bs Ao As Bs As Ac Bc", "Ao As Ac Bo Bs Bc Ao As Ac", "Ao As Ak Bo Bs Bc Ao As Ac",
    "Ao Bo As Bs As Bs Ac Bc", "Bo Bs Bk Ao As Ac",
)  # fmt: skip
_fork = get_context("fork")


class Released:
    def release(self) -> None: ...


def break_checks() -> None:
    for name in ("refuse_links", "refuse_mounted"):
        setattr(store_file, name, lambda path: None)
    store_file.hold = lambda path: Released()  # type: ignore[assignment]
    watch.FileWatch.is_complete = True  # type: ignore[assignment, method-assign]


class Actor:
    """A process that opens, saves and closes on demand, and counts what was acknowledged."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path
        self.acknowledged = 0
        self.refused: list[str] = []
        self._start()

    def _start(self) -> None:
        self._pipe, far = _fork.Pipe()
        self._process = _fork.Process(target=_act, args=(far, self.name, self.path))
        self._process.start()

    def do(self, what: str) -> None:
        if what == "k":
            os.kill(self._process.pid or 0, signal.SIGKILL)
            self._process.join()
            self._start()
            return
        self._pipe.send(what)
        said = self._pipe.recv()
        if isinstance(said, str):
            self.refused.append(said)
        else:
            self.acknowledged += said

    def end(self) -> None:
        self._pipe.send("e")
        self._process.join(20)


def _act(pipe: Any, name: str, path: Path) -> None:
    store = None
    while (what := pipe.recv()) != "e":
        try:
            if what == "o":
                store = everstep.open(path, create=False)
            elif what == "s" and store is not None:
                with store.run(name, state={"n": 0}) as run:
                    for _ in range(8):
                        run.state["n"] += 1
                        run.checkpoint()
            elif what == "c" and store is not None:
                store.close()
                store = None
            pipe.send(8 if what == "s" and store is not None else 0)
        except EverstepError as error:
            pipe.send(error.code)
    os._exit(0)


def second_path(kind: str, path: Path) -> Path:
    folder = path.parents[1] / "second"
    if kind == "hard link":
        os.link(path, path.with_name("t.db"))
        return path.with_name("t.db")
    if kind == "link to folder":
        folder.symlink_to(path.parent)
        return folder / path.name
    folder.mkdir()
    other = folder / path.name
    if kind == "hard link elsewhere":
        os.link(path, other)
    elif kind == "link":
        other.symlink_to(path)
    elif kind == "bind file":
        other.touch()
        subprocess.run(["mount", "--bind", path, other], check=True)
    elif kind == "bind folder":
        subprocess.run(["mount", "--bind", path.parent, folder], check=True)
    elif kind == "copy":
        shutil.copy(path, other)
    return other


def put_back(kind: str, path: Path, other: Path) -> None:
    """Only the first path again, as an operator would have it."""
    if kind.startswith("hard link"):
        other.unlink()
    elif kind == "moved" and other.exists():
        other.rename(path)
        wal = Path(f"{other}-wal")
        if wal.exists() and not Path(f"{path}-wal").exists():  # of the process that was killed while the file was there
            wal.rename(f"{path}-wal")
    elif kind == "bind file":
        subprocess.run(["umount", other], check=True)
    elif kind == "bind folder":
        subprocess.run(["umount", other.parent], check=True)


def played(kind: str, order: str, folder: Path) -> dict[str, Any]:
    path = folder / "first" / "s.db"
    path.parent.mkdir(parents=True)
    everstep.open(path).close()
    other = second_path(kind, path)
    actors = {"A": Actor("A", path), "B": Actor("B", other)}
    for who, what in order.split():
        if kind == "moved" and (who, what) == ("B", "o") and path.exists():
            path.rename(other)
        actors[who].do(what)
    for actor in actors.values():
        actor.end()
    wal_beside = Path(f"{other}-wal").exists()
    put_back(kind, path, other)
    return {
        "kind": kind,
        "order": order,
        "refused": {name: actor.refused for name, actor in actors.items()},
        "lost": "" if kind == "copy" else lost(path, {name: actor.acknowledged for name, actor in actors.items()}),
        "wal beside": wal_beside,
    }


def lost(path: Path, acknowledged: dict[str, int]) -> str:
    """What is gone of what was acknowledged. An error at open says so by itself."""
    try:
        with everstep.open(path, create=False) as store:
            found = {info.id: store.load(info.id)["n"] for info in store.runs()}
            missing = {name: n - found.get(name, 0) for name, n in acknowledged.items() if n > found.get(name, 0)}
            return f"{missing} of {acknowledged}" if missing else "" if store.verify("full").ok else "damaged"
    except EverstepError as error:
        return "" if error.code == "E412" else f"{error.code} {error.message}"


def leases(folder: Path) -> str:
    """Whether a bind-mounted folder gives one process two leases."""
    path = folder / "first" / "s.db"
    path.parent.mkdir(parents=True)
    with everstep.open(path) as one, one.run("r"), everstep.open(second_path("bind folder", path)) as two:
        try:
            with two.run("r"):
                said = "two leases"
        except LeaseHeld:
            said = "one lease"
        with two.run("other") as run:
            run.checkpoint(state={})
    put_back("bind folder", path, folder / "second" / "s.db")
    return said


def main(folder: Path, how: str) -> None:
    """`how`: "broken" takes the checks away; a number leaves out one half of the orders, the even or the odd ones; otherwise all."""
    broken = how == "broken"
    if broken:
        break_checks()
    (folder / "tried").mkdir(parents=True)
    bind = subprocess.run(["mount", "--bind", folder, folder / "tried"], capture_output=True).returncode == 0
    if bind:
        subprocess.run(["umount", folder / "tried"], check=True)
    kinds = [kind for kind in KINDS if bind or "bind" not in kind]
    orders = ORDERS[:2] if broken else ORDERS[int(how) % 2 :: 2] if how else ORDERS
    results = [played(kind, order, folder / f"{n}-{m}") for n, kind in enumerate(kinds) for m, order in enumerate(orders)]
    print(json.dumps({"bind": bind, "results": results, "leases": leases(folder / "leases") if bind else None}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
