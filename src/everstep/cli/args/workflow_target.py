"""What `run` runs: a YAML document or `pkg.mod:function`, and the arguments that it is given. Imports only what the person named."""

from __future__ import annotations

import json
import math
import sys
import traceback
from pathlib import Path
from typing import Any

import click

from everstep.cli.args import modules
from everstep.errors import EverstepError, InvalidArgument

_YAML = (".yaml", ".yml")


def import_module(name: str) -> Any:
    """Import a module by its name, or a Python file by its path. The working folder is looked in after all other places."""
    if name.endswith(_YAML):
        return load(name)
    try:
        return modules.by_file(Path(name)) if name.endswith(".py") else modules.by_name(name)
    except EverstepError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise InvalidArgument(
                f"there is no module {name!r}", remedy="Name a module that Python can import, or a file that ends in .py."
            ) from error
        raise InvalidArgument(
            f"{name} cannot be imported: {type(error).__name__}: {error}{_place(error)}",
            remedy="Mend it; --debug shows the whole traceback.",
        ) from error


def _place(error: BaseException) -> str:
    """Where in a program an error was raised, unless it says so itself."""
    if isinstance(error, SyntaxError):
        return ""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if len(frames) > 1 else ""


def load(target: str) -> Any:
    """The workflow that a target names."""
    if target.endswith(_YAML):
        modules.look_here()  # for the functions that the document names
        try:
            from everstep import yaml
        except ImportError as error:
            raise InvalidArgument("YAML workflows need PyYAML", remedy="Install it: pip install 'everstep[yaml]'.") from error
        return yaml.load(target)
    module, colon, name = target.rpartition(":")
    if not colon or not module or not name:
        raise InvalidArgument(
            f"{target!r:.100} names no workflow", remedy="Give a YAML file, package.module:function, or file.py:function."
        )
    found: Any = import_module(module)
    for part in name.split("."):
        if not hasattr(found, part):
            raise InvalidArgument(f"{module} has no {name!r:.100}", remedy="Name a function of the module.")
        found = getattr(found, part)
    if not callable(found):
        raise InvalidArgument(f"{target!r:.100} is no function", remedy="Name a function of the module.")
    return found


def module_of(target: str) -> str:
    """What --import is to be given for the workflow of a target."""
    return target if target.endswith(_YAML) else target.rpartition(":")[0]


def arguments(given: tuple[str, ...]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments from the command line: NAME=VALUE or VALUE, where a value is JSON if it can be read as such, and text otherwise."""
    args: list[Any] = []
    named: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if equals and name.isidentifier():
            named[name] = value_of(value)
        elif named:
            raise InvalidArgument(f"{text!r:.100} stands after a named argument", remedy="Give plain values first, then NAME=VALUE.")
        else:
            args.append(value_of(text))
    return args, named


def pair(text: str, option: str, what: str) -> tuple[str, Any]:
    """The name and the value that an option such as --meta gives as KEY=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"{option} {text!r} is no {what}")
    return name, value_of(value)


def value_of(text: str) -> Any:
    """A value: JSON, or else the text itself; @FILE is the content of a file, @- of standard input."""
    if text.startswith("@") and len(text) > 1:
        text = read(text[1:])  # what a file holds is a value, never the name of another file
    try:
        return _strict(text)
    except ValueError:
        return text


def json_of(file: str) -> Any:
    """What a JSON file holds; - is standard input."""
    try:
        return _strict(read(file))
    except ValueError as error:
        raise InvalidArgument(f"{_named(file)} is no JSON: {error}", remedy="Give one JSON value.") from error


def read(file: str) -> str:
    """The text of a file; - is standard input."""
    try:
        return (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{_named(file)} cannot be read: {error}", remedy="Give a file of UTF-8 text.") from error


def _named(file: str) -> str:
    return "standard input" if file == "-" else f"{file!r:.200}"


def _strict(text: str) -> Any:
    """JSON as the standard has it: what no JSON could give back is refused, not changed."""
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _finite(text: str) -> float:
    if math.isfinite(number := float(text)):
        return number
    raise ValueError(f"{text:.40} is no number that JSON has")
