"""Finds the Python callables that a YAML workflow names, when the program loads the document.

The program chose the document, and with it these names. Documents from a store are never passed to this module.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from everstep.errors import InvalidWorkflow
from everstep.expressions.values import suggestion
from everstep.yaml.action import Call, Command
from everstep.yaml.document import Document
from everstep.yaml.step import Step


def callables(document: Document) -> dict[str, Callable[..., Any]]:
    """Map each step that calls Python to its callable; InvalidWorkflow names the line of a missing one, or of one that does not accept its
    arguments.
    """
    found = {}
    for step in document.steps:
        if isinstance(step.action, Call):
            found[step.id] = _fitting(document, step, step.action, _find(document, step.action))
        elif isinstance(step.action, Command):
            _check_variables(document, step)
    return found


def _find(document: Document, call: Call) -> Any:
    module_name, _, path = call.target.partition(":")
    try:
        value: Any = importlib.import_module(module_name)
    except Exception as error:  # a module may raise anything; the message names the line that imports it
        raise InvalidWorkflow(
            f"{call.target}: {module_name} cannot be imported: {type(error).__name__}: {error}", document.file, call.line
        ) from error
    for name in path.split("."):
        if not hasattr(value, name):
            names = [n for n in dir(value) if not n.startswith("_")]
            raise InvalidWorkflow(
                f"{call.target}: there is no '{name}' in {module_name}{suggestion(name, names)}", document.file, call.line
            )
        value = getattr(value, name)
    if not callable(value):
        raise InvalidWorkflow(f"{call.target} must be callable, got a value of type {type(value).__name__}", document.file, call.line)
    return value


def _fitting(document: Document, step: Step, call: Call, function: Any) -> Any:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C, without a signature: the call itself will check the arguments
        return function
    try:
        signature.bind(**dict.fromkeys(step.arguments))
    except TypeError as error:
        takes = ", ".join(signature.parameters) or "nothing"
        raise InvalidWorkflow(
            f"step '{step.id}': invalid arguments (with) for {call.target}: {error}; it takes {takes}", document.file, step.line
        ) from error
    return function


def _check_variables(document: Document, step: Step) -> None:
    seen: dict[str, str] = {}
    for name in step.arguments:
        if name.upper() in seen:
            both = f"'{seen[name.upper()]}' and '{name}'"
            raise InvalidWorkflow(f"step '{step.id}': with: {both} would become the same environment variable", document.file, step.line)
        seen[name.upper()] = name
