"""Two threads that load at the same time leave the garbage collector as they found it."""

import gc
import os
import threading
from collections.abc import Iterator

import pytest

from everstep.threads.no_collection import no_collection


@pytest.fixture(autouse=True)
def on_again() -> Iterator[None]:
    yield
    gc.enable()


def test_the_last_of_two_threads_switches_the_collector_on_again() -> None:
    """The first one ends while the second is still inside: the order that left it off."""
    inside, first_is_done = threading.Event(), threading.Event()

    def second() -> None:
        with no_collection():
            inside.set()
            first_is_done.wait(10)
            assert not gc.isenabled()

    with no_collection():
        thread = threading.Thread(target=second)
        thread.start()
        assert inside.wait(10)
    first_is_done.set()
    thread.join()
    assert gc.isenabled()


def test_many_threads_and_errors_leave_it_on() -> None:
    def fail() -> None:
        with no_collection():
            assert not gc.isenabled()
            raise KeyError

    def work() -> None:
        for _ in range(300):
            with pytest.raises(KeyError):
                fail()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gc.isenabled()


def test_a_program_that_switched_it_off_finds_it_off() -> None:
    gc.disable()
    with no_collection(), no_collection():
        pass
    assert not gc.isenabled()


def test_a_child_that_is_forked_during_a_load_has_its_collector() -> None:
    with no_collection():
        child = os.fork()
        if child == 0:
            os._exit(0 if gc.isenabled() else 1)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert gc.isenabled()
