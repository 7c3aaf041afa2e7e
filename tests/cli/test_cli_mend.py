"""Hints lead on, never in a circle: what a hint says is typed, until something works or nothing is left to do."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from cli_helpers import Shop

COMMANDS = [("runs",), ("verify",), ("doctor",), ("init",), ("migrate",), ("show", "loop"), ("stats",), ("gc",)]


def follow(shop: Shop, first: tuple[str, ...]) -> list[str]:
    """Type what the hints say, and return the commands; fail if one comes again."""
    typed, words = [], list(first)
    while True:
        line = shlex.join(words)
        assert line not in typed, f"a circle: {typed}"
        typed.append(line)
        called = shop.pipe(*words)
        if called.code in (0, 6):
            return typed
        found = re.search(r"`everstep ([^`]+)`", called.err)
        if found is None or "NEW" in found[1] or "--help" in found[1]:
            return typed
        words = shlex.split(found[1])


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_a_truncated_store_leads_to_repair(args: tuple[str, ...], shop: Shop) -> None:
    whole = shop.path.read_bytes()
    shop.path.write_bytes(whole[: len(whole) - 8_192])
    called = shop.pipe(*args)
    assert called.code == 5, called.err
    typed = follow(shop, args)
    assert typed[-1].startswith("repair ")
    repaired = shlex.split(typed[-1])[-1]
    assert Path(shop.folder / repaired).exists()
    shop.pipe("runs", "-s", repaired).ok()


@pytest.mark.parametrize("size", [0, 10, 100, 4_096])
def test_any_rest_of_a_store_leads_to_an_end(size: int, shop: Shop) -> None:
    shop.path.write_bytes(shop.path.read_bytes()[:size])
    assert len(follow(shop, ("runs",))) <= 3


def test_a_file_of_another_kind_is_not_to_be_repaired(shop: Shop) -> None:
    Path("notes.txt").write_text("hello")
    assert "repair" not in shop.call("runs", "-s", "notes.txt").err


def test_repair_takes_a_new_name_each_time(shop: Shop) -> None:
    shop.path.write_bytes(shop.path.read_bytes()[:-8_192])
    assert "store-repaired.db" in shop.pipe("runs").err
    (shop.path.parent / "store-repaired.db").touch()
    assert "store-repaired-2.db" in shop.pipe("runs").err


def test_a_broken_configuration_leads_to_its_line(shop: Shop) -> None:
    for text, line in (("store =\n", 1), ('\npolicy = "never ever"\n', 2), ("\n\nnonsense = 1\n", 3)):
        Path("everstep.toml").write_text(text)
        for args in (("runs",), ("config", "show"), ("doctor",)):
            called = shop.call(*args)
            assert called.code == 2
            assert f"everstep.toml:{line}: " in called.err
            assert "config show" not in called.err
        found = shop.call("config", "validate")
        assert found.code == 6
        assert f"everstep.toml:{line}: " in found.out


def test_validate_tries_what_a_configuration_names(shop: Shop) -> None:
    Path("good.py").write_text("def hook(event): ...\n")
    Path("bad.py").write_text("1 / 0\n")
    Path("flows").mkdir()
    Path("flows/draft.yaml").write_text("steps: [")
    Path("everstep.toml").write_text(
        'store = "nowhere/store.db"\nimports = ["good", "bad", "missing"]\nworkflows = ["flows/*.yaml", "none.py"]\n'
        '[[hooks]]\nevent = "after_step"\ncall = "good:hook"\n[[hooks]]\nevent = "after_step"\ncall = "good:nothing"\n'
    )
    called = shop.pipe("config", "validate")
    assert called.code == 6
    assert len(called.lines) == 6, called.out
    assert "everstep.toml:2: imports: bad cannot be imported: ZeroDivisionError" in called.out
    assert "everstep.toml:2: imports: module 'missing' was not found" in called.out
    assert "everstep.toml:3: workflows: " in called.out
    assert "none.py', which does not exist" in called.out
    assert "hooks: good does not define 'nothing'" in called.out
    assert re.search(r"everstep.toml:1: store: the folder .*nowhere does not exist", called.out)
    assert shop.pipe("config", "validate", "--no-imports").code == 0
    Path("everstep.toml").write_text('store = "s.db"\nimports = ["good"]\n')
    assert shop.pipe("config", "validate").ok().err.endswith("all good\n")
