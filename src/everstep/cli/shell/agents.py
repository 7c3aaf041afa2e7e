"""Resumes agents that run outside of a workflow, with the `AgentLoop` of a module that the person imported.

A finished agent takes another task as the next message of its conversation. Never imports a name found in a store.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from everstep.agents.loop import AgentLoop
from everstep.cli.app import App, interactive
from everstep.cli.draw import run_outcome
from everstep.cli.draw.steps_live import watch
from everstep.cli.draw.text import safe
from everstep.cli.shell.asking import next_task
from everstep.errors import InvalidArgument, NotFound
from everstep.store.lookup import started_with

if TYPE_CHECKING:
    from types import ModuleType

    from everstep.api import Store
    from everstep.runtime.outcome import Outcome


def is_agent(app: App, run: str) -> bool:
    """Return whether a run is an agent's and not a workflow's."""
    with app.open() as store:
        if started_with(store, run).get("workflow") is not None:
            return False
        return _state(store, run) is not None


def resume(app: App, modules: list[ModuleType], run: str, task: str | None) -> int:
    """Run an agent until its next answer."""
    with app.open(driving=True) as store:
        watch(app, store)
        state = _state(store, run) or {}
        name, loop = _loop(modules, run, state.get("agent"))
        is_done = store.get(run).status == "succeeded"
        if is_done and task is None:
            task = _asked(run)
            if not task:
                return 0
        app.out.say(f"Continuing {safe(run)} with {safe(name)}", "dim")
        return run_outcome.tell(app, _drive(loop, store, run, task, is_done))


def _asked(run: str) -> str:
    if not interactive():
        raise click.UsageError("Missing option '--task': the agent has finished and needs its next task.")
    return next_task(run)


def _drive(loop: AgentLoop, store: Store, run: str, task: str | None, follow_up: bool) -> Outcome[Any]:
    functions = (loop.think, loop.plan, loop.act, *loop.tools.values())
    if not any(inspect.iscoroutinefunction(function) for function in functions):
        return loop.run(store, run, task, follow_up=follow_up)
    import asyncio

    return asyncio.run(loop.arun(store, run, task, follow_up=follow_up))


def _state(store: Store, run: str) -> Mapping[str, Any] | None:
    """Return the newest state if it is an agent's."""
    try:
        found = store.view(run)
    except NotFound:
        return None  # it has no checkpoint yet
    return found if isinstance(found, Mapping) and {"pending", "messages", "agent"} <= set(found) else None


def _loop(modules: list[ModuleType], run: str, agent: str | None) -> tuple[str, AgentLoop]:
    """Return the loop of an agent: the only imported one with its name."""
    known = [(name, one) for module in modules for name, one in vars(module).items() if isinstance(one, AgentLoop)]
    found = [pair for pair in known if pair[1].agent == agent]
    if len(found) == 1:
        return found[0]
    if not found:
        raise InvalidArgument(
            f"run {run!r} belongs to an agent, but no imported module creates its AgentLoop",
            remedy="Name the module or .py file that creates it: everstep shell --import MODULE.",
        )
    names = ", ".join(name for name, _ in found)
    raise InvalidArgument(f"several agents could continue run {run!r}: {names}", remedy="Give each agent a name: AgentLoop(agent=…).")
