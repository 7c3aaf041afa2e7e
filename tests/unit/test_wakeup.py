"""What one thread sleeps on until another one wakes it."""

import threading

import pytest

from everstep.threads.wakeup import Wakeup


def test_a_sleeper_is_woken() -> None:
    wakeup = Wakeup()
    woken: list[bool] = []
    sleeper = threading.Thread(target=lambda: woken.append(wakeup.wait()), daemon=True)
    sleeper.start()
    assert woken == []
    wakeup.give()
    sleeper.join(20)
    assert woken == [True]


@pytest.mark.parametrize("times", [1, 2, 5])
def test_given_before_it_is_not_lost_and_counts_once(times: int) -> None:
    wakeup = Wakeup()
    for _ in range(times):
        wakeup.give()
    assert [wakeup.wait(0.01), wakeup.wait(0.01)] == [True, False]


def test_many_may_give_at_once() -> None:
    wakeup = Wakeup()
    givers = [threading.Thread(target=lambda: [wakeup.give() for _ in range(1000)]) for _ in range(4)]
    for giver in givers:
        giver.start()
    for giver in givers:
        giver.join()
    assert [wakeup.wait(0), wakeup.wait(0)] == [True, False]
