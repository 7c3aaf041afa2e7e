"""Report unsafe settings, waste and leftovers of a store, with remedies. Reads only, and never fails because of damage.

The backend describes its engine and location (`Upkeep.health`); the rest is read from runs, manifest and properties. Doctor checks settings
and leftovers. `verify` checks the data itself; doctor reports when that was last done.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from everstep import clock as clocks
from everstep import system
from everstep.backends.contract.core import Backend, Query
from everstep.backends.contract.queues import LIMITS, Limits
from everstep.errors import EverstepError, StoreClosed
from everstep.fields import Shape, field
from everstep.records import ENCRYPTION, Framing, RunRow, Status
from everstep.store.verify import server
from everstep.store.verify.findings import Checkup, Finding, Level
from everstep.store.verify.full_copy_estimate import naive_size, shown_size

_AT_ONCE = 500
_SAFE_SQLITE = (3, 51, 3)
_UNFINISHED = (Status.QUEUED.value, Status.RUNNING.value, Status.WAITING.value, "crashed", "interrupted")
_LEAST_FREE, _LITTLE_FREE = 16 * 1024 * 1024, 256 * 1024 * 1024
_LARGE_WAL = 256 * 1024 * 1024
_DAY_US = 86_400 * 1_000_000
_OLD_US = 30 * _DAY_US
_IDLE_MINUTES = 10


_NAMES = {"verified": "verify", "cleaned": "cleanup"}  # findings whose name differs from the name of their part


class _Seen(Shape):
    """Totals of a walk over all runs."""

    runs: list[tuple[int, RunRow]] = field(default_factory=list)
    """The largest ones, with their positions."""
    statuses: Counter[str] = field(default_factory=Counter)
    stale: list[str] = field(default_factory=list)
    """Runs whose lease belongs to a dead worker."""
    left: list[str] = field(default_factory=list)
    """Runs that are marked running although no process runs them."""
    newest: int = 0
    stored: int = 0


def doctor(backend: Backend, framer: Framing, encrypted: bool = False) -> Checkup:
    return _Doctor(backend, framer, encrypted).all()


class _Doctor:
    def __init__(self, backend: Backend, framer: Framing, encrypted: bool):
        self._backend = backend
        self._framer = framer
        self._encrypted = encrypted
        self._health: dict[str, Any] = {}
        self._seen = _Seen()
        self._now = clocks.clock.now_us()

    def all(self) -> Checkup:
        checkup = Checkup()
        parts: tuple[Callable[[], Iterator[Finding]], ...] = (
            self._system, self._engine, self._storage, self._space, self._left_behind, self._rollback, self._keys, self._manifest, self._runs, self._queues, self._size, self._verified, self._cleaned, self._credentials,
        )  # fmt: skip
        try:
            self._health = self._backend.health()
        except StoreClosed:
            raise
        except EverstepError as error:
            checkup.findings.append(_damaged("engine", error))
        for part in parts:
            try:
                checkup.findings += part()
            except StoreClosed:
                raise
            except EverstepError as error:
                name = part.__name__.strip("_")
                checkup.findings.append(_damaged(_NAMES.get(name, name), error))
        return checkup

    def _system(self) -> Iterator[Finding]:
        if "path" not in self._health:
            return  # a server or memory: does not depend on this operating system
        name, tested = system.name(), " and ".join(system.TESTED)
        sync = "F_FULLFSYNC" if system.needs_full_sync() else "fsync"
        boot = (
            "each boot has an id" if clocks.clock.boot_id() != system.UNKNOWN_BOOT else "boots have no id, so leases end by lock or by time"
        )
        paths = "would be detected" if system.has_marks() else "would be detected only if it is a hard link"
        said = f"{name}: saves are synced with {sync}, {boot}, a second path to the store {paths}"
        yield Finding("ok", "system", said if name in system.TESTED else f"{said}; the test suites run only on {tested}")

    def _engine(self) -> Iterator[Finding]:
        health = self._health
        if version := health.get("version"):
            yield _engine_version(str(health.get("engine")), str(version))
        if mode := health.get("journal_mode"):
            good = mode == "wal"
            remedy = None if good else "Open the store once with write access: Everstep then sets it to wal."
            yield Finding("ok" if good else "warn", "journal mode", f"the journal mode is {mode}", remedy)
        if sync := health.get("synchronous"):
            good = sync in ("full", "extra")
            remedy = str(health.get("sync_remedy", "Update Everstep, or find the program that changes this setting."))
            said = "every commit is synced" if good else f"{_sync(health)}: a power failure may lose saves that have returned"
            yield Finding("ok" if good else "bad", "sync", said, None if good else remedy)
        if health.get("read_only"):
            remedy = str(health.get("write_remedy", "Check the owner of the file and of its folder."))
            yield Finding("warn", "writing", f"the store is not writable: {health['read_only']}", remedy)
        yield from server.findings(health)

    def _storage(self) -> Iterator[Finding]:
        kind, health = self._health.get("file_system"), self._health
        if health.get("network"):
            said = f"the store is on a network file system ({kind}), where locks and shared memory do not work as SQLite needs"
            yield Finding("bad", "file system", said, "Move the store to a local disk of the machine that uses it.")
        elif health.get("volatile"):
            said = f"the store is in memory ({kind or health.get('engine')}) and is lost when the machine or the program stops"
            yield Finding("warn", "file system", said, "Move it to a disk, unless this is intended.")
        elif "network" in health:
            yield Finding("ok", "file system", f"the store is on a local file system ({kind or 'of unknown type'})")
        if "file_mode" in health:
            yield _permissions(int(health["file_mode"]), int(health.get("folder_mode", 0o700)))

    def _space(self) -> Iterator[Finding]:
        health = self._health
        if "disk_free" in health:
            free = int(health["disk_free"])
            level: Level = "bad" if free < _LEAST_FREE else "warn" if free < _LITTLE_FREE else "ok"
            remedy = None if level == "ok" else "Free disk space: store.cleanup() removes everything that retention does not keep."
            yield Finding(level, "free space", f"{shown_size(free)} free on the store's disk", remedy)
        if "free_pages" in health:
            free = int(health["free_pages"]) * int(health["page_size"])
            whole = int(health["pages"]) * int(health["page_size"])
            much = free > max(_LEAST_FREE, whole // 4)
            said = f"{shown_size(free)} of {shown_size(whole)} in the file are unused"
            yield Finding("warn" if much else "ok", "free pages", said, "store.gc() returns them to the system." if much else None)
        if int(health.get("wal_bytes") or 0) > _LARGE_WAL:
            said = f"the WAL has grown to {shown_size(int(health['wal_bytes']))}: a long-running reader prevents a checkpoint"
            yield Finding("warn", "wal", said, "Stop programs that keep reading the store for hours.")

    def _left_behind(self) -> Iterator[Finding]:
        """Find copies that a killed creation or repair left behind: they may contain all data of a store."""
        if left := self._health.get("left_behind"):
            from shlex import quote

            files = "1 file" if len(left) == 1 else f"{len(left)} files"
            said = f"{files} ({shown_size(sum(left.values()))}) of a killed creation or repair are left in its folder"
            yield Finding("warn", "leftovers", said, "Remove them; no run needs them: rm " + " ".join(map(quote, left)))

    def _rollback(self) -> Iterator[Finding]:
        if "seen" not in self._health:
            return
        seen, writes = self._health["seen"], self._health.get("writes")
        if seen is None:
            said = "this machine has not recorded the store yet, so a rollback to an older file would not be detected"
            yield Finding("ok", "rollback guard", said)
        elif isinstance(writes, int) and seen > writes:
            said = f"{seen - writes} writes that this machine has seen are missing from the store: an older file was put back"
            yield Finding("bad", "rollback guard", said, "Restore the newer file with its -wal, or open this one with accept_older=True.")
        else:
            yield Finding("ok", "rollback guard", "a rollback to an older file would be detected")

    def _keys(self) -> Iterator[Finding]:
        """Find keys that are still under a former key. Needs no key."""
        text = self._backend.get_property(ENCRYPTION)
        if text is not None:
            from everstep.store.encryption.old_keys import finding

            yield finding(self._backend, text)

    def _manifest(self) -> Iterator[Finding]:
        census = self._backend.census()
        whole = census.total == census.found_total and census.runs == census.found_runs
        if whole and census.created == census.found_runs + census.tombstones:
            yield Finding("ok", "manifest", f"no run is missing: {census.runs} present, {census.tombstones} deleted")
        else:
            said = "the runs do not match the manifest"
            yield Finding("bad", "manifest", said, "store.verify('full') lists all damage; everstep.repair writes a new good store.")

    def _runs(self) -> Iterator[Finding]:
        self._walk()
        seen = self._seen
        ahead = seen.newest - self._now
        if ahead > 1_000_000:
            said = f"the newest record is {ahead // 1_000_000:,} seconds in the future: the clock was set back"
            yield Finding(
                "warn", "clock", f"{said}; the order of records does not depend on the clock, retention by age does", "Set the clock."
            )
        else:
            yield Finding("ok", "clock", "no record is from the future")
        yield _unfinished(seen)
        if seen.stale:
            said = f"{_some(seen.stale)} held by workers that have died"
            yield Finding(
                "warn", "leases", said, "No action needed: the next process that opens or resumes such a run takes it over at once."
            )
        else:
            yield Finding("ok", "leases", "no dead worker holds a run")

    def _walk(self) -> None:
        seen, after = self._seen, 0
        while True:
            rows = self._backend.runs(Query(oldest_first=True, after=after, limit=_AT_ONCE))
            for after, row in rows:  # noqa: B007 -- the last one is the cursor
                seen.newest = max(seen.newest, row.updated_at, row.created_at)
                seen.stored += row.stored
                driven = row.worker is not None and self._backend.holder(row) is not None
                seen.statuses[_seen_status(row, driven)] += 1
                if row.worker is not None and not driven:
                    seen.stale.append(row.id)
                if (
                    row.status == Status.RUNNING.value and not driven and self._backend.queue_entry(row.id) is None
                ):  # otherwise a worker will resume it
                    seen.left.append(row.id)
            seen.runs = sorted([*seen.runs, *rows], key=lambda pair: -pair[1].stored)[:_AT_ONCE]
            if len(rows) < _AT_ONCE:
                return

    def _queues(self) -> Iterator[Finding]:
        """Check that ready runs are being claimed. A queue with a rate may be full for a long time, so it is skipped."""
        for depth in self._backend.depths(_IDLE_MINUTES):
            late = depth.oldest is not None and self._now - depth.oldest > _IDLE_MINUTES * 60_000_000
            busy = depth.running or any(minute[0] for minute in depth.minutes)
            if late and not busy and Limits.parse(self._backend.get_property(LIMITS + depth.queue)).rate is None:
                ready = "1 run is" if depth.ready == 1 else f"{depth.ready:,} runs are"
                said = f"{ready} ready in queue {depth.queue!r}, but no worker has claimed a run for {_IDLE_MINUTES} minutes"
                yield Finding(
                    "warn",
                    "queues",
                    said,
                    f"Start a worker that has their workflows: everstep worker --queue {depth.queue} --import MODULE.",
                )

    def _size(self) -> Iterator[Finding]:
        stats = self._backend.stats()
        stored = stats["record_bytes"] + stats["chunk_bytes"]
        disk = f" ({shown_size(stats['file_bytes'])} on disk)" if stats["file_bytes"] else ""
        naive = naive_size(self._backend, self._framer, [row for _, row in self._seen.runs], self._seen.stored)
        if naive is None:
            yield Finding("ok", "size", f"{shown_size(stored)} stored{disk}; no checkpoint yet to compare with")
        else:
            yield Finding("ok", "size", f"{shown_size(stored)} stored{disk}; {naive.sentence(stored)}")

    def _verified(self) -> Iterator[Finding]:
        properties = {name.removeprefix("verify."): _read(value) for name, value in self._backend.properties("verify.").items()}
        known = {depth: said for depth, said in properties.items() if type(said.get("at")) is int}
        remedy = "store.verify('full')"
        if not known:
            yield Finding("warn" if self._seen.statuses else "ok", "verify", "never verified", remedy if self._seen.statuses else None)
            return
        bad = [depth for depth, said in known.items() if not said.get("ok")]
        words = [f"{depth} {self._ago(said['at'])}{_how(said)}" for depth, said in sorted(known.items(), key=lambda item: -item[1]["at"])]
        old = self._now - max(said["at"] for said in known.values()) > _OLD_US
        level: Level = "bad" if bad else "warn" if old else "ok"
        never = "" if "full" in known else "; never in full, which also checks every state and the whole file"
        yield Finding(level, "verify", f"last verified: {', '.join(words)}{never}", None if level == "ok" else remedy)

    def _cleaned(self) -> Iterator[Finding]:
        policies = len(self._backend.properties("retention"))
        said = _read(self._backend.get_property("cleanup.last") or "{}")
        if type(said.get("at")) is int:
            freed = f", {shown_size(said['freed'])} freed" if type(said.get("freed")) is int else ""
            troubled = bool(said.get("problems"))
            remedy = "store.cleanup() reports damaged data and does not touch it." if troubled else None
            sentence = f"last cleaned up {self._ago(said['at'])}{freed}{', with problems' if troubled else ''}"
            yield Finding("warn" if troubled else "ok", "cleanup", sentence, remedy)
        elif policies:
            yield Finding("warn", "cleanup", f"{policies} retentions are set, but clean-up has never run", "store.cleanup()")
        else:
            yield Finding("ok", "cleanup", "everything is kept: no retention is set, and clean-up has never run")

    def _credentials(self) -> Iterator[Finding]:
        """Look for credentials that everybody who can read the store can read."""
        if self._encrypted:
            return
        from everstep.redact import Redactor
        from everstep.store.verify.credentials import credentials

        yield from credentials(self._backend, Redactor.default(), sum(self._seen.statuses.values()))

    def _ago(self, at: int) -> str:
        days = (self._now - at) // _DAY_US
        return f"{days:,} days ago" if days > 1 else "yesterday" if days == 1 else "today"


def _damaged(name: str, error: EverstepError) -> Finding:
    return Finding("bad", name, error.message, "store.verify('full') lists all damage.")


def _engine_version(engine: str, version: str) -> Finding:
    numbers = tuple(int(part) for part in version.split(".") if part.isdecimal())
    if engine != "SQLite" or numbers >= _SAFE_SQLITE:
        return Finding("ok", "engine", f"{engine} {version}")
    said = f"SQLite {version} can damage a store when it restarts its WAL; fixed in {'.'.join(map(str, _SAFE_SQLITE))}"
    return Finding("warn", "engine", said, "Install a newer apsw, which brings its own SQLite.")


def _sync(health: dict[str, Any]) -> str:
    return "the server runs with fsync = off" if health.get("engine") == "PostgreSQL" else f"synchronous is {health['synchronous']}"


def _permissions(file: int, folder: int) -> Finding:
    wrong = []
    if file & 0o077:
        wrong.append(f"other users may read or write the file (mode {file:o})")
    if folder & 0o022 and not folder & 0o1000:
        wrong.append(f"other users may replace the file (mode {folder:o} of the folder)")
    if wrong:
        return Finding("warn", "permissions", " and ".join(wrong), "Use chmod 600 for the file and chmod 700 for its folder.")
    return Finding("ok", "permissions", "only the owner may read and write the file")


def _seen_status(row: RunRow, driven: bool) -> str:
    """Return the status of a run as lists of runs show it: one that is marked running, but that no process runs, has another word."""
    if row.status != Status.RUNNING.value or driven:
        return row.status
    return "interrupted" if row.worker is None else "crashed"


def _unfinished(seen: _Seen) -> Finding:
    words = ", ".join(f"{seen.statuses[status]} {status}" for status in _UNFINISHED if seen.statuses[status])
    if not words:
        return Finding("ok", "unfinished runs", "none")
    if seen.left:
        said = f"{words}; {_some(seen.left)} marked running, but no process runs {'them' if len(seen.left) > 1 else 'it'}"
        return Finding("warn", "unfinished runs", said, "Resume or cancel them: store.resume(run_id), store.cancel(run_id).")
    return Finding("ok", "unfinished runs", words)


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"{len(names)} runs ({shown}) are" if len(names) > 1 else f"1 run ({shown}) is"


def _how(said: dict[str, Any]) -> str:
    if not said.get("ok"):
        return f" with {said.get('problems', 'some')} problems"
    return "" if said.get("complete", True) else " (incomplete)"


def _read(text: str) -> dict[str, Any]:
    """Parse a property as JSON. Properties are labels: an invalid one counts as absent."""
    try:
        said = json.loads(text)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
