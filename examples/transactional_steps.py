"""Money that moves once: python examples/transactional_steps.py

A child process pays ten bills, each in a transactional step: two UPDATEs in bank.db, a separate database beside the store. It is killed
with SIGKILL several times: before the UPDATEs, between them, and right after they were committed, before the step is in the journal. In the
end every bill is paid exactly once. Needs only SQLite.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import everstep
from everstep.transactions import step as transactional

BILLS = range(1, 11)
KILLS = {2: "before", 4: "between", 7: "after"}  # the bill during which the process dies, and the moment


def dies(bill: int, place: str, folder: Path) -> None:
    """Die here, the first time."""
    marker = folder / f"died-{bill}"
    if KILLS.get(bill) == place and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def work(folder: Path) -> None:
    @everstep.step(transactional=folder / "bank.db")
    def pay(sql: sqlite3.Connection, bill: int) -> int:
        dies(bill, "before", folder)
        sql.execute("UPDATE accounts SET balance = balance - ? WHERE name = 'us'", [bill])
        dies(bill, "between", folder)
        sql.execute("UPDATE accounts SET balance = balance + ? WHERE name = 'them'", [bill])
        return bill

    @everstep.workflow
    def settle() -> int:
        return sum(pay(bill) for bill in BILLS)

    keep = transactional.keep

    def keep_and_die(ticket: Any, *rest: Any) -> None:
        keep(ticket, *rest)  # the UPDATEs are committed, but the step is not in the journal yet
        dies(ticket.args[0], "after", folder)

    internals: Any = transactional  # only to die at this very moment
    internals.keep = keep_and_die
    with everstep.open(folder / "store.db") as store:
        outcome = store.start(settle, id="bills")
    print(f"   {outcome.report}")


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="everstep-bank-"))
    print(f"Everything happens in {folder}\n")
    bank = sqlite3.connect(folder / "bank.db")
    bank.execute("CREATE TABLE accounts (name TEXT PRIMARY KEY, balance INTEGER)")
    bank.execute("INSERT INTO accounts VALUES ('us', 100), ('them', 0)")
    bank.commit()

    deaths = 0
    while (code := subprocess.run([sys.executable, __file__, "work", str(folder)]).returncode) != 0:
        if code != -signal.SIGKILL:
            raise SystemExit(f"the child ended with {code}")
        deaths += 1
        print(f"{deaths}. Killed. The accounts: {dict(bank.execute('SELECT * FROM accounts'))}")
    accounts = dict(bank.execute("SELECT * FROM accounts"))
    print(f"{deaths + 1}. Done. {deaths} deaths, {len(BILLS)} bills. The accounts: {accounts}")
    if deaths != len(KILLS) or accounts != {"us": 100 - sum(BILLS), "them": sum(BILLS)}:
        raise SystemExit("a bill was paid twice, or not at all")


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(Path(sys.argv[2]))
    else:
        main()
