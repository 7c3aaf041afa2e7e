"""What the YAML workflows of the tests call. `calls` notes each call of this process; NOTES in the environment is a file that outlives it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import everstep

calls: list[Any] = []
meeting: threading.Barrier | None = None
fail: set[Any] = set()
callback: Callable[[], Any] | None = None
TEXT = "not callable"


def reset() -> None:
    global meeting, callback
    calls.clear()
    fail.clear()
    meeting = callback = None


def note(*what: Any) -> None:
    calls.append(what if len(what) > 1 else what[0])
    if "NOTES" in os.environ:
        with Path(os.environ["NOTES"]).open("a") as file:
            file.write(" ".join(map(str, what)) + "\n")


def same(value: Any) -> Any:
    note(value)
    return value


def say(word: str = "nothing", **more: Any) -> str:
    note("say", word)
    return word


def plan(topic: str, n: int = 3) -> list[str]:
    note("plan", topic)
    return [f"{topic}-{i}" for i in range(n)]


def search(query: str) -> str:
    note("search", query)
    if query in fail:
        raise ConnectionError(f"no answer about {query}")
    return query.upper()


def meet(name: str) -> str:
    """Returns only if as many calls as the barrier asks for run at the same time."""
    assert meeting is not None
    meeting.wait(30)
    return name


def meet_and_fail(name: str) -> str:
    meet(name)
    note(name)
    if name in fail:
        raise ConnectionError(name)
    return name


def hang(seconds: float = 60) -> None:
    note("hang")
    time.sleep(seconds)


def hang_once(mark: str) -> str:
    """Hangs in the first process that comes here, so that it can be killed; returns in the second."""
    note("hang_once")
    if Path(mark).exists():
        return "done"
    Path(mark).touch()
    time.sleep(600)
    return "never"


def spoil(things: list[Any]) -> int:
    """Changes what it was given."""
    note("spoil")
    things.append("spoilt")
    return len(things)


def meddle() -> None:
    """Changes the state behind the document's back."""
    everstep.current().state["kept"].append("meddled")


def call_back() -> Any:
    note("call_back")
    return callback() if callback else None


def useless() -> Any:
    note("useless")
    return threading.Lock()


def takes(key: str, retry: int, timeout: float, name: str, function: str) -> list[Any]:
    return [key, retry, timeout, name, function]


def attempts() -> int:
    run = everstep.current()
    note("attempt", run.step_attempt)
    if run.step_attempt < 3:
        raise TimeoutError("not yet")
    return int(run.step_attempt)


async def think(about: str) -> str:
    note("think", about)
    return f"thought about {about}"


@everstep.step(retry=everstep.Retry(attempts=2, delay=0), kind="llm", ignore=("client",))
def decorated(question: str, client: Any = None) -> str:
    note("decorated", question)
    if len(calls) == 1:
        raise ConnectionError("once")
    everstep.current().usage(tokens=7)
    return question


@everstep.workflow(name="child-of-yaml")
def child(n: int) -> int:
    return say_step(n) + 1


@everstep.step
def say_step(n: int) -> int:
    note("child", n)
    return n


class Agent:
    @staticmethod
    def ask(question: str) -> str:
        note("ask", question)
        return f"{question}!"
