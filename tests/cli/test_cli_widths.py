"""Every command at 40, 80 and 160 columns: lines fit, columns drop in their order, and no word is broken. A pipe gets everything."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from shutil import rmtree

import pytest
from cli_helpers import PROGRAMS, Shop, plain
from fake_terminal import at_width
from hypothesis import given
from hypothesis import strategies as st

from everstep.cli.catalogue import COMMANDS
from everstep.cli.draw.output import folded
from everstep.cli.draw.text import width
from everstep.cli.layout.columns import GAP, fit

IMPORT = ("--import", str(PROGRAMS))
WIDTHS = (40, 80, 160)
# Each command, in forms that print much. A line of JSON, a script, a graph, a traceback and a single word may be longer than a terminal.
CALLS: dict[str, list[tuple[str, ...]]] = {
    "demo": [],  # tests/cli/test_demo.py
    "shell": [("-c", "runs; checkpoints; help")],
    "worker": [],  # tests/cli/test_worker.py: a live table
    "new": [("workflow", "shop"), ("nonsense",)],
    "init": [()],
    "run": [(f"{PROGRAMS}:order", "tea", "--id", "new"), (f"{PROGRAMS}:broken", "--id", "bad"), ("nowhere.py:x",)],
    "runs": [(), ("--tree",), ("--status", "failed"), ("--queue", "default"), ("--status", "nonsense")],
    "show": [("loop",), ("waits",), ("broken",), ("done",), ("done", "price#1"), ("broken", "look"), ("loop@3",), ("nobody",), ("loop", "nothing")],
    "log": [("done",), ("loop",), ("done", "--graph", "dot")],
    "events": [("-n", "20",)],
    "state": [("loop",), ("loop", "nothing")],
    "diff": [("loop@1", "loop@4")],
    "blame": [("loop", "total")],
    "bisect": [("loop", "--when", "total > 10"), ("loop", "--when", "total > 1000"), ("loop", "--when", "total >")],
    "stats": [()],
    "resume": [("waits",), ("broken", *IMPORT), ("waits", "--check", *IMPORT)],
    "wake": [IMPORT],
    "fork": [("loop@2", "other")],
    "inbox": [(), ("--workflow", "none")],
    "answer": [("waits",), ("waits", "boss", "perhaps"), ("waits", "boss", "yes")],
    "retry": [("broken",), ("loop", "add#0")],
    "skip": [("broken", "look", "1")],
    "pause": [("waits",)],
    "cancel": [("waits", "alternative", "--yes"), ("--workflow", "order"), ()],
    "delete": [("broken",), ("broken", "--yes")],
    "workers": [()],
    "enqueue": [("hello", "--id", "hello-1", *IMPORT)],
    "queues": [(), ("--stranded",)],
    "limit": [("mail", "--rate", "10/60s", "--concurrency", "3", "--per-key", "2")],
    "schedule": [("daily", "hello", "--cron", "0 0 * * *", *IMPORT)],
    "schedules": [()],
    "unschedule": [("nightly",)],
    "checkpoint": [("loop", "--state", "state.json")],
    "restore": [("alternative",)],
    "tag": [("loop@2", "early")],
    "prune": [("loop", "--keep-last", "2", "--dry-run")],
    "gc": [("--dry-run",)],
    "cleanup": [("--keep-last", "2", "--dry-run")],
    "verify": [("--depth", "full"), ("--against", "nowhere.txt", "--public-key", "nowhere.pub")],
    "encrypt": [("--key-source", "file:nowhere.key")],
    "rekey": [("--key-source", "file:nowhere.key")],
    "heads": [("--new-key", "."), ("--key", "nowhere.key")],
    "audit": [("done",), ("waits",), ("--deleted",), ("nobody",)],
    "repair": [(".everstep/store.db", "new.db"), ("nowhere.db", "other.db")],
    "doctor": [()],
    "migrate": [("--dry-run",)],
    "config": [("show",), ("validate",), ()],
    "completion": [("bash",)],
    "explain": [(), ("E301",), ("E999",)],
    "help": [(), ("schedule",), ("config", "validate")],
}  # fmt: skip
RAW = {("log", "dot"), ("completion", "bash"), ("state", "loop"), ("restore", "alternative")}
TRACEBACK = re.compile(r"\s+(File \"|\S.*\(.*\)|\^+|~)|Traceback|\w+Error: ")


@pytest.fixture
def full(shop: Shop) -> Shop:
    (shop.folder / "state.json").write_text('{"n": 1}')
    with shop.open() as store:
        store.limit("mail", concurrency=3)
        store.schedule("nightly", "hello", cron="0 3 * * *", zone="Europe/Berlin", queue="mail")
        store.enqueue("hello", id="queued", queue="default")
        with store.run("wide", note="a note of many words " * 9, tags=["t" * 50], workflow="w" * 80) as run:
            run.checkpoint("checkpoint note of several words " * 4)
    return shop


def test_every_command_is_tried() -> None:
    assert set(CALLS) == set(COMMANDS)


def is_one_word(line: str, columns: int) -> bool:
    """Return whether a line is too long only because of one word, after at most a name: a digest, a path."""
    return len(line.split()) <= 2 and width(line.split()[-1]) > columns - 12


def words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z]{5,}", text))


@pytest.mark.parametrize("name", [name for name, calls in CALLS.items() if calls])
def test_lines_fit_and_no_word_is_broken(name: str, full: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = full.path.read_bytes()
    for args in CALLS[name]:
        said: dict[int, str] = {}
        for columns in (*WIDTHS, 10_000):
            for rest in full.path.parent.iterdir():
                if rest.is_file():
                    rest.unlink()
            full.path.write_bytes(kept)
            Path("new.db").unlink(missing_ok=True)
            rmtree("shop", ignore_errors=True)
            said[columns] = at_width(columns, monkeypatch, name, *args).out
        whole = words(said[10_000])
        for columns in WIDTHS:
            if (name, args[-1] if args else "") not in RAW:
                for line in said[columns].splitlines():
                    assert width(line) <= columns or is_one_word(line, columns) or TRACEBACK.match(line), (args, columns, line)
            cut = words(" ".join(re.findall(r"\S*…", said[columns])))
            assert words(said[columns]) - whole <= cut, (args, columns)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("columns", WIDTHS)
def test_help_fits(name: str, columns: int, empty: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    text = at_width(columns, monkeypatch, name, "--help").ok().out
    for line in text.splitlines():
        assert len(line) <= columns or len(line.split()) == 1, line
    assert words(text) <= words(at_width(10_000, monkeypatch, name, "--help").out)


def test_columns_drop_in_their_order_and_the_id_and_status_stay(full: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def head(columns: int) -> list[str]:
        return at_width(columns, monkeypatch, "runs").ok().out.splitlines()[0].split()

    assert head(160) == ["RUN", "STATUS", "WORKFLOW", "CHECKPOINTS", "STORED", "UPDATED", "TAGS", "NOTE"]
    seen = [head(columns) for columns in range(160, 30, -5)]
    for wider, narrower in pairwise(seen):
        assert [name for name in wider if name in narrower] == narrower
    assert seen[-1][:2] == ["RUN", "STATUS"]
    assert "UPDATED" in head(50)
    assert "NOTE" not in head(40)


def test_a_pipe_gets_all_columns_uncut(full: Shop) -> None:
    line = next(line for line in full.call("runs").ok().lines if line.startswith("wide"))
    assert "a note of many words a note of many words" in line
    assert "w" * 29 in line


def ageless(text: str) -> list[str]:
    """The lines without what differs between two moments: ages, and the free space of the disk."""
    return [" ".join(re.sub(r"\b(now|\d+ (s|min) ago|[\d.]+ [GT]B)", "<then>", line).split()) for line in text.splitlines()]


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_real_terminal_has_the_same_lines(columns: int, full: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    for args in (("runs",), ("doctor",), ("inbox",)):
        real = plain(full.terminal(*args, columns=columns).out)
        fake = at_width(columns, monkeypatch, *args).out
        assert ageless(real) == ageless(fake)
        assert all(width(line) <= columns for line in real.splitlines())


@given(st.lists(st.integers(1, 60), min_size=1, max_size=9), st.integers(20, 200), st.data())
def test_the_chosen_columns_fit_if_they_can(widths: list[int], columns: int, data: st.DataObject) -> None:
    natural = dict(enumerate(widths))
    cuts = data.draw(st.sets(st.sampled_from(sorted(natural))))
    drop = data.draw(st.permutations(sorted(natural)))[: len(natural) - 1]
    least = {i: min(natural[i], 12) for i in cuts}
    found = fit(natural, least, drop, columns)
    assert list(found) == sorted(found)
    assert all(least.get(i, natural[i]) <= got <= natural[i] for i, got in found.items())
    gone = [i for i in drop if i not in found]
    assert gone == drop[: len(gone)]
    total = sum(found.values()) + GAP * (len(found) - 1)
    assert total <= columns or len(gone) == len(drop)
    if sum(widths) + GAP * (len(widths) - 1) <= columns:
        assert found == natural


def test_a_command_to_type_continues_after_a_backslash() -> None:
    text = "  everstep resume a-run-with-a-long-name --import some/folder/flows.py"
    assert folded(text, 200) == text
    lines = folded(text, 40).split("\n")
    assert len(lines) > 1
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert all(len(line) <= 40 for line in lines)
    assert " ".join("".join(line.removesuffix("\\") for line in lines).split()) == text.strip()
