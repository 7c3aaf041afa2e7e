"""Durable LangGraph threads: `graph = builder.compile(checkpointer=Saver())`.

`Saver` keeps threads in an Everstep store, `@durable` makes tools run once across crashes, and `resume(graph)` lets `everstep resume` and workers
continue threads. `python -m everstep.adapters.langgraph` takes over threads from LangGraph's own savers.
"""

from everstep.adapters.langgraph.version import check

check()

from everstep.adapters.langgraph.driver import resume  # noqa: E402 - a wrong version is named before an import of it fails
from everstep.adapters.langgraph.saver import Saver  # noqa: E402
from everstep.adapters.langgraph.tools import durable  # noqa: E402

__all__ = ["Saver", "durable", "resume"]
