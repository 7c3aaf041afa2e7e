"""`everstep new`: write a small program with its test, as a starting point. Never overwrites a file."""

from __future__ import annotations

import pkgutil
import shlex
import shutil
import sys
from pathlib import Path

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.files import create
from everstep.errors import InvalidArgument

KINDS = {
    "agent": "a loop that thinks, uses tools and asks for approval",
    "workflow": "a function with steps, retries and an approval",
    "pipeline": "one run for each item of a list, in a queue with workers",
}


@make("new")
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
def command(app: App, kind: str, folder: Path) -> None:
    """Write a small agent, workflow or pipeline with its test to FOLDER (default: this folder)

    The program runs as it is: it needs no key and no network. Existing files are never overwritten.

    Example: everstep new agent my-agent
    """
    files = write(kind, folder)
    following = commands(kind, folder)
    if app.out.as_json:
        app.out.data("new", {"files": [str(path) for path in files], "next": following})
        return
    for path in files:
        app.out.line(str(path))
    app.out.say("Next:")
    for line in following:
        app.out.say(f"  {line}")


def write(kind: str, folder: Path) -> list[Path]:
    """Write the program and its test, or neither if one of them exists; return their paths."""
    texts = {folder / f"{kind}.py": text_of(kind), folder / f"test_{kind}.py": text_of(f"{kind}_test")}
    for path in texts:
        if path.exists() or path.is_symlink():
            raise _exists(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise InvalidArgument(f"FOLDER must be a folder, got the file {str(folder)!r}", remedy=f"everstep new {kind} OTHER") from error
    for path, text in texts.items():
        if not create(path, text):  # another process was faster
            raise _exists(path)
    return list(texts)


def text_of(name: str) -> str:
    """Return the text of a starting point, from the files of this package."""
    data = pkgutil.get_data("everstep.cli", f"starts/{name}.txt")
    if data is None:
        raise FileNotFoundError(f"everstep/cli/starts/{name}.txt is not installed")
    return data.decode()


def commands(kind: str, folder: Path) -> list[str]:
    """List what to type next, with the Python that runs this command."""
    python = "python" if _finds_this_python() else shlex.quote(sys.executable)
    enter = [] if folder == Path() else [f"cd {shlex.quote(str(folder))}"]
    return [*enter, f"{python} {kind}.py", f"{python} -m pytest test_{kind}.py    # needs: pip install pytest"]


def _finds_this_python() -> bool:
    found = shutil.which("python")
    return found is not None and Path(found).parent.absolute() == Path(sys.executable).parent.absolute()


def _exists(path: Path) -> InvalidArgument:
    return InvalidArgument(f"{str(path)!r} already exists and was not changed", remedy="Choose another folder: everstep new KIND FOLDER.")
