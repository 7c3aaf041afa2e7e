"""A terminal of any width in this process: much faster than a real one, for tests of what fits where."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO

import pytest
from cli_helpers import Called, plain

from everstep.cli.main import main


class _Stream(StringIO):
    def isatty(self) -> bool:
        return True


@contextmanager
def _shown(columns: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Stream]:
    stream = _Stream()
    with monkeypatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        patch.setattr(sys, "stdout", stream)
        patch.setattr(sys, "stderr", stream)
        yield stream


def at_width(columns: int, monkeypatch: pytest.MonkeyPatch, *args: str) -> Called:
    """Run a command; data and messages arrive in one stream, without colours."""
    with _shown(columns, monkeypatch) as stream:
        code = main(list(args))
    return Called(code, plain(stream.getvalue()))
