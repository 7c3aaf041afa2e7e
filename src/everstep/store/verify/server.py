"""What the doctor says about a database server: its settings, its clock, its connections. Pure: from what the backend tells about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from everstep.store.verify.findings import Finding

_FEW = 10
_SKEW_US = 1_000_000
_LONG_SECONDS = 3600
_MANY_DEAD = 100_000


def findings(health: Mapping[str, Any]) -> Iterator[Finding]:
    """One for each thing that the backend knows of."""
    if "full_page_writes" in health:
        yield from _pages(health["full_page_writes"], health.get("checksums"))
    if "connections" in health:
        yield _connections(int(health["connections"]), int(health["most_connections"]))
    if "clock_ahead_us" in health:
        yield _clock(int(health["clock_ahead_us"]))
    if "encrypted" in health:
        yield _wire(health["encrypted"])
    if "oldest_seconds" in health:
        yield _transactions(int(health["oldest_seconds"]))
    if "dead_rows" in health:
        yield _vacuum(int(health["dead_rows"]), int(health["live_rows"]), bool(health["autovacuum"]))


def _pages(whole: bool, checksums: bool | None) -> Iterator[Finding]:
    if not whole:
        said = "full_page_writes is off: a page that was half written when the power failed stays so"
        yield Finding("bad", "pages", said, "Set full_page_writes = on in postgresql.conf, unless the disk writes 8 KB at once.")
    else:
        checked = (
            "and the server checks the sums of its pages"
            if checksums
            else "but the server keeps no sums of its pages (initdb --data-checksums)"
        )
        yield Finding("ok", "pages", f"a page that was half written is mended, {checked}")


def _connections(used: int, most: int) -> Finding:
    said = f"{used} of {most} connections are taken"
    if most - used < _FEW:
        return Finding("warn", "connections", said, "Raise max_connections, close what is idle, or put PgBouncer in front of the server.")
    return Finding("ok", "connections", said)


def _clock(ahead: int) -> Finding:
    if abs(ahead) < _SKEW_US:
        return Finding("ok", "server clock", "the clocks of the server and of this machine agree")
    where = "ahead of" if ahead > 0 else "behind"
    said = f"the server's clock is {abs(ahead) / 1e6:,.1f} seconds {where} this machine's"
    said += "; leases end by the server's, times of records are this machine's"
    return Finding("warn", "server clock", said, "Have both set by NTP.")


def _wire(encrypted: bool) -> Finding:
    if encrypted:
        return Finding("ok", "wire", "nobody on the way can read what is sent")
    return Finding("warn", "wire", "the connection to the server is not encrypted", "Add sslmode=verify-full to the address.")


def _transactions(oldest: int) -> Finding:
    if oldest < _LONG_SECONDS:
        return Finding("ok", "transactions", "nobody keeps the server from cleaning up")
    said = f"a transaction has been open for {oldest // 60:,} minutes: until it ends, the server cannot clean up what was changed since"
    return Finding("warn", "transactions", said, "Look in pg_stat_activity for the oldest xact_start, and end it.")


def _vacuum(dead: int, live: int, automatic: bool) -> Finding:
    if not automatic:
        return Finding(
            "warn", "vacuum", "autovacuum is off: tables grow, and nobody cleans them up", "Set autovacuum = on in postgresql.conf."
        )
    if dead > max(_MANY_DEAD, live):
        said = f"{dead:,} dead rows beside {live:,} living ones"
        return Finding("warn", "vacuum", said, "store.gc(compact=True) has the server clean them up; if they come back, tune autovacuum.")
    return Finding("ok", "vacuum", "the server cleans up what was changed or deleted")
