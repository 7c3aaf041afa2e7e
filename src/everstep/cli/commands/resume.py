"""`everstep resume`: continue a run that stopped. Finished steps are not run again."""

from __future__ import annotations

from difflib import get_close_matches
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args import workflow_target
from everstep.cli.args.choose import run_of
from everstep.cli.args.defining_file import defining_file
from everstep.cli.args.refs import RUN
from everstep.cli.args.remembered import remember
from everstep.cli.draw import run_outcome
from everstep.cli.draw.hints import needed, resuming
from everstep.cli.draw.steps_live import watch
from everstep.cli.draw.text import plural, safe
from everstep.errors import InvalidArgument, UnknownWorkflow
from everstep.runtime.workflow import known as known_names
from everstep.store.lookup import fork_before

if TYPE_CHECKING:
    from everstep.runtime.resumable import Resumable


@make("resume")
@click.argument("run", type=RUN, required=False)
@click.option(
    "--import", "modules", multiple=True, metavar="MODULE", help="Module, .py file or YAML file that defines the workflow; repeatable"
)
@click.option("--from-step", metavar="STEP", help="Fork the run before this step, and run from there")
@click.option(
    "--replay",
    type=click.Choice(["normal", "validate", "republish"]),
    default="normal",
    show_default=True,
    help="validate: run all steps again, write nothing, report differences; republish: first send all recorded events to the hooks again",
)
@click.option("--accept", multiple=True, metavar="STEP", help="Use this step's recorded result although its input has changed; repeatable")
@click.option("--anyway", is_flag=True, help="Resume although the workflow's definition has changed")
@click.option("--answer", "answers", multiple=True, metavar="GATE=VALUE", help="Answer a gate first; repeatable")
@click.option("--failed-by", metavar="ERROR", help="Retry all runs that failed with this error, such as StoreUnreachable")
@click.option("--check", is_flag=True, help="Only print whether the run can be resumed, and why not")
def command(
    app: App, run: str | None, modules: tuple[str, ...], check: bool, answers: tuple[str, ...], failed_by: str | None, **options: Any
) -> int:
    """Continue RUN where it stopped

    Name the code of its workflow with --import, or list it in the configuration: `imports` has modules, `workflows` has files such as
    flows/*.yaml. A name that a store contains is never imported.

    Example: everstep resume o1 --import flows.py
    """
    if failed_by is not None:
        return _failed(app, run, failed_by)
    app.import_all(modules)
    with app.open(driving=True) as store:
        watch(app, store)
        name = run_of(app, store, run, "resume", lambda found: found.workflow and not found.open)
        if check:
            return _check(app, store.can_resume(name))
        early, info = False, store.get(name)
        workflow = info.workflow
        if answers and options["from_step"] is not None:  # they are for the fork: the run itself may already have answers
            name = fork_before(store, name, options["from_step"])
            options["from_step"], early = None, True
        for text in answers:
            store.answer(name, *workflow_target.pair(text, "--answer", "GATE=VALUE"), early=early)
        try:
            with run_outcome.driving(app, modules):
                done = store.resume(name, **options)
            remember(app.opened, workflow, modules)
            code = run_outcome.tell(app, done, modules, store=store)
            if options["replay"] == "validate" and not done.report.differences:
                app.out.say("No differences.")
            return code
        except UnknownWorkflow as error:
            if error.remedy == UnknownWorkflow.remedy or "adapter" in info.meta:  # a loop with a label needs its program
                error.remedy = _name_it(app, name, workflow, _typed(options), modules)
            raise


def _name_it(app: App, run: str, workflow: str | None, more: str, given: tuple[str, ...]) -> str:
    """Say how to name the code of a workflow. A store never decides what is imported; it may only remind of what was typed last time."""
    known = app.worked_last_time(workflow)
    need = needed(workflow)
    if need and given:
        return f"{', '.join(map(safe, given))} must call {need} when it is imported. Or run the program that started the run again."
    near = get_close_matches(workflow or "", known_names(), 1, 0.6) if given else []
    if near:
        return f"{', '.join(map(safe, given))} defines {safe(near[0])}. If the workflow was renamed, give it its old name: @everstep.workflow(name={workflow!r})."
    command = resuming(app, run, known or defining_file(workflow) or ("MODULE",)) + more
    if known:
        return f"{', '.join(map(safe, known))} defined it last time: `{command}`."
    return f"Name the module, .py file or YAML file that defines it: `{command}`. Or list it under imports or workflows in everstep.toml."


def _typed(options: dict[str, Any]) -> str:
    """Return the options that change what a resume does, as they were typed. Answers are recorded by now, and are not given again."""
    words = ["--from-step", options["from_step"]] if options["from_step"] is not None else []
    words += ["--replay", options["replay"]] if options["replay"] != "normal" else []
    words += [word for step in options["accept"] for word in ("--accept", step)]
    words += ["--anyway"] if options["anyway"] else []
    return "".join(f" {safe(quote(word))}" for word in words)


def _failed(app: App, run: str | None, error: str) -> int:
    if run is not None:
        raise InvalidArgument(
            f"--failed-by and a run ({run}) cannot be combined", remedy=f"To resume only this run: everstep resume {run}."
        )
    with app.open() as store:
        found = store.resume_failed(error)
    if app.out.as_json:
        app.out.data("resumed", {"runs": found})
    else:
        for one in found:
            app.out.line(safe(one))
        app.out.say(
            f"{plural(len(found), 'run')} marked for retry. Start a worker that defines the workflow: everstep worker --import MODULE"
        )
    return 0


def _check(app: App, found: Resumable) -> int:
    if app.out.as_json:
        app.out.data("can_resume", {"run": found.run, "can_resume": bool(found), "reasons": found.reasons})
    else:
        app.out.line(safe(app.mask(str(found))))
    return 0 if found else 6
