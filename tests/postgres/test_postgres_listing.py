"""Listing the newest 20 of 100,000 runs reads a few pages of an index, by any status and by narrow spans of time, however many have ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from everstep.backends.contract.core import Commit, Query
from everstep.backends.postgres.connections.readers import Readers
from everstep.backends.postgres.listing import list_runs
from everstep.backends.registry import open_backend
from everstep.testing.postgres import Server
from everstep.testing.rows import new_run

FEW = 400  # pages of 8 KB; the table has more than 3,000
FILL = """
INSERT INTO everstep.runs SELECT n, 'run-' || n, decode(md5(n::text), 'hex'), decode(md5(n::text), 'hex'), 'w' || n % 10, NULL, NULL, NULL, NULL,
    NULL, 0, n * 1000000::bigint,
    CASE WHEN n < 40 THEN 'running' WHEN n < 60 THEN 'cancelled' WHEN n % 10000 = 5 THEN 'failed' WHEN n % 5000 = 8 THEN 'waiting' ELSE 'succeeded' END,
    n, 1, decode(md5('head'), 'hex'), 1, 100, 1, NULL, 0, decode(md5('check'), 'hex')
FROM generate_series(2, 100000) AS n
"""


@pytest.fixture(scope="module")
def many(server: Server) -> Iterator[str]:
    url = server.database()
    backend = open_backend(url)
    backend.commit(Commit(new_run("first", status="succeeded"), None))
    backend.close()
    server.execute(FILL, url=url)
    server.execute("VACUUM ANALYZE everstep.runs", url=url)
    yield url
    server.drop(url)


class Explained:
    """In the place of `Readers`: asks the server how it would do it, and how many pages it read."""

    def __init__(self, server: Server, url: str):
        self._server, self._url = server, url
        self.pages = 0
        self.plan = ""

    def ask(self, sql: bytes, values: Any) -> list[Any]:
        found = self._server.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql.decode()}", *values, url=self._url)
        plan = found[0][0][0]["Plan"]
        self.pages, self.plan = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], str(plan)
        return []


def pages(server: Server, url: str, query: Query) -> int:
    asked: Any = Explained(server, url)
    readers: Readers = asked
    list_runs(readers, "everstep", query)
    assert "Seq Scan" not in asked.plan
    return int(asked.pages)


@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize("status", ["queued", "running", "waiting", "succeeded", "failed", "cancelled", "nonsense"])
def test_the_newest_of_any_status_are_found_by_an_index(many: str, server: Server, status: str, oldest_first: bool) -> None:
    assert pages(server, many, Query(status=status, limit=20, oldest_first=oldest_first)) < FEW


@pytest.mark.parametrize("query", [Query(until=60_000_000, limit=20), Query(since=50_000_000_000, until=50_100_000_000, limit=20)])
def test_a_span_of_time_long_ago_is_found_by_an_index(many: str, server: Server, query: Query) -> None:
    assert pages(server, many, query) < FEW


def test_what_may_go_on_has_an_index_without_what_has_ended(many: str, server: Server) -> None:
    ((active, ended),) = server.execute(
        "SELECT pg_relation_size('everstep.runs_active'), pg_relation_size('everstep.runs_ended')", url=many
    )
    assert active <= 16 * 1024 < ended
