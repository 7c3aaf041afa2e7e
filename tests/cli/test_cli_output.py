"""What goes where and how: data on stdout, talk on stderr, colours and relative times for people only, ids that resolve."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cli_helpers import LONG, PROGRAMS, SGR, Busy, Shop, environment, plain
from hypothesis import given
from hypothesis import strategies as st

import everstep
from everstep.backends.contract.core import Commit, Outcome
from everstep.cli.args import times
from everstep.cli.draw import text
from everstep.cli.main import COMMANDS
from everstep.records import ZERO, RunRow
from everstep.views.stored import paths
from everstep.views.stored.values import as_json

READING = [
    ("runs",), ("runs", "--tree"), ("show", "loop"), ("show", "loop@2"), ("log", "done"), ("state", "loop"), ("diff", "loop@1", "loop@2"),
    ("blame", "loop", "total"), ("bisect", "loop", "--when", "total > 10"), ("stats",), ("answer", "waits"), ("explain",), ("explain", "E201"),
]  # fmt: skip
TALKING = [
    ("fork", "loop", "f"), ("tag", "loop", "t"), ("answer", "waits", "boss", "yes"), ("pause", "waits"), ("prune", "--keep-last", "1"), ("gc",),
    ("verify",), ("migrate",), ("init",), ("enqueue", "hello", "--id", "q", "--import", str(PROGRAMS)), ("completion", "zsh"), ("run", f"{PROGRAMS}:hello"), ("restore", "loop", "-o", "x.json"),
]  # fmt: skip


@pytest.mark.parametrize("args", READING, ids=" ".join)
def test_what_reads_says_nothing_but_data(args: tuple[str, ...], shop: Shop) -> None:
    called = shop.call(*args).ok()
    assert called.out
    assert called.err == ""
    assert "\x1b" not in called.out


@pytest.mark.parametrize("args", TALKING, ids=lambda args: args[0])
def test_quiet_leaves_the_data_and_nothing_else(args: tuple[str, ...], shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    again = Shop(tmp_path / "again")
    again.path.parent.mkdir()
    again.path.write_bytes(shop.path.read_bytes())
    loud = shop.call(*args).ok()
    assert loud.err
    quiet = shop.call(*args, "--quiet", "--store", str(again.path)).ok()
    assert quiet.err == ""
    assert quiet.out == loud.out


def test_colours_are_for_terminals_and_for_those_who_ask(shop: Shop) -> None:
    assert SGR.search(shop.terminal("runs").out)
    assert not SGR.search(shop.pipe("runs").out)
    assert SGR.search(shop.pipe("runs", "--color", "always").out)
    assert not SGR.search(shop.terminal("runs", "--color", "never").out)
    assert not SGR.search(shop.terminal("runs", NO_COLOR="1").out)
    assert SGR.search(shop.terminal("runs", "--color", "always", NO_COLOR="1").out)
    assert not SGR.search(shop.terminal("runs", TERM="dumb").out)
    assert plain(shop.pipe("runs", "--color", "always").out) == shop.pipe("runs").out


def test_the_talk_has_colours_on_a_terminal_only(shop: Shop) -> None:
    assert SGR.search(shop.terminal("verify").out)
    assert not SGR.search(shop.pipe("verify").err)
    assert SGR.search(shop.pipe("verify", "--color", "always").err)


def test_times_are_relative_for_people_and_exact_for_programs(shop: Shop) -> None:
    iso = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    on_terminal = plain(shop.terminal("show", "loop").out)
    assert re.search(r"began +(now|\d+ (s|min|h) ago)", on_terminal)
    assert not re.search(iso, on_terminal)
    in_pipe = shop.pipe("show", "loop").out
    assert re.search(rf"began +{iso}", in_pipe)
    assert " ago" not in in_pipe
    with shop.open() as store:
        at = store.get("loop").created_at
    told = shop.json("show", "loop")["run"]["created_at"]
    assert re.fullmatch(iso, told)
    assert abs(datetime.fromisoformat(told) - at) < timedelta(milliseconds=1)


def test_a_json_answer_is_ascii_on_a_terminal_too(shop: Shop) -> None:
    shop.pipe("checkpoint", "odd", "--note", "naïve ☃", stdin='{"k": "\u202e\x7f☃"}').ok()
    for args in (("show", "odd"), ("state", "odd"), ("runs",), ("log", "odd")):
        called = shop.terminal(*args, "--json")
        assert called.out.isascii()
        assert called.json["everstep"] == 1
        assert "\x1b" not in called.out


def test_a_long_id_is_cut_to_a_beginning_that_resolves(shop: Shop) -> None:
    with shop.open() as store:
        ids = [run.id for run in store.runs()]
    listed = plain(shop.terminal("runs", columns=200).out).splitlines()[1 : len(ids) + 1]
    shown = [line.split()[0] for line in listed]
    assert [shop.json("show", short)["run"]["id"] for short in shown] == ids
    assert [len(short) < len(id) for short, id in zip(shown, ids, strict=True)][:2] == [True, True]
    assert set(LONG) <= set(ids)
    assert [line.split()[0] for line in shop.call("runs").ok().lines[1:]] == ids  # a pipe gets ids that every command takes


def test_ids_that_differ_at_their_ends_only_stay_whole_enough(empty: Shop) -> None:
    ids = ["x" * 40 + end for end in ("a", "ab", "b", "")] + ["y" * 150]
    with everstep.open(empty.path) as store:
        for id in ids:
            with store.run(id) as run:
                run.checkpoint()
    shown = [line.split()[0] for line in plain(empty.terminal("runs", columns=300).out).splitlines()[1 : len(ids) + 1]]
    assert [empty.json("show", short)["run"]["id"] for short in shown] == list(reversed(ids))
    assert len(shown[0]) < 30


def test_lines_fit_a_narrow_terminal(shop: Shop) -> None:
    with shop.open() as store, store.run("wide", note="字" * 200, tags=["t" * 50], workflow="w" * 80):
        pass
    for columns in (60, 100):
        for line in plain(shop.terminal("runs", columns=columns).out).splitlines():
            assert text.width(line) <= columns, line


def test_ten_thousand_runs_are_listed_at_once(empty: Shop) -> None:
    with everstep.open(empty.path) as store:
        write_runs(store, 10_000)
    with Busy() as busy:
        called = empty.pipe("runs", "-n", "10000").ok()
    assert len(called.lines) == 10_001
    assert busy.seconds < 4
    assert len(empty.pipe("runs", "-n", "10000", "--json").ok().data["runs"]) == 10_000
    short = called.lines[5].split()[0]
    assert len(short) < 40
    assert empty.json("show", short)["run"]["id"].startswith(short)


def write_runs(store: everstep.Store, count: int) -> None:
    """Bare rows with long ids: to take them all through their life would change nothing that a list shows."""
    left, settled = [count], threading.Event()

    def done(outcome: Outcome) -> None:
        assert not isinstance(outcome, BaseException)
        left[0] -= 1
        if left[0] == 0:
            settled.set()

    for n in range(count):
        store.backend.submit(Commit(row(n), None), done)
    assert settled.wait(60)


def row(n: int) -> RunRow:
    at, key = 1_700_000_000_000_000 + n, n.to_bytes(16)
    return RunRow(
        id=f"{n:05}-of-those-that-a-program-has-named", key=key, family=key, workflow="flow", session=None, tags=("prod",), note="nightly",
        meta=None, parent=None, parent_number=0, created_at=at, status="succeeded", updated_at=at, head_seq=0, head_digest=ZERO, checkpoints=0,
        stored=0, epoch=1, worker=None, since=0,
    ).sealed()  # fmt: skip


def test_python_m_everstep_is_everstep(shop: Shop) -> None:
    script = Path(sys.executable).with_name("everstep")
    if not script.exists():
        pytest.skip("the package is not installed: pip install -e . installs the command")
    for args in (("--help",), ("runs",), ("show", "nobody"), ("--version",)):
        done = subprocess.run([script, *args], cwd=shop.folder, env=environment(), capture_output=True, text=True, timeout=60)
        called = shop.pipe(*args)
        assert (done.returncode, done.stdout, done.stderr) == (called.code, called.out, called.err)


def test_no_command_prints_help_and_help_names_every_command(shop: Shop) -> None:
    called = shop.pipe()
    assert called.code == 0
    assert called.out == shop.pipe("--help").out == shop.pipe("-h").out
    for name, sentence in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(sentence.split()[0])}", called.out, re.MULTILINE), name
    assert shop.call("--version").out == f"everstep {everstep.__version__}\n"


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "shell"])
def test_every_command_has_help(name: str, shop: Shop) -> None:
    called = shop.call(name, "--help").ok()
    assert called.out.startswith(f"Usage: everstep {name}")
    if "Example:" in called.out:
        assert re.search(r"^Example:\n  .*everstep", called.out, re.MULTILINE)


def test_an_unknown_command_is_answered_with_those_that_look_alike(shop: Shop) -> None:
    called = shop.call("rnus")
    assert called.code == 2
    assert "Did you mean `everstep runs`?" in called.err
    assert "Did you mean" not in shop.call("xyzzy").err


def test_a_store_in_a_path_with_spaces_and_signs(empty: Shop) -> None:
    place = empty.folder / "my stores ☃ ünï" / "a store.db"
    place.parent.mkdir()
    for args in (("init",), ("run", f"{PROGRAMS}:hello", "--id", "h"), ("runs",), ("verify",)):
        empty.pipe(*args, "--store", str(place)).ok()
    assert "h " in empty.pipe("runs", EVERSTEP_STORE=str(place)).ok().out
    assert "h " in empty.pipe("runs", "--store", f"sqlite:///{place}").ok().out


def test_the_store_comes_from_the_argument_before_the_environment(shop: Shop) -> None:
    shop.call("init", "--store", "other.db").ok()
    assert shop.pipe("runs", EVERSTEP_STORE="other.db").err == "No runs.\n"
    assert "loop" in shop.pipe("runs", "--store", str(shop.path), EVERSTEP_STORE="other.db").out


def test_signs_that_an_old_locale_lacks_are_escaped(shop: Shop) -> None:
    called = shop.pipe("log", "done", PYTHONIOENCODING="ascii").ok()
    assert "\\u2713 price#0" in called.out
    assert called.out.isascii()


@given(st.lists(st.one_of(st.text(max_size=8), st.integers(-3, 1000)), max_size=5))
def test_a_path_that_is_shown_can_be_typed_again(keys: list[str | int]) -> None:
    shown = paths.shown(keys)
    assert text.safe(shown) == shown or not shown.isascii()
    if keys:
        assert paths.parse(shown) == tuple(keys)


@given(st.text(max_size=60))
def test_safe_text_holds_nothing_that_a_terminal_obeys_and_stays_safe(given_text: str) -> None:
    shown = text.safe(given_text)
    assert not re.search("[\x00-\x1f\x7f-\x9f\u200b-\u200c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]", shown)
    assert text.safe(shown) == shown
    assert text.width(text.cut(shown, 10)) <= 10


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("adm\u200din", "adm\\u200din"),
        ("👩\u200d💻", "👩\u200d💻"),
        ("❤\ufe0f", "❤\ufe0f"),
        ("a\ufe0fb", "a\\ufe0fb"),
        ("a\u3164b", "a\\u3164b"),
        ("é", "é"),
        ("e\u0301", "e\u0301"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_what_cannot_be_seen_is_shown(raw: str, shown: str) -> None:
    assert text.safe(raw) == shown


@pytest.mark.parametrize(
    ("given_text", "seconds"), [("30s", 30), ("15min", 900), ("2h", 7200), ("3d", 259_200), ("1w", 604_800), ("0.5h", 1800)]
)
def test_spans_that_a_person_types(given_text: str, seconds: float) -> None:
    assert times.span(given_text) == seconds
    assert abs((datetime.now(UTC) - times.moment(given_text)).total_seconds() - seconds) < 5


def test_moments_that_a_person_types() -> None:
    assert times.moment("2026-11-15T08:30+00:00") == datetime(2026, 11, 15, 8, 30, tzinfo=UTC)
    assert times.moment("2026-11-15").astimezone().hour == 0
    assert times.moment("today") - times.moment("yesterday") == timedelta(days=1)
    for wrong in ("", "soon", "2026-13-01", "-3d", "3", "99999999999w"):
        with pytest.raises(ValueError):
            times.moment(wrong)


def test_values_of_other_types_become_json_that_a_script_can_use() -> None:
    from collections import deque
    from decimal import Decimal
    from pathlib import PurePosixPath
    from uuid import UUID

    value = {
        "tuple": (1, 2), "set": {3, 1, 2}, "deque": deque([1, 2]), "range": range(3), "bytes": b"\xff", "nan": float("nan"), "complex": 1 + 2j,
        "decimal": Decimal("1.10"), "path": PurePosixPath("a/b"), "uuid": UUID(int=1), "at": datetime(2026, 1, 1, tzinfo=UTC),
        "span": timedelta(minutes=1), "keys": {1: "a"}, "big": 10**30, "unknown": everstep.Unknown("trip.Plan", 2, {"goal": "Rome"}),
    }  # fmt: skip
    assert as_json(value) == {
        "tuple": [1, 2], "set": [1, 2, 3], "deque": [1, 2], "range": [0, 1, 2], "bytes": {"$bytes": "/w=="}, "nan": {"$float": "nan"},
        "complex": {"$complex": [1.0, 2.0]}, "decimal": "1.10", "path": "a/b", "uuid": "00000000-0000-0000-0000-000000000001",
        "at": "2026-01-01T00:00:00+00:00", "span": 60.0, "keys": {"$dict": [[1, "a"]]}, "big": 10**30,
        "unknown": {"$type": "trip.Plan", "goal": "Rome"},
    }  # fmt: skip
