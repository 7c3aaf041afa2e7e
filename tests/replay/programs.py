"""The programs that the tests run in processes of their own, and the server that starts them.

`python programs.py FD` imports everstep once and then forks a child for each request that comes over the socket FD: a dict with the
program's name and its options, together with the child's stdin, stdout and stderr. A child ends as any interpreter does, with the exit
code that its program has earned. What a program does outside of the store is one line in an append-only file for each execution.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from typing import Any

import everstep
from everstep.clock import clock
from everstep.errors import EverstepError, Suspended, Waiting
from everstep.runtime import workflow
from everstep.runtime.limits import signals
from everstep.runtime.run import Run

ASK: dict[str, Any] = {}


# the world outside of the store


def say(*words: Any) -> None:
    os.write(1, f"{' '.join(map(str, words))}\n".encode())


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def effect(what: str) -> None:
    """One line for one execution; O_APPEND keeps the lines of many processes apart."""
    run = everstep.current()
    about = {"what": what, "key": run.step_key, "again": run.step_again, "attempt": run.step_attempt, "pid": os.getpid()}
    descriptor = os.open(ASK["effects"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, json.dumps(about).encode() + b"\n")
    os.close(descriptor)


def at(place: str) -> None:
    """A place in a program: where it dies, or waits for a word, if that was asked for."""
    if place == ASK.get("die"):
        die()
    if place == ASK.get("hold"):
        hold(place)


def hold(place: str) -> None:
    """Wait for a line; say when a signal was noted."""
    say("at", place)
    noted = False
    os.set_blocking(0, False)
    while True:
        try:
            if os.read(0, 100):
                return
        except BlockingIOError:
            pass
        if signals.seen() is not None and not noted:
            noted = True
            say("noted")
        time.sleep(0.002)


async def ahold(place: str) -> None:
    """The same without keeping the loop."""
    if place == ASK.get("hold"):
        say("at", place)
        noted = False
        os.set_blocking(0, False)
        while True:
            try:
                if os.read(0, 100):
                    return
            except BlockingIOError:
                pass
            if signals.seen() is not None and not noted:
                noted = True
                say("noted")
            await asyncio.sleep(0.002)


def open_store() -> everstep.Store:
    if "later" in ASK:
        ahead = int(ASK["later"] * 1e6)
        now = clock.now_us
        clock.now_us = lambda: now() + ahead  # type: ignore[method-assign]
    options = {name: ASK[name] for name in ("lease_seconds", "enabled") if name in ASK}
    store = everstep.open(ASK["store"], **options)
    if "after_commit" in ASK:
        die_between_commit_and_return(store, ASK["after_commit"])
    if "signal_at_end" in ASK:
        signal_at_the_end(store, ASK["signal_at_end"])
    return store


def signal_at_the_end(store: everstep.Store, number: int) -> None:
    """Be sent a signal when the last commit of a run has been made, and before its block is left."""
    backend: Any = store.backend
    commit = backend.commit

    def commit_and_signal(asked: Any) -> Any:
        found = commit(asked)
        if asked.run.status == "succeeded":
            os.kill(os.getpid(), number)
        return found

    backend.commit = commit_and_signal


def die_between_commit_and_return(store: everstep.Store, address: str) -> None:
    """Let the commit of this step be made, and the program never hear of it."""
    backend: Any = store.backend
    commit, submit = backend.commit, backend.submit

    def holds(asked: Any) -> bool:
        return any(record.kind == "step" and record.note == address for record in asked.records)

    def commit_and_die(asked: Any) -> Any:
        found = commit(asked)
        if holds(asked):
            die()
        return found

    def submit_and_die(asked: Any, done: Any) -> None:
        submit(asked, (lambda error: die()) if holds(asked) else done)

    backend.commit, backend.submit = commit_and_die, submit_and_die


def tell(outcome: Any) -> None:
    """The last line of a program that drove a workflow."""
    error = f"{type(outcome.error).__name__}: {outcome.error}" if outcome.error is not None else None
    about = {"status": outcome.status, "result": outcome.result, "error": error, "reason": outcome.reason}
    say(
        json.dumps({**about, "gates": [g.address for g in outcome.gates], "kept": outcome.report.kept, "executed": outcome.report.executed})
    )


# workflows


@everstep.step
def square(i: int) -> int:
    at(f"before {i}")
    effect(f"square {i}")
    at(f"inside {i}")
    return i * i


@everstep.step(name="square")
async def asquare(i: int) -> int:
    at(f"before {i}")
    effect(f"square {i}")
    await ahold(f"task {i}")
    at(f"inside {i}")
    await asyncio.sleep(0)
    return i * i


@everstep.workflow
def flow(n: int) -> dict[str, Any]:
    total, seen = 0, []
    for i in range(n):
        seen.append(square(i))
        total += seen[-1]
        at(f"after {i}")
    return {"total": total, "seen": seen}


@everstep.workflow
async def aflow(n: int) -> dict[str, Any]:
    total, seen = 0, []
    for i in range(n):
        seen.append(await asquare(i))
        total += seen[-1]
        at(f"after {i}")
        await ahold(f"loop {i}")
    return {"total": total, "seen": seen}


@everstep.workflow
def sleeper(seconds: float) -> int:
    first = square(1)
    everstep.sleep(seconds)
    return first + square(2)


@everstep.workflow
async def asleeper(seconds: float) -> int:
    first = await asquare(1)
    await everstep.sleep(seconds)
    return first + await asquare(2)


class Unlucky(Exception):
    pass


def _fail(upto: int) -> int:
    attempt = everstep.current().step_attempt
    effect(f"try {attempt}")
    at(f"inside {attempt}")
    if attempt < upto:
        raise ValueError(f"attempt {attempt}")
    return attempt


@everstep.workflow
def flaky(upto: int, attempts: int, delay: float) -> int:
    return everstep.current().step("try", _fail, upto, retry=everstep.Retry(attempts, "constant", delay, 86_400, 0))


@everstep.workflow
async def aflaky(upto: int, attempts: int, delay: float) -> int:
    async def fail(upto: int) -> int:
        return _fail(upto)

    return await everstep.current().step("try", fail, upto, retry=everstep.Retry(attempts, "constant", delay, 86_400, 0))


def _pay(amount: int) -> int:
    effect(f"pay {amount}")
    at(f"paying {everstep.current().step_attempt}")
    return amount


pay = everstep.step(at_most_once=True, name="pay")(_pay)


@everstep.step(at_most_once=True, name="pay")
async def apay(amount: int) -> int:
    return _pay(amount)


@everstep.step(at_most_once=True, retry=everstep.Retry(5, "constant", 0.001, jitter=0))
def charge() -> int:
    return _fail(9)


@everstep.workflow
def shop(amount: int) -> Any:
    first = square(1)
    return [first, pay(amount), square(2)]


@everstep.workflow
async def ashop(amount: int) -> Any:
    first = await asquare(1)
    return [first, await apay(amount), await asquare(2)]


@everstep.workflow
def charging() -> int:
    return charge()


@everstep.workflow
def asking() -> Any:
    first = square(1)
    answer = everstep.gate("editor", ask="Publish?", choices=["yes", "no"])
    return [first, answer, square(2)]


@everstep.workflow
def outer(n: int) -> Any:
    first = square(10)
    inner = flow(n)
    return [first, inner["total"], square(11)]


@everstep.workflow
async def aouter(n: int) -> Any:
    first = await asquare(10)
    inner = await aflow(n)
    return [first, inner["total"], await asquare(11)]


def slow(i: int) -> int:
    effect(f"slow {i}")
    while i >= ASK.get("linger_from", i + 1) and signals.seen() is None:
        time.sleep(0.002)
    time.sleep((i * 7919 % 13) / 3000)
    return i * 3


async def aslow(i: int) -> int:
    effect(f"slow {i}")
    while i >= ASK.get("linger_from", i + 1) and signals.seen() is None:
        await asyncio.sleep(0.002)
    await asyncio.sleep((i * 7919 % 13) / 3000)
    return i * 3


@everstep.workflow
def mapped(n: int) -> list[int]:
    return everstep.current().map(slow, range(n), concurrency=8)


@everstep.workflow
async def gathered(n: int) -> list[int]:
    run = everstep.current()
    return await asyncio.gather(*(run.step("slow", aslow, i) for i in range(n)))


def branch(i: int) -> int:
    """Its inner steps are begun by a thread of `map`, when others may have ended."""
    run = everstep.current()
    run.step("first", _leaf, i, 0)
    if i == 0:
        at("branch 0")
    return run.step("second", _leaf, i, 1)


def _leaf(i: int, j: int) -> int:
    effect(f"leaf {i} {j}")
    at(f"leaf {i} {j}")
    return i + j


@everstep.workflow
def branches(n: int) -> list[int]:
    return everstep.current().map(branch, range(n), concurrency=n)


# how a program meets its store


def drive() -> None:
    """Start a workflow, or go on with it: the same call."""
    with open_store() as store:
        if "wait" in ASK:
            hold("start")
        for name in ASK.get("hooks", ()):
            store.on(name, at_hook, timeout=None)
        tell(store.start(workflow._known[ASK["flow"]], *ASK["args"], id=ASK["run"]))
        at("done")


def at_hook(event: Any) -> None:
    at(f"{event.name} {event.data.get('attempt')}")


def resume() -> None:
    with open_store() as store:
        if "wait" in ASK:
            hold("start")
        tell(store.resume(ASK["run"]))


def drive_async() -> None:
    """The same inside a loop that the program runs."""

    async def main() -> None:
        with open_store() as store:
            tell(await store.start(workflow._known[ASK["flow"]], *ASK["args"], id=ASK["run"]))

    asyncio.run(main())


def loop() -> None:
    """A loop of one's own."""
    with open_store() as store:
        if "wait" in ASK:
            hold("start")
        state = {"i": 0, "total": 0, "seen": []}
        with store.run(ASK["run"], state=state, policy=ASK.get("policy"), durability=ASK.get("durability", "sync")) as run:
            while run.state["i"] < ASK["n"]:
                turn(run, run.step("square", square, run.state["i"]))
            result = {"total": run.state["total"], "seen": list(run.state["seen"])}
        say(
            json.dumps({"status": store.get(ASK["run"]).status, "result": result, "kept": run.report.kept, "executed": run.report.executed})
        )


def turn(run: Run, got: int) -> None:
    i = run.state["i"]
    run.state["seen"].append(got)
    at(f"after {i}")
    run.state["total"] += got
    run.state["i"] += 1
    if i in ASK.get("flush", ()):
        run.flush()
        say("flushed", i)
    if ASK.get("saves") and (i + 1) % ASK["saves"] == 0:
        run.checkpoint()
    at(f"turned {i}")


def aloop() -> None:
    async def main() -> None:
        with open_store() as store:
            if "wait" in ASK:
                hold("start")
            async with store.run(ASK["run"], state={"i": 0, "total": 0, "seen": []}, policy=ASK.get("policy")) as run:
                while (i := run.state["i"]) < ASK["n"]:
                    got = await run.step("square", asquare, i)
                    run.state["seen"].append(got)
                    at(f"after {i}")
                    await ahold(f"loop {i}")
                    run.state["total"] += got
                    run.state["i"] += 1
                    if ASK.get("saves") and (i + 1) % ASK["saves"] == 0:
                        await run.checkpoint()
                    at(f"turned {i}")
                result = {"total": run.state["total"], "seen": list(run.state["seen"])}
            found = store.get(ASK["run"]).status
            say(json.dumps({"status": found, "result": result, "kept": run.report.kept, "executed": run.report.executed}))

    asyncio.run(main())


def counting() -> None:
    """A loop without steps, which is sent a signal when one of its checkpoints is made and it has not heard of that yet."""
    with open_store() as store:
        backend: Any = store.backend
        commit = backend.commit

        def commit_and_signal(asked: Any) -> Any:
            found = commit(asked)
            if asked.run.checkpoints == ASK.get("signal_after_save"):
                del ASK["signal_after_save"]
                signal.raise_signal(ASK["number"])
            return found

        backend.commit = commit_and_signal
        with store.run(ASK["run"], state={"n": 0}) as run:
            say("from", run.state["n"])
            while run.state["n"] < ASK["n"]:
                run.state["n"] += 1
                run.checkpoint()


def sleeping_loop() -> None:
    with open_store() as store, store.run(ASK["run"]) as run:
        first = run.step("square", square, 1)
        run.sleep(ASK["seconds"])
        say(json.dumps({"result": first + run.step("square", square, 2), "status": "succeeded"}))


def sleeping_aloop() -> None:
    async def main() -> None:
        with open_store() as store:
            async with store.run(ASK["run"]) as run:
                first = await run.step("square", asquare, 1)
                await run.sleep(ASK["seconds"])
                say(json.dumps({"result": first + await run.step("square", asquare, 2), "status": "succeeded"}))

    asyncio.run(main())


def asking_loop() -> None:
    with open_store() as store:
        try:
            with store.run(ASK["run"]) as run:
                first = run.step("square", square, 1)
                answer = run.gate("editor", ask="Publish?")
                result = [first, answer, run.step("square", square, 2)]
            say(json.dumps({"status": "succeeded", "result": result}))
        except Waiting as waiting:
            say(json.dumps({"status": "waiting", "reason": waiting.what}))


def threaded() -> None:
    """An async run whose step is a plain function: it runs in a thread."""

    async def main() -> None:
        with open_store() as store:
            async with store.run(ASK["run"]) as run:
                result = [await run.step("square", square, i) for i in range(ASK["n"])]
                say(json.dumps({"status": "succeeded", "result": result}))

    asyncio.run(main())


def order() -> None:
    """What an operator does from another process."""
    with open_store() as store:
        getattr(store, ASK["do"])(*ASK["with"])
    say("done")


def own_handler() -> None:
    """A program with a handler of its own for SIGTERM, and one for SIGINT that it sets while the run is open."""
    heard: list[int] = []

    def handler(number: int, stack: Any) -> None:
        heard.append(number)
        say("heard", number)

    signal.signal(signal.SIGTERM, handler)
    with open_store() as store, store.run(ASK["run"]) as run:
        signal.signal(signal.SIGINT, handler)
        run.step("square", square, 1)
        run.step("square", square, 2)
    kept = signal.getsignal(signal.SIGTERM) is handler and signal.getsignal(signal.SIGINT) is handler
    say(json.dumps({"heard": heard, "kept": kept}))


def handlers() -> None:
    """Which handlers there are before, inside and after runs of every sort."""

    def now() -> list[str]:
        return [getattr(h, "__qualname__", str(h)) for h in map(signal.getsignal, (signal.SIGINT, signal.SIGTERM))]

    async def asynchronous(store: everstep.Store) -> None:
        before = now_kinds()
        async with store.run("b") as run:
            inside.append(now())
            await run.step("square", asquare, 1)
        afters.append(now_kinds() == before)
        await store.start(aflow, 1, id="c")
        afters.append(now_kinds() == before)

    def now_kinds() -> list[Any]:
        return [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]

    inside: list[list[str]] = []
    afters: list[bool] = []
    before = now_kinds()
    with open_store() as store:
        with store.run("a") as run:
            inside.append(now())
            run.step("square", square, 1)
        afters.append(now_kinds() == before)
        store.start(flow, 2, id="d")
        afters.append(now_kinds() == before)
        try:
            with store.run("e") as run:
                raise Unlucky
        except Unlucky:
            afters.append(now_kinds() == before)
        asyncio.run(asynchronous(store))
        afters.append(now_kinds() == before)
        store.start(aflow, 1, id="f")
        afters.append(now_kinds() == before)
    say(json.dumps({"inside": inside, "afters": afters}))


def forking() -> None:
    """Fork with an open run; the child tries to use it in every way, then leaves its block as Python does."""
    with open_store() as store, store.run(ASK["run"]) as run:
        run.step("square", square, 0)
        if ASK["by"] == "fork":
            pid = os.fork()
            if pid == 0:
                _in_child(store, run)
                return  # leaves both blocks, in the child
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        else:
            import multiprocessing

            process = multiprocessing.get_context("fork").Process(target=_in_child, args=(store, run))
            process.start()
            process.join(30)
            code = process.exitcode
        say("child", code)
        run.step("square", square, 1)
        run.checkpoint()
    say("parent done")


def _in_child(store: everstep.Store, run: Run) -> None:
    uses = {
        "step": lambda: run.step("square", square, 5),
        "decorated": lambda: square(6),
        "checkpoint": run.checkpoint,
        "start": lambda: store.start(flow, 1, id="other"),
        "sleep": lambda: run.sleep(0.01),
        "gate": lambda: run.gate("g", condition=True),
        "map": lambda: run.map(square, [7, 8]),
    }
    for name, use in uses.items():
        try:
            use()
            say(name, "worked")
        except EverstepError as error:
            say(name, type(error).__name__)


def serve(channel: socket.socket) -> bool:
    """Fork a child for each request. True in a child, whose program is then to be run; False when the tests have gone."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, 1 << 16, 3)
        if not data:
            return False
        asked = json.loads(data)
        if "reap" in asked:
            pid, status = os.waitpid(asked["reap"], os.WNOHANG)
            channel.send(json.dumps(os.waitstatus_to_exitcode(status) if pid else None).encode())
            continue
        pid = os.fork()
        if pid == 0:
            channel.close()
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            ASK.update(asked)
            return True
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(json.dumps(pid).encode())


def run_program() -> None:
    """Run what was asked for; if so asked, say what it was refused with instead of failing."""
    try:
        globals()[ASK["program"]]()
    except EverstepError as error:
        if not ASK.get("tell_errors"):
            raise
        say(type(error).__name__)
    except Suspended as stop:
        if not ASK.get("catch"):
            raise
        with open_store() as store:
            say(json.dumps({"status": store.get(ASK["run"]).status, "reason": getattr(stop, "reason", None)}))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may have had it ignored
if __name__ == "__main__" and serve(socket.socket(fileno=int(sys.argv[1]))):
    run_program()
