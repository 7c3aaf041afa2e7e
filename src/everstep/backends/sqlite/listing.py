"""Listings: the newest runs, the newest checkpoints of a run, with any filter, fast at any size.

Runs are listed in the order of `pk`. Every filter is a piece of fixed SQL with bound values. The filter that leaves the fewest
runs searches through its own index; the others test the runs that it finds. Checkpoints are in the order of their ids; a tag leads
to its records directly, and a cursor is found by bisection, since numbers grow with ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import apsw

from everstep.backends.contract.core import MAX_SEQ, Located, Query
from everstep.backends.contract.query_semantics import wanted_scalar
from everstep.backends.sqlite.agreement import Agreement
from everstep.backends.sqlite.reader import SQL, find, in_order
from everstep.backends.sqlite.rows import base_from, meta_item, newest_run, pruned_from, record_from
from everstep.errors import Damaged
from everstep.fields import Shape
from everstep.records import Kind, Record, RunRow

_MANY = 2000
Execute = Callable[[str, tuple[Any, ...]], apsw.Cursor]


class _Filter(Shape):
    """One condition on runs: a source of pks in order (`FROM ... WHERE ...`), and the same condition as a test of a row `r`.

    `scans`: its source reads an index from end to end, so that counting with it costs as much as using it.
    """

    source: str
    test: str
    values: tuple[Any, ...]
    scans: bool = False


_EXACT = (
    ("status", "runs INDEXED BY runs_status WHERE status = ?", "r.status = ?"),
    ("workflow", "runs INDEXED BY runs_workflow WHERE workflow = ?", "r.workflow = ?"),
    ("session", "runs INDEXED BY runs_session WHERE session = ?", "r.session = ?"),
    ("parent", "runs INDEXED BY runs_parent WHERE parent = ?", "r.parent = ?"),
)
_TAG = ("run_tags WHERE tag = ?", "EXISTS (SELECT 1 FROM run_tags t WHERE t.tag = ? AND t.pk = r.pk)")
_META = ("run_meta WHERE key = ? AND value = ?", "EXISTS (SELECT 1 FROM run_meta m WHERE m.key = ? AND m.value = ? AND m.pk = r.pk)")
_NOTE = ("runs INDEXED BY runs_note WHERE note IS NOT NULL AND note LIKE ?", "r.note LIKE ?")
_ESCAPED_NOTE = (_NOTE[0] + " ESCAPE '!'", _NOTE[1] + " ESCAPE '!'")
_PREFIX = ("runs INDEXED BY runs_order WHERE id >= ? AND id < ?", "r.id >= ? AND r.id < ?")
_FEW_PREFIX = ("runs INDEXED BY sqlite_autoindex_runs_1 WHERE id >= ? AND id < ?", _PREFIX[1])
_TIME = ("runs INDEXED BY runs_order WHERE created_at >= ? AND created_at < ?", "r.created_at >= ? AND r.created_at < ?")
_FIRST, _LAST = -(2**63), 2**63 - 1
_NO_INDEX = "no such index: runs_"


def list_runs(cursor: apsw.Cursor, query: Query) -> list[tuple[int, RunRow]]:
    """List runs. If an index does not exist yet, no run matches: the first run with such a value creates it."""
    try:
        return _list_runs(cursor, query)
    except apsw.SQLError as error:
        if not str(error).startswith(_NO_INDEX):
            raise
        return []


def _list_runs(cursor: apsw.Cursor, query: Query) -> list[tuple[int, RunRow]]:
    filters = _filters(cursor, query)
    driver = _best(cursor, filters)
    beyond, direction = (">", "ASC") if query.oldest_first else ("<", "DESC")
    source = "runs WHERE 1" if driver is None else driver.source
    values = () if driver is None else driver.values
    tests = [f for f in filters if f is not driver]
    sql = f"SELECT pk FROM {source}"  # noqa: S608 - fixed pieces
    if query.after is not None:
        sql += f" AND pk {beyond} ?"
        values += (query.after,)
    if tests:
        sql = f"SELECT s.pk FROM ({sql}) s CROSS JOIN runs r ON r.pk = s.pk WHERE {' AND '.join(f.test for f in tests)}"  # noqa: S608 - fixed pieces
        values += tuple(value for f in tests for value in f.values)
    sql += f" ORDER BY {'s.pk' if tests else 'pk'} {direction}"
    if query.limit is not None:
        sql += " LIMIT ?"
        values += (query.limit,)
    found: list[Any] = cursor.execute(sql, values).fetchall()
    return [_row(cursor, pk) for (pk,) in found]


def _row(cursor: apsw.Cursor, pk: int) -> tuple[int, RunRow]:
    values = cursor.execute(SQL["run_at"], (pk,)).fetchone()
    if values is None:
        raise Damaged(f"an index of the store is damaged: it names run number {pk}, which does not exist")
    return pk, newest_run(values)


def _filters(cursor: apsw.Cursor, query: Query) -> list[_Filter]:
    filters = [_Filter(source, test, (value,)) for name, source, test in _EXACT if (value := getattr(query, name)) is not None]
    filters += [_Filter(*_TAG, (tag,)) for tag in query.tags]
    filters += [_Filter(*_META, (key, wanted_scalar(key, value))) for key, value in query.meta.items()]
    if query.note is not None:
        pattern, escaped = _pattern(query.note)
        filters.append(_Filter(*(_ESCAPED_NOTE if escaped else _NOTE), (pattern,), scans=True))
    if query.prefix is not None:
        filters.append(_prefix_filter(cursor, (query.prefix, query.prefix + "\U0010ffff")))
    if query.since is not None or query.until is not None:
        since, until = _FIRST if query.since is None else query.since, _LAST if query.until is None else query.until
        filters.append(_Filter(*_TIME, (since, until), scans=True))
    return filters


def _prefix_filter(cursor: apsw.Cursor, values: tuple[str, str]) -> _Filter:
    """Return the filter for a prefix. Few matching ids are looked up by id and sorted; many are met soon in the order of creation."""
    few = _Filter(*_FEW_PREFIX, values)
    return few if _count(cursor, few) < _MANY else _Filter(*_PREFIX, values, scans=True)


def _pattern(part: str) -> tuple[str, bool]:
    """Return a LIKE pattern for `part` anywhere, ignoring case for ASCII, and whether it needs an escape, which is slower."""
    escaped = part.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    needs = escaped != part.replace("!", "!!")
    return (f"%{escaped}%", True) if needs else (f"%{part}%", False)


def _best(cursor: apsw.Cursor, filters: list[_Filter]) -> _Filter | None:
    """Return the filter that leaves the fewest runs, estimated from its index, up to a limit."""
    exact = [f for f in filters if not f.scans]
    if len(filters) < 2 or not exact:
        return filters[0] if filters else None
    counts = [_count(cursor, f) for f in exact]
    fewest = min(counts)
    scanning = [f for f in filters if f.scans]
    return scanning[0] if fewest == _MANY and scanning else exact[counts.index(fewest)]


def _count(cursor: apsw.Cursor, one: _Filter) -> int:
    sql = f"SELECT count(*) FROM (SELECT 1 FROM {one.source} LIMIT {_MANY})"  # noqa: S608 - fixed pieces
    (count,) = cursor.execute(sql, one.values).fetchone() or (0,)
    return int(count)


def list_attached(cursor: apsw.Cursor, run: str, address: str, agreement: Agreement) -> list[Record]:
    """List entries that are attached to checkpoints."""
    pk, head = cursor.execute(SQL["pk_and_head"], (run,)).fetchone() or (None, None)
    if type(pk) is not int or type(head) is not int or not 0 < head <= MAX_SEQ:
        return []
    number = address.removesuffix(":")
    at = locate(cursor.execute, pk, head, int(number)) if number.isascii() and number.isdigit() and address != number else None
    agreement.prove_entries(cursor, "attached", run, pk, None if at is None else pk << 31 | at)
    found = _by_index(cursor, "attached", (pk, address, address + "\U0010ffff"))
    return [record_from(run, values) for values in found]


def list_gates(cursor: apsw.Cursor, run: str, agreement: Agreement) -> list[Record]:
    """List the questions of a run, and their answers."""
    pk = find(cursor, run)
    if pk is None:
        return []
    agreement.prove_entries(cursor, "gates", run, pk)
    return [record_from(run, values) for values in _by_index(cursor, "gates", (pk,))]


def list_unanswered(cursor: apsw.Cursor, workflow: str | None, after: int, limit: int | None) -> list[tuple[int, Record]]:
    """List the questions of all waiting runs that have no answer."""
    found = _by_index(cursor, "unanswered", (after, workflow, -1 if limit is None else limit))
    return [(values[1], record_from(values[0], values[1:])) for values in found]


def _by_index(cursor: apsw.Cursor, name: str, values: tuple[Any, ...]) -> list[Any]:
    """Return rows that an index finds. If the index does not exist yet, there is none: the first such record creates it."""
    try:
        return cursor.execute(SQL[name], values).fetchall()
    except apsw.SQLError as error:
        if not str(error).startswith("no such index: records_"):
            raise
        return []


_COLUMNS = "r.id, r.kind, r.epoch, r.at, r.number, r.note, r.tags, r.meta, r.own, r.labels, r.digest, r.body_digest, r.body"
_HAS_TAG = "EXISTS (SELECT 1 FROM tags g WHERE g.run = ? AND g.name = ? AND g.number = r.number)"
_HAS_META = "EXISTS (SELECT 1 FROM json_each(r.meta) j WHERE j.key = ? AND j.type = ? AND j.atom IS ?)"
_HAS_NUMBER = "EXISTS (SELECT 1 FROM json_each(r.meta) j WHERE j.key = ? AND j.type IN ('integer', 'real') AND j.atom = ?)"


def list_checkpoints(cursor: apsw.Cursor, run: str, query: Query) -> list[Record]:
    pk = find(cursor, run)
    if pk is None:
        return []
    low, high = _range(cursor, pk, query)
    direction = "ASC" if query.oldest_first else "DESC"
    tests, values = _checkpoint_tests(pk, query)
    if query.tags:
        sql = f"SELECT {_COLUMNS} FROM tags t CROSS JOIN records r ON r.id = (t.run << 31 | t.seq) WHERE t.run = ? AND t.name = ?"  # noqa: S608 - fixed pieces
        values = (pk, query.tags[0], low, high, Kind.CHECKPOINT.value, *values)
        order = "t.number"
    else:
        sql = f"SELECT {_COLUMNS} FROM records r WHERE 1"  # noqa: S608 - fixed pieces
        values = (low, high, Kind.CHECKPOINT.value, *values)
        order = "r.id"
    sql += " AND r.id BETWEEN ? AND ? AND r.kind = ?" + "".join(f" AND {test}" for test in tests) + f" ORDER BY {order} {direction} LIMIT ?"
    limit = -1 if query.limit is None else query.limit
    return [record_from(run, row).without_body() for row in cursor.execute(sql, (*values, limit))]


_BY_META = "checkpoint_meta m CROSS JOIN records r ON r.id = m.id CROSS JOIN runs n ON n.pk = r.id >> 31 WHERE m.item = ? AND m.id < ?"
_BY_TAG = (
    "tags m INDEXED BY tags_name CROSS JOIN records r ON r.id = (m.run << 31 | m.seq) CROSS JOIN runs n ON n.pk = m.run "
    "WHERE m.name = ? AND (m.run << 31 | m.seq) < ?"
)
_ALSO_META = "EXISTS (SELECT 1 FROM checkpoint_meta o WHERE o.item = ? AND o.id = r.id)"
_ALSO_TAG = "EXISTS (SELECT 1 FROM tags g WHERE g.run = n.pk AND g.name = ? AND g.number = r.number)"


def find_checkpoints(
    cursor: apsw.Cursor, tags: Sequence[str], meta: dict[str, Any], after: int | None, limit: int | None, agreement: Agreement
) -> list[tuple[int, Record]]:
    """Find checkpoints of all runs by their metadata and tags: by the first item or tag, and the others test what it finds."""
    if meta:
        agreement.prove_metas(cursor)
    items = [meta_item(key, wanted_scalar(key, value)) for key, value in meta.items()]
    tests: list[tuple[str, Any]] = [(_ALSO_META, item) for item in items[1:]]
    tests += [(_ALSO_TAG, tag) for tag in (tags if items else tags[1:])]
    source, first, order = (_BY_META, items[0], "m.id DESC") if items else (_BY_TAG, tags[0], "m.run DESC, m.number DESC")
    sql = f"SELECT n.id, {_COLUMNS} FROM {source}" + "".join(f" AND {test}" for test, _ in tests)  # noqa: S608 - fixed pieces
    sql += f" AND r.kind = 'checkpoint' ORDER BY {order} LIMIT ?"
    values = (first, _LAST if after is None else after, *(value for _, value in tests), -1 if limit is None else limit)
    found: list[Any] = cursor.execute(sql, values).fetchall()
    return [(row[1], record_from(row[0], row[1:]).without_body()) for row in found]


def _checkpoint_tests(pk: int, query: Query) -> tuple[list[str], tuple[Any, ...]]:
    tests: list[str] = []
    values: list[Any] = []
    for tag in query.tags[1:]:
        tests.append(_HAS_TAG)
        values += (pk, tag)
    for name, value in (("r.at >= ?", query.since), ("r.at < ?", query.until)):
        if value is not None:
            tests.append(name)
            values.append(value)
    if query.note is not None:
        pattern, escaped = _pattern(query.note)
        tests.append(_ESCAPED_NOTE[1] if escaped else _NOTE[1])
        values.append(pattern)
    for key, value in query.meta.items():
        test, wanted = _meta_test(key, value)
        tests += ("r.meta IS NOT NULL", test)
        values += wanted
    return tests, tuple(values)


def _meta_test(key: str, value: Any) -> tuple[str, tuple[Any, ...]]:
    wanted_scalar(key, value)
    if value is None:
        return _HAS_META, (key, "null", None)
    if isinstance(value, bool):
        return _HAS_META, (key, "true" if value else "false", int(value))
    if isinstance(value, str):
        return _HAS_META, (key, "text", value)
    return _HAS_NUMBER, (key, value if -(2**63) <= value < 2**63 else float(value))


def _range(cursor: apsw.Cursor, pk: int, query: Query) -> tuple[int, int]:
    """Return the ids to search: all of the run, or those beyond the cursor."""
    low, high = pk << 31, pk << 31 | MAX_SEQ
    if query.after is None:
        return low, high
    (top,) = cursor.execute(SQL["last_id"], (low, high)).fetchone() or (low,)
    if query.oldest_first:
        return _first_with(cursor.execute, low, top, query.after + 1), high
    return low, _first_with(cursor.execute, low, top, query.after) - 1


def find_checkpoint(cursor: apsw.Cursor, run: str, number: int, upto: int | None) -> Located | None:
    """Find the records of a checkpoint; with `upto`, also those that its state is made of."""
    pk, head = cursor.execute(SQL["pk_and_head"], (run,)).fetchone() or (None, None)
    if type(pk) is not int or type(head) is not int or not 0 < head <= MAX_SEQ:
        return None
    first_id, top = pk << 31, pk << 31 | head
    at = _first_with(cursor.execute, first_id, top, number)
    seq = _checkpoint_seq(cursor.execute(SQL["kind_from"], (at, top)).fetchone(), number)
    if seq is None:
        return None
    top = first_id | min(seq + 1, head)
    (base,) = cursor.execute(SQL["base_before"], (first_id, top, number)).fetchone() or (0,)
    mark = cursor.execute(SQL["pruned"], (pk,)).fetchone()
    added = None if mark is None else cursor.execute(SQL["base_upto"], (pk, number)).fetchone()
    found = Located(seq, base & MAX_SEQ, mark and pruned_from(run, mark), added and base_from(run, added))
    if upto is None:
        return found
    first, last = found.first, min(found.last(upto), MAX_SEQ)
    records = [record_from(run, values) for values in cursor.execute(SQL["records"], (first_id | first, first_id | last))]
    return found._replace(records=in_order(run, records, first, last))


def locate(execute: Execute, pk: int, head: int, number: int) -> int | None:
    """Return the seq of checkpoint `number`, or None if there is none."""
    top = pk << 31 | head
    at = _first_with(execute, pk << 31, top, number)
    return _checkpoint_seq(execute(SQL["kind_from"], (at, top)).fetchone(), number)


def _checkpoint_seq(found: Any, number: int) -> int | None:
    """Return the seq of a record, (id, number, kind), if it is that checkpoint."""
    return found[0] & MAX_SEQ if found is not None and found[1:] == (number, Kind.CHECKPOINT.value) else None


def _first_with(execute: Execute, low: int, top: int, number: int) -> int:
    """Bisect for the first id whose record has at least that number; beyond `top` if there is none."""
    above, statement = top + 1, SQL["number_from"]
    while low < above:
        middle = (low + above) // 2
        found: Any = execute(statement, (middle, top)).fetchone()
        if found and not middle <= found[0] <= top:  # a stale page: without this, the search would not end
            raise Damaged(f"the tree of records is damaged: record {found[0]} was found where one from {middle} to {top} belongs")
        if found and type(found[1]) is not int:
            raise Damaged(f"record {found[0] & MAX_SEQ} of run number {found[0] >> 31} is damaged: a column has the wrong type")
        if not found or found[1] >= number:
            above = middle
        else:
            low = found[0] + 1
    return low
