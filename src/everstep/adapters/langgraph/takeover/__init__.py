"""Taking over threads from LangGraph's own savers: `readers` reads them, `copies` writes and compares them."""

from everstep.adapters.langgraph.takeover.copies import Taken, take_over

__all__ = ["Taken", "take_over"]
