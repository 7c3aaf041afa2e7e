"""Damage to stores in PostgreSQL, made behind their backs by UPDATE and DELETE: each time to a fresh copy of the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from everstep.backends.postgres.connections.connect import Address
from everstep.testing.postgres import Server

_OTHER = {
    "bytea": "CASE WHEN length({c}) > 0 THEN set_byte({c}, length({c}) / 2, get_byte({c}, length({c}) / 2) # 4) ELSE '\\x01'::bytea END",
    "text": "coalesce({c}, '') || 'x'",
    "bigint": "{c} + 1000",
    "integer": "{c} + 1000",
    "smallint": "{c} + 1000",
    "numeric": "{c} + 1",
}
_COLUMNS = """
SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'everstep' AND data_type <> 'boolean'
ORDER BY table_name, ordinal_position
"""
Column = tuple[str, str, str]


def ask(url: str, text: str, *values: Any, **names: str) -> list[Any]:
    """Run one statement behind the store's back; `{t}` and the like are names."""
    query = sql.SQL(text).format(**{key: sql.Identifier(name) for key, name in names.items()})  # type: ignore[arg-type]
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query, values or None)
        return cursor.fetchall() if cursor.description else []


def behind(url: str, text: str, *values: Any) -> None:
    """Run a statement that was written for a store in SQLite: there the number of a record holds its run and seq."""
    address = Address(url)
    text = text.replace("id & 0x7fffffff", "seq").replace("id >> 31", "run").replace("?", "%s")
    with address.connect() as connection:
        connection.execute(f'SET search_path = "{address.schema}"'.encode())
        connection.execute(text.encode(), values)


@contextmanager
def copy_of(server: Server, url: str) -> Iterator[str]:
    """A database like another one, to which nobody may be connected."""
    made = server.database(template=urlsplit(url).path.lstrip("/"))
    try:
        yield made
    finally:
        server.drop(made)


def columns(url: str) -> list[Column]:
    """All columns that a store has, with their types."""
    return [(table, column, kind) for table, column, kind in ask(url, _COLUMNS)]


def holding(url: str, table: str, column: str) -> list[str]:
    """Where the rows are that have something in a column, or all of them if none has."""
    found = ask(url, "SELECT ctid::text, {c} IS NOT NULL FROM everstep.{t} ORDER BY ctid", t=table, c=column)
    return [place for place, holds in found if holds] or [place for place, _ in found]


def change(url: str, column: Column, place: str) -> None:
    """Make one value another one."""
    table, name, kind = column
    ask(url, f"UPDATE everstep.{{t}} SET {{c}} = {_OTHER[kind]} WHERE ctid = %s::tid", place, t=table, c=name)


def remove(url: str, table: str, place: str) -> None:
    ask(url, "DELETE FROM everstep.{t} WHERE ctid = %s::tid", place, t=table)
