"""Times, progress bars and the frames of errors, as people see them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta, timezone
from io import StringIO

import pytest
from cli_helpers import Shop, plain
from fake_terminal import at_width
from hypothesis import given
from hypothesis import strategies as st

from everstep.cli.draw.output import folded
from everstep.cli.layout.frames import last_frames
from everstep.cli.layout.moments import short
from everstep.cli.layout.progress import Progress

ZONE = timezone(timedelta(hours=2))
NOW = datetime(2026, 11, 18, 14, 30, 0, tzinfo=ZONE)


@pytest.mark.parametrize(
    ("then", "shown"),
    [
        (NOW, "now"),
        (NOW - timedelta(seconds=12), "12 s ago"),
        (NOW - timedelta(seconds=59.6), "1 min ago"),
        (NOW - timedelta(minutes=3, seconds=50), "3 min ago"),
        (NOW - timedelta(minutes=59), "59 min ago"),
        (datetime(2026, 11, 18, 11, 16, 25, tzinfo=UTC), "13:16:25"),
        (datetime(2026, 11, 17, 12, 16, 25, tzinfo=UTC), "yesterday 14:16"),
        (datetime(2026, 11, 17, 22, 1, tzinfo=UTC), "00:01:00"),  # today here, yesterday in UTC
        (datetime(2026, 11, 12, 12, 16, tzinfo=UTC), "12 Nov 14:16"),
        (datetime(2025, 11, 12, 12, 16, tzinfo=UTC), "2025-11-12"),
        (NOW + timedelta(seconds=30), "in 30 s"),
        (NOW + timedelta(minutes=5), "in 5 min"),
        (NOW + timedelta(hours=3), "17:30:00"),
        (NOW + timedelta(days=1), "tomorrow 14:30"),
    ],
)
def test_times_are_local_and_short(then: datetime, shown: str) -> None:
    assert short(then, NOW) == shown


@given(st.integers(0, 4_000_000_000), st.integers(0, 4_000_000_000))
def test_every_time_has_a_short_form(then: int, now: int) -> None:
    assert 3 <= len(short(datetime.fromtimestamp(then, UTC), datetime.fromtimestamp(now, ZONE))) <= 15


def test_the_clock_of_the_machine_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        then = datetime.now(UTC) - timedelta(days=40)
        assert short(then) == f"{then.astimezone(timezone(timedelta(hours=9))):%-d %b %H:%M}"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_times_are_exact_in_a_pipe_in_json_and_on_request(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    iso = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    for args in (("runs",), ("show", "loop"), ("log", "loop"), ("inbox",), ("blame", "loop", "total")):
        assert not re.search(iso, at_width(200, monkeypatch, *args).ok().out), args
        assert re.search(iso, at_width(200, monkeypatch, *args, "--exact-times").ok().out), args
        assert re.search(iso, at_width(200, monkeypatch, "--exact-times", *args).ok().out), args
        assert re.search(iso, shop.call(*args).ok().out), args
        assert re.search(iso, shop.call(*args, "--json").ok().out), args


def clock(*readings: float) -> object:
    left = list(readings)
    return lambda: left.pop(0)


@pytest.mark.parametrize(
    ("unit", "done", "total", "seconds", "columns", "line"),
    [
        ("", 50, 100, 10, 80, "looking [████████████············]  50%  5.0/s  10.0 s left"),
        ("bytes", 25_000_000, 100_000_000, 5, 80, "looking [██████··················]  25%  5.0 MB/s  15.0 s left"),
        ("", 900, 1_000, 1, 80, "looking [█████████████████████···]  90%  900/s  1.0 s left"),
        ("", 1, 7_200, 1, 80, "looking [························]   0%  1.0/s  1 h 59 min left"),
        ("", 100, 100, 4, 80, "looking [████████████████████████] 100%  25/s"),
        ("", 0, 0, 4, 80, "looking [························]   0%"),
        ("", 50, 100, 10, 40, "looking 50%  5.0/s  10.0 s left"),
    ],
)
def test_a_bar_has_the_rate_and_the_time_left(unit: str, done: int, total: int, seconds: float, columns: int, line: str) -> None:
    bar = Progress("looking", StringIO(), True, unit)
    assert bar.text(done, total, seconds, columns) == line
    assert len(line) < columns


def test_a_bar_is_drawn_for_what_takes_long_and_wiped_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stream = StringIO()
    with Progress("looking", stream, True, now=clock(0.0, 0.5, 2.0, 2.05)) as bar:  # type: ignore[arg-type]
        bar(1, 10)
        assert stream.getvalue() == ""
        bar(4, 10)
        assert stream.getvalue() == "\rlooking [█████████···············]  40%  2.0/s  3.0 s left\x1b[K"
        bar(5, 10)
    assert stream.getvalue().count("looking") == 1
    assert stream.getvalue().endswith("\r\x1b[K")
    quiet = StringIO()
    with Progress("looking", quiet, False, now=clock(0.0, 5.0)) as bar:  # type: ignore[arg-type]
        bar(1, 10)
    assert quiet.getvalue() == ""


@pytest.mark.parametrize(
    "args",
    [
        ("verify",),
        ("gc",),
        ("prune", "--keep-last", "1"),
        ("stats",),
        ("migrate",),
        ("repair", ".everstep/store.db", "new.db"),
        ("cleanup", "--keep-last", "1", "--yes"),
    ],
    ids=lambda args: args[0],
)
def test_long_work_has_a_bar_on_a_terminal_and_none_in_a_pipe(args: tuple[str, ...], shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    from everstep.cli.layout import progress
    from everstep.store import progress as pace

    monkeypatch.setattr(progress, "_PATIENCE", -1.0)
    monkeypatch.setattr(progress, "_EACH", -1.0)
    monkeypatch.setattr(pace, "_TELL_US", -1)
    assert "\r" not in shop.call(*args).ok().err
    for rest in shop.folder.glob("new.db*"):
        rest.unlink() if rest.is_file() else None
    drawn = at_width(80, monkeypatch, *args)
    assert re.search(r"\r\w+ \[[█·]+\] +\d+%", drawn.out), drawn.out


def test_frames_are_those_of_the_program() -> None:
    def inner() -> None:
        raise ValueError("no")

    try:
        inner()
    except ValueError as error:
        frames = last_frames(error)
    assert len(frames) == 2
    assert frames[-1].endswith('in inner: raise ValueError("no")')
    assert plain(frames[0])


def test_a_line_that_breaks_keeps_the_gaps_between_its_columns() -> None:
    line = "20:26:53  think#2  0.3 s  100 tokens  $0.0010"
    assert folded(line, 40) == "20:26:53  think#2  0.3 s  100 tokens\n  $0.0010"
    assert folded("  a  b", 80) == "  a  b"
    assert folded("  one  two  three", 11) == "  one  two\n    three"
    assert folded("everstep answer o1 approve-send-2.0 yes", 30) == "everstep answer o1 \\\n  approve-send-2.0 yes"


@given(st.text(alphabet="ab \x1b[2m", max_size=80), st.integers(4, 30))
def test_breaking_a_line_loses_no_word(text: str, columns: int) -> None:
    assert folded(text, columns).split() == text.split()
