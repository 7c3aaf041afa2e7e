"""A hostile state prints safely: no escape, no mark that turns or hides text, whatever the command, and in good time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from unicodedata import category

import pytest
from cli_helpers import Busy, Shop, copy, ended, environment, plain

import everstep
from everstep.errors import Waiting

EVIL = "\x1b[2J\x1b]0;pwned\x07\x9b31m\x9d0;x\x9c \u202eevil\u202c \u2066x\u2069 z\u200bw\u200cn\u200dj \ufeff\u2060\u00ad\u061c \r\b\x7f\x85 <script>alert(1)</script>"
HIDDEN_IN_NAMES = "\u034f\u115f\u3164\uffa0"  # what run ids and tags may hold
NAME = f"run{HIDDEN_IN_NAMES}name"
TAG = f"tag{HIDDEN_IN_NAMES}x"
STEP = re.sub(r"[#/@\x00-\x1f]", "", EVIL)[:100]
LONG = "x\u202e\x1b[31m" * 1_500_000  # more than 10 MB
BAD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]"
)

READING = [
    ("runs",), ("runs", "--tree"), ("show", NAME), ("show", "@last"), ("show", f"{NAME}@{TAG}"), ("show", f"{NAME}@1"), ("show", "gated"), ("show", "failed"),
    ("log", NAME), ("log", "gated"), ("log", "failed"), ("log", "failed", "--graph", "mermaid"), ("log", "failed", "--graph", "dot"),
    ("state", NAME), ("state", NAME, "--full"), ("state", NAME, "list[0]"), ("state", NAME, "missing\x1b[2J"), ("diff", f"{NAME}@1", f"{NAME}@2"),
    ("diff", f"{NAME}@1", f"{NAME}@2", "--full"), ("blame", NAME, "list"), ("bisect", NAME, "--when", "len(list) > 0"), ("stats",),
    ("answer", "gated"), ("restore", NAME), ("verify", "--depth", "full"), ("doctor",), ("prune", "--keep-last", "1", "--dry-run"),
    ("cleanup", "--completed", "delete", "--keep-within", "0s", "--dry-run"), ("gc", "--dry-run"), ("resume", NAME), ("resume", "failed", "--check"),
    ("show", "nobody\u202e\x1b[2J"), ("\x1b[2Jcommand",), ("run", "\x1b[2J.yaml"), ("explain", "\x1b[2J"), ("tag", NAME, f"{TAG}2"),
    ("fork", NAME), ("config", "show"), ("queues",), ("runs", "--queue", TAG), ("show", "queued"), ("limit", TAG), ("limit", EVIL.replace("\x00", "")),
    ("schedules",), ("schedules", "--json"), ("unschedule", TAG), ("enqueue", "\x1b[2Jflow"), ("enqueue", "\x1b[2J:x"),
]  # fmt: skip


@pytest.fixture(scope="session")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which everything that can hold text holds what a terminal would obey."""
    folder = tmp_path_factory.mktemp("evil")
    (folder / ".everstep").mkdir()
    with everstep.open(folder / ".everstep" / "store.db") as store:
        about = {"note": EVIL, "session": EVIL, "workflow": EVIL, "tags": [TAG], "meta": {EVIL: EVIL}}
        with store.run(NAME, **about) as run:
            run.checkpoint(EVIL, tags=[TAG], meta={"k": EVIL})
            run.state.update({EVIL: EVIL, "list": [EVIL, {EVIL: [EVIL]}], "bytes": EVIL.encode(), "html": "<img src=x onerror=alert(1)>"})
            run.state[(1, EVIL)] = EVIL + "\x00"
            run.step(STEP, lambda: EVIL, key=EVIL.replace("/", ""))
            run.checkpoint(EVIL)
        with pytest.raises(Waiting), store.run("gated", **about) as run:
            run.gate(STEP, ask=EVIL, choices=[EVIL, "b"])
        with pytest.raises(ValueError), store.run("failed", **about) as run:
            run.step("fails", fails)
        store.fork(f"{NAME}@1", f"fork{HIDDEN_IN_NAMES}")
        store.enqueue(EVIL, EVIL, id="queued", queue=TAG, key=EVIL, dedupe=EVIL)
        store.limit(TAG, concurrency=1)
        store.schedule(TAG, EVIL, EVIL, cron="0 0 * * *", queue=TAG, key=EVIL)
    return folder


def fails() -> None:
    raise ValueError(EVIL)


@pytest.fixture
def bad(evil: Path, empty: Shop) -> Shop:
    copy(evil, empty.folder)
    return empty


def harmless(shown: str) -> None:
    """Nothing but line ends, tabs, and what can be seen. Our own colours aside."""
    left = plain(shown)
    found = BAD.search(left)
    assert not found, (found, left[max(0, (found.start() if found else 0) - 60) :][:120])
    assert not [c for c in left if category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") and c not in "\n\t"]


@pytest.mark.parametrize("args", READING, ids=lambda args: " ".join(args).encode("ascii", "backslashreplace").decode()[:40])
def test_nothing_that_is_stored_commands_the_terminal(args: tuple[str, ...], bad: Shop) -> None:
    with Busy() as busy:
        called = bad.terminal(*args)
    assert busy.seconds < 5
    assert called.out
    assert "Traceback" not in called.out.partition("TRACEBACK")[0]  # which is that of the program, as it was stored
    harmless(called.out)


@pytest.mark.parametrize(
    "args", [("runs",), ("show", NAME), ("log", NAME), ("state", NAME), ("diff", f"{NAME}@1", NAME), ("answer", "gated")]
)
def test_nor_through_a_pipe(args: tuple[str, ...], bad: Shop) -> None:
    for more in ((), ("--json",), ("--color", "always")):
        called = bad.call(*args, *more)
        harmless(called.out + called.err)


def test_html_and_quotes_end_no_label_of_a_graph(bad: Shop) -> None:
    with bad.open() as store, store.run("graph") as run:
        for name in ('"]; click n0 "javascript:alert(1)"', "<script>", "a\\", "end", "%%{init: {}}%%", "x`y"):
            run.step(name, lambda: 1)
    mermaid = bad.call("log", "graph", "--graph", "mermaid").ok().out
    for label in re.findall(r'"(.*)"', mermaid):
        assert not set(label) & set('"<>{}`\\%')
    assert "<script>" not in mermaid
    dot = bad.call("log", "graph", "--graph", "dot").ok().out
    for line in dot.splitlines():
        assert re.fullmatch(r'[^"]*("(?:[^"\\]|\\.)*"[^"]*)*', line), line


PROGRAM = """
import everstep
EVIL = {evil!r}

@everstep.workflow
def fails():
    everstep.current().step({step!r}, lambda: 1)
    everstep.current().step({step!r}, throw)

def throw():
    raise ValueError(EVIL)

@everstep.workflow
def gives():
    return EVIL

@everstep.workflow
def gives_more():
    return {{EVIL: [EVIL]}}

@everstep.workflow
def asks():
    return everstep.gate({step!r}, ask=EVIL, choices=[EVIL, "b"])
"""


@pytest.mark.parametrize("name", ["fails", "gives", "gives_more", "asks"])
def test_what_a_run_says_while_it_is_driven_is_harmless(name: str, empty: Shop) -> None:
    (empty.folder / "program.py").write_text(PROGRAM.format(evil=EVIL, step=STEP), encoding="utf-8")
    for args in (("run", f"program.py:{name}", "--id", "r"), ("resume", "r", "--import", "program.py"), ("show", "r"), ("log", "r")):
        called = empty.terminal(*args)
        assert called.code == (1 if name == "fails" and args[0] in ("run", "resume") else 0), called.out
        assert "r" in called.out
        harmless(called.out)


def test_bytes_that_are_no_text_are_named_and_not_printed(bad: Shop) -> None:
    for name in ("show", "state", "nonsense"):
        command = [sys.executable.encode(), b"-m", b"everstep", name.encode(), b"a\xff\x9b31m"]
        done = subprocess.run(command, cwd=bad.folder, env=environment(), capture_output=True, timeout=60)
        assert done.returncode in (2, 3)
        assert b"Traceback" not in done.stderr
        harmless(done.stderr.decode())


def test_a_question_with_escapes_is_asked_without_them(bad: Shop) -> None:
    child = bad.spawn("answer", "gated", STEP)
    child.expect_exact("Answer")
    asked = child.before
    child.sendline("b")
    called = ended(child)
    harmless(asked.replace("\r\n", "\n"))
    harmless(called.out.replace("\x07", ""))


def test_the_chooser_shows_names_without_escapes(bad: Shop) -> None:
    child = bad.spawn("resume")
    child.expect_exact("Which one")
    harmless(child.before.replace("\r\n", "\n"))
    child.sendeof()
    assert ended(child).code == 130


@pytest.mark.parametrize(
    "args",
    [
        ("state", "big"),
        ("show", "big"),
        ("log", "big"),
        ("diff", "big"),
        ("runs",),
        ("blame", "big", "text"),
        ("stats",),
        ("show", "wrong"),
    ],
)
def test_ten_megabytes_of_escapes_are_shown_in_part_and_in_time(args: tuple[str, ...], huge: Path, empty: Shop) -> None:
    copy(huge, empty.folder)
    with Busy() as busy:
        called = empty.terminal(*args)
    assert busy.seconds < 5
    assert called.code == 0, called.out[-500:]
    assert len(called.out) < 200_000
    harmless(called.out)


@pytest.fixture(scope="session")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of 10 MB, a key of 1 MB, a hundred thousand keys, and as deep as it may be."""
    folder = tmp_path_factory.mktemp("huge")
    (folder / ".everstep").mkdir()
    with everstep.open(folder / ".everstep" / "store.db") as store:
        with store.run("big", note=LONG[:10_000]) as run:
            run.checkpoint("first")
            run.state["text"] = LONG
            run.state["in a dict"] = {"text": LONG[:3_000_000], "more": [LONG[:1_000_000]]}
            run.state[LONG[:1_000_000]] = 1
            run.state["keys"] = {f"key {n}\x1b": n for n in range(100_000)}
            run.state["deep"] = deep(60)
            run.checkpoint("second")
        with pytest.raises(ValueError), store.run("wrong"):
            raise ValueError(LONG)
    return folder


def deep(levels: int) -> object:
    value: object = EVIL
    for n in range(levels):
        value = [value] if n % 2 else {EVIL: value}
    return value
