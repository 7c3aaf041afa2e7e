"""Argument types for runs, checkpoints, gates, queues and schedules, with completion from the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from everstep.cli.app import App
from everstep.cli.common import common
from everstep.cli.draw.text import cell
from everstep.cli.draw.values import gate_names
from everstep.views.masking import Masking

if TYPE_CHECKING:
    from everstep.api import Store
    from everstep.queues.schedules import Schedule
    from everstep.store.gates import Gate
    from everstep.views.runs import RunView

_MOST = 50


class RunArgument(click.ParamType[str]):
    """A run id. Commands that read also accept a unique prefix of one, or @last: see `naming`."""

    name = "run"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(run.id, help=f"{run.status} {cell(run.workflow or '', 40)}".strip()) for run in found(ctx, incomplete)]


class RefArgument(RunArgument):
    """RUN, RUN@7, RUN@tag or RUN~2; for commands that read also @last."""

    name = "ref"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        run, at, beginning = incomplete.partition("@")
        if not at or not run:
            return super().shell_complete(ctx, param, incomplete)
        return [CompletionItem(ref) for ref in checkpoints(ctx, run) if ref.startswith(f"{run}@{beginning}")]


class GateArgument(click.ParamType[str]):
    """The name of a gate that the run in the argument before waits at."""

    name = "gate"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = gates(ctx)
        named = zip(found, gate_names(found), strict=True)
        return [CompletionItem(name, help=cell(gate.ask or "", 60)) for gate, name in named if name.startswith(incomplete)]


class StepArgument(click.ParamType[str]):
    """The name or address of a step of the run in the argument before."""

    name = "step"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(address, help=status) for address, status in steps(ctx).items() if address.startswith(incomplete)]


class QueueArgument(click.ParamType[str]):
    """The name of a queue, which may be new."""

    name = "name"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in queues(ctx) if name.startswith(incomplete)]


class ScheduleArgument(click.ParamType[str]):
    """The name of a schedule."""

    name = "name"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = schedules(ctx)
        return [CompletionItem(one.name, help=cell(f"{one.cron} {one.workflow}", 60)) for one in found if one.name.startswith(incomplete)]


def found(ctx: click.Context, beginning: str) -> Sequence[RunView]:
    """Return the runs whose ids begin with a text. Completion never reports an error: it could not show it."""
    try:
        with _opened(ctx) as store:
            from everstep.views.runs import list_runs

            return list_runs(store, Masking(), limit=_MOST, **({"prefix": beginning} if beginning else {})).runs
    except Exception:  # noqa: BLE001 - no store or a damaged one: offer nothing
        return []


def checkpoints(ctx: click.Context, run: str) -> list[str]:
    try:
        with _opened(ctx) as store:
            page = store.checkpoints(run, limit=_MOST)
            return [name for one in page for name in (f"{run}@{one.number}", *(f"{run}@{tag}" for tag in one.tags))]
    except Exception:  # noqa: BLE001 - as above
        return []


def gates(ctx: click.Context) -> list[Gate]:
    """Return the open gates of the named run."""
    try:
        with _opened(ctx) as store:
            return [gate for gate in store.gates(ctx.params["run"]) if gate.open]
    except Exception:  # noqa: BLE001 - as above
        return []


def steps(ctx: click.Context) -> dict[str, str]:
    """Return the recorded steps of the named run, with their statuses."""
    try:
        with _opened(ctx) as store:
            return {step.address: step.status for step in store.steps(ctx.params.get("run") or ctx.params["ref"])}
    except Exception:  # noqa: BLE001 - as above
        return {}


def queues(ctx: click.Context) -> list[str]:
    try:
        with _opened(ctx) as store:
            return [queue.name for queue in store.queues()]
    except Exception:  # noqa: BLE001 - as above
        return []


def schedules(ctx: click.Context) -> list[Schedule]:
    try:
        with _opened(ctx) as store:
            return list(store.schedules())
    except Exception:  # noqa: BLE001 - as above
        return []


def _opened(ctx: click.Context) -> Store:
    return App(common(ctx, "store"), quiet=True, config=common(ctx, "config")).open()


RUN, REF, GATE, QUEUE, SCHEDULE = RunArgument(), RefArgument(), GateArgument(), QueueArgument(), ScheduleArgument()
STEP = StepArgument()
