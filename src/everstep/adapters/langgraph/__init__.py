"""Durable LangGraph threads: `graph = builder.compile(checkpointer=Saver())`.

`Saver` keeps threads in an Everstep store, `@durable` makes tools run once across crashes, and `resume(graph)` lets `everstep resume` and workers
continue threads. `python -m everstep.adapters.langgraph` takes over threads from LangGraph's own savers.
"""

from everstep.adapters.langgraph.driver import resume
from everstep.adapters.langgraph.saver import Saver
from everstep.adapters.langgraph.tools import durable

__all__ = ["Saver", "durable", "resume"]
