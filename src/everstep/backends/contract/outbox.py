"""Orders that a caller's own transaction leaves in the store's database. The docstrings are the contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Outbox(Protocol):
    """Takes orders with the caller's transaction, and hands them out once it is committed."""

    def order_sql(self) -> str | None:
        """The statement with which a caller's own transaction leaves an order here: a run's id, a body and its SHA-256 are its parameters, in the
        style of psycopg. None where nobody but the store has transactions."""

    def orders(self, limit: int) -> list[tuple[int, str, bytes, bytes]]:
        """The oldest orders that were left and committed: a number, the id, the body, its digest."""

    def drop_orders(self, numbers: Sequence[int]) -> None:
        """These orders were carried out."""
