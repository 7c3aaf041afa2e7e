"""Only commands that read take a beginning of an id or @last. A sweep over every command and every argument that names a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from cli_helpers import Shop, plain

import everstep
from everstep.cli.args import naming
from everstep.cli.args.refs import RunArgument
from everstep.cli.main import COMMANDS, group
from everstep.cli.shell.group import GROUP

STORED = "order-12"
FLOW = """
import everstep


@everstep.workflow
def order():
    run = everstep.current()
    run.state["total"] = 3
    run.checkpoint("priced", tags="priced")
    run.state["total"] = 4
    run.checkpoint("asked")
    return everstep.gate("boss", choices=["yes", "no"])
"""
READS = {"bisect", "blame", "checkpoints", "diff", "log", "show", "state"}
# Every other command that takes a run, with what it needs besides to do something.
CHANGES: dict[str, tuple[str, ...]] = {
    "answer": ("boss", "yes"), "cancel": (), "fork": ("copy",), "audit": (), "pause": (), "prune": ("--keep-last", "1"), "restore": (),
    "resume": ("--import", "flow.py", "--answer", "boss=yes"), "tag": ("t",), "use": (), "delete": ("--yes",), "retry": ("x#0",), "skip": ("x#0",),
}  # fmt: skip
NEEDS: dict[str, tuple[str, ...]] = {"bisect": ("--when", "state.total > 1"), "blame": ("total",)}
MAKES = {"checkpoint"}
FILTERS = {"runs"}  # --parent: an exact id, and a filter besides


@pytest.fixture
def waiting(empty: Shop) -> Shop:
    """A store in which order-12 waits for an answer, and nothing else is."""
    (empty.folder / "flow.py").write_text(FLOW, encoding="utf-8")
    assert empty.call("run", "flow.py:order", "--id", STORED).code == 0
    return empty


def taking_runs() -> Iterator[tuple[str, click.Command]]:
    """Every command, of the shell too, that takes a run or a ref."""
    context = click.Context(GROUP)
    for name in (*COMMANDS, *GROUP.list_commands(context)):
        found = group.get_command(context, name) or GROUP.get_command(context, name)
        if found is not None and any(isinstance(one.type, RunArgument) for one in found.params):
            yield name, found


def content(shop: Shop) -> Any:
    with shop.open() as store:
        backend, row = store.backend, store.backend.run(STORED)
        assert row is not None
        records = [backend.records(info.id, 1, 1_000) for info in store.runs()]
        return row, records, backend.tags(STORED), backend.messages(STORED), backend.pruned(STORED), store.stats()["records"]


def words(name: str, given: str) -> list[str]:
    more = CHANGES.get(name) or NEEDS.get(name, ())
    return ["shell", "-c", f"use {given}; cancel"] if name == "use" else [name, given, *more]


def test_every_command_that_takes_a_run_is_known_to_the_sweep() -> None:
    assert {name for name, _ in taking_runs()} == READS | set(CHANGES) | MAKES | FILTERS


@pytest.mark.parametrize("given", ["order-1", "o", "@last", "order-1@1", "order-1~0", "@last@1"])
@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_command_that_changes_something_refuses_a_short_form(waiting: Shop, name: str, given: str) -> None:
    before = content(waiting)
    called = waiting.call(*words(name, given))
    assert called.code == 3, called.err
    assert STORED in called.err
    assert called.out == ""
    assert content(waiting) == before


def test_the_sweep_finds_a_command_that_takes_beginnings(waiting: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The canary: a confirmation that says yes where no person is."""
    monkeypatch.setattr(naming, "interactive", lambda: True)
    monkeypatch.setattr(naming.click, "confirm", lambda *_, **__: True)
    for name in ("tag", "fork", "prune", "pause", "resume"):
        before = content(waiting)
        called = waiting.call(*words(name, "order-1"))
        assert called.code == 0, called.err
        assert content(waiting) != before, name


@pytest.mark.parametrize("name", sorted(READS - {"checkpoints"}))
def test_a_command_that_reads_takes_a_short_form_and_says_what_it_means(waiting: Shop, name: str) -> None:
    before = content(waiting)
    exact = waiting.call(*words(name, STORED)).ok()
    short = waiting.call(*words(name, "order-1")).ok()
    assert short.out == exact.out
    assert "order-1 matches run order-12" in short.err
    assert waiting.call(*words(name, "@last")).ok().out == exact.out
    assert waiting.call(*words(name, "order-3")).code == 3
    assert content(waiting) == before


def test_the_shell_reads_short_forms_too_and_changes_nothing_by_them(waiting: Shop) -> None:
    before = content(waiting)
    assert f"{STORED}@1" in waiting.pipe("shell", "-c", "checkpoints order-1").ok().out
    for line in ("cancel order-1", "answer order-1 boss yes", "resume @last", "tag order-1 t", "use o; cancel"):
        called = waiting.pipe("shell", "-c", line)
        assert called.code == 3, called.err
        assert STORED in called.err
    assert content(waiting) == before


def test_a_script_that_saves_begins_a_run_of_exactly_its_name(waiting: Shop) -> None:
    before = content(waiting)[0]
    Path("s.json").write_text("{}", encoding="utf-8")
    assert waiting.call("checkpoint", "order-1", "--state", "s.json").ok().out == "order-1@1\n"
    assert content(waiting)[0] == before
    assert waiting.call("runs", "--parent", "order").ok().out == ""


def test_several_similar_ids_are_named_and_none_is_taken(waiting: Shop) -> None:
    with waiting.open() as store, store.run("order-13"):
        pass
    before = content(waiting)
    for name, code in (("cancel", "E201"), ("show", "E202")):
        called = waiting.call(name, "order-1")
        assert called.code == 3
        assert "order-12, order-13" in called.err
        assert code in called.err
    assert content(waiting) == before


@pytest.mark.parametrize(("said", "code", "status"), [("y", 0, "cancelled"), ("n", 3, "waiting"), ("", 3, "waiting")])
def test_a_person_at_a_terminal_is_asked_first(waiting: Shop, said: str, code: int, status: str) -> None:
    child = waiting.spawn("cancel", "order-1")
    child.expect_exact("Did you mean order-12? [y/N]")
    child.sendline(said)
    assert child.ended() == code
    with everstep.open(waiting.path) as store:
        assert store.get(STORED).status == status


def test_a_person_who_asks_for_the_last_run_is_told_which_one_that_is(waiting: Shop) -> None:
    child = waiting.spawn("tag", "@last@1", "t")
    child.expect_exact("Did you mean order-12? [y/N]")
    child.sendline("y")
    assert child.ended() == 0
    assert "order-12@t now names order-12@1" in plain(child.before)
