"""Two actions on a small store: its key is replaced; it is changed from plain to encrypted. And what must be true after a crash.

    rekey      the new key and the former one together open everything; the next call finishes; then the new one alone opens everything, and
               the former one is refused by name
    encrypt    the plain store or the encrypted one is there, with everything; the next call finishes; the plain one is kept or shredded

After an acknowledgement (a line `done` in the log), that must be true without a next call. Relies on public names, except for the broken actions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import everstep
from everstep.backends.sqlite import keys as sqlite_keys
from everstep.backends.sqlite.backend import SqliteBackend
from everstep.backends.sqlite.files import create
from everstep.backends.sqlite.recovery import exchange
from everstep.errors import EverstepError, NotEncrypted, OldKey
from everstep.store.encryption import rekey as rekeying
from harness.faults.damage.repairs import contents
from harness.faults.verdict import Verdict, leftovers

OLD, NEW = bytes(range(1, 33)), bytes(range(33, 65))
DONE = b"done\n"
_RUNS = 5
Acknowledge = Callable[[], object]


def store_in(folder: Path) -> Path:
    return folder / "store" / "store.db"


def fill(folder: Path, key: bytes | None) -> None:
    """Make the store, and write down what is in it."""
    path = store_in(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    with everstep.open(path, key=key) as store:
        for n in range(_RUNS):
            with store.run(f"r{n}", state={"n": n, "long": [f"{n} {i} " * 50 for i in range(20)]}, tags=["all"]) as run:
                run.step("think", abs, n)
                run.checkpoint(f"note {n}", tags=[f"t{n}"])
        store.tag("r1@1", "later")
        store.fork("r2@1", "fork")
        store.delete("r4")
        (folder / "expected").write_text(json.dumps(contents(store)))
    (folder / "log").touch()


def rekey(folder: Path, acknowledge: Acknowledge | None = None) -> None:
    with everstep.open(store_in(folder), key=OLD) as store:
        with patch.object(rekeying, "FOLLOW_SECONDS", 0), patch.object(rekeying, "_AT_ONCE", 2):
            store.rekey(NEW)
        _tell(folder, acknowledge)


def encrypt(folder: Path, acknowledge: Acknowledge | None = None, shred: bool = False) -> None:
    everstep.encrypt(store_in(folder), NEW, shred=shred)
    _tell(folder, acknowledge)


def encrypt_and_shred(folder: Path, acknowledge: Acknowledge | None = None) -> None:
    encrypt(folder, acknowledge, shred=True)


def _tell(folder: Path, acknowledge: Acknowledge | None) -> None:
    if acknowledge is not None:
        acknowledge()
    else:
        (folder / "log").write_bytes(DONE)


def judge_rekey(folder: Path) -> Verdict:
    verdict, path = Verdict(), store_in(folder)
    if (folder / "log").read_bytes() == DONE:
        _look(folder, verdict, "acknowledged, with the new key alone", key=NEW)
        _refused(path, verdict, "acknowledged, and the former key opens it")
    _look(folder, verdict, "with both keys", key=NEW, old_keys=[OLD])
    if verdict.ok:
        with everstep.open(path, key=NEW, old_keys=[OLD]) as store, patch.object(rekeying, "FOLLOW_SECONDS", 0):
            store.rekey(NEW)
        _look(folder, verdict, "finished, with the new key alone", key=NEW)
        _refused(path, verdict, "finished, and the former key opens it")
        verdict.leftovers.extend(leftovers(path))
    return verdict


def judge_encrypt(folder: Path) -> Verdict:
    return _judge_change(folder, shred=False)


def judge_shred(folder: Path) -> Verdict:
    return _judge_change(folder, shred=True)


def _judge_change(folder: Path, shred: bool) -> Verdict:
    verdict, path = Verdict(), store_in(folder)
    done = (folder / "log").read_bytes() == DONE
    encrypted = _is_encrypted(path, verdict)
    if done and not encrypted:
        verdict.lost.append("acknowledged, and the store is plain")
    _look(folder, verdict, "after the crash", **({"key": NEW} if encrypted else {}))
    if not verdict.ok:
        return verdict
    everstep.encrypt(path, NEW, shred=shred)
    _look(folder, verdict, "finished", key=NEW)
    kept = sorted(path.parent.glob("store.db.plain-*"))
    for old in kept:
        with everstep.open(old, create=False) as store:
            if contents(store) != json.loads((folder / "expected").read_text()):
                verdict.wrong.append(f"the old store {old.name} differs")
    if shred and kept:
        verdict.leftovers.extend(f"{old.name} was not shredded" for old in kept)
    if not shred and len(kept) != 1:
        verdict.lost.append(f"{len(kept)} old stores were kept instead of one")
    verdict.leftovers.extend(name for name in leftovers(path) if not name.startswith("store.db.plain-"))
    return verdict


def _is_encrypted(path: Path, verdict: Verdict) -> bool:
    try:
        with everstep.open(path, create=False, key=NEW):
            return True
    except NotEncrypted:
        return False
    except EverstepError as error:
        verdict.lost.append(f"no store opens: {error.message}")
        return False


def _look(folder: Path, verdict: Verdict, when: str, **keys: Any) -> None:
    """Compare the store with what is expected in it."""
    expected = json.loads((folder / "expected").read_text())
    try:
        with everstep.open(store_in(folder), create=False, **keys) as store:
            found = contents(store)
            verdict.detected.extend(f"{when}: {problem}" for problem in store.verify("full").problems)
            verdict.missing.extend(f"{when}: run {run!r}" for run in expected if run not in found)
            verdict.wrong.extend(f"{when}: run {run!r} differs" for run in found if found[run] != expected.get(run))
    except EverstepError as error:
        verdict.lost.append(f"{when}: {error.message}")


def _refused(path: Path, verdict: Verdict, said: str) -> None:
    try:
        with everstep.open(path, create=False, key=OLD):
            verdict.wrong.append(said)
    except OldKey:
        return


@contextmanager
def hasty_keys() -> Iterator[None]:
    """Replace a key in two transactions: remove it, then add the new one."""

    def replace_keys(self: Any, changes: Any) -> int:
        gone = [(family, old, b"\xc0" * len(old)) for family, old, _ in changes]
        self._writer.call(sqlite_keys.replace_keys, gone)
        done: int = self._writer.call(sqlite_keys.replace_keys, [(family, b"\xc0" * len(old), new) for family, old, new in changes])
        return done

    with patch.object(SqliteBackend, "replace_keys", replace_keys):
        yield


@contextmanager
def two_step_exchange() -> Iterator[None]:
    """Remove the old name, then give the new store its own: for a moment there is none."""
    real = create.link

    def link(path: Path, name: Path) -> bool:
        made = real(path, name)
        path.unlink()
        return made

    with patch.object(exchange, "link", link):
        yield


@contextmanager
def unsynced_folder() -> Iterator[None]:
    """Never sync the folder after the exchange: the name may still lead to the old store when that is overwritten."""
    with patch.object(exchange, "sync_folder", lambda folder: None):
        yield


BROKEN: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "": nullcontext,
    "a key that is replaced in two steps": hasty_keys,
    "stores that are exchanged in two steps": two_step_exchange,
    "an old store that is overwritten before the folder is synced": unsynced_folder,
}


def broken(name: str, act: Callable[..., None]) -> Callable[..., None]:
    """Return an action with a defect."""

    def acted(folder: Path, acknowledge: Acknowledge | None = None) -> None:
        with BROKEN[name]():
            act(folder, acknowledge)

    return acted
