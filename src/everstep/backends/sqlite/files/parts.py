"""The parts into which the tables of a store in SQLite are divided. The core is created with the file; each other part by the transaction
that first needs it.

An empty table takes a page, and so does each index. A store that only saves checkpoints needs a quarter of all tables, so it has only
those. `manifest.parts` has a bit for each part that was created: a part whose tables vanished is damage, never a part that does not exist
yet.

Readers need not know which parts exist. Their connection has a second, empty database attached, where every part has its
tables: SQLite finds a name there only if the store itself does not have it. SQLite does not resolve a prepared statement again, so
readers must call `catch_up` when the schema of the store has changed. Writers check `Part.bit`, and create a part themselves.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import apsw

from everstep.backends import sql_files

Objects = frozenset[tuple[str, str, str, str]]
"""Tables and indexes as SQLite lists them: type, name, table, and the statement that made it without needless spaces."""
_CREATED = re.compile(r"CREATE (?:UNIQUE )?(TABLE|INDEX) (\w+)(?: ON (\w+))?")
_UNIQUE = re.compile(r"^ +(?!PRIMARY)\w+ [^,]*\bUNIQUE\b", re.MULTILINE)


class Part(NamedTuple):
    """Tables and indexes that are created together."""

    name: str
    bit: int
    script: str
    objects: Objects


def _read() -> dict[str, Part]:
    """Return the parts in the order of the file; the core, whose bit is 0, comes first."""
    found: dict[str, Part] = {}
    for index, block in enumerate(sql_files.script("sqlite", "schema").split("-- part: ")[1:]):
        name, _, text = block.partition("\n")
        script = "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()
        found[name] = Part(name, 1 << index >> 1, script, _objects(script))
    return found


def _objects(script: str) -> Objects:
    """Return the objects that SQLite lists after a script. A unique column has an index that no statement names."""
    found = []
    for statement in script.split(";"):
        made = _CREATED.search(statement)
        if made is not None:
            kind, name, table = made[1].lower(), made[2], made[3] or made[2]
            found.append((kind, name, table, _plain(statement)))
            found += [("index", f"sqlite_autoindex_{name}_{n}", name, "") for n, _ in enumerate(_UNIQUE.findall(statement), 1)]
    return frozenset(found)


def _plain(statement: str) -> str:
    return " ".join(statement.split())


PARTS = _read()  # at import: a daemon may later lose the right to read it
CORE = PARTS.pop("core")
TABLES = frozenset(table for part in (CORE, *PARTS.values()) for _, _, table, _ in part.objects)
(
    CHUNKS,
    LISTING,
    TAGS,
    MESSAGES,
    FEED,
    PRUNED,
    TOMBSTONES,
    PROPERTIES,
    QUEUES,
    WORKFLOWS,
    SESSIONS,
    PARENTS,
    NOTES,
    ATTACHED,
    FINDING,
    GATES,
    KEYS,
) = PARTS.values()
_SCHEMA = sql_files.load("sqlite", "read")["schema"]
_NOTED = sql_files.load("sqlite", "read")["parts"]
_absent: list[bytes] = []


def are_right(connection: apsw.Connection | apsw.Cursor) -> bool:
    """Return whether a store has exactly the tables and indexes of the parts that its manifest names. Relies on the caller's transaction."""
    rows: list[Any] = connection.execute(_SCHEMA).fetchall()
    has = frozenset((_text(kind), _text(name), _text(table), _plain(_text(sql))) for kind, name, table, sql in rows)
    made = [part for part in PARTS.values() if part.objects & has]
    if has != CORE.objects.union(*(part.objects for part in made)):
        return False
    try:
        ((noted,),) = connection.execute(_NOTED).fetchall()
    except (apsw.Error, ValueError):
        return True  # the next reader of the manifest reports its damage
    return type(noted) is not int or noted == sum(part.bit for part in made)


def vanished(cursor: apsw.Cursor) -> bool:
    """Return whether a part that the manifest names has lost a table. For a store that was complete when it was opened."""
    names = {_text(name) for _, name, _, _ in cursor.execute(_SCHEMA)}
    noted: Any = cursor.execute(_NOTED).fetchone()
    made = noted[0] if noted is not None and type(noted[0]) is int else 0
    return any(name not in names for part in PARTS.values() if part.bit & made for _, name, _, _ in part.objects)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def attach(connection: apsw.Connection) -> None:
    """Let a read-only connection find an empty table for each part that does not exist yet."""
    connection.execute("ATTACH ':memory:' AS absent").fetchall()
    connection.deserialize("absent", _image())


def catch_up(connection: apsw.Connection) -> None:
    """Let SQLite prepare all statements again after the schema has changed: detaching does that, and they find the new tables."""
    connection.execute("DETACH absent").fetchall()
    attach(connection)


def _image() -> bytes:
    """Return a database with the empty tables of all parts. Made once: that takes longer than a connection."""
    if not _absent:
        made = apsw.Connection(":memory:")
        scripts = "; ".join(part.script for part in PARTS.values() if any(kind == "table" for kind, *_ in part.objects))
        made.execute(f"PRAGMA page_size = 512; CREATE TABLE runs (family); {scripts}").fetchall()
        made.execute("DROP TABLE runs").fetchall()
        _absent.append(made.serialize("main"))
        made.close()
    return _absent[0]
