"""Help pages: a command's own options first, in groups, then an example, then the options of every command. Fits narrow terminals."""

from __future__ import annotations

import inspect
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from everstep.cli.common import NAMES
from everstep.cli.draw.text import filled

_NARROW, _WIDEST = 70, 80
_EXAMPLE = re.compile(r"\n\s*Examples?: (.*)", re.DOTALL)


class Page(click.HelpFormatter):
    """Writes help for a terminal of any width: words are never broken, and a narrow one has each explanation below its term."""

    def __init__(self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None):
        given = width or min(shutil.get_terminal_size().columns, max_width or _WIDEST) - 2
        super().__init__(indent_increment, max(20, given))

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        first, *rest = filled(f"{prefix or 'Usage: '}{prog} {args}".split(), self.width, "      ")
        self.write("\n".join([first, *rest]) + "\n")

    def write_text(self, text: str) -> None:
        margin = " " * self.current_indent
        blocks = [filled(block.split(), self.width, margin, margin) for block in re.split(r"\n\s*\n", text.strip())]
        self.write("\n\n".join("\n".join(lines) for lines in blocks) + "\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 26, col_spacing: int = 2) -> None:
        listed = list(rows)
        margin = " " * self.current_indent
        narrow = self.width < _NARROW
        first = min(max((len(term) for term, _ in listed), default=0), col_max) + col_spacing
        column = margin + " " * (4 if narrow else first)
        for term, about in listed:
            lines = filled(about.split(), self.width, column, column)
            if narrow or len(term) > first - col_spacing:
                self.write("\n".join([*filled(term.split(), self.width, margin, margin), *(lines if about else [])]) + "\n")
            else:
                self.write(f"{margin}{term:<{first}}{lines[0].lstrip() if about else ''}".rstrip() + "\n")
                self.write("".join(f"{line}\n" for line in lines[1:]))

    def write_example(self, text: str) -> None:
        """Write a command to type; one that is too long continues after a backslash, so that it can be copied."""
        margin = " " * self.current_indent
        self.write(" \\\n".join(filled(_quoted_words(text), self.width - 2, margin + "  ", margin)) + "\n")


class PageContext(click.Context):
    formatter_class = Page


class Helped(click.Command):
    """A command whose own `--help` is described as other options are."""

    context_class = PageContext

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.help = "Print this help"
        return option


class HelpfulCommand(Helped):
    """A command with groups of options: names of parameters by heading."""

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[str]] | None = None, **settings: Any):
        super().__init__(*args, **settings)
        self.groups = groups or {}

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        about, _ = parts(self.help)
        if about:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(about)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        grouped = {name for names in self.groups.values() for name in names}
        own = [one.name for one in self.params if isinstance(one, click.Option) and one.name not in NAMES and one.name not in grouped]
        for heading, names in {"Options": own, **self.groups}.items():
            self._section(ctx, formatter, heading, names)
        self._section(ctx, formatter, "Options of every command", NAMES, help_option=True)

    def _section(
        self, ctx: click.Context, formatter: click.HelpFormatter, heading: str, names: Sequence[str | None], help_option: bool = False
    ) -> None:
        chosen = {one.name: one for one in self.params if isinstance(one, click.Option)}
        options = [chosen[name] for name in names if name in chosen]
        last = self.get_help_option(ctx) if help_option else None
        rows = [row for one in (*options, last) if one is not None and (row := one.get_help_record(ctx)) is not None]
        if rows:
            with formatter.section(heading):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _, example = parts(self.help)
        if example and isinstance(formatter, Page):
            with formatter.section("Example"):
                formatter.write_example(example)


class HelpfulGroup(Helped, click.Group):
    """A group whose help fits narrow terminals, too."""


def _quoted_words(text: str) -> list[str]:
    return re.findall(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""", text)


def parts(text: str | None) -> tuple[str, str]:
    """Return the description of a command and its example."""
    clean = inspect.cleandoc(text or "")
    found = _EXAMPLE.search(clean)
    return (clean[: found.start()].rstrip(), found[1].strip()) if found else (clean, "")
