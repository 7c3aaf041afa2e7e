"""The doctor's findings about a database server: settings, clock, connections. Pure: uses only the health data of the backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from everstep.store.verify.findings import Finding

_FEW = 10
_SKEW_US = 1_000_000
_LONG_SECONDS = 3600
_MANY_DEAD = 100_000


def findings(health: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield one finding for each property that the backend reports."""
    if "full_page_writes" in health:
        yield from _pages(health["full_page_writes"], health.get("checksums"))
    if "connections" in health:
        yield _connections(int(health["connections"]), int(health["most_connections"]))
    if "clock_ahead_us" in health:
        yield _clock(int(health["clock_ahead_us"]))
    if "encrypted" in health:
        yield _wire(health["encrypted"], health.get("local", False))
    if "oldest_seconds" in health:
        yield _transactions(int(health["oldest_seconds"]))
    if "dead_rows" in health:
        yield _vacuum(int(health["dead_rows"]), int(health["live_rows"]), bool(health["autovacuum"]))


def _pages(whole: bool, checksums: bool | None) -> Iterator[Finding]:
    if not whole:
        said = "full_page_writes is off: a page that was half written when the power failed stays damaged"
        yield Finding("bad", "pages", said, "Set full_page_writes = on in postgresql.conf, unless the disk writes 8 KB atomically.")
    else:
        checked = "and the server checks page checksums" if checksums else "but the server has no page checksums (initdb --data-checksums)"
        yield Finding("ok", "pages", f"half-written pages are restored, {checked}")


def _connections(used: int, most: int) -> Finding:
    said = f"{used} of {most} connections are in use"
    if most - used < _FEW:
        return Finding("warn", "connections", said, "Raise max_connections, close idle connections, or use PgBouncer.")
    return Finding("ok", "connections", said)


def _clock(ahead: int) -> Finding:
    if abs(ahead) < _SKEW_US:
        return Finding("ok", "server clock", "the clocks of the server and of this machine agree")
    where = "ahead of" if ahead > 0 else "behind"
    said = f"the server's clock is {abs(ahead) / 1e6:,.1f} seconds {where} this machine's"
    said += "; leases use the server's clock, records this machine's"
    return Finding("warn", "server clock", said, "Synchronise both clocks with NTP.")


def _wire(encrypted: bool, local: bool) -> Finding:
    if encrypted:
        return Finding("ok", "wire", "the connection to the server is encrypted")
    if local:
        return Finding("ok", "wire", "the connection is not encrypted; the server sees it come from its own machine")
    return Finding("warn", "wire", "the connection to the server is not encrypted", "Add sslmode=verify-full to the store URL.")


def _transactions(oldest: int) -> Finding:
    if oldest < _LONG_SECONDS:
        return Finding("ok", "transactions", "no long transaction prevents the server from cleaning up")
    said = f"a transaction has been open for {oldest // 60:,} minutes: until it ends, the server cannot clean up later changes"
    return Finding("warn", "transactions", said, "Find the oldest xact_start in pg_stat_activity and end that transaction.")


def _vacuum(dead: int, live: int, automatic: bool) -> Finding:
    if not automatic:
        return Finding(
            "warn", "vacuum", "autovacuum is off: tables grow and are never cleaned up", "Set autovacuum = on in postgresql.conf."
        )
    if dead > max(_MANY_DEAD, live):
        said = f"{dead:,} dead rows, {live:,} live rows"
        return Finding("warn", "vacuum", said, "store.gc(compact=True) removes them; if they come back, tune autovacuum.")
    return Finding("ok", "vacuum", "autovacuum cleans up changed and deleted rows")
