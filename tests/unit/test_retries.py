"""Retries: what is tried again, how often, and after how long."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.errors import InvalidArgument
from everstep.runtime.steps.retry import Retry

shares = st.floats(0, 1)
backoffs = st.sampled_from(["constant", "linear", "exponential", "fibonacci"])


@st.composite
def retries(draw: st.DrawFn) -> Retry:
    most = draw(st.floats(0, 1e9))
    return Retry(draw(st.integers(1, 10**6)), draw(backoffs), draw(st.floats(0, most)), most, draw(shares))


@given(retries(), st.integers(1, 10**6), shares)
def test_a_delay_lies_within_its_bounds(retry: Retry, attempt: int, random: float) -> None:
    plain = Retry(retry.attempts, retry.backoff, retry.delay, retry.max_delay, jitter=0).delay_after(attempt, random)
    slack = 1e-9 * retry.max_delay
    assert 0 <= plain <= retry.max_delay
    assert (
        plain * (1 - retry.jitter) - slack <= retry.delay_after(attempt, random) <= min(plain * (1 + retry.jitter) + slack, retry.max_delay)
    )


@given(retries(), st.integers(1, 2000), shares)
def test_a_later_delay_is_never_shorter(retry: Retry, attempt: int, random: float) -> None:
    assert retry.delay_after(attempt, random) <= retry.delay_after(attempt + 1, random)


@pytest.mark.parametrize(("backoff", "delays"), [
    ("constant", [2, 2, 2, 2, 2, 2]), ("linear", [2, 4, 6, 8, 10, 12]), ("exponential", [2, 4, 8, 16, 32, 50]), ("fibonacci", [2, 2, 4, 6, 10, 16]),
])  # fmt: skip
def test_how_delays_grow(backoff: Any, delays: list[float]) -> None:
    retry = Retry(backoff=backoff, delay=2, max_delay=50, jitter=0)
    assert [retry.delay_after(n, 0.3) for n in range(1, 7)] == delays


def test_jitter_goes_both_ways_and_the_cap_holds_after_it() -> None:
    retry = Retry(delay=10, max_delay=10.5, jitter=0.2, backoff="constant")
    assert [retry.delay_after(1, r) for r in (0, 0.5, 1)] == [8, 10, 10.5]


@pytest.mark.parametrize("backoff", ["linear", "exponential", "fibonacci"])
def test_the_number_of_an_attempt_may_be_huge(backoff: Any) -> None:
    assert Retry(backoff=backoff, delay=1e-9, max_delay=60, jitter=0).delay_after(10**15, 0.5) == 60
    assert Retry(backoff=backoff, delay=0).delay_after(10**15, 0.5) == 0


class Flaky(ConnectionError):
    pass


class Outer:
    class Inner(ValueError):
        pass


@pytest.mark.parametrize(("retry", "error", "again"), [
    (Retry(), ValueError(), True), (Retry(), KeyboardInterrupt(), False), (Retry(), SystemExit(), False), (Retry(), GeneratorExit(), False),
    (Retry(only=ConnectionError), Flaky(), True), (Retry(only=(OSError, ValueError)), KeyError(), False), (Retry(only=OSError, never=Flaky), Flaky(), False),
    (Retry(only=OSError, never=Flaky), ConnectionError(), True), (Retry(never=[ValueError]), UnicodeError(), False), (Retry(never=[ValueError]), OSError(), True),
    (Retry(only="ConnectionError"), Flaky(), True), (Retry(only="OSError"), ValueError(), False), (Retry(only=["Flaky"]), Flaky(), True), (Retry(never="Flaky"), Flaky(), False),
    (Retry(only="Outer.Inner"), Outer.Inner(), True), (Retry(only=f"{__name__}.Outer.Inner"), Outer.Inner(), True), (Retry(only="other.Inner"), Outer.Inner(), False), (Retry(only="builtins.OSError"), Flaky(), True),
])  # fmt: skip
def test_which_errors_are_tried_again(retry: Retry, error: BaseException, again: bool) -> None:
    assert retry.again(1, error) is again


def test_attempts_count_the_first_try() -> None:
    assert [Retry(attempts=3).again(n, ValueError()) for n in (1, 2, 3, 4)] == [True, True, False, False]
    assert not Retry(attempts=1).again(1, ValueError())


@pytest.mark.parametrize(("given", "retry"), [
    (5, Retry(attempts=5)), ({}, Retry()), (Retry(7), Retry(7)), ({"attempts": 2, "backoff": "linear", "only": ["TimeoutError"]}, Retry(2, "linear", only=("TimeoutError",))),
    ({"delay": 0, "max_delay": 0, "jitter": 1, "never": "ValueError"}, Retry(delay=0, max_delay=0, jitter=1, never=("ValueError",))),
])  # fmt: skip
def test_a_retry_is_read(given: Any, retry: Retry) -> None:
    assert Retry.parse(given) == retry


@pytest.mark.parametrize(("given", "words"), [
    (0, "got 0"), (True, "got True"), ("3", "got '3'"), (None, "got None"), (2.0, "got 2.0"), ({"tries": 3}, "'tries'"), ({7: 3}, "unknown key 7"), ({"attempts": "3"}, "got '3'"),
    ({"attempts": 1.0}, "got 1.0"), ({"backoff": "square"}, "got 'square'"), ({"backoff": []}, "got []"), ({"delay": -1}, "got -1"), ({"delay": float("nan")}, "got nan"), ({"delay": 100}, "delay=100 is greater than max_delay=60"),
    ({"max_delay": -1}, "got -1"), ({"max_delay": float("inf")}, "got inf"), ({"jitter": 1.5}, "got 1.5"), ({"jitter": -0.1}, "got -0.1"), ({"only": ()}, "only=()"), ({"only": [7]}, "only must contain exception classes, got 7"),
    ({"only": KeyboardInterrupt}, "KeyboardInterrupt"), ({"only": ""}, "only must contain exception classes, got ''"), ({"only": "a b"}, "'a b'"), ({"never": int}, "never must contain exception classes, got <class 'int'>"), ({"never": ValueError()}, "never must contain exception classes, got ValueError()"),
])  # fmt: skip
def test_what_is_no_retry_is_refused(given: Any, words: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        Retry.parse(given)
    assert words in refused.value.message
    assert refused.value.remedy.startswith(("Give ", "Use ", "Increase "))


@pytest.mark.parametrize(("attempt", "random"), [(0, 0.5), (1.0, 0.5), (1, -0.1), (1, 1.1), (1, float("nan"))])
def test_a_delay_needs_an_attempt_and_a_share(attempt: Any, random: float) -> None:
    with pytest.raises(InvalidArgument):
        Retry().delay_after(attempt, random)


def test_equal_retries_are_equal_whatever_they_were_made_of() -> None:
    assert len({Retry(only=[ValueError]), Retry(only=(ValueError,)), Retry(only=ValueError)}) == 1
