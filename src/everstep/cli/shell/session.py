"""The state of a shell between two commands: its options, the current run, the imported modules. Calls one command at a time.

A command gets the options of the shell and, if it names no run, the current one. Errors become a sentence and an exit code, as on
the command line. No store is open between two commands.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable
from typing import Any

import click

from everstep.cli import exit_codes, failures
from everstep.cli.app import App, interactive
from everstep.cli.args.workflow_target import import_module
from everstep.cli.shell import current, picking
from everstep.cli.shell.group import GROUP, leaf
from everstep.cli.shell.words import commands

_TERMINATED = 128 + signal.SIGTERM


class Session:
    """One shell."""

    def __init__(self, app: App, options: list[str]):
        self.app = app
        self.options = options
        self.current: str | None = None
        self.modules: list[Any] = []
        self.ended = False

    def learn(self, names: Iterable[str]) -> None:
        """Import modules that define workflows and agents."""
        self.modules += [import_module(name) for name in names]

    def run(self, line: str) -> int:
        """Run the commands of a line until one fails; return its exit code."""
        try:
            found = commands(line)
        except click.UsageError as error:
            return failures.tell(error, self.options)
        for words in found:
            code = self.call(words)
            if code or self.ended:
                return code
        return exit_codes.OK

    def call(self, words: list[str]) -> int:
        """Run one command."""
        try:
            code = GROUP.main(self.completed(words, interactive()), prog_name="", standalone_mode=False, obj=self)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader of our output has closed the pipe: end the shell
            raise
        except click.exceptions.Exit as ended:
            code = ended.exit_code
        except BaseException as error:  # noqa: BLE001 - a command that fails does not end the shell
            code = failures.tell(error, [*self.options, *words])
        self.ended = self.ended or code == _TERMINATED
        return code if isinstance(code, int) else exit_codes.OK

    def completed(self, words: list[str], ask: bool = False) -> list[str]:
        """Add the implied words: the options of the shell, and the current run or, with `ask`, one that the person picks."""
        command, used = leaf(words)
        rest = words[used:]
        if isinstance(command, click.Group):
            return words
        if self.current is not None:
            rest = current.with_refs(command, rest, self.current)
            if current.takes(command, rest) or self._leaves_out(str(command.name), current.first_of(command, rest)):
                rest = [self.current, *rest]
        elif ask and current.needs(command, rest):
            rest = [picking.run_for(self.app, str(command.name)), *rest]
        shared = self.options if any(one.name == "store" for one in command.params) else []
        return [*words[:used], *shared, *rest]

    def _leaves_out(self, command: str, first: Any) -> bool:
        """Return whether the word at the position of the run is an open gate of the current run, or a path into its state."""
        if command not in ("answer", "state") or not first or "@" in first or "~" in first:
            return False
        with self.app.open() as store:
            if command == "answer":
                return any(first in (gate.name, gate.address) for gate in store.gates(str(self.current)) if gate.open)
            return not store.runs(prefix=first, limit=1)
