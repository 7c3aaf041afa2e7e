"""Keeps a store in PostgreSQL small, and reports on it. Relies on Readers and on the writer's connection.

The server reuses free space inside tables; its VACUUM returns space to the system, which only `compact` runs.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from decimal import Decimal

import psycopg

from everstep import clock as clocks
from everstep.backends.columns import pack_ranges, unpack_tags
from everstep.backends.contract.core import Manifest
from everstep.backends.contract.types import Census, Cut
from everstep.backends.deleted_pks import count
from everstep.backends.postgres.connections.connect import Address, Connection, execute
from everstep.backends.postgres.connections.errors import GRANTS, translated
from everstep.backends.postgres.connections.readers import Readers
from everstep.backends.postgres.rows import chunk_columns, items_or_none
from everstep.errors import Conflict, Damaged, NotFound
from everstep.records import MODULUS, property_check

_STAMPS = 4096
_TABLES = (
    "records",
    "chunks",
    "runs",
    "messages",
    "tags",
    "bases",
    "feed",
    "feed_new",
    "run_tags",
    "run_meta",
    "manifest",
    "workers",
    "keys",
)


class Stamps:
    """The counts of each bucket at certain numbers of writes of the store. A stamp of `sweep` is such a number; this maps it to buckets.

    Within a bucket, writes are sequential: a chunk was written by then if its own stamp is not beyond that of its bucket.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[int, list[int]] = OrderedDict()
        self._lock = threading.RLock()  # reentrant: a finalizer may read during a read

    def note(self, buckets: list[int]) -> int:
        with self._lock:
            self._known[sum(buckets)] = buckets
            while len(self._known) > _STAMPS:
                self._known.popitem(last=False)
        return sum(buckets)

    def at(self, writes: int) -> list[int] | None:
        with self._lock:
            return self._known.get(writes)


def manifest(readers: Readers, stamps: Stamps) -> Manifest:
    ((totals, writes, runs, created, last),) = readers.rows("manifest")
    if totals is None or created is None:
        raise Damaged("the manifest of the store is missing")
    return Manifest(_bytes(sum(map(_whole, totals))), runs, last, created, stamps.note(writes))


def _whole(number: Decimal | int | None) -> int:
    """Return a number of the manifest as an integer: the server's numbers may be fractions, or null."""
    if number is None:
        raise Damaged("the manifest of the store is damaged: the table manifest or counters is empty")
    try:
        return int(number)
    except (ValueError, OverflowError):
        raise Damaged(f"the manifest of the store is damaged: a sum must be an integer, got {number}") from None


def _bytes(total: int) -> bytes:
    return (total % MODULUS).to_bytes(32)


def census(readers: Readers) -> Census:
    """Return the manifest and the sum of all checks, from one statement and so one snapshot."""
    said = {"total": 0, "runs": 0, "created": 0}
    counts = {"found": 0, "gone": 0, "": 0}
    found = forgotten = 0
    for what, number, check, deleted in readers.stream("census"):
        if check is None:
            said[what] += _whole(number)
        else:
            counts[what] += 1
            found += int.from_bytes(check)
            forgotten += 0 if deleted is None else count([deleted])
    return Census(_bytes(said["total"]), said["runs"], said["created"], _bytes(found), counts["found"], counts["gone"] + forgotten)


def prune(connection: Connection, sql: bytes, bucket: int, cut: Cut, again: bool, mark: Callable[[], bytes | None]) -> None:
    """Drop bodies of a run, unless another process pruned it meanwhile."""
    now, bases = cut.now, cut.bases
    values = (
        bucket, cut.run, None if cut.was is None else cut.was.check, now.key, pack_ranges(now.ranges), now.freed, now.at,
        pack_ranges(now.numbers), now.check, [seq for seq, _ in cut.bodies], [digest for _, digest in cut.bodies], list(cut.gone),
        [b.number for b in bases], [b.at for b in bases], [b.body for b in bases], [b.check for b in bases], *chunk_columns(cut.chunks),
        [seq for seq, _ in cut.labels], [digest for _, digest in cut.labels],
    )  # fmt: skip
    ((code,),) = execute(connection, sql, values)
    if code == 2:
        raise NotFound(f"run {cut.run!r} cannot be pruned: it was deleted")
    if code == 4 and not (again and mark() == now.check):
        raise Conflict(f"another process has pruned run {cut.run!r} meanwhile")


def set_property(connection: Connection, sql: bytes, bucket: int, name: str, value: str | None) -> None:
    execute(connection, sql, (bucket, name, value, None if value is None else property_check(name, value)))


def compact(address: Address, size: Callable[[], int]) -> int:
    """Run VACUUM; return by how many bytes the tables became smaller. Blocks no process."""
    before = size()
    with address.connect(seconds=0) as connection:
        try:
            for table in _TABLES:
                connection.execute(f'VACUUM (ANALYZE) "{address.schema}".{table}'.encode())
        except psycopg.Error as error:
            raise translated(error, address.url) from error
    return max(0, before - size())


def check(readers: Readers, stop: Callable[[], bool] | None) -> list[str] | None:
    """Check for orphaned rows, the listing tables, and the feed. The server checks its own pages."""
    found = [text for (text,) in readers.rows("strays")]
    for pk, tags, meta, listed_tags, listed_items in readers.stream("metas"):
        if stop is not None and stop():
            return None
        if set(unpack_tags(tags) or ()) != set(listed_tags):
            found.append(f"the tags of run number {pk} differ from those in the listing table")
        if set(items_or_none(meta)) != set(listed_items):
            found.append(f"the meta of run number {pk} differs from that in the listing table")
    return found


def health(readers: Readers, address: Address) -> dict[str, object]:
    """Return the values that `Audit.health` describes."""
    before = clocks.clock.now_us()
    ((version, fsync, standby, read_only, may_write, whole, checksums, autovacuum, now),) = readers.rows(
        "health", f'"{address.schema}".runs'
    )
    after = clocks.clock.now_us()
    ((used, most, oldest, encrypted, local),) = readers.rows("sessions")
    ((live, dead),) = readers.rows("dead_rows", address.schema)
    ((writes,),) = readers.rows("writes")
    why = "the server is a standby" if standby else "the session is read-only" if read_only == "on" else None
    return {
        "engine": "PostgreSQL",
        "version": version.split()[0],
        "read_only": why or (None if may_write else "this user may not write its tables"),
        "write_remedy": "Connect to the primary server." if standby else GRANTS,
        "synchronous": "off" if fsync == "off" else "full",  # if synchronous_commit is off, commits turn it on
        "sync_remedy": "Set fsync = on in postgresql.conf.",
        "full_page_writes": whole == "on",
        "checksums": checksums == "on",
        "autovacuum": autovacuum == "on",
        "connections": used,
        "most_connections": most,
        "oldest_seconds": oldest,
        "encrypted": encrypted,
        "local": local,
        "clock_ahead_us": now - (before + after) // 2,
        "live_rows": live,
        "dead_rows": dead,
        "writes": writes,
    }
