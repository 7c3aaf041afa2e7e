"""Listings on PostgreSQL: the newest runs, the newest checkpoints of a run, with any filter. Relies on Readers.

Every filter is a piece of fixed SQL with bound values; the server chooses the index. Only the meta of checkpoints is compared here, page by
page: it is kept as the given text, which the server may not accept as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from everstep.backends.contract.core import Query
from everstep.backends.contract.query_semantics import fits_checkpoint, wanted_scalar
from everstep.backends.postgres.connections.readers import Readers
from everstep.backends.postgres.rows import item, newest_run, record_from
from everstep.records import Record, RunRow

_PAGE = 500
_RUN = (
    "r.pk, r.id, r.key, r.family, r.workflow, r.session, r.tags, r.note, r.meta, r.parent, r.parent_number, r.created_at, r.status, "
    'r.updated_at, r.head_seq, r.head_digest, r.checkpoints, r.stored, r.epoch, r.worker, r.since, r."check"'
)
_RECORD = "r.seq, r.kind, r.epoch, r.at, r.number, r.note, r.tags, r.meta, r.own, r.labels, r.digest, coalesce(r.body_digest, sha256(r.body)), NULL::bytea"
_NOTE = 'position(lower(%s::text COLLATE "C") IN lower(r.note)) > 0'
_EXACT = ("status", "workflow", "session", "parent")
Tests = list[tuple[str, tuple[Any, ...]]]


def list_runs(readers: Readers, schema: str, query: Query) -> list[tuple[int, RunRow]]:
    tests: Tests = [(f"r.{name} = %s", (value,)) for name in _EXACT if (value := getattr(query, name)) is not None]
    tests += [(f'EXISTS (SELECT 1 FROM "{schema}".run_tags t WHERE t.tag = %s AND t.pk = r.pk)', (tag,)) for tag in query.tags]  # noqa: S608 - fixed pieces
    for key, value in query.meta.items():
        sql = f'EXISTS (SELECT 1 FROM "{schema}".run_meta m WHERE m.item = %s AND m.pk = r.pk)'  # noqa: S608 - fixed pieces
        tests.append((sql, (item(key, wanted_scalar(key, value)),)))
    if query.prefix is not None:
        tests.append(("r.id >= %s AND r.id < %s", (query.prefix, query.prefix + "\U0010ffff")))
    tests += _label_tests("r.created_at", query)
    newest = f'(SELECT max(n.seq) FROM "{schema}".records n WHERE n.run = r.pk)'  # noqa: S608 - fixed pieces
    sql, values = _page(f'SELECT {_RUN}, {newest} FROM "{schema}".runs r', "r.pk", tests, query, query.after, query.limit)  # noqa: S608 - fixed pieces
    return [(row[0], newest_run(row)) for row in readers.ask(sql.encode(), values)]


def list_checkpoints(readers: Readers, schema: str, run: str, query: Query) -> list[Record]:
    for key, value in query.meta.items():
        wanted_scalar(key, value)
    tests: Tests = [(f'r.run = (SELECT pk FROM "{schema}".runs WHERE id = %s)', (run,)), ("r.kind = 'checkpoint'", ())]  # noqa: S608 - fixed pieces
    has_tag = f'EXISTS (SELECT 1 FROM "{schema}".tags t WHERE t.run = r.run AND t.name = %s AND t.number = r.number)'  # noqa: S608 - fixed pieces
    tests += [(has_tag, (tag,)) for tag in query.tags]
    tests += _label_tests("r.at", query)
    found: list[Record] = []
    after = query.after
    while query.limit is None or len(found) < query.limit:
        most = query.limit if not query.meta else _PAGE
        sql, values = _page(f'SELECT {_RECORD} FROM "{schema}".records r', "r.number", tests, query, after, most)  # noqa: S608 - fixed pieces
        page = [record_from(run, row) for row in readers.ask(sql.encode(), values)]
        found += [record for record in page if not query.meta or fits_checkpoint(record, Query(meta=query.meta))]
        if not query.meta or len(page) < _PAGE:
            break
        after = page[-1].number
    return found[: query.limit]


def find_checkpoints(
    readers: Readers, schema: str, tags: Sequence[str], meta: dict[str, Any], after: int | None, limit: int | None
) -> list[tuple[int, Record]]:
    """Find checkpoints of all runs by their tags and metadata."""
    for key, value in meta.items():
        wanted_scalar(key, value)
    tests: Tests = [("r.kind = 'checkpoint'", ())]
    if meta:
        tests.append((f'r.meta IS NOT NULL AND "{schema}".meta_items(r.meta) @> "{schema}".meta_items(%s::text)', (json.dumps(meta),)))
    else:  # found by the first tag
        tests.append((f'(r.run, r.number) IN (SELECT t.run, t.number FROM "{schema}".tags t WHERE t.name = %s)', (tags[0],)))  # noqa: S608 - fixed pieces
    has_tag = f'EXISTS (SELECT 1 FROM "{schema}".tags t WHERE t.run = r.run AND t.name = %s AND t.number = r.number)'  # noqa: S608 - fixed pieces
    tests += [(has_tag, (tag,)) for tag in (tags if meta else tags[1:])]
    if after is not None:
        tests.append(("n.pk << 31 | r.seq < %s", (after,)))
    sql = f'SELECT n.pk << 31 | r.seq, n.id, {_RECORD} FROM "{schema}".records r JOIN "{schema}".runs n ON n.pk = r.run'  # noqa: S608 - fixed pieces
    sql += f" WHERE {' AND '.join(test for test, _ in tests)} ORDER BY n.pk DESC, r.seq DESC LIMIT %s"
    found = readers.ask(sql.encode(), [*(value for _, part in tests for value in part), limit])
    return [(row[0], record_from(row[1], row[2:])) for row in found]


def _label_tests(at: str, query: Query) -> Tests:
    tests: Tests = []
    if query.note is not None:
        tests.append((_NOTE, (query.note,)))
    if query.since is not None:
        tests.append((f"{at} >= %s", (query.since,)))
    if query.until is not None:
        tests.append((f"{at} < %s", (query.until,)))
    return tests


def _page(select: str, column: str, tests: Tests, query: Query, after: int | None, limit: int | None) -> tuple[str, list[Any]]:
    """Return the statement for one page: matching rows, in order, beyond the cursor, up to the limit."""
    beyond, direction = (">", "ASC") if query.oldest_first else ("<", "DESC")
    if after is not None:
        tests = [*tests, (f"{column} {beyond} %s", (after,))]
    where = f" WHERE {' AND '.join(sql for sql, _ in tests)}" if tests else ""
    values = [value for _, part in tests for value in part]
    return f"{select}{where} ORDER BY {column} {direction} LIMIT %s", [*values, limit]
