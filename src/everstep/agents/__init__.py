"""Agents: a loop of thinking and acting, executed in a run.

`loop` has the agent of a program, `turns` executes it, `decision` is what it decides, `state` names the fields of its state.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everstep.agents.state import Field as Field


def __getattr__(name: str) -> Any:
    """Import `Field`, for states with fields of their own, on first use."""
    if name != "Field":
        raise AttributeError(f"module 'everstep.agents' has no attribute {name!r}")
    from everstep.agents.state import Field

    return Field
