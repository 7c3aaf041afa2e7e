"""The basis of every command: the common options, and the store, settings and output that they select.

`command` turns a function of an `App` and its own options into a command; the function returns an exit code or None. It may raise
any error of Everstep: `main` prints it and sets the exit code.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any, cast

import click

from everstep.cli.draw.output import Output, unheard
from everstep.cli.draw.text import safe
from everstep.views.masking import Masking

if TYPE_CHECKING:
    from everstep.api import Store
    from everstep.config.settings import Settings


class App:
    """One invocation of the command line."""

    def __init__(self, store: str | None, as_json: bool, colour: str, quiet: bool, debug: bool, config: str | None):
        self.url = store
        self.out = Output(as_json, colour, quiet)
        self.debug = debug
        self.config = config

    @functools.cached_property
    def configured(self) -> Settings | None:
        """The settings, or None if nothing is configured: checking that is much faster than loading."""
        from everstep.config.find import find_file, variables

        if self.config is None and find_file() is None and not variables(os.environ):
            return None
        return self.settings

    @functools.cached_property
    def settings(self) -> Settings:
        """The settings from the configuration, the environment and the arguments."""
        from everstep.config.settings import load

        return load(file=self.config, arguments={} if self.url is None else {"store": self.url})

    @functools.cached_property
    def mask(self) -> Masking:
        """Masks secrets in all output, by the rules of the configuration."""
        return Masking(None if self.configured is None else self.configured.redactor)

    @property
    def address(self) -> str | None:
        """The path or URL of the store, as given or configured; None for the one found in this folder or above."""
        if self.url is not None or self.configured is None:
            return self.url
        return cast("str | None", self.configured["store"])

    def open(self, create: bool = False, driving: bool = False, **more: Any) -> Store:
        """Open the store. Only commands that start something create one (`create`); none of them cleans up on the side.

        With `driving`, for commands that execute runs, the hooks of the configuration are active; otherwise they are not even imported.
        """
        from everstep.backends.registry import is_database
        from everstep.errors import NotAStore, StoreError

        check_lasting(self.address)
        if self.configured is not None and not self.configured["enabled"] and not create:
            origin = self.configured.values["enabled"].origin
            raise StoreError(
                f"Everstep is disabled by the configuration: enabled = false ({origin})", remedy="Set enabled = true to use the store."
            )
        if driving and is_database(self.address):
            more["wait"] = True  # a worker is often started together with its server
        try:
            store = self._open(create, driving, more)
        except NotAStore as error:
            if error.missing:
                where = "" if self.url is None else f" --store {quote(self.url)}"
                create_it = (
                    f"Create its tables: `everstep migrate{where}`" if is_database(self.address) else f"Create one: `everstep init{where}`"
                )
                error.remedy = f"{create_it}. Or name another one with --store, or try `everstep demo`."
            elif not create and error.remedy == NotAStore.remedy:
                error.remedy = "Name another store with --store, or create one with `everstep init`."
            raise
        if self.debug:
            from everstep.store.trace import trace

            trace(store, lambda line: sys.stderr.write(safe(f"debug: {line}") + "\n"))
        return store

    def _open(self, create: bool, driving: bool, more: dict[str, Any]) -> Store:
        import everstep

        if self.configured is None:
            return everstep.open(self.url, config=False, create=create, **more)
        if driving:
            from everstep.cli.args.modules import look_here

            look_here()
            return everstep.open(self.url, config=self.config or True, create=create, schedule="manual", **more)
        options = {**self.configured.options(), "schedule": "manual"}
        return everstep.open(options.pop("url"), config=False, create=create, **options, **more)

    def imports(self) -> tuple[str, ...]:
        """Return the modules that the configuration names."""
        return () if self.configured is None else tuple(self.configured["imports"])

    def import_modules(self, names: tuple[str, ...]) -> None:
        """Import the modules that define the workflows of this command: only names that the person gave, never one from a store."""
        from everstep.cli.args.workflow_target import import_module

        with self.out.apart():
            for name in names:
                import_module(name)


_COMMON: tuple[Callable[[Any], Any], ...] = (
    click.option("--store", "-s", metavar="URL", help="Path or URL of the store (default: .everstep/store.db in this folder or above)"),
    click.option("--json", "as_json", is_flag=True, help="Print JSON"),
    click.option("--color", "colour", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True, help="Use colour (NO_COLOR is honoured)"),
    click.option("--quiet", "-q", is_flag=True, help="Print only the result, no messages"),
    click.option("--config", metavar="FILE", help="Configuration file (default: everstep.toml or pyproject.toml in this folder or above)"),
    click.option("--debug", is_flag=True, help="Print every call to the store with its duration, and tracebacks of errors"),
)  # fmt: skip


def command(name: str, **settings: Any) -> Callable[[Callable[..., int | None]], click.Command]:
    """Turn a function of an `App` into a command."""

    def wrap(function: Callable[..., int | None]) -> click.Command:
        @functools.wraps(function)
        def call(store: str | None, as_json: bool, colour: str, quiet: bool, config: str | None, debug: bool, **given: Any) -> int:
            _check_text((store, config, *given.values()))
            app = App(store, as_json, colour, quiet, debug, config)
            click.get_current_context().obj = app
            try:
                return function(app, **given) or 0
            except BrokenPipeError:  # click would report a failure
                return unheard()

        decorated: Callable[..., int] = call
        for option in reversed(_COMMON):
            decorated = option(decorated)
        made: Any = click.command(name, **settings)
        return cast(click.Command, made(decorated))

    return wrap


def _check_text(values: Sequence[Any]) -> None:
    """Refuse bytes that are not UTF-8: a store cannot hold them."""
    for value in values:
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(text, str) and any("\ud800" <= c <= "\udfff" for c in text):
                raise click.UsageError(f"Arguments must be UTF-8 text, got {text!r:.100}.")


def check_lasting(address: str | None) -> None:
    """Refuse a store in memory: its data would be lost when the command ends."""
    if address is not None and str(address).startswith("memory:"):
        raise click.UsageError(f"{address} would be lost when this command ends: give a file or a database.")


def interactive() -> bool:
    """Return whether there is a person to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm_or_stop(app: App, question: str, yes: bool) -> bool:
    """Ask before an action that cannot be undone. Without a terminal, require `--yes`."""
    if yes:
        return True
    if not interactive():
        raise click.UsageError(f"{question.removesuffix(' Continue?')} There is no terminal to ask at: confirm with --yes.")
    return click.confirm(question, err=True)
