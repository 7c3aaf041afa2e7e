"""The results of other libraries in the same tests, to compare with our own counts. Constants and words only; nothing is measured here.

Each was measured once, with the release of autumn 2026, in its own default set-up, by the technique of the harness named with it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """The result of one library in the test of one harness."""

    harness: str
    name: str
    did: str


PEERS = (
    Peer("flips", "LangGraph", "27 % of the flipped bits in the newest record gave wrong data without an error"),
    Peer("flips", "agent-framework", "37.5 %"),
    Peer("flips", "DBOS", "28 to 32 %"),
    Peer("flips", "Burr", "69 %"),
    Peer("flips", "Kaizen", "19 %"),
    Peer("power", "agent-framework", "silently went back to an older state in 55 of 114 states"),
    Peer("writers", "LangGraph", "lost 66 of 200 updates without an error"),
    Peer("takeovers", "LangGraph", "the stale state became the newest, and 3 of 4 nodes ran twice"),
    Peer("clocks", "LangGraph", "returned the old state as the newest after the clock was set back a day"),
    Peer("clocks", "agent-framework", "the same"),
    Peer("clocks", "Kaizen", "the same"),
    Peer("hostile", "LangGraph", "runs code from storage by default"),
    Peer("hostile", "DBOS", "runs code from storage by default"),
)


def peers_of(harness: str) -> list[Peer]:
    return [peer for peer in PEERS if peer.harness == harness]
