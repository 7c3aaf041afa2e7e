"""A duration is a number of seconds, a timedelta or a text, wherever one is given."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

import everstep
from everstep.durations import to_seconds
from everstep.errors import InvalidArgument, StepTimeout


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(5, 5), (0.5, 0.5), (timedelta(minutes=2), 120), ("30s", 30), ("500ms", 0.5), ("15min", 900), ("15 m", 900), ("1.5h", 5_400), ("3d", 259_200), ("1w", 604_800), ("2 hours", 7_200), (None, None)],
)  # fmt: skip
def test_every_form_is_the_same_number_of_seconds(given: Any, seconds: float | None) -> None:
    assert to_seconds(given, "timeout") == seconds


@pytest.mark.parametrize("given", ["", "30", "s", "30x", "-5s", "1h30m", "nan s", "3 0s", "5 S"])
def test_another_text_is_refused_with_an_example(given: str) -> None:
    with pytest.raises(InvalidArgument, match='delay must be a number of seconds, a timedelta, or a string such as "30s"'):
        to_seconds(given, "delay")


@pytest.mark.parametrize("short", [0.001, timedelta(milliseconds=1), "1ms"])
def test_a_duration_is_taken_wherever_one_is_given(short: Any) -> None:
    @everstep.workflow(name="durations", timeout="1h")
    def flow() -> str:
        run = everstep.current()
        everstep.sleep(short)
        run.sleep(short)
        with pytest.raises(StepTimeout):
            run.step("slow", time.sleep, 0.2, timeout=short)
        return run.gate("boss", timeout=short, default="later")

    with everstep.open("memory://", timeout="1h", lease_seconds=timedelta(seconds=5)) as store:
        store.start(flow, id="r")
        assert store.wait("r", timeout=short).status in ("waiting", "succeeded")
        assert store.enqueue(flow, id="q", delay="1h").wait(short).status == "queued"
        store.on("after_step", print, timeout="1s")
        store.resume("r", timeout=timedelta(minutes=1))
    assert everstep.Retry(3, delay=short, max_delay="1min").max_delay == 60
    assert everstep.Retry(3, delay=short).delay == 0.001
    assert everstep.Budget(seconds=short).seconds == everstep.every(seconds=short).seconds == 0.001
    assert everstep.Retention(keep_within=short) == everstep.Retention(keep_within=timedelta(milliseconds=1))
    with everstep.open("memory://") as store:
        store.limit("q", rate=(5, "1min"))
        assert store.verify("quick", seconds="1h").complete
        store.cleanup(seconds=timedelta(hours=1))
