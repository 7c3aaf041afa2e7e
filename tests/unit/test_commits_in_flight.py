"""How many commits of a run are on their way, and who waits until there are fewer."""

import threading

from everstep.runtime.engine.in_flight import Underway


def test_whoever_waits_goes_on_when_few_enough_are_left() -> None:
    way = Underway()
    sent = [object() for _ in range(3)]
    for one in sent:
        way.sent(one)
    way.wait(3)
    gone: list[int] = []
    waiting = [threading.Thread(target=lambda most=most: (way.wait(most), gone.append(most)), daemon=True) for most in (0, 1)]
    for one in waiting:
        one.start()
    way.settled(sent[0])
    way.settled(sent[0])  # told twice, it counts once
    assert gone == []
    way.settled(sent[1])
    waiting[1].join(20)
    assert gone == [1]
    way.settled(sent[2])
    waiting[0].join(20)
    assert (gone, way.count) == ([1, 0], 0)


def test_many_threads_lose_no_count() -> None:
    way = Underway()

    def send_and_settle() -> None:
        for _ in range(500):
            commit = object()
            way.sent(commit)
            way.settled(commit)

    threads = [threading.Thread(target=send_and_settle) for _ in range(4)]
    for one in threads:
        one.start()
    way.wait(0)
    for one in threads:
        one.join()
    assert way.count == 0
