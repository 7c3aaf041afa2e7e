"""A store that has something in every place where a secret can be: each value has the word SECRET."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import everstep
from everstep import yaml
from everstep.store.retention.retention import Retention

KEY = bytes(range(32, 64))
OTHER = bytes(range(64, 96))
WORD = "hunter2"
SECRET = f"{WORD}-in"


@everstep.workflow(name="encryption.child")
def child(n: int, what: str) -> str:
    return str(everstep.current().step("inner", lambda word: f"{word} inner {n}", what))


@everstep.workflow(name="encryption.flow", version="1")
def flow(n: int, what: str) -> Any:
    run = everstep.current()
    big = run.step("big", lambda word: [f"{word} result {i}" for i in range(n)], f"{SECRET} step input")
    run.state[f"{SECRET} state key"] = {f"{SECRET} inner key": f"{SECRET} state value", "big": len(big)}
    run.checkpoint(f"{SECRET} note", tags=[f"{SECRET}-tag"], meta={f"{SECRET} meta key": f"{SECRET} meta value"})
    run.emit("found", what=f"{SECRET} event")
    made = [
        len(big),
        child(3, f"{SECRET} child input"),
        everstep.gate("sure", ask=f"{SECRET} question", default=f"{SECRET} default"),
        everstep.gate("open"),
    ]
    everstep.sleep(0.01)
    return [made, f"{SECRET} workflow result"]


@everstep.workflow(name="encryption.fails")
def fails(what: str) -> None:
    everstep.current().step("boom", _boom, what)


def _boom(what: str) -> None:
    error = ValueError(f"{SECRET} error text")
    error.add_note(f"{SECRET} error note")
    raise error


def _pay(sql: Any, amount: int) -> dict[str, Any]:
    sql.execute("CREATE TABLE IF NOT EXISTS paid (n)")
    sql.execute(f"INSERT INTO paid VALUES ({int(amount)})")
    return {f"{SECRET} transactional key": [f"{SECRET} transactional result"] * amount}


def fill(store: everstep.Store, folder: Path, turns: int = 60) -> None:
    """Plant a secret in every kind of place."""
    given: dict[str, Any] = {
        "note": f"{SECRET} run note",
        "tags": [f"{SECRET}-run-tag"],
        "meta": {f"{SECRET} run meta": f"{SECRET} run meta value"},
    }
    with store.run("loop", state={"said": []}, **given) as run:
        for n in range(turns):
            run.state["said"].append(f"{SECRET} turn {n} " * 40)
            run.checkpoint(f"{SECRET} turn {n}", tags=["tenth"] if n % 10 == 0 else [])
    store.tag("loop@3", f"{SECRET}-late-tag")
    store.prune(Retention(keep_last=2, keep_tagged=["tenth"]), run="loop")
    store.start(flow, 2000, f"{SECRET} workflow input", id="flow")
    store.answer("flow", "sure", f"{SECRET} answer", by=f"{SECRET} person")
    store.start(fails, f"{SECRET} input of a failure", id="fails")
    store.schedule("nightly", flow, 3, f"{SECRET} schedule input", cron="0 3 * * *")
    store.enqueue(child, 21, f"{SECRET} queued input", id="queued")
    connection = sqlite3.connect(folder / "app.db")
    with connection:
        store.enqueue(child, 22, f"{SECRET} order", id="ordered", connection=connection)
    connection.close()
    with store.run("paying") as run:
        everstep.step(transactional=folder / "results.db")(_pay)(5)
    with store.line("line", state={"here": f"{SECRET} line state"}) as line:
        line.checkpoint(f"{SECRET} line note")
        line.attach(1, "extra", f"{SECRET} attached value")
    found = yaml.load(
        "flow.yaml", f"name: encryption-yaml\nsteps:\n- {{id: say, run: 'builtins:str', with: {{object: '{SECRET} yaml step'}}}}\n"
    )
    store.start(found, id="yaml")
