"""Orders that a caller's own transaction writes in the store's database. The docstrings are the contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Outbox(Protocol):
    """Accepts orders within the caller's transaction, and returns them once it is committed."""

    def order_sql(self) -> str | None:
        """Return the statement by which a caller's own transaction writes an order here.

        Its parameters are a run's id, a body and the body's SHA-256, in the style of psycopg. None if callers cannot share a database
        with this store.
        """

    def orders(self, limit: int) -> list[tuple[int, str, bytes, bytes]]:
        """Return the oldest committed orders: number, id, body, digest of the body."""

    def drop_orders(self, numbers: Sequence[int]) -> None:
        """Remove orders that were carried out."""
