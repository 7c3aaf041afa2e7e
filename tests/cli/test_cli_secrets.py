"""Secrets in a store are masked by every command that shows something, and printed only by those that say so."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_helpers import PROGRAMS, Called, Shop

import everstep
from everstep.errors import Waiting

KEY = "sk-abcdefghijklmnopqrstuvwx"
WORD = "hunter2-hunter2"
IN_A_TEXT = f"call it with {KEY}, please"

SHOWING = [
    ("runs",), ("runs", "--tree"), ("show", "secret"), ("show", "secret@1"), ("show", "secret@2"), ("log", "secret", "--all"), ("state", "secret"),
    ("state", "secret", "--full"), ("state", "secret", "api_key"), ("state", "secret", "credentials"), ("state", "secret", "credentials.user"),
    ("state", "secret", "deep"), ("state", "secret", "deep[0]"), ("state", "secret", "deep[0].text"), ("state", "secret", "accounts"),
    ("state", "secret", "accounts[0]"), ("diff", "secret@1", "secret@2"), ("diff", "secret@2", "secret@3"), ("diff", "secret@2", "secret@3", "--full"),
    ("blame", "secret", "api_key"), ("bisect", "secret", "--when", "api_key != null"), ("show", "gated"), ("answer", "gated"), ("log", "gated"),
    ("show", "failed"), ("log", "failed"), ("fork", "secret", "f"), ("tag", "secret", "t"), ("stats",),
    ("log", "secret", "--graph", "dot"),
]  # fmt: skip


@pytest.fixture
def vault(empty: Shop) -> Shop:
    with everstep.open(empty.path) as store:
        about = {"note": IN_A_TEXT, "meta": {"password": WORD, "text": IN_A_TEXT}}
        with store.run("secret", **about) as run:
            run.state.update(api_key=WORD, text=IN_A_TEXT, credentials={"user": WORD}, deep=[{"text": IN_A_TEXT, "token": WORD}])
            run.state["accounts"] = [{"password": WORD, "bytes": KEY.encode()}]
            run.state[KEY] = 1
            run.checkpoint(IN_A_TEXT, meta={"token": WORD})
            run.state.update(api_key=f"{WORD}2", text=f"now {KEY}2", credentials={"user": f"{WORD}2"})
            run.state["credentials"]["list"] = [WORD]
            run.step("ask", lambda: {"password": WORD})
            run.checkpoint(IN_A_TEXT)
            run.state["credentials"]["list"].append(f"{WORD}3")
            run.state["credentials"]["user"] = f"{WORD}3"
            run.checkpoint()
        with pytest.raises(Waiting), store.run("gated") as run:
            run.gate("g", ask=IN_A_TEXT, choices=[KEY, "no"])
        with pytest.raises(ValueError), store.run("failed") as run:
            run.step("fails", fails)
    return empty


def fails() -> None:
    raise ValueError(IN_A_TEXT)


def hidden(called: Called) -> None:
    assert called.code == 0, called.err
    for secret in (KEY, WORD, "aHVudGVyMi1o", "c2stYWJjZGVm"):  # the last two: in base64
        assert secret not in called.out
        assert secret not in called.err


@pytest.mark.parametrize("args", SHOWING, ids=" ".join)
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_secret_is_masked(args: tuple[str, ...], form: str, vault: Shop) -> None:
    called = vault.call(*args, *(("--json",) if form == "json" else ()))
    hidden(called)


def test_the_mask_stands_where_the_secret_was(vault: Shop) -> None:
    state = vault.json("state", "secret@1")["state"]
    assert state["api_key"] == state["credentials"] == state["accounts"][0]["password"] == "[redacted]"
    assert state["text"] == "call it with [redacted], please"
    assert "[redacted]" in state  # a key may be one, too
    assert vault.json("state", "secret@1", "credentials.user")["state"] == "[redacted]"
    changes = {tuple(c["path"]): c for c in vault.json("diff", "secret@2", "secret@3")["changes"]}
    assert changes["credentials", "user"]["after"] == "[redacted]"


def test_what_a_run_gives_is_masked_on_a_terminal_and_in_a_pipe(empty: Shop) -> None:
    for number, name in enumerate(("secretive", "leaking")):
        for called in (
            empty.pipe("run", f"{PROGRAMS}:{name}", "--id", f"{name}-1"),
            empty.terminal("run", f"{PROGRAMS}:{name}", "--id", f"{name}-2"),
            empty.pipe("run", f"{PROGRAMS}:{name}", "--id", f"{name}-3", "--json"),
            empty.pipe("resume", f"{name}-1", "--import", str(PROGRAMS)),
        ):
            assert called.code == number
            assert "[redacted]" in called.out + called.err
            assert KEY not in called.out + called.err
            assert WORD not in called.out + called.err


def test_who_asks_for_secrets_gets_them(vault: Shop) -> None:
    out = vault.call("state", "secret@1", "--show-secrets").ok().out
    assert WORD in out
    assert IN_A_TEXT in out
    assert vault.json("state", "secret@1", "credentials.user", "--show-secrets")["state"] == WORD


def test_a_script_gets_back_what_it_saved(empty: Shop, tmp_path: Path) -> None:
    empty.pipe("checkpoint", "s", stdin=f'{{"api_key": "{WORD}", "text": "{IN_A_TEXT}"}}').ok()
    assert empty.pipe("restore", "s", "--json").ok().data["state"] == {"api_key": WORD, "text": IN_A_TEXT}
    assert WORD in empty.pipe("restore", "s").ok().out
    empty.pipe("restore", "s", "-o", "out.json").ok()
    assert WORD in (tmp_path / "out.json").read_text()


def test_debug_masks_what_it_is_called_with(vault: Shop) -> None:
    called = vault.call("answer", "gated", "g", KEY, "--debug")
    assert called.code == 0
    assert "debug: " in called.err
    assert KEY[:12] not in called.err
    assert KEY[:12] not in vault.call("runs", "--note", KEY, "--debug").err


def test_an_error_masks_what_it_quotes(vault: Shop) -> None:
    for args in (
        ("show", KEY),
        ("state", "secret", f"x.{KEY}"),
        ("answer", "gated", "g", f"{KEY}9"),
        ("bisect", "secret", "--when", f"'{KEY}' +"),
    ):
        called = vault.call(*args)
        assert called.code != 0
        assert KEY not in called.err, args
