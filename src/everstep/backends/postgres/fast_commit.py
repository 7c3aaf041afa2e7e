"""The fastest path for the most common commit: one prepared call of libpq, with values packed here. Relies on psycopg.pq.

psycopg's general handling of queries and types costs more CPU than the server needs for the whole statement. Only for sessions in which
statements stay prepared, and for text in UTF-8; everything else uses the ordinary path. Ctrl-C interrupts its waits.
"""

from __future__ import annotations

import re
import select
import time
from contextlib import suppress
from struct import Struct
from typing import Any

import psycopg
from psycopg.errors import error_from_result

from everstep.backends.postgres.connections.connect import Connection
from everstep.backends.postgres.rows import Values

_NAME = b"everstep_advance"
_BINARY = [1, 0, *[1] * 13]  # all but the sum, which is text
_TYPES = [21, 1700, 20, 20, 17, 25, 20, 17, 25, 25, 25, 25, 17, 17, 17]
_ACTIVE = psycopg.pq.TransactionStatus.ACTIVE
_PATIENCE = 5.0  # seconds, as in psycopg
_long = Struct(">q").pack
_TUPLES, _COMMAND = psycopg.pq.ExecStatus.TUPLES_OK, psycopg.pq.ExecStatus.COMMAND_OK


class Quick:
    """The call `advance` on one connection."""

    def __init__(self, connection: Connection, sql: bytes) -> None:
        self._wire = connection.pgconn
        self._poll = select.poll()
        self._poll.register(self._wire.socket, select.POLLIN)
        self._prepare(sql)

    def _prepare(self, sql: bytes) -> None:
        numbers = iter(range(1, len(_TYPES) + 1))
        text = re.sub(rb"%[bt]", lambda _: b"$%d" % next(numbers), sql)
        self._wire.send_prepare(_NAME, text, _TYPES)
        self._result(_COMMAND)

    def ask(self, values: Values) -> Values:
        """Return the answer of the server. Raises the same errors as psycopg."""
        packed = _packed(values)
        try:
            self._wire.send_query_prepared(_NAME, packed, _BINARY, result_format=1)
            result = self._result(_TUPLES)
        except psycopg.Error:
            raise
        except BaseException:
            with suppress(psycopg.Error):  # the connection is lost as well: raise Ctrl-C nevertheless
                self._hear_out()
            raise
        found = [result.get_value(0, column) for column in range(result.nfields)]
        return tuple([None if data is None else int.from_bytes(data, signed=True) for data in found])

    def _hear_out(self) -> None:
        """Cancel the statement after Ctrl-C and wait for its end: a later check then sees its outcome, which can no longer change."""
        wire, limit = self._wire, time.monotonic() + _PATIENCE
        if wire.flush():
            return  # a part was not sent, so the server has nothing to execute
        while wire.transaction_status == _ACTIVE and time.monotonic() < limit:
            while not wire.is_busy() and wire.get_result() is not None:
                continue
            if wire.is_busy():
                self._poll.poll(100)
                wire.consume_input()

    def _result(self, expected: int) -> Any:
        wire = self._wire
        while wire.flush():  # long values are sent in parts; the server may answer meanwhile
            self._poll.modify(wire.socket, select.POLLIN | select.POLLOUT)
            if any(event & ~select.POLLOUT for _, event in self._poll.poll()):
                wire.consume_input()
            self._poll.modify(wire.socket, select.POLLIN)
        result = None
        while True:
            while wire.is_busy():
                self._poll.poll()
                wire.consume_input()
            following = wire.get_result()
            if following is None:
                break
            result = following
        if result is None:
            raise psycopg.OperationalError(wire.get_error_message() or "the connection is lost")
        if result.status != expected:
            raise error_from_result(result)
        return result


def usable(connection: Connection) -> bool:
    """Return whether values can be packed here in the form that the session expects."""
    return connection.info.encoding == "utf-8" and hasattr(select, "poll")


def _packed(values: Values) -> list[bytes | None]:
    bucket, delta, epoch, seq, was, name, at, check, kind, note, meta, own, labels, digest, body = values
    return [
        bucket.to_bytes(2), delta.encode(), _long(epoch), _long(seq), was, name.encode(), _long(at), check, kind.encode(),
        None if note is None else note.encode(), None if meta is None else meta.encode(),
        None if own is None else own.encode(), labels, digest, body,
    ]  # fmt: skip
