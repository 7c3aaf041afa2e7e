"""Opens a store from settings: its arguments, its hooks, and the watch over the file. Arguments of `open` override settings.

Imports the functions that hooks name: the owner of the configuration chose this code, and it comes from no other source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from everstep.config.settings import Settings
from everstep.errors import InvalidConfig
from everstep.runtime.engine_store import EngineStore


def open_configured(settings: Settings, url: Any, given: Mapping[str, Any], opened: Callable[[Any, dict[str, Any]], Any]) -> Any:
    """Open a store with settings; `given` arguments override them."""
    chosen = {**settings.options(), **given}
    configured = chosen.pop("url")
    if given.get("compression") is not None and "level" not in given:
        chosen["level"] = None  # the configured level belongs to another codec
    functions = hooks_of(settings) if chosen["enabled"] else []
    store = opened(configured if url is None else url, chosen)
    if not store.enabled:
        return store
    try:
        hooks = add_hooks(store, functions)
        if settings["reload"] != "off" and settings.file is not None:
            from everstep.config.watch import Watch

            Watch(store, settings, fixed=given, hooks=hooks).start()
    except BaseException:
        store.close()
        raise
    return store


def hooks_of(settings: Settings) -> list[tuple[dict[str, Any], Callable[..., Any]]]:
    """Return the hooks of a configuration, each with its function."""
    origin = settings.values["hooks"].origin
    return [(hook, _function(hook["call"], origin)) for hook in settings["hooks"]]


def _function(call: str, location: str) -> Callable[..., Any]:
    module, _, name = call.partition(":")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidConfig(
            f"hooks: call = {call!r:.100} cannot be imported: {error}", location, key="hooks", value=call,
            remedy="Check the name; it is imported in the same way as by the program itself.",
        ) from error  # fmt: skip
    if not callable(found):
        raise InvalidConfig(f"hooks: call = {call!r:.100} must name a function", location, key="hooks", value=call)
    return found  # type: ignore[no-any-return]


def add_hooks(store: EngineStore, functions: list[tuple[dict[str, Any], Callable[..., Any]]]) -> list[Any]:
    """Register the functions; returns the hooks, so that they can be removed."""
    add = store.hook_registry.add
    return [add(hook["event"], function, priority=hook["priority"], timeout=hook["timeout"]) for hook, function in functions]
