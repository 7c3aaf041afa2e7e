"""Programs on stores that break a promise on purpose. A harness that does not catch them proves nothing. For canaries only."""

from __future__ import annotations

from typing import Any

import everstep
from everstep.backends.contract.core import Commit, Committed
from everstep.backends.sqlite.transaction import Transaction
from everstep.errors import StoreFailed, StoreFull
from harness.faults.disk.retrying_program import Patient
from harness.faults.workload import Workload


class Hasty(Workload):
    """Its store reports a commit of an open run as done, and does it before the next one."""

    def open(self) -> everstep.Store:
        store = super().open()
        backend: Any = store.backend
        commit, late = backend.commit, list[Commit]()

        def commit_later(asked: Commit) -> Any:
            while late:
                commit(late.pop())
            if asked.run.worker is None or asked.was is None:
                return commit(asked)
            late.append(asked)
            return Committed(len(backend.messages(asked.run.id)))

        backend.commit = commit_later
        return store


class Twofold(Workload):
    """Its store writes the manifest in a separate transaction, after that of the commit."""

    def open(self) -> everstep.Store:
        flush, commit = Transaction.flush, Transaction.commit

        def flush_rows(self: Transaction) -> None:
            touched, self.touched = self.touched, False
            flush(self)
            self.touched = touched

        def commit_twice(self: Transaction) -> None:
            commit(self)
            if self.touched:
                self.connection.execute("BEGIN IMMEDIATE")
                flush(self)
                commit(self)

        Transaction.flush, Transaction.commit = flush_rows, commit_twice  # type: ignore[method-assign]
        self.open = super().open  # type: ignore[method-assign]
        return self.open()


class Optimist(Patient):
    """Its store treats a full disk as a success."""

    def open(self) -> everstep.Store:
        store = super().open()
        backend: Any = store.backend
        commit = backend.commit

        def commit_somehow(asked: Commit) -> Any:
            try:
                return commit(asked)
            except StoreFull:
                return Committed(0)

        backend.commit = commit_somehow
        return store


class Liar(Patient):
    """Its store reports "not written" when it does not know."""

    def open(self) -> everstep.Store:
        store = super().open()
        backend: Any = store.backend
        commit = backend.commit

        def commit_and_deny(asked: Commit) -> Any:
            try:
                return commit(asked)
            except StoreFailed as error:
                error.written = "no"
                raise

        backend.commit = commit_and_deny
        return store
