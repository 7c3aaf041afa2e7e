"""A name belongs to one workflow."""

from __future__ import annotations

import warnings

import pytest

import everstep


def one(n: int) -> int:
    return n


def two(n: int) -> int:
    return n + 1


def test_a_second_workflow_of_a_name_is_warned_of() -> None:
    everstep.workflow(one, name="named_twice")
    with pytest.warns(UserWarning, match="two workflows are named 'named_twice'"):
        everstep.workflow(two, name="named_twice")


def test_a_workflow_that_is_defined_anew_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    everstep.workflow(one, name="named_again")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        everstep.workflow(one, name="named_again")
        monkeypatch.setattr(two, "__module__", one.__module__)
        monkeypatch.setattr(two, "__qualname__", one.__qualname__)
        everstep.workflow(two, name="named_again")  # the module was changed and loaded again
