"""In code an id is exact. A sweep over every public callable that takes a run or a ref, found by introspection, on every backend.

The store holds `order-12` and nothing else. Each callable is given names that are near to it: beginnings, extensions, other
spellings, `@last`. It must refuse them, or make a run of exactly that name; `order-12` is neither read nor touched.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import everstep
from everstep.errors import InvalidArgument, NotFound
from everstep.runtime.lines.async_line import AsyncLine
from everstep.runtime.lines.line import Line

STORED = "order-12"
NEAR = ("order-1", "o", "order-123", "Order-12", "order-%", "order-_2", "order-1*", "order-1\uff12")  # fmt: skip
SHORT = ("@last", "@last~0", "@last@1", "order-1@1", "order-1~0", "order-1@priced", "order@1~0")

NAMES_A_RUN = ("run_id", "ref", "run", "a", "b")
MAKES_A_RUN = ("id",)
# What else the callables take. A new parameter belongs here only if it can't name a run.
OTHER: dict[str, Any] = {
    "gate": "boss", "value": "yes", "step": "price", "path": ["total"], "name": "t", "retention": {"keep_last": 1}, "cron": "* * * * *",
    "event": "after_step", "queue": "default", "numbers": [1], "address": "price#0",
}  # fmt: skip
IGNORED = frozenset((
    "self", "args", "kwargs", "filters", "options", "accept", "after", "all_checkpoints", "anyway", "at", "budget", "by", "compact", "concurrency",
    "connection", "dedupe", "delay", "depth", "dry_run", "durability", "early", "edit", "error", "follow_up", "from_step", "items", "key", "limit", "max_deaths",
    "meta", "minutes", "missed", "newest_good", "note", "observer", "orders_in", "per_key", "policy", "priority", "progress", "queues", "rate", "reason",
    "recover", "replay", "result", "seconds", "session", "state", "store", "tags", "task", "tell", "timeout", "workflow", "function", "zone", "number", "prefix",
    "first", "last", "newest_first", "shared", "against", "public_key",
))  # fmt: skip


@everstep.step
def price(item: str) -> int:
    return 10 * len(item)


@everstep.workflow
def order(item: str) -> Any:
    run = everstep.current()
    run.state["total"] = price(item)
    run.checkpoint("priced", tags="priced")
    run.state["decided"] = False
    run.checkpoint("asked")
    return everstep.gate("boss", choices=["yes", "no"])


def think(state: Any) -> Any:
    return everstep.Decision("done")


def fill(store: everstep.Store) -> None:
    assert store.start(order, "tea", id=STORED).status == "waiting"


def fingerprint(store: everstep.Store) -> Any:
    """All that is stored about the run, and all that the store remembers."""
    backend, row = store.backend, store.backend.run(STORED)
    assert row is not None
    return (
        row, backend.records(STORED, 1, 1_000), backend.tags(STORED), backend.messages(STORED), backend.queue_entry(STORED), backend.pruned(STORED),
        backend.holder(row), {name: value for name, value in backend.properties().items() if STORED in name},
    )  # fmt: skip


def methods() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, method in inspect.getmembers(everstep.Store, inspect.isfunction):
        if not name.startswith("_"):
            yield name, method


def parameters(method: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(method).parameters.values())


CALLS = [(name, one.name) for name, method in methods() for one in parameters(method) if one.name in NAMES_A_RUN or one.name in MAKES_A_RUN]
CHANGES = ("answer", "cancel", "delete", "pause", "prune", "resume", "retry", "set_retention", "skip", "tag", "fork")


def arguments(name: str, parameter: str, given: str) -> tuple[list[Any], dict[str, Any]]:
    """A call that would do something to `order-12` if `given` named it."""
    args: list[Any] = []
    named: dict[str, Any] = {parameter: given}
    for one in parameters(getattr(everstep.Store, name)):
        if one.name in named or one.name == "self" or one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
            continue
        if one.kind is one.POSITIONAL_ONLY and one.default is one.empty:
            args += [order, "tea"] if one.name == "workflow" else [OTHER[one.name]]
        elif one.name in NAMES_A_RUN and one.default is one.empty:
            named[one.name] = STORED
        elif one.default is one.empty or one.name in ("retention",):
            named[one.name] = OTHER[one.name]
        elif (name, one.name) == ("wait", "timeout"):
            named[one.name] = 0.01
    return args, named


def outcome(call: Callable[[], Any]) -> Any:
    """What came of a call: the refusal, or what was returned. A run that is opened is entered and left."""
    try:
        made = call()
        if isinstance(made, everstep.Run):
            with made:
                pass
        if isinstance(made, Line):
            made.checkpoint()
        return made
    except (NotFound, InvalidArgument) as error:
        return error


def judge(store: everstep.Store, before: Any, given: str, parameter: str, came: Any) -> str | None:
    """What is wrong, if anything."""
    if fingerprint(store) != before:
        return "order-12 was touched"
    if others := {info.id for info in store.runs()} - {STORED, given if parameter in MAKES_A_RUN else STORED}:
        return f"made {others}"
    if isinstance(came, (NotFound, InvalidArgument)):
        return f"read: {came.message}" if f"run {STORED!r}" in came.message else None
    if parameter in MAKES_A_RUN and store.backend.run(given) is not None:
        return None
    return f"answered with {came!r:.80}"


def sweep(store: everstep.Store, call: Callable[[str, list[Any], dict[str, Any]], Any], names: tuple[str, ...]) -> list[str]:
    """Every call with every name; gives what went wrong."""
    before, wrong = fingerprint(store), []
    for name, parameter in CALLS:
        for given in names:
            args, named = arguments(name, parameter, given)
            came = outcome(lambda name=name, args=args, named=named: call(name, args, named))
            if found := judge(store, before, given, parameter, came):
                wrong.append(f"{name}({parameter}={given!r}): {found}")
                return wrong  # the store is no longer what the others expect
            if parameter in MAKES_A_RUN and (row := store.backend.run(given) if "@" not in given else None) is not None:
                store.backend.delete(row)
    return wrong


def test_every_parameter_of_the_public_methods_is_known_to_the_sweep() -> None:
    known = {*NAMES_A_RUN, *MAKES_A_RUN, *OTHER, *IGNORED}
    unknown = [f"{name}({one.name})" for name, method in methods() for one in parameters(method) if one.name not in known]
    assert not unknown, f"say whether these name a run: {unknown}"
    assert len(CALLS) >= 25
    assert set(CHANGES) <= {name for name, _ in CALLS}


def test_no_call_in_code_takes_a_name_for_another_run(store: everstep.Store) -> None:
    fill(store)
    assert sweep(store, lambda name, args, named: getattr(store, name)(*args, **named), (*NEAR, *SHORT)) == []


def test_no_awaited_call_takes_a_name_for_another_run(store: everstep.Store) -> None:
    fill(store)
    wrapped = everstep.AsyncStore(store)

    def call(name: str, args: list[Any], named: dict[str, Any]) -> Any:
        async def there() -> Any:
            found = getattr(wrapped, name)(*args, **named)
            if isinstance(found, everstep.Run):
                async with found:
                    return None
            made = await found if inspect.isawaitable(found) else found
            if isinstance(made, AsyncLine):
                await made.checkpoint()
            return made

        return asyncio.run(there())

    assert sweep(store, call, ("order-1", "order-1@1", "@last")) == []


def test_an_agent_and_an_enqueued_run_have_exactly_their_id(store: everstep.Store) -> None:
    fill(store)
    before = fingerprint(store)
    assert everstep.AgentLoop(think).run(store, "order-1", "hello").run == "order-1"
    waiting = store.enqueue(order, "tea", id="order")
    store.delete("order")
    assert waiting.wait(0.0).run == "order"
    assert waiting.wait(0.0).status == "queued"
    assert fingerprint(store) == before


@pytest.mark.parametrize(("name", "parameter"), [pair for pair in CALLS if pair[1] in NAMES_A_RUN])
def test_the_sweep_finds_a_store_that_takes_beginnings(name: str, parameter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The canary: a backend that gives the only run whose id begins so, as the store itself once did."""
    with everstep.open("memory://") as store:
        fill(store)
        exact = store.backend.run
        monkeypatch.setattr(store.backend, "run", lambda run: exact(run) or (exact(STORED) if STORED.startswith(run) else None))
        before = fingerprint(store)
        args, named = arguments(name, parameter, "order-1@1" if parameter in ("ref", "a", "b") else "order-1")
        came = outcome(lambda: getattr(store, name)(*args, **named))
        monkeypatch.setattr(store.backend, "run", exact)
        assert exact(STORED) is None or judge(store, before, "order-1", parameter, came)


def test_what_is_not_found_names_similar_ids(store: everstep.Store) -> None:
    fill(store)
    for given in ("order-1", "order", "order-123", "order-13"):
        with pytest.raises(NotFound, match="Similar ids: order-12 ") as caught:
            store.get(given)
        assert f"there is no run {given!r}" in caught.value.message
    with pytest.raises(NotFound) as caught:
        store.get("something-else")
    assert "Similar" not in caught.value.message
    for number in range(30, 50):
        with store.run(f"order-{number}"):
            pass
    with pytest.raises(NotFound) as caught:
        store.load("order-@1")
    assert caught.value.message.count("order-") <= 5


def test_last_is_refused_in_code_with_what_to_do(store: everstep.Store) -> None:
    fill(store)
    for call in (store.load, store.get, store.resume):
        with pytest.raises(InvalidArgument, match="@last") as caught:
            call("@last")
        assert "store.runs(" in caught.value.remedy
