"""Verify says how far it is, stops when its time is over, and has the store remember what it found."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from upkeep_helpers import grow, many_bases
from verify_helpers import DEPTHS, flipped, query, tamper, wide

import everstep
from everstep.errors import InvalidArgument, StoreClosed
from everstep.store.verify.report import Depth
from everstep.testing.clock import FakeClock


@pytest.fixture
def filled(places: Any) -> everstep.Store:
    store: everstep.Store = places.open()
    with many_bases():
        for i in range(4):
            grow(store, f"run {i}".replace(" ", "-"), 20)
        wide(store, "wide")
    return store


@pytest.fixture
def fake_clock() -> Iterator[FakeClock]:
    with FakeClock() as time:
        yield time


@pytest.mark.parametrize("depth", DEPTHS)
def test_progress_rises_to_the_total(filled: everstep.Store, depth: Depth, fake_clock: FakeClock) -> None:
    told: list[tuple[int, int, str]] = []

    def progress(done: int, total: int, what: str) -> None:
        told.append((done, total, what))
        fake_clock.advance(1)  # so that it is told each time

    assert filled.verify(depth, progress=progress).ok
    done, totals = [t[0] for t in told], [t[1] for t in told]
    assert len(told) > 4
    assert done == sorted(done)
    assert all(0 <= d <= total for d, total, _ in told)
    assert done[-1] == totals[-1] > 0
    assert told[-1][2] == "all"
    stats = filled.stats()
    expected = {"quick": stats["runs"], "records": stats["record_bytes"], "full": stats["record_bytes"] + stats["chunk_bytes"]}[depth]
    assert totals[-1] == expected
    assert {"run wide", "run run-0"} <= {what for _, _, what in told}


def test_without_news_nobody_is_told(filled: everstep.Store, fake_clock: FakeClock) -> None:
    """The clock stands still, so there is the first word and the last one."""
    told: list[str] = []
    filled.verify("full", progress=lambda done, total, what: told.append(what))
    assert told == ["manifest", "all"]


@pytest.mark.parametrize("depth", DEPTHS)
def test_when_its_time_is_over_it_stops_and_says_how_far_it_came(filled: everstep.Store, depth: Depth, fake_clock: FakeClock) -> None:
    report = filled.verify(depth, seconds=3.5, progress=lambda done, total, what: fake_clock.advance(1))
    assert not report.complete
    assert report.ok
    assert report.runs < 5
    assert f"{report.runs} of 5 runs" in report.reached
    assert report.reached in str(report)
    assert 3.5 <= report.seconds < 6
    assert json.loads(filled.backend.get_property(f"verify.{depth}") or "")["complete"] is False
    again = filled.verify(depth, seconds=1e6)
    assert again.complete
    assert again.reached == ""


def test_what_was_found_before_the_time_was_over_is_reported(tmp_path: Path, fake_clock: FakeClock) -> None:
    path = tmp_path / "s.db"
    with everstep.open(path) as store:
        for i in range(5):
            grow(store, f"run-{i}", 3)
    tamper(path, "UPDATE runs SET note = 'x' WHERE id = 'run-0'")
    with everstep.open(path) as store:
        report = store.verify("records", seconds=3.5, progress=lambda done, total, what: fake_clock.advance(1))
        assert not report.complete
        assert [problem.where for problem in report.problems] == ["run run-0"]


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_result_is_remembered(filled: everstep.Store, depth: Depth, fake_clock: FakeClock) -> None:
    report = filled.verify(depth)
    assert report.not_recorded is None
    said = json.loads(filled.backend.get_property(f"verify.{depth}") or "")
    assert said["at"] == fake_clock.now_us()
    assert (said["ok"], said["complete"], said["problems"]) == (True, True, 0)
    assert (said["runs"], said["records"], said["chunks"]) == (report.runs, report.records, report.chunks)


def test_damage_is_remembered_as_long_as_the_file_itself_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with everstep.open(path) as store:
        grow(store, "r", 5)
    tamper(path, "UPDATE records SET at = at + 1 WHERE number = 2")
    with everstep.open(path) as store:
        assert not store.verify("records").ok
        said = json.loads(store.backend.get_property("verify.records") or "")
    assert (said["ok"], said["problems"] > 0) == (False, True)


def test_nothing_is_written_into_a_file_that_is_broken(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with everstep.open(path) as store:
        grow(store, "r", 60)
    (root,) = query(path, "SELECT rootpage FROM sqlite_schema WHERE name = 'runs_status'")[0]
    data = bytearray(path.read_bytes())
    at = data.index(b"succeeded", (root - 1) * 4096)
    data[at] ^= 1
    path.write_bytes(data)
    with everstep.open(path) as store:
        for depth in DEPTHS:
            report = store.verify(depth)
            if depth == "full":
                assert not report.ok
                assert "may be damaged" in (report.not_recorded or "")
            else:
                assert report.ok  # it is nothing that these look at
        assert store.backend.get_property("verify.full") is None


def test_a_store_that_cannot_be_written_says_why_it_forgets(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with everstep.open(path) as store:
        grow(store, "r", 3)
    if os.geteuid() == 0:  # who may write everything does not write where everybody could swap the files
        tmp_path.chmod(0o777)
        os.chown(tmp_path, 12345, 12345)
    else:
        path.chmod(stat.S_IRUSR)
    with everstep.open(path) as store:
        report = store.verify("full")
        assert report.ok
        assert report.not_recorded
        assert store.backend.get_property("verify.full") is None


def test_a_store_that_refuses_to_remember_is_still_verified(filled: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from everstep.errors import ReadOnly

    def refuse(name: str, value: str | None) -> None:
        raise ReadOnly("it cannot be written")

    monkeypatch.setattr(filled.backend, "set_property", refuse)
    report = filled.verify()
    assert report.ok
    assert report.not_recorded == "it cannot be written"


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "3", True])
def test_a_time_that_is_none_is_refused(filled: everstep.Store, seconds: Any) -> None:
    with pytest.raises(InvalidArgument, match="seconds"):
        filled.verify(seconds=seconds)


def test_progress_that_cannot_be_called_and_a_depth_that_is_none_are_refused(filled: everstep.Store) -> None:
    with pytest.raises(InvalidArgument, match="progress"):
        filled.verify(progress="loud")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="depth"):
        filled.verify("deep")  # type: ignore[arg-type]


def test_an_error_of_the_progress_function_ends_it(filled: everstep.Store) -> None:
    def progress(done: int, total: int, what: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        filled.verify("full", progress=progress)
    assert filled.verify("full").ok


def test_a_closed_store_is_not_verified(filled: everstep.Store) -> None:
    filled.close()
    with pytest.raises(StoreClosed):
        filled.verify()


def test_chunks_that_nothing_refers_to_are_counted_and_are_no_problem(filled: everstep.Store) -> None:
    assert (filled.verify("full").unreachable, filled.verify("full").unreachable_bytes) == (0, 0)
    filled.prune(everstep.Retention(keep_last=1))
    report = filled.verify("full")
    assert report.ok
    collected = filled.gc(dry_run=True)
    assert (report.unreachable, report.unreachable_bytes) == (collected.chunks, collected.freed)
    assert report.unreachable > 0
    assert f"{report.unreachable_bytes:,} bytes: store.gc()" in str(report)
    filled.gc()
    after = filled.verify("full")
    assert (after.ok, after.unreachable) == (True, 0)
    assert after.chunks == report.chunks - report.unreachable


def test_a_damaged_chunk_that_nothing_refers_to_is_a_problem_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with everstep.open(path) as store, many_bases():
        grow(store, "r", 60)
        before = set(query(path, "SELECT digest FROM chunks"))
        store.prune(everstep.Retention(keep_last=1))
    with everstep.open(path) as store:
        kept = store.verify("full").unreachable
        assert 0 < kept < len(before)
    found = 0
    for pk, frame in query(path, "SELECT pk, frame FROM chunks"):
        tamper(path, "UPDATE chunks SET frame = ? WHERE pk = ?", flipped(frame, len(frame) * 4), pk)
        with everstep.open(path) as store:
            report = store.verify("full")
        tamper(path, "UPDATE chunks SET frame = ? WHERE pk = ?", frame, pk)
        assert not report.ok
        found += any("nothing refers to it" in problem.what for problem in report.problems)
    assert found == kept
