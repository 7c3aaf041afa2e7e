"""Your own types in the state: python examples/own_types.py

They are restored only in a program that knows them. Another program gets `Unknown`, which it can show and save again unchanged.
"""

import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import everstep

STRANGER = """
import sys, everstep
with everstep.open(sys.argv[1]) as store:
    plan = store.load("trip")["plan"]
    print("a stranger reads: ", plan)
    with store.run("trip") as run:
        run.state["seen_by"] = "a stranger"
        run.checkpoint()
"""


@everstep.register(name="trip.Plan", version=2, upgrades={1: lambda old: {"goal": old["aim"], "stops": old["stops"]}})
@dataclass
class Plan:
    """A plan. Version 1 called its goal `aim`; the upgrade converts stored fields of version 1 to those of version 2."""

    goal: str
    stops: list[str] = field(default_factory=list)


class Money:
    """An amount of money: Everstep can't see the structure of this type, so it needs a pair of functions."""

    def __init__(self, cents: int):
        self.cents = cents


everstep.register(Money, name="trip.Money", encode=lambda m: {"cents": m.cents}, decode=lambda f: Money(f["cents"]))

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "store.db"
    with everstep.open(path) as store, store.run("trip") as run:
        run.state["plan"] = Plan("Lisbon", ["Paris"])
        run.state["budget"] = Money(90_000)
        run.checkpoint()
        run.state["plan"].stops.append("Madrid")  # not tracked, but compared at each checkpoint: every change is found
        run.checkpoint()
        print("what changed:     ", *store.diff("trip@1", "trip@2"))

    subprocess.run([sys.executable, "-c", STRANGER, str(path)], check=True)

    with everstep.open(path) as store:
        state = store.load("trip")
        print("back home:        ", state["plan"], state["budget"].cents, state["seen_by"])
        old = store.fork("trip", id="old", edit={"plan": everstep.Unknown("trip.Plan", 1, {"aim": "Rome", "stops": []})})
        print("from version 1:   ", store.load(old.id)["plan"])
