"""Fork a finished run before its decision, decide differently, compare: python examples/fork_and_compare.py

A workflow researches three offers, which costs money, and then decides by a wish in its state. Two forks start at the checkpoint before the
decision with another wish. They keep the research: only the decision and the letter are made again. Nothing leaves this machine.
"""

from __future__ import annotations

import everstep

OFFERS = {"train": {"hours": 9, "price": 120}, "plane": {"hours": 2, "price": 210}, "bus": {"hours": 14, "price": 45}}


@everstep.step(kind="tool")
def look_up(way: str) -> dict[str, int]:
    everstep.current().usage(cost=0.25)  # a paid search
    return OFFERS[way]


@everstep.step(kind="llm")
def decide(offers: dict[str, dict[str, int]], wish: str) -> str:
    """Replace a model: it takes the offer that is best for this wish."""
    return min(offers, key=lambda way: offers[way][wish])


@everstep.step(kind="llm")
def write(way: str, offer: dict[str, int]) -> str:
    return f"Take the {way}: {offer['hours']} h, ${offer['price']}."


@everstep.workflow
def trip() -> str:
    run = everstep.current()
    run.state["offers"] = {way: look_up(way) for way in OFFERS}
    run.state["wish"] = "hours"
    run.checkpoint("all offers are known", tags="before-decision")
    # From here on the code reads the state, so that a fork can edit it. A local variable `wish` would not see the edit.
    run.state["way"] = decide(run.state["offers"], run.state["wish"])
    run.state["letter"] = write(run.state["way"], run.state["offers"][run.state["way"]])
    return str(run.state["letter"])


def main() -> None:
    with everstep.open("memory://") as store:  # a file works the same way
        print(f"original     {store.start(trip, id='original').result}")

        store.fork("original@before-decision", id="cheap", edit={"wish": "price"})
        out = store.resume("cheap")
        print(f"cheap        {out.result}")
        print(f"             {out.report.kept} steps kept, {out.report.executed} run again, ${out.report.cost_saved:.2f} not paid again")

        offers = store.load("original@before-decision")["offers"] | {"train": {"hours": 1, "price": 99}}
        store.fork("original@before-decision", id="new-train", edit={"offers": offers})
        print(f"new-train    {store.resume('new-train').result}")

        print("\nThe difference between original and cheap:")
        for change in store.diff("original", "cheap"):
            print(f"  {change}")
        blamed = store.blame("cheap", ["way"])
        print(f"'way' was last changed by {blamed.ref}, after step {blamed.step}.")


if __name__ == "__main__":
    main()
