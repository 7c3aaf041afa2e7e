"""Types of one's own in the state: python examples/own_types.py

They come back only in a program that knows them. One that doesn't gets `Unknown`, which it can look at and save again unchanged.
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
    """Version 1 called its goal `aim`; the upgrade turns stored fields of version 1 into those of version 2."""

    goal: str
    stops: list[str] = field(default_factory=list)


class Money:
    """A type whose structure Everstep can't see needs a pair of functions."""

    def __init__(self, cents: int):
        self.cents = cents


everstep.register(Money, name="trip.Money", encode=lambda m: {"cents": m.cents}, decode=lambda f: Money(f["cents"]))

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "store.db"
    with everstep.open(path) as store, store.run("trip") as run:
        run.state["plan"] = Plan("Lisbon", ["Paris"])
        run.state["budget"] = Money(90_000)
        run.checkpoint()
        run.state["plan"].stops.append("Madrid")  # not tracked, but compared at each checkpoint: nothing is missed
        run.checkpoint()
        print("what changed:     ", *store.diff("trip@1", "trip@2"))

    subprocess.run([sys.executable, "-c", STRANGER, str(path)], check=True)

    with everstep.open(path) as store:
        state = store.load("trip")
        print("back home:        ", state["plan"], state["budget"].cents, state["seen_by"])
        old = store.fork("trip", id="old", edit={"plan": everstep.Unknown("trip.Plan", 1, {"aim": "Rome", "stops": []})})
        print("from version 1:   ", store.load(old.id)["plan"])
