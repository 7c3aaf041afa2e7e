"""A backend that has nothing but `Core` is enough for runs; whatever needs more is refused by name."""

from collections.abc import Callable
from typing import Any, cast

import pytest

import everstep
from everstep.api import Store
from everstep.backends.contract.capability import CAPABILITIES, has, methods, need
from everstep.backends.contract.core import Backend, Core
from everstep.backends.contract.mailbox import Mailbox
from everstep.backends.memory.backend import MemoryBackend
from everstep.backends.registry import open_backend
from everstep.errors import MissingCapability, NotFound
from everstep.ids import new_id
from everstep.testing.conformance import CoreSuite, OpenHandle


class CoreOnly:
    """A store in memory of which only the core can be reached."""

    def __init__(self, name: str | None = None) -> None:
        self._whole = MemoryBackend(name)

    def __getattr__(self, name: str) -> Any:
        if name in ("url", "durable", "seal") or name in methods(Core):
            return getattr(self._whole, name)
        raise AttributeError(name)


class TestCoreOnly(CoreSuite):
    @pytest.fixture
    def open_handle(self) -> OpenHandle:
        name = new_id()
        return lambda: cast(Backend, CoreOnly(name))


@pytest.fixture
def store() -> Any:
    backend: Any = CoreOnly()
    with Store(backend) as store:
        yield store


@everstep.workflow
def double(n: int) -> int:
    run = everstep.current()
    return run.step("add", lambda a: a + a, n) + run.step("more", lambda: 1)


def test_runs_are_made_saved_loaded_compared_and_forked(store: everstep.Store) -> None:
    with store.run("r", state={"log": []}) as run:
        for i in range(40):
            run.step("work", int, i)
            run.state["log"].append(f"line {i} " * 30)
            run.checkpoint(note=f"n{i}")
    assert [len(store.load(f"r@{n}")["log"]) for n in (1, 2, 20, 40)] == [1, 2, 20, 40]
    assert store.checkpoint("r@7").note == "n6"
    assert len(store.steps("r")) == 40
    assert [change.path for change in store.diff("r@3", "r@4")] == [("log", 3)]
    fork = store.fork("r@5", id="f", edit={"extra": True})
    assert (fork.parent, store.load("f")["extra"]) == ("r", True)
    with store.run("r") as run:
        assert len(run.state["log"]) == 40
        run.state["log"].append("again")
        run.checkpoint()
    assert len(store.load("r")["log"]) == 41
    assert {info.id for info in store.runs()} == {"r", "f"}
    with pytest.raises(NotFound):
        store.load("nobody")


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_run_that_was_broken_off_is_resumed(store: everstep.Store, durability: Any) -> None:
    def broken_off() -> None:
        with store.run("r", state={"n": 0}, durability=durability) as run:
            run.state["n"] = 1
            run.checkpoint()
            run.step("done", str, 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken_off()
    with store.run("r", durability=durability) as run:
        assert run.state["n"] == 1
    assert store.get("r").status == "succeeded"


def test_workflows_run_and_resume(store: everstep.Store) -> None:
    assert store.start(double, 4, id="w").result == 9
    assert store.resume("w").result == 9
    assert [step.name for step in store.steps("w")] == ["add", "more"]


def gated() -> str:
    return str(everstep.gate("approve"))


REFUSED: list[tuple[str, Callable[[Any], Any]]] = [
    ("mailbox", lambda store: store.gates("r")),
    ("mailbox", lambda store: store.answer("r", "approve", True)),
    ("mailbox", lambda store: store.pause("r")),
    ("index", lambda store: store.tag("r@1", "good")),
    ("index", lambda store: store.load("r@good")),
    ("index", lambda store: store.checkpoints("r")),
    ("feed", lambda store: store.events()),
    ("audit", lambda store: store.verify()),
    ("audit", lambda store: store.stats()),
    ("audit", lambda store: store.gc()),
    ("audit", lambda store: store.prune(everstep.Retention(keep_last=1))),
    ("reclaim", lambda store: store.delete("r")),
    ("properties", lambda store: store.set_retention(everstep.Retention(keep_last=1))),
    ("queues", lambda store: store.enqueue(double, 1)),
    ("queues", lambda store: store.queues()),
]


@pytest.mark.parametrize(("capability", "call"), REFUSED, ids=[f"{name}-{i}" for i, (name, _) in enumerate(REFUSED)])
def test_what_needs_more_is_refused_with_a_code_and_a_remedy(store: everstep.Store, capability: str, call: Callable[[Any], Any]) -> None:
    with store.run("r", state={}) as run:
        run.checkpoint()
    with pytest.raises(MissingCapability) as caught:
        call(store)
    assert (caught.value.capability, caught.value.code, caught.value.written) == (capability, "E418", "no")
    assert "SQLite" in str(caught.value)
    assert store.load("r") == {}


def test_a_gate_is_refused_before_the_run_waits_for_an_answer_that_cannot_come(store: everstep.Store) -> None:
    with store.run("r", state={}) as run:
        with pytest.raises(MissingCapability):
            run.gate("approve")
        with pytest.raises(MissingCapability):
            run.sleep(0.01)
        assert run.step("on", lambda: 1) == 1
    assert store.get("r").status == "succeeded"


@pytest.mark.parametrize("url", ["memory://", "s.db"])
def test_our_backends_have_every_capability_that_needs_no_database_of_the_callers(url: str, tmp_path: Any) -> None:
    backend = open_backend(url if "://" in url else tmp_path / url)
    assert [c.__name__ for c in CAPABILITIES if not has(backend, c)] == ["Outbox", "Transactional"]
    backend.close()


def test_what_is_asked_for_and_missing_is_named() -> None:
    backend = CoreOnly()
    assert has(backend, Core)
    assert not has(backend, Mailbox)
    with pytest.raises(MissingCapability, match="'mailbox'"):
        need(backend, Mailbox)
