"""What the workers of the tests do: the workflows that they know, and the process that drives them."""

import asyncio
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import everstep


def note(path: Path, what: str, **more: Any) -> None:
    """One line, in one write, so that those of many processes do not mix."""
    line = {"what": what, "pid": os.getpid(), "at": time.monotonic_ns(), **more}
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, f"{json.dumps(line)}\n".encode())
    finally:
        os.close(descriptor)


_here: list[Path] = []  # where it is noted what was done
_store: list[everstep.Store] = []


def say(what: str, **more: Any) -> int:
    note(_here[0], what, run=everstep.current().id, **more)
    return os.getpid()


def count(steps: int) -> list[int]:
    """So many steps."""
    run = everstep.current()
    return [run.step("work", say, f"step {step}") for step in range(steps)]


def held(go: str, steps: int = 3) -> list[int]:
    """Its second step waits until there is a file."""
    run = everstep.current()

    def wait() -> int:
        pid = say("waits", again=run.step_again)
        while not os.path.exists(go):
            time.sleep(0.002)
        say("goes on")
        return pid

    first = run.step("first", say, "first")
    return [first, run.step("wait", wait), *(run.step("last", say, f"last {n}") for n in range(steps - 2))]


async def aheld(go: str, steps: int = 3) -> list[int]:
    """The same, async."""
    run = everstep.current()

    async def wait() -> int:
        pid = say("waits", again=run.step_again)
        while not os.path.exists(go):
            await asyncio.sleep(0.002)
        say("goes on")
        return pid

    first = await run.step("first", say, "first")
    return [first, await run.step("wait", wait), *[await run.step("last", say, f"last {n}") for n in range(steps - 2)]]


def busy(key: str, seconds: float) -> int:
    """Says when it begins and ends."""

    def work() -> int:
        say("begin", key=key)
        time.sleep(seconds)
        return say("end", key=key)

    return everstep.current().step("work", work)


def deadly(step: int = 1) -> str:
    """Kills its worker in a step, always."""
    run = everstep.current()
    for n in range(step):
        run.step("before", say, f"before {n}")

    def die() -> None:
        say("dies")
        os.kill(os.getpid(), signal.SIGKILL)

    run.step("die", die)
    return "lived"


def sleeper(seconds: float) -> str:
    run = everstep.current()
    run.step("before", say, "before")
    everstep.sleep(seconds)
    run.step("after", say, "after")
    return "slept"


def asker() -> Any:
    run = everstep.current()
    run.step("before", say, "before")
    answer = everstep.gate("ok", "Go on?")
    run.step("after", say, "after")
    return answer


def parent(children: int) -> list[str]:
    """Enqueues others from inside, and dies once in the midst of it."""
    run, store = everstep.current(), _store[0]
    found = [store.enqueue("count", 1, queue="children").id for _ in range(children)]

    def die_once() -> None:
        if not any(json.loads(line)["what"] == "dies" for line in _here[0].read_text().splitlines()):
            say("dies")
            os.kill(os.getpid(), signal.SIGKILL)

    run.step("die once", die_once)
    return [*found, store.enqueue("count", 1, queue="children").id]


def fan_out(children: int) -> list[str]:
    """Enqueues many at once, and dies once in the midst of that step, when they are made and the step is not recorded."""
    store = _store[0]
    create = store.backend.create

    def die(*asked: Any) -> list[bool]:
        made = create(*asked)
        if not any(json.loads(line)["what"] == "dies" for line in _here[0].read_text().splitlines()):
            say("dies")
            os.kill(os.getpid(), signal.SIGKILL)
        return made

    store.backend.create = die
    return [job.id for job in store.enqueue_many([{"args": [1]} for _ in range(children)], workflow="count", queue="children")]


def call_deadly(fails_softly: bool = False) -> str:
    """Calls a child that kills its process."""
    everstep.current().step("before", say, "parent before")
    deadly = everstep.workflow(FLOWS["deadly"], name="deadly")
    if not fails_softly:
        return str(deadly())
    try:
        return str(deadly())
    except Exception as error:
        return type(error).__name__


def call_slow(steps: int) -> str:
    """Calls a child that records a step, and then kills its process, as often as it has steps."""

    def slow(steps: int) -> str:
        run = everstep.current()
        for n in range(steps):
            seen = run.step(f"count {n}", lambda: sum(json.loads(line)["what"] == "dies" for line in _here[0].read_text().splitlines()))
            if seen <= n and not any(json.loads(line).get("n") == n for line in _here[0].read_text().splitlines()):
                say("dies", n=n)
                os.kill(os.getpid(), signal.SIGKILL)
        return "ended"

    return str(everstep.workflow(slow, name="slow")(steps))


def leaf(n: int, fate: str = "") -> int:
    """Does one step, fails, asks, or kills its worker once."""
    run = everstep.current()
    if fate == "fails":
        raise ValueError(f"leaf {n}")
    if fate == "asks":
        everstep.gate("leaf")

    def work() -> int:
        say("leaf", n=n)
        if fate == "dies" and sum(json.loads(line).get("n") == n for line in _here[0].read_text().splitlines()) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return n * n

    return run.step("work", work)


def gather(leaves: int, dying: int = 0) -> int:
    """Enqueues others and waits for all of them."""
    run, store = everstep.current(), _store[0]
    run.step("begin", say, "gather begins")
    jobs = [store.enqueue("leaf", n, "dies" if n < dying else "") for n in range(leaves)]
    found = [job.wait().unwrap() for job in jobs]
    run.step("end", say, "gather ends")
    return sum(found)


async def agather(leaves: int) -> int:
    """The same, async."""
    run, store = everstep.current(), _store[0]
    await run.step("begin", say, "gather begins")
    jobs = [store.enqueue("leaf", n) for n in range(leaves)]
    found = [(await job.wait_async()).unwrap() for job in jobs[: leaves // 2]] + [job.wait().unwrap() for job in jobs[leaves // 2 :]]
    await run.step("end", say, "gather ends")
    return sum(found)


def watch(fate: str, timeout: float | None = None) -> list[Any]:
    """Waits for one that may end in any way, and says how."""
    job = _store[0].enqueue("leaf", 1, fate, id=f"{everstep.current().id}-leaf")
    out = job.wait(timeout)
    return [out.status, out.result, type(out.error).__name__, str(out.error), out.reason]


FLOWS = {
    f.__name__: f
    for f in (count, held, aheld, busy, deadly, sleeper, asker, parent, fan_out, call_deadly, call_slow, leaf, gather, agather, watch)
}


def know(notes: Path, *names: str, **options: Any) -> dict[str, Any]:
    """Have this process know some of the workflows, or all."""
    _here[:] = [notes]
    return {name: everstep.workflow(FLOWS[name], name=name, **options) for name in names or FLOWS}


def play(pipe: Any, url: str, notes: Path, names: tuple[str, ...], worker: dict[str, Any], options: dict[str, Any]) -> None:
    """A worker that tells through its pipe. Options that begin with an underscore are for this function."""
    lock = threading.Lock()
    host, version = options.pop("_host", None), options.pop("_version", None)

    def tell(said: dict[str, Any]) -> None:
        with lock:
            pipe.send(said)

    know(notes, *names, **({} if version is None else {"version": version}))
    with everstep.open(url, **options) as store:
        _store.append(store)
        if host is not None:  # as if it were on another machine
            store.keeper.worker.host, store.keeper.worker.boot = host, "another boot"
        store.worker(tell=tell, **worker).run()


def drive(pipe: Any, url: str, notes: Path, run: str, how: str, flow: str, args: tuple[Any, ...]) -> None:
    """A program that starts or resumes one run, or wakes what is due, and tells how that went."""
    flows = know(notes)
    with everstep.open(url) as store:
        _store.append(store)
        if how == "start":
            out = store.start(flows[flow], *args, id=run)
        elif how == "resume":
            out = store.resume(run)
        else:
            out = next(iter(store.wake()), None)
        pipe.send(None if out is None else (out.status, type(out.error).__name__, out.reason))
