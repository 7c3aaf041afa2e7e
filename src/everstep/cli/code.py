"""The code that a command may import: what the person gives, and what the configuration lists. Never a name from a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everstep.cli.draw.text import safe
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from everstep.cli.draw.output import Output
    from everstep.config.settings import Settings


class NamedCode:
    """The modules and files with workflows that an invocation of the command line knows."""

    out: Output
    opened: str | None

    if TYPE_CHECKING:

        @property
        def configured(self) -> Settings | None: ...

    def imports(self) -> tuple[str, ...]:
        """Return the modules that the configuration names."""
        return () if self.configured is None else tuple(self.configured["imports"])

    def workflow_files(self) -> list[str]:
        """Return the files with workflows that the configuration names."""
        if self.configured is None or not self.configured["workflows"]:
            return []
        from everstep.config.workflow_files import expanded

        return expanded(self.configured["workflows"])

    def names_code(self) -> bool:
        """Return whether the configuration names modules or files that define workflows."""
        return self.configured is not None and bool(self.configured["imports"] or self.configured["workflows"])

    def worked_last_time(self, workflow: str | None) -> list[str]:
        """Return the modules that defined a workflow when this user last ran it. Only to be printed."""
        from everstep.cli.args.remembered import last

        return last(self.opened or "", workflow)

    def import_all(self, modules: tuple[str, ...] = ()) -> None:
        """Import everything that may define workflows: what the configuration names, and what the person gave.

        A file of `workflows` that cannot be loaded is reported and left out: it may be a draft that this command does not need.
        """
        self.import_modules((*self.imports(), *modules))
        for file in self.workflow_files():
            try:
                self.import_modules((file,))
            except EverstepError as error:
                self.out.say(f"{safe(file)} was not loaded: {safe(error.message, lines=True)} [{error.code}]", "yellow")

    def import_modules(self, names: tuple[str, ...]) -> None:
        """Import the modules that define the workflows of this command: only names that the person gave, never one from a store."""
        from everstep.cli.args.workflow_target import import_module

        with self.out.apart():
            for name in names:
                import_module(name)
