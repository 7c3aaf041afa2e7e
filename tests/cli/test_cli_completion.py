"""Completion works in the shells themselves: commands, options, runs, refs, codes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import warm
from cli_helpers import Shop, environment

BASH = """
eval "$SCRIPT" || exit 9
complete -p everstep >&2
COMP_WORDS=(everstep "$@")
COMP_CWORD=$#
COMPREPLY=()
_everstep_completion everstep "${@: -1}" "${@: -2:1}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def at_hand(shop: Shop) -> dict[str, str]:
    """An environment in which `everstep` is a command."""
    folder = shop.folder / "bin"
    folder.mkdir()
    warm.command(folder / "everstep")
    return environment(PATH=f"{folder}{os.pathsep}{os.environ['PATH']}")


def completed(shop: Shop, env: dict[str, str], *words: str) -> list[str]:
    env = env | {"SCRIPT": shop.call("completion", "bash").ok().out}
    done = subprocess.run(["bash", "-c", BASH, "bash", *words], cwd=shop.folder, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "_everstep_completion" in done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("ru",), ["run", "runs"]),
        (("show", "al"), ["alternative"]),
        (("show", "conversation-with-b"), ["conversation-with-bob-2026-11-15"]),
        (("state", "loop@h"), ["loop@half"]),
        (("runs", "--ol"), ["--oldest-first"]),
        (("runs", "--status", "f"), ["failed"]),
        (("log", "loop", "--graph", "m"), ["mermaid"]),
        (("explain", "e30"), ["E301", "E302", "E303", "E304", "E305", "E306", "E307", "E308", "E309"]),
        (("show", "nobody"), []),
    ],
    ids=lambda words: " ".join(words),
)
def test_bash_completes(words: tuple[str, ...], offered: list[str], shop: Shop, at_hand: dict[str, str]) -> None:
    assert completed(shop, at_hand, *words) == offered


def test_bash_completes_from_the_store_that_is_named(shop: Shop, at_hand: dict[str, str]) -> None:
    moved = shop.folder / "elsewhere.db"
    moved.write_bytes(shop.path.read_bytes())
    shutil.rmtree(shop.path.parent)
    assert completed(shop, at_hand, "show", "al") == []  # no store, and no complaint
    assert completed(shop, at_hand, "show", "--store", "elsewhere.db", "al") == ["alternative"]


def test_bash_completes_on_a_terminal(shop: Shop, at_hand: dict[str, str]) -> None:
    child = shop.at_terminal("bash", "--norc", "--noprofile", "-i", env=at_hand, timeout=30)
    child.sendline("PS1='%%% '; bind 'set enable-bracketed-paste off'; eval \"$(everstep completion bash --quiet)\"; echo ready")
    child.expect_exact("ready\r\n%%% ")
    child.send("everstep show alt\t")
    child.expect_exact("everstep show alternative")


def test_completion_never_changes_the_store_or_says_a_word(shop: Shop, at_hand: dict[str, str]) -> None:
    before = shop.path.read_bytes()
    env = at_hand | {"COMP_WORDS": "everstep show lo", "COMP_CWORD": "2", "_EVERSTEP_COMPLETE": "bash_complete"}
    done = subprocess.run(["everstep"], cwd=shop.folder, env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.split(",")[-1].strip() == "loop"
    assert done.stderr == ""
    assert shop.path.read_bytes() == before
    shop.path.write_bytes(b"no store at all")
    done = subprocess.run(["everstep"], cwd=shop.folder, env=env, capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_and_a_word_on_where_to_put_it(shell: str, shop: Shop) -> None:
    called = shop.call("completion", shell).ok()
    assert f"{shell}_complete" in called.out
    assert "everstep completion" in called.err
    assert shop.json("completion", shell)["script"] + "\n" == called.out


@pytest.mark.skipif(not shutil.which("zsh"), reason="there is no zsh: apt-get install zsh lets this run")
def test_zsh_completes(shop: Shop, at_hand: dict[str, str]) -> None:
    child = shop.at_terminal("zsh", "-f", "-i", env=at_hand, timeout=30)
    child.sendline('autoload -U compinit; compinit -u -D; eval "$(everstep completion zsh --quiet)"; echo ready')
    child.expect_exact("\nready")
    child.send("everstep show alt\t")
    child.expect_exact("alternative")


@pytest.mark.skipif(not shutil.which("fish"), reason="there is no fish: apt-get install fish lets this run")
def test_fish_completes(shop: Shop, at_hand: dict[str, str]) -> None:
    command = "everstep completion fish --quiet | source; complete --do-complete 'everstep show alt'"
    home = shop.folder / "home"
    home.mkdir()
    done = subprocess.run(
        ["fish", "-c", command], cwd=shop.folder, env=at_hand | {"HOME": str(home)}, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split()[0] == "alternative", done.stderr


def test_the_script_has_no_path_of_this_machine(shop: Shop) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert str(Path(sys.executable).parent) not in shop.call("completion", shell).out
