"""Everstep: the memory that long-running agents and workflows can't lose."""

from everstep.api import Store, open
from everstep.codec.kinds import Unknown, register
from everstep.errors import EverstepError
from everstep.runtime.run import Run
from everstep.snapshot.diff import Change
from everstep.store.model import Checkpoint, RunInfo

__version__ = "0.1.0"
__all__ = ["Change", "Checkpoint", "EverstepError", "Run", "RunInfo", "Store", "Unknown", "open", "register"]
