"""What every command stands on: the options that all have, the store and the settings that they name, how an answer is given.

A command is a function of an `App` and of its own options, made by `command`; it returns an exit code or None. It may raise any
error of ours: `main` turns it into a sentence and an exit code.
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
    """One call of the command line."""

    def __init__(self, store: str | None, as_json: bool, colour: str, quiet: bool, debug: bool, config: str | None):
        self.url = store
        self.out = Output(as_json, colour, quiet)
        self.debug = debug
        self.config = config

    @functools.cached_property
    def configured(self) -> Settings | None:
        """The settings, where anything is configured: looking is much quicker than reading."""
        from everstep.config.find import find_file, variables

        if self.config is None and find_file() is None and not variables(os.environ):
            return None
        return self.settings

    @functools.cached_property
    def settings(self) -> Settings:
        """What configuration, environment and arguments say."""
        from everstep.config.settings import load

        return load(file=self.config, arguments={} if self.url is None else {"store": self.url})

    @functools.cached_property
    def mask(self) -> Masking:
        """What hides secrets in everything that is printed, as the configuration says."""
        return Masking(None if self.configured is None else self.configured.redactor)

    @property
    def place(self) -> str | None:
        """The store that is meant, as it was given or configured; None for the one that is found upward."""
        if self.url is not None or self.configured is None:
            return self.url
        return cast("str | None", self.configured["store"])

    def open(self, create: bool = False, driving: bool = False, **more: Any) -> Store:
        """The store that the command is about. Only commands that begin something make a new one; none cleans up by the way.

        Those that drive runs do so with the hooks of the configuration; to look at a store, none of them is even imported.
        """
        from everstep.backends.registry import is_database
        from everstep.errors import NotAStore, StoreError

        check_lasting(self.place)
        if self.configured is not None and not self.configured["enabled"] and not create:
            origin = self.configured.values["enabled"].origin
            raise StoreError(f"Everstep is disabled here: enabled = false ({origin})", remedy="Set enabled = true to use the store.")
        if driving and is_database(self.place):
            more["wait"] = True  # a worker is often started together with its server
        try:
            store = self._open(create, driving, more)
        except NotAStore as error:
            if error.missing:
                where = "" if self.url is None else f" --store {quote(self.url)}"
                made = (
                    f"migrate{where}` makes its tables"
                    if is_database(self.place)
                    else f"init{where}` makes one {'here' if not where else 'there'}"
                )
                error.remedy = f"`everstep {made}; --store names another; `everstep demo` leaves one to look at."
            elif not create and error.remedy == NotAStore.remedy:
                error.remedy = "--store names another; `everstep init` makes a new one."
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
        """The modules that the configuration names."""
        return () if self.configured is None else tuple(self.configured["imports"])

    def import_modules(self, names: tuple[str, ...]) -> None:
        """Import the modules that define the workflows of this command. Only names that the person gave, never one from a store."""
        from everstep.cli.args.workflow_target import import_module

        with self.out.apart():
            for name in names:
                import_module(name)


_COMMON: tuple[Callable[[Any], Any], ...] = (
    click.option("--store", "-s", metavar="URL", help="The store: a path or a URL. Default: .everstep/store.db, found upward."),
    click.option("--json", "as_json", is_flag=True, help="Answer in JSON."),
    click.option("--color", "colour", type=click.Choice(["auto", "always", "never"]), default="auto", help="Colours; NO_COLOR counts, too."),
    click.option("--quiet", "-q", is_flag=True, help="Say nothing but the answer."),
    click.option("--config", metavar="FILE", help="The configuration file; default: everstep.toml or pyproject.toml, found upward."),
    click.option("--debug", is_flag=True, help="Show every call to the store with its time, and the traceback of an error."),
)  # fmt: skip


def command(name: str, **settings: Any) -> Callable[[Callable[..., int | None]], click.Command]:
    """Make a function of an `App` a command."""

    def wrap(function: Callable[..., int | None]) -> click.Command:
        @functools.wraps(function)
        def call(store: str | None, as_json: bool, colour: str, quiet: bool, config: str | None, debug: bool, **given: Any) -> int:
            _check_text((store, config, *given.values()))
            app = App(store, as_json, colour, quiet, debug, config)
            click.get_current_context().obj = app
            try:
                return function(app, **given) or 0
            except BrokenPipeError:  # click would take it for a failure
                return unheard()

        decorated: Callable[..., int] = call
        for option in reversed(_COMMON):
            decorated = option(decorated)
        made: Any = click.command(name, **settings)
        return cast(click.Command, made(decorated))

    return wrap


def _check_text(values: Sequence[Any]) -> None:
    """Refuse bytes that are no UTF-8: no store could hold them."""
    for value in values:
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(text, str) and any("\ud800" <= c <= "\udfff" for c in text):
                raise click.UsageError(f"{text!r:.100} is no text: it holds bytes that are no UTF-8.")


def check_lasting(place: str | None) -> None:
    """Refuse a store that ends with the command, and all that it holds with it."""
    if place is not None and str(place).startswith("memory:"):
        raise click.UsageError(f"{place} would end with this command: name a file.")


def interactive() -> bool:
    """Whether there is a person to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm_or_stop(app: App, question: str, yes: bool) -> bool:
    """Whether to do what cannot be undone. Without a terminal only `--yes` says so."""
    if yes:
        return True
    if not interactive():
        raise click.UsageError(f"{question} Nobody can answer here: say so with --yes.")
    return click.confirm(question, err=True)
