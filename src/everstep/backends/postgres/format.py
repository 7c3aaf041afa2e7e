"""The format of a store in PostgreSQL: its tables, how they are created, how an older store is migrated. Owns the format.

Format 1 (sql/schema.sql), in its own schema:
    runs, records, chunks, tags, messages, pruned, bases, tombstones, properties, workers   as in every store; `pk` is a run's position in the
               order of creation and is never reused. records.body_digest is kept only if the body was pruned
    manifest   64 buckets: each has a part of the sum of all checks, of the number of runs and of writes, and the run that was committed
               to last through it. An open store uses one bucket, so that concurrent writers do not wait for one row
    chunks     (bucket, stamp): the write of the bucket that last wrote each
    counters   how many runs were ever created; processes that create runs wait for each other, so that positions become visible in order
    feed_new, feed, feed_end   commits without a position yet; those with one; the newest position
    tasks, starts, ticks   the queue entries of runs; when runs of a queue with a rate limit were claimed; the activity of each queue by
               minute, counted in the bucket of the process
    orders     runs that were enqueued inside a caller's own transaction, until a worker creates the runs
    run_tags, run_meta   a copy of the tags and scalar meta values of runs, for listing
    commits    a sequence: the order in which commits began
Commits and the other writes call the functions of sql/functions.sql and sql/queues.sql. Needs PostgreSQL 13 or newer and no extension.
"""

from __future__ import annotations

import time
from contextlib import suppress

import psycopg
from psycopg import errors as pg

from everstep.backends import sql_files
from everstep.backends.postgres.connections.connect import Address, Connection, execute, refuse_encoding
from everstep.backends.postgres.connections.diagnosis import explained, refuse_broken
from everstep.backends.postgres.connections.errors import translated
from everstep.errors import InvalidArgument, NewerFormat, NotAStore, StoreError, StoreUnreachable

FORMAT = 1
MISSING = "Check the database and the schema in the URL. `everstep init` creates the tables; so does opening without create=False."
BUCKETS = 64
_PAUSE = 0.2
_OLDEST = 130000
_FORBIDDEN = (pg.InsufficientPrivilege, pg.ReadOnlySqlTransaction)
_STEPS = {1: "schema"}  # the script that migrates to each format from the one before; format 0 is a schema without tables


def version_of(connection: Connection, address: Address) -> int:
    """Return the format of the store; 0 if there is none."""
    sql = address.load("read")
    ((there,),) = execute(connection, sql["has_format"], (address.schema,))
    if not there:
        return 0
    found = execute(connection, sql["format"])
    return int(found[0][0]) if found else 0


def formats_of(url: str) -> tuple[int, int]:
    """Return the format of a store, 0 if there is none, and the one that this version migrates it to."""
    address = Address(url)
    with address.connect() as connection:
        try:
            return version_of(connection, address), FORMAT
        except psycopg.Error as error:
            raise translated(error, address.url) from error


def prepare_within(address: Address, create: bool, seconds: float) -> Connection:
    """Call `prepare`, and retry for so many seconds while the server does not answer. A server that refuses is not asked again."""
    limit = time.monotonic() + seconds
    while True:
        try:
            return prepare(address, create)
        except StoreUnreachable:
            if time.monotonic() >= limit:
                raise
        time.sleep(_PAUSE)


def prepare(address: Address, create: bool) -> Connection:
    """Check that the store exists and has this format; create or migrate it if allowed. Returns a connection for reading."""
    connection = address.connect()
    try:
        refuse_encoding(connection, address.url)
        version = version_of(connection, address)
        if version < FORMAT:
            refuse_broken(connection, address)
            if not version and not create:
                raise NotAStore.nothing_at(address.url, MISSING)
            version = _migrate(connection, address)
        if version > FORMAT:
            raise NewerFormat(f"{address.url} has format {version}; this version of Everstep knows formats up to {FORMAT}")
        _guard_functions(connection, address)
    except psycopg.Error as error:
        connection.close()
        raise explained(error, address) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: Connection, address: Address) -> int:
    """Migrate in one transaction. If several processes begin at once, the first one migrates; the others wait and find it done."""
    if connection.info.server_version < _OLDEST:
        raise StoreError(
            f"{address.url} runs PostgreSQL {connection.info.server_version // 10000}, which is too old", remedy="Use version 13 or newer."
        )
    sql = address.load("read")
    try:
        with connection.transaction():
            execute(connection, sql["alone"], (f"everstep {address.schema}",))
            version = version_of(connection, address)
            if version < FORMAT:
                _build(connection, address, version)
            return max(version, FORMAT)
    except pg.ReadOnlySqlTransaction as error:
        raise explained(error, address, connection) from error
    except _FORBIDDEN as error:
        raise _forbidden(error, connection, address) from error


def begin_new(connection: Connection, address: Address) -> None:
    """Begin a transaction that creates the tables of a new store. InvalidArgument if the schema already has tables."""
    refuse_encoding(connection, address.url)
    sql = address.load("read")
    try:
        connection.execute("BEGIN")
        execute(connection, sql["alone"], (f"everstep {address.schema}",))
        if execute(connection, sql["taken"], (address.schema,)) == [(True,)]:
            raise InvalidArgument(
                f"{address.url} already has tables", remedy="Use a schema that has no tables: repair never overwrites anything."
            )
        _build(connection, address, 0)
    except _FORBIDDEN as error:
        raise _forbidden(error, connection, address) from error


def _build(connection: Connection, address: Address, version: int) -> None:
    _make_schema(connection, address)
    for step in range(version + 1, FORMAT + 1):
        connection.execute(address.fill(sql_files.script("postgres", _STEPS[step])).encode())
    _install_functions(connection, address)
    execute(connection, address.load("read")["set_format"], (FORMAT,))


def _install_functions(connection: Connection, address: Address) -> None:
    for script in ("functions", "queues"):
        connection.execute(address.fill(sql_files.script("postgres", script)).encode())


def _guard_functions(connection: Connection, address: Address) -> None:
    """Replace the functions of a store from before they set their search path. A user without that right keeps using the existing ones."""
    sql = address.load("read")
    if execute(connection, sql["guarded"], (address.schema,)) == [(True,)]:
        return
    with suppress(*_FORBIDDEN, pg.ObjectNotInPrerequisiteState), connection.transaction():
        execute(connection, sql["alone"], (f"everstep {address.schema}",))
        if execute(connection, sql["guarded"], (address.schema,)) != [(True,)]:
            _install_functions(connection, address)


def _forbidden(error: psycopg.Error, connection: Connection, address: Address) -> StoreError:
    return StoreError(
        f"{address.url}: cannot create the tables of the store ({str(error).splitlines()[0]})",
        remedy=f'Let an owner of the database run: CREATE SCHEMA "{address.schema}" AUTHORIZATION {connection.info.user}; '
        "or open the store once as a user who may create it.",
    )


def _make_schema(connection: Connection, address: Address) -> None:
    """Create the schema only if it is missing: "if not exists" needs the right to create one even if it exists."""
    ((there,),) = execute(connection, address.load("read")["has_schema"], (address.schema,))
    if not there:
        connection.execute(f'CREATE SCHEMA "{address.schema}"'.encode())
