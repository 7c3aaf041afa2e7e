"""One schema of PostgreSQL for many tests, as if each had a new one: making the tables takes ten times as long as emptying them.

Knows no table by name: it reads them from the catalog, and puts back the rows that a new store has. A test that changed a table, a function or
a trigger, or left a lock behind, costs a new schema.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

import everstep
from everstep.ids import new_id
from everstep.testing.postgres import Server

_USES = 100  # after which a schema is made again: rows that were deleted still take space
_LOCKS = "SET LOCAL lock_timeout = '2s'"
_MADE_OF = """
SELECT 'relation', c.oid::text, c.relname::text, c.relkind::text, coalesce(c.relacl::text, '') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %(schema)s
UNION ALL SELECT 'function', p.oid::text, p.proname::text, '', p.xmin::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = %(schema)s
UNION ALL SELECT 'trigger', t.oid::text, t.tgname::text, t.tgenabled::text, t.xmin::text
  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %(schema)s
UNION ALL SELECT 'column', a.attrelid::text, a.attname::text, a.attnum::text, a.atttypid::text
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %(schema)s AND a.attnum > 0
UNION ALL SELECT 'schema', n.oid::text, n.nspname::text, coalesce(n.nspacl::text, ''), '' FROM pg_namespace n WHERE n.nspname = %(schema)s
ORDER BY 1, 2, 3
"""


class Schema:
    """A schema with the tables of a new store."""

    def __init__(self, server: Server, database: str):
        self._server, self._database = server, database
        self._connection: Any = psycopg.connect(database, autocommit=True)
        self._name = ""
        self._uses = 0

    def url(self) -> str:
        """The address of an empty store."""
        if not self._name:
            self._make()
        self._uses += 1
        return self._url(self._name)

    def _url(self, name: str) -> str:
        return f"{self._database}{'&' if '?' in self._database else '?'}schema={name}"

    def _make(self) -> None:
        if self._connection.closed:  # a test ended all connections of the server
            self._connection = psycopg.connect(self._database, autocommit=True)
        self._name = name = f"s_{new_id().lower()}".replace("-", "_")
        everstep.open(self._url(name)).close()
        self._uses = 0
        self._run(f'CREATE SCHEMA "{name}_new"')
        tables = self._names("r")
        self._filled = [table for table in tables if self._run(f'SELECT 1 FROM "{name}"."{table}" LIMIT 1')]
        for table in self._filled:
            self._run(f'CREATE TABLE "{name}_new"."{table}" AS TABLE "{name}"."{table}"')
        sequences = [(one, *self._run(f'SELECT last_value, is_called FROM "{name}"."{one}"')[0]) for one in self._names("S")]
        commands = [f'DELETE FROM "{name}"."{table}"' for table in tables]
        commands += [
            f'INSERT INTO "{name}"."{table}" OVERRIDING SYSTEM VALUE SELECT * FROM "{name}_new"."{table}"' for table in self._filled
        ]
        commands += [f'SELECT setval(\'"{name}"."{one}"\', {value}, {called})' for one, value, called in sequences]
        self._commands = "; ".join(commands)
        self._made_of = self._found()

    def _names(self, kind: str) -> list[str]:
        query = (
            "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = %s AND relkind = %s ORDER BY 1"
        )
        return [name for (name,) in self._connection.execute(query, (self._name, kind)).fetchall()]

    def _found(self) -> list[Any]:
        return list(self._connection.execute(_MADE_OF, {"schema": self._name}).fetchall())

    def _run(self, text: str) -> Any:
        cursor = self._connection.execute(sql.SQL(text))  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else None

    def empty(self) -> None:
        """Put the store back to what it was when it was new."""
        try:
            if self._uses >= _USES or self._found() != self._made_of:
                self.drop()
                return
            with self._connection.transaction():
                self._run(_LOCKS)
                self._run(self._commands)
        except psycopg.Error:  # a test left a lock behind, or dropped what is named here
            self.drop()

    def drop(self) -> None:
        name, self._name = self._name, ""
        if name:
            for schema in (name, f"{name}_new"):
                self._server.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE', url=self._database)

    def close(self) -> None:
        self.drop()
        self._connection.close()
