"""Loads the target of `run`, a YAML document or `pkg.mod:function`, and parses its arguments. Imports only what the person named."""

from __future__ import annotations

import json
import math
import sys
import traceback
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from everstep.cli.args import modules
from everstep.errors import EverstepError, InvalidArgument
from everstep.runtime.workflow import Workflow

_YAML = (".yaml", ".yml")


def import_module(name: str) -> Any:
    """Import a module by its name, or a Python file by its path. The working folder is searched last."""
    if name.endswith(_YAML):
        return load(name)
    try:
        return modules.by_file(Path(name)) if name.endswith(".py") else modules.by_name(name)
    except EverstepError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise InvalidArgument(
                f"module {name!r} was not found", remedy="Name a module that Python can import, or a .py file."
            ) from error
        raise InvalidArgument(
            f"{name} cannot be imported: {type(error).__name__}: {error}{_location(error)}",
            remedy="Fix the module. --debug prints the whole traceback.",
        ) from error


def _location(error: BaseException) -> str:
    """Return where in a program an error was raised, unless its message has that."""
    if isinstance(error, SyntaxError):
        return ""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if len(frames) > 1 else ""


def load(target: str) -> Any:
    """Return the workflow that a target names."""
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
            f"the target must be a YAML file, package.module:function or file.py:function, got {target!r:.100}",
            remedy="Name the function after a colon: flows.py:order.",
        )
    found: Any = import_module(module)
    for part in name.split("."):
        if not hasattr(found, part):
            raise InvalidArgument(f"{module} does not define {name!r:.100}", remedy=_near(found, part))
        found = getattr(found, part)
    if not callable(found):
        raise InvalidArgument(f"{target!r:.100} is not a function", remedy="Name a function of the module.")
    return found


def _near(module: Any, name: str) -> str:
    """Say which functions of a module may be meant: similar names first, else its workflows."""
    own = [one for one, value in vars(module).items() if not one.startswith("_") and callable(value) and _is_from(module, value)]
    near = get_close_matches(name, own, 3, 0.6) or [one for one in own if isinstance(getattr(module, one), Workflow)][:3]
    return f"Did you mean {' or '.join(near)}?" if near else "Name a function of the module."


def _is_from(module: Any, value: Any) -> bool:
    return isinstance(value, Workflow) or getattr(value, "__module__", None) == getattr(module, "__name__", "")


def module_of(target: str) -> str:
    """Return the value of --import for the workflow of a target."""
    return target if target.endswith(_YAML) else target.rpartition(":")[0]


def arguments(given: tuple[str, ...]) -> tuple[list[Any], dict[str, Any]]:
    """Parse arguments from the command line: NAME=VALUE or VALUE. A value is JSON if it can be parsed, and text otherwise."""
    args: list[Any] = []
    named: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if equals and name.isidentifier():
            named[name] = value_of(value)
        elif named:
            raise InvalidArgument(f"{text!r:.100} follows a named argument", remedy="Give plain values first, then NAME=VALUE.")
        else:
            args.append(value_of(text))
    return args, named


def pair(text: str, option: str, what: str) -> tuple[str, Any]:
    """Parse an option such as --meta KEY=VALUE into its name and value."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"{option} must be {what}, got {text!r}")
    return name, value_of(value)


def value_of(text: str) -> Any:
    """Parse a value: JSON, or else the text itself; @FILE is the content of a file, @- of standard input."""
    if text.startswith("@") and len(text) > 1:
        text = read(text[1:])  # the content is a value, never the name of another file
    try:
        return _strict(text)
    except ValueError:
        return text


def json_of(file: str) -> Any:
    """Return the content of a JSON file; - is standard input."""
    try:
        return _strict(read(file))
    except ValueError as error:
        raise InvalidArgument(f"{_named(file)} must contain JSON: {error}", remedy="Pass one JSON value.") from error


def read(file: str) -> str:
    """Return the text of a file; - is standard input."""
    try:
        return (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise InvalidArgument(
            f"{_named(file)} cannot be read: {getattr(error, 'strerror', None) or error}", remedy="Give an existing UTF-8 text file."
        ) from error


def _named(file: str) -> str:
    return "standard input" if file == "-" else f"{file!r:.200}"


def _strict(text: str) -> Any:
    """Parse standard JSON: numbers that JSON cannot represent, such as NaN, are refused, not changed."""
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _finite(text: str) -> float:
    if math.isfinite(number := float(text)):
        return number
    raise ValueError(f"{text:.40} is not a JSON number")
