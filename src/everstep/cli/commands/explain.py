"""`everstep explain`: explain an error code and its remedy."""

from __future__ import annotations

import inspect
from difflib import get_close_matches

import click

from everstep import errors
from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.exit_codes import code_of
from everstep.errors import NotFound


def classes() -> dict[str, type[BaseException]]:
    """Return every error class of Everstep by its code."""
    found = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, BaseException) and "code" in vars(one)]
    return dict(sorted((str(vars(one)["code"]), one) for one in found))


class CodeArgument(click.ParamType[str]):
    name = "code"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[click.shell_completion.CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(code, help=one.__name__) for code, one in classes().items() if code.startswith(incomplete.upper())]


@make("explain")
@click.argument("code", type=CodeArgument(), required=False)
def command(app: App, code: str | None) -> None:
    """Explain the error CODE, or the error of that name; without CODE, list them all

    Example: everstep explain E301
    """
    known = classes()
    if code is None:
        _list(app, known)
        return
    named, typed = {one.__name__.lower(): name for name, one in known.items()}, code
    code = named.get(code.lower()) or (f"E{code}" if code.isdecimal() else code.upper())
    one = known.get(code)
    if code == "USAGE":
        raise click.UsageError("'usage' means that a command line was invalid: see `everstep COMMAND --help`.")
    if one is None:
        raise NotFound(f"there is no error {typed!r:.40}", remedy=f"{_near(typed, known)}List all codes: `everstep explain`.")
    sentence, remedy = _sentence(one), str(one.remedy)  # type: ignore[attr-defined]
    exit_code = code_of(one.__new__(one))
    if app.out.as_json:
        app.out.data("explain", {"code": code, "name": one.__name__, "sentence": sentence, "remedy": remedy, "exit_code": exit_code})
        return
    app.out.prose(f"{code} {one.__name__}: {sentence}", "bold")
    app.out.prose(remedy)
    app.out.prose(f"Exit code of a command that fails with it: {exit_code}. More: docs/errors.md.")


def _near(typed: str, known: dict[str, type[BaseException]]) -> str:
    """Return a question about errors whose names contain a text, or are similar to it; empty if there is none."""
    names = {one.__name__.lower(): f"{one.__name__} ({code})" for code, one in known.items()}
    near = [name for name in names if len(typed) > 2 and typed.lower() in name] or get_close_matches(typed.lower(), names, 3, 0.6)
    return f"Did you mean {' or '.join(names[name] for name in near[:3])}? " if near else ""


def _sentence(one: type[BaseException]) -> str:
    return (one.__doc__ or "").strip().splitlines()[0]


def _list(app: App, known: dict[str, type[BaseException]]) -> None:
    if app.out.as_json:
        app.out.data("codes", [{"code": code, "name": one.__name__, "sentence": _sentence(one)} for code, one in known.items()])
        return
    app.out.table(
        ("CODE", "NAME", "MEANING"),
        [(code, one.__name__, _sentence(one)) for code, one in known.items()],
        drop=("MEANING",),
        cuts=("MEANING",),
    )
