"""The program that the tests of transactional steps kill, stop and overtake: `python transactional_worker.py '{"store": …, "place": …}'`.

One workflow of n transactional steps. Each adds 1 to a total and leaves a line with its number. It dies, or waits for a word, at a point that it is told.
"""

import json
import os
import signal
import sys
import time
from typing import Any

import everstep
from everstep.errors import EverstepError
from everstep.runtime.steps import record
from everstep.runtime.steps.in_thread import InThread
from everstep.runtime.tasks import writer
from everstep.transactions import sqlite
from everstep.transactions import step as transactional

ASK: dict[str, Any] = json.loads(sys.argv[1])


def say(*words: Any) -> None:
    print(*words, flush=True)


def at(point: str, number: int) -> None:
    if ASK.get("point") != f"{point} {number}":
        return
    if ASK.get("do") == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    say("at", point)
    sys.stdin.readline()


@everstep.step(transactional=ASK["place"])
def add(sql: Any, number: int) -> int:
    at("begun", number)
    if ASK.get("shared", True):
        sql.execute("UPDATE totals SET n = n + 1")
    sql.execute(f"INSERT INTO lines VALUES ({number})")
    at("written", number)
    time.sleep(ASK.get("pause", 0))
    return number * number


@everstep.workflow
def flow(n: int) -> int:
    return sum(add(number) for number in range(n))


@everstep.step(name="add", transactional=ASK["place"])
async def later(sql: Any, number: int) -> int:
    return int(add.__wrapped__(sql, number))  # type: ignore[attr-defined]


@everstep.workflow
async def aflow(n: int) -> int:
    return sum([await later(number) for number in range(n)])


def number_of(ticket: Any) -> int:
    return int(ticket.address.partition("#")[2])


def watch(store: everstep.Store) -> None:
    """Points between the function and its record."""
    check, keep, write = transactional.check, transactional.keep, InThread.commit

    def checking(ticket: Any) -> None:
        at("called", number_of(ticket))
        check(ticket)

    def keeping(ticket: Any, work: Any, result: Any) -> None:
        at("returned", number_of(ticket))
        keep(ticket, work, result)
        at("kept", number_of(ticket))

    async def writing(ticket: Any, due: Any) -> Any:
        made = await write(ticket, due)
        at("recorded", number_of(ticket))
        return made

    transactional.check, transactional.keep = checking, keeping
    for module in (record, writer):  # in this thread, and in that of a transaction of a task
        module.commit_step = writing  # type: ignore[attr-defined]
    InThread.commit = staticmethod(writing)  # type: ignore[assignment]
    if ASK["place"] is True:
        from everstep.backends.postgres.user_transaction import PostgresTransaction

        end = PostgresTransaction._end

        def ending(self: Any, commit: Any) -> None:
            number = int((commit.records[0].note or "#0").partition("#")[2])
            at("asked", number)
            end(self, commit)
            at("committed", number)

        PostgresTransaction._end = ending  # type: ignore[method-assign]


def main() -> None:
    sqlite.BUSY_SECONDS = ASK.get("busy", 30.0)
    options = {name: ASK[name] for name in ("lease_seconds",) if name in ASK}
    with everstep.open(ASK["store"], **options) as store:
        watch(store)
        say("ready")
        if ASK.get("wait"):
            sys.stdin.readline()
        try:
            known = any(info.id == "r" and info.status == "failed" for info in store.runs())
            outcome = store.resume("r") if known else store.start(aflow if ASK.get("flow") == "aflow" else flow, ASK["n"], id="r")
            say(json.dumps({"status": outcome.status, "result": outcome.result, "error": type(outcome.error).__name__}))
        except EverstepError as error:
            say(json.dumps({"status": type(error).__name__, "message": str(error)}))


main()
