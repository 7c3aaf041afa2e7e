"""The basis of every command: the common options, and the store, settings and output that they select.

`command` turns a function of an `App` and its own options into a command; the function returns an exit code or None. It may raise
any error of Everstep: `main` prints it and sets the exit code.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import click

from everstep.cli.code import NamedCode
from everstep.cli.common import NAMES, common, with_common
from everstep.cli.draw.output import Output, unheard
from everstep.cli.draw.text import safe
from everstep.cli.helping import HelpfulCommand
from everstep.errors import EverstepError
from everstep.views.masking import Masking

if TYPE_CHECKING:
    from everstep.api import Store
    from everstep.config.settings import Settings


class App(NamedCode):
    """One invocation of the command line."""

    def __init__(
        self,
        store: str | None = None,
        as_json: bool = False,
        colour: str = "auto",
        quiet: bool = False,
        debug: bool = False,
        config: str | None = None,
        exact_times: bool = False,
    ):
        self.url = store
        self.out = Output(as_json, colour, quiet, exact_times)
        self.debug = debug
        self.config = config
        self.colour = colour
        self.opened: str | None = None

    @classmethod
    def of(cls, ctx: click.Context) -> App:
        """Return the app of the common options, given before or after the command."""
        return cls(**{name: common(ctx, name) for name in NAMES})

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
        from everstep.backends.registry import is_database, shown
        from everstep.errors import StoreError

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
        except EverstepError as error:
            from everstep.cli.remedies import mend

            mend(error, self.address, self.url, create)
            raise
        self.opened = shown(store.url)  # without a password: it is written down
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
        options = {**self.configured.options(), "schedule": "manual", **more}
        return everstep.open(options.pop("url"), config=False, create=create, **options)


def command(
    name: str, groups: Mapping[str, Sequence[str]] | None = None, **settings: Any
) -> Callable[[Callable[..., int | None]], click.Command]:
    """Turn a function of an `App` into a command. `groups` are the headings of its options: names of parameters by heading."""

    def wrap(function: Callable[..., int | None]) -> click.Command:
        @functools.wraps(function)
        def call(**given: Any) -> int:
            ctx = click.get_current_context()
            own = {name: value for name, value in given.items() if name not in NAMES}
            app = ctx.obj = App.of(ctx)
            _check_text((app.url, app.config, *own.values()))
            try:
                return function(app, **own) or 0
            except BrokenPipeError:  # click would report a failure
                return unheard()

        made: Any = click.command(name, cls=HelpfulCommand, groups=groups, **settings)
        return cast(click.Command, made(with_common(call)))

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
        raise click.UsageError(f"Cannot ask without a terminal: {question.removesuffix(' Continue?')} Confirm with --yes.")
    return click.confirm(question, err=True)
