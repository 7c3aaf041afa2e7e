"""The error of a run or a step on its page: line by line, its remedy as commands, and each sentence once."""

from __future__ import annotations

import pytest
from cli_helpers import Shop, plain

import everstep
from everstep.cli.pages.error_words import without_own_frames
from everstep.errors import ExitInWorkflow


class Poem(Exception):
    """An error with several lines."""


@everstep.workflow
def reciting() -> None:
    raise Poem("roses are red\n\tviolets \x1b[2Jare blue\nresult  forged")


@everstep.step(retry=everstep.Retry(attempts=2, delay=0.001, jitter=0))
def verse() -> None:
    raise Poem("one\ntwo")


@everstep.workflow
def reciting_twice() -> None:
    verse()


@everstep.workflow
def leaving() -> None:
    raise ExitInWorkflow("the workflow called exit")


def failed(shop: Shop, flow: object, run: str) -> None:
    with shop.open() as store:
        assert store.start(flow, id=run).status == "failed"  # type: ignore[call-overload]


def rows(text: str, name: str) -> list[str]:
    """The lines of one pair of a page: its own, and those that are indented below it."""
    lines = plain(text).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith(f"{name} "))
    margin = len(lines[at]) - len(lines[at][len(name) :].lstrip())
    more = lines[at + 1 :]
    stop = next((n for n, line in enumerate(more) if line[:margin].strip() or not line), len(more))
    return [line[margin:] for line in lines[at : at + 1 + stop]]


def test_an_error_of_several_lines_is_shown_line_by_line(empty: Shop) -> None:
    failed(empty, reciting, "p")
    said = empty.call("show", "p").ok().out
    assert rows(said, "error") == [f"{__name__}.Poem: roses are red", "\tviolets \\x1b[2Jare blue", "result  forged"]
    assert not [line for line in said.splitlines() if line.startswith("result ")]  # only indented: no row of the page can be forged


@pytest.mark.parametrize("columns", [40, 80])
def test_lines_of_an_error_stay_apart_on_a_narrow_terminal(empty: Shop, columns: int) -> None:
    failed(empty, leaving, "p")
    said = empty.terminal("show", "p", columns=columns).ok().out
    assert "\\n" not in said
    found = [line.strip() for line in rows(said, "error")]
    assert any(line.endswith("[E612]") for line in found)
    assert any(line.startswith("Return from the workflow") for line in found)


def test_the_remedy_of_an_error_is_a_command_for_this_run(empty: Shop) -> None:
    failed(empty, leaving, "p")
    error = rows(empty.call("show", "p").ok().out, "error")
    assert error[0] == "everstep.errors.ExitInWorkflow: the workflow called exit [E612]"
    assert "`everstep resume p`" in error[1]
    assert "store." not in error[1]
    assert "store.resume(run_id)" in empty.json("show", "p")["run"]["error"]["message"]  # JSON keeps what is recorded


def test_the_attempts_of_a_step_have_one_line_each(empty: Shop) -> None:
    failed(empty, reciting_twice, "p")
    said = empty.call("show", "p", "verse").ok().out
    assert rows(said, "error") == [f"{__name__}.Poem: one", "two"]
    assert [line.rstrip().endswith("Poem: one two") for line in said.splitlines()[-2:]] == [True, True]
    assert "\\n" not in said.partition("TRACEBACK")[0]


def test_the_timeline_has_one_line_for_each_attempt(empty: Shop) -> None:
    failed(empty, reciting_twice, "p")
    said = empty.call("log", "p").ok().lines
    assert sum(line.endswith("Poem: one two") for line in said) == 2


@everstep.step
def halves(n: int) -> float:
    return n / 0


@everstep.workflow
def dividing() -> float:
    return halves(1)


def test_show_leaves_out_the_frames_of_everstep_unless_asked(empty: Shop) -> None:
    failed(empty, dividing, "p")
    for typed in (["show", "p"], ["show", "p", "halves"]):
        short, whole = empty.call(*typed).ok(), empty.call(*typed, "--full").ok()
        own = [line for line in whole.out.splitlines() if line.startswith("    File") and "/everstep/runtime/" in line]
        assert own, "Everstep called the program"
        assert f"{len(own)} frames of Everstep are left out: --full shows all." in short.err
        assert "/everstep/runtime/" not in short.out
        assert "left out" not in whole.err
        kept = [line for line in whole.out.splitlines() if line.startswith("    File") and line not in own]
        assert [line for line in short.out.splitlines() if line.startswith("    File")] == kept
        assert "return n / 0" in short.out
        assert "  ZeroDivisionError: division by zero" in short.out


@everstep.workflow
def misusing() -> None:
    everstep.current().step("x", print, retry=0)


def test_the_frame_that_raised_stays_even_if_it_is_one_of_everstep(empty: Shop) -> None:
    failed(empty, misusing, "p")
    frames = [line for line in empty.call("show", "p").ok().out.splitlines() if line.startswith("    File")]
    assert "/everstep/" in frames[-1]
    assert any("in misusing" in frame for frame in frames)


def test_a_forged_frame_in_a_message_is_not_taken_for_one_of_everstep() -> None:
    text = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    x\nE: one\n  File "b.py", line 2\nend'
    assert without_own_frames(text) == (text, 0)
    ours = text.replace("a.py", "/x/site-packages/everstep/a.py")
    assert without_own_frames(ours) == (ours, 0), "it raised the error"
