"""Tries what a configuration names: imports its modules, finds its hooks, loads its workflow files, and looks at the folder of its store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everstep.backends.registry import is_database
from everstep.cli.args.workflow_target import import_module, load
from everstep.config.workflow_files import expanded
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from everstep.config.settings import Settings


def trial(settings: Settings) -> list[str]:
    """Return a sentence for each thing that a configuration names and that does not work, with its place."""
    return [
        *_each(settings, "imports", settings["imports"], import_module),
        *_each(settings, "workflows", settings["workflows"], _workflow_files),
        *_each(settings, "hooks", settings["hooks"], lambda hook: load(hook["call"])),
        *_store(settings),
    ]


def _each(settings: Settings, key: str, values: list[Any], attempt: Callable[[Any], object]) -> Iterator[str]:
    for value in values:
        try:
            attempt(value)
        except EverstepError as error:
            yield f"{settings.values[key].origin}: {key}: {error.message}"


def _workflow_files(pattern: str) -> None:
    for file in expanded([pattern]):
        import_module(file)


def _store(settings: Settings) -> Iterator[str]:
    where = settings["store"]
    if where is None or is_database(where) or ("://" in str(where) and not str(where).startswith("sqlite:///")):
        return
    path = Path(str(where).removeprefix("sqlite:///"))
    origin = settings.values["store"].origin
    if path.is_dir():
        yield f"{origin}: store: {path} is a folder; name a file in it"
    elif not path.exists() and not path.parent.is_dir():
        yield f"{origin}: store: the folder {path.parent} does not exist"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        yield f"{origin}: store: {path} cannot be written"
