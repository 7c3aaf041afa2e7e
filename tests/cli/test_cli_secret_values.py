"""The value of a Secret is in no output of any command, as text, JSON, base64 or hex: not even where other values are printed unmasked.

The store is allowed to keep secrets readable, so that there is something to leak; names and values fit no rule of redaction.
"""

from __future__ import annotations

import json
import random
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import Called, Shop

import everstep
from everstep import Secret
from everstep.cli.catalogue import COMMANDS
from everstep.errors import Waiting
from everstep.views.stored.paths import shown

TEXT = "zebra orchid 93417 violin"
SECRET = Secret(TEXT)
RAW = Secret(TEXT.encode())
LEAKS = (
    TEXT, "orchid", TEXT.encode().hex(),
    *(b64encode(b"x" * n + TEXT.encode() + b"xx")[4:-8].decode() for n in range(3)),
)  # fmt: skip
READING = [
    ("runs",), ("runs", "--tree"), ("show", "s"), ("show", "s@1"), ("show", "s@2"), ("show", "s", "call"), ("show", "s", "called"), ("show", "failed"),
    ("show", "failed", "fails"), ("show", "w"), ("show", "w", "keep"), ("show", "g"), ("show", "answered"), ("log", "s", "--all"), ("log", "w", "--all"),
    ("log", "failed", "--all"), ("log", "answered", "--all"), ("log", "s", "--graph", "dot"), ("state", "s"), ("state", "s", "--full"), ("state", "s", "--all"),
    ("state", "s", "--show-secrets"), ("state", "s", "value", "--show-secrets"), ("state", "s@1", "--full"), ("diff", "s@1", "s@2"), ("diff", "s@1", "s@2", "--full"),
    ("diff", "s@2", "s@3"), ("blame", "s", "value"), ("blame", "s", "login.value"), ("bisect", "s", "--when", "value != null"),
    ("bisect", "s", "--when", f"value == '{TEXT[:3]}'"), ("events",), ("inbox",), ("answer", "g"), ("schedules",), ("queues",), ("workers",), ("stats",),
    ("restore", "s"), ("restore", "s@1"), ("restore", "w"), ("verify",), ("doctor",), ("gc", "--dry-run"), ("prune", "--dry-run", "--keep-last", "1"),
    ("fork", "s@1", "f1"), ("fork", "s@1", "f2", "--set", "n=5"), ("fork", "s@1", "f3", "--set", "value=5"), ("tag", "s", "t"), ("resume", "w"),
    ("explain", "E106"), ("config", "show"), ("restore", "s", "--exact"), ("restore", "failed", "--newest-good"), ("audit", "s"), ("audit", "w"), ("audit", "g"), ("audit", "failed"),
]  # fmt: skip


@dataclass
class Login:
    user: str
    value: Secret
    more: list[Any] = field(default_factory=list)


everstep.register(Login, name="test.CliLogin")


@everstep.workflow
def keeps(value: Any) -> Any:
    return everstep.current().step("keep", lambda value: {"kept": value}, value)


@everstep.workflow
def asks() -> Any:
    return everstep.gate("which", "Which value?")


def fails(value: Any) -> None:
    raise ValueError("it failed", value, {"value": value})


def planted() -> dict[Any, Any]:
    return {
        "value": SECRET, "raw": RAW, "n": 1, "login": Login("ann", SECRET, [SECRET]), "list": [SECRET, [RAW, {"deep": SECRET}]], "pair": (SECRET, 2),
        "set": {SECRET}, "odd": {1: SECRET, (1, 2): [SECRET], SECRET: 3}, "unknown": everstep.Unknown("other.Thing", 1, {"value": SECRET}),
        "message": {"@": "human", "content": SECRET}, "call": {"@": "ai", "content": "", "tool_calls": [{"name": "t", "args": {"q": SECRET}}]},
    }  # fmt: skip


@pytest.fixture
def vault(empty: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("EVERSTEP_PLAIN_SECRETS", "1")
    with everstep.open(empty.path, plain_secrets=True) as store:
        with store.run("s", state=planted()) as run:
            run.checkpoint()
            run.step("call", lambda value: {"kept": value}, SECRET)
            run.step("called", lambda **given: [SECRET] * 2_000, value=[SECRET], text="x" * 300)
            run.emit("seen", value=SECRET)
            run.state["list"].append(SECRET)
            run.state["value"] = Secret(f"{TEXT} 2")
            run.checkpoint()
            del run.state["value"]
            run.state["login"].more.append({"value": SECRET})
            run.state["value"] = SECRET
            run.checkpoint("third")
        with pytest.raises(ValueError), store.run("failed") as run:
            run.step("fails", fails, SECRET)
        store.start(keeps, SECRET, id="w")
        with pytest.raises(Waiting), store.run("g") as run:
            run.gate("which", timeout="30d", default=SECRET)
        store.start(asks, id="answered")
        store.answer("answered", "which", {"value": SECRET})
        store.enqueue(keeps, SECRET, id="queued")
        store.schedule("nightly", keeps, SECRET, cron="0 3 * * *")
        line = store.line("line", state={"value": SECRET})
        line.checkpoint()
    return empty


def hidden(called: Called) -> None:
    for leak in LEAKS:
        assert leak not in called.out
        assert leak not in called.err


def test_what_is_looked_for_would_be_found() -> None:
    for prefix in range(3):
        leaked = b64encode(b"y" * prefix + TEXT.encode() + b"zzz").decode()
        assert any(leak in leaked for leak in LEAKS)


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("args", READING, ids=" ".join)
def test_no_command_shows_it(args: tuple[str, ...], form: str, vault: Shop) -> None:
    called = vault.call(*args, *(("--json",) if form == "json" else ()))
    assert called.code in (0, 3, 4, 5, 6, 7) or args[0] in ("resume", "answer", "restore"), called.err
    hidden(called)
    if args[:2] in (("state", "s"), ("restore", "s")) and len(args) < 4:
        assert "[redacted]" in called.out


def test_every_command_is_tried_or_shows_no_values() -> None:
    silent = {
        "run", "new", "init", "demo", "shell", "help", "completion", "migrate", "repair", "cleanup", "delete", "cancel", "pause", "retry", "skip", "wake",
        "worker", "enqueue", "limit", "schedule", "unschedule", "checkpoint", "encrypt", "rekey", "heads",
    }  # fmt: skip
    assert set(COMMANDS) == silent | {args[0] for args in READING}


def test_no_path_leads_to_it(vault: Shop) -> None:
    """Random paths into the state, and into parts that do not exist."""
    chance = random.Random(19)
    keys: list[Any] = [
        "value",
        "raw",
        "login",
        "list",
        "pair",
        "set",
        "odd",
        "unknown",
        "message",
        "more",
        "deep",
        "_held",
        "reveal",
        0,
        1,
        -1,
        "content",
    ]
    for _ in range(120):
        path = [chance.choice(keys) for _ in range(chance.randint(1, 4))]
        form = chance.choice([(), ("--json",), ("--full",), ("--show-secrets",)])
        hidden(vault.call("state", chance.choice(["s", "s@1", "s@2"]), shown(path), *form))
        hidden(vault.call("blame", "s", shown(path), *(form if form == ("--json",) else ())))
        hidden(vault.call("fork", "s@1", "--set", f"{shown(path)}=1", *(form if form == ("--json",) else ())))


def test_a_script_gives_back_a_state_and_the_secrets_in_it_stay(vault: Shop, tmp_path: Path) -> None:
    with everstep.open(vault.path, plain_secrets=True) as store, store.run("own", state=planted() | {"note": "a"}) as run:
        run.checkpoint()
    for number, form in enumerate(([], ["--exact"])):
        restored = vault.pipe("restore", "own", *form).ok()
        hidden(restored)
        state = json.loads(restored.out)
        called = vault.pipe("checkpoint", "own", stdin=json.dumps(state | {"note": f"b{number}"})).ok()
        hidden(called)
        with everstep.open(vault.path) as store:
            assert store.load("own") == planted() | {"note": f"b{number}"}
    assert state["value"] == {"$secret": "[redacted]"}
    moved = vault.pipe("checkpoint", "own", stdin=json.dumps({"other": state["value"]}))
    assert moved.code != 0
    assert "stands for a Secret" in moved.err
    hidden(moved)


def test_a_store_that_may_not_keep_it_refuses_and_says_how_to_allow_it(vault: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSTEP_PLAIN_SECRETS", "false")
    called = vault.call("fork", "s", "--set", "n=5")
    assert called.code != 0
    assert "E106" in called.err
    assert "plain_secrets" in called.err
    hidden(called)


def test_doctor_reports_it_and_exits_with_6(vault: Shop) -> None:
    called = vault.call("doctor")
    assert called.code == 6
    assert "credentials: " in called.out
    assert "everstep delete" in called.out
    hidden(called)


def test_no_object_shows_it_in_a_notebook(vault: Shop) -> None:
    with everstep.open(vault.path, plain_secrets=True) as store:
        shown_objects: list[Any] = [
            store, store.runs(), store.get("s"), store.get("failed"), store.checkpoints("s"), store.diff("s@1", "s@2"), store.diff("s@1", "s@2")[0],
            store.steps("s"), store.step("s", "call"), store.step("s", "called"), store.step("failed", "fails"), store.gates("g"), store.gates("answered"),
            store.questions(), store.events(), store.outcome("w"), store.outcome("failed"), store.schedules(), store.queues(), store.blame("s", "value"),
            store.view("s"), store.view("s")["list"], store.load("s"), store.doctor(), store.outcome("w").steps if hasattr(store.outcome("w"), "steps") else None,
        ]  # fmt: skip
        for one in shown_objects:
            texts = [repr(one), str(one)]
            for name in ("_repr_html_", "_repr_markdown_", "_repr_pretty_"):
                if name != "_repr_pretty_" and hasattr(one, name):
                    texts.append(str(getattr(one, name)()))
            hidden(Called(0, "\n".join(texts)))


def test_the_shell_does_not_show_it(vault: Shop) -> None:
    lines = [
        "checkpoints s",
        "use s",
        "state s",
        "state s value",
        "diff s@1 s@2",
        "show s call",
        "log s --all",
        "blame s value",
        "state s login.value",
        "checkpoints",
    ]
    for line in lines:
        called = vault.pipe("shell", "-c", line)
        hidden(called)
        assert called.code == 0, called.err
