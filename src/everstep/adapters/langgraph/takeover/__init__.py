"""Taking over threads from LangGraph's own savers: `sources` reads them, `take` writes and compares them."""

from everstep.adapters.langgraph.takeover.take import Taken, take_over

__all__ = ["Taken", "take_over"]
