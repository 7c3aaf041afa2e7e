"""Random small programs, an interpreter that runs them on Everstep, and a model that says what sequential ones must call.

A program is a tree. Its steps have names of their own, so a name in the journal or in a list of calls means one place in the program.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from situations import Down, World

import everstep

FOREVER = 30.0


class Oops(Exception):
    """An error that a program makes of another one."""


class Node(NamedTuple):
    kind: str
    name: str = ""
    parts: tuple["Node", ...] = ()
    handler: tuple["Node", ...] = ()
    final: tuple["Node", ...] = ()
    then: str = ""  # of a handler: "raise", "new" or "swallow"
    number: int = 0  # of a step: how many attempts fail; of a wait: milliseconds


class Maker:
    """Makes programs of a seed."""

    def __init__(self, seed: int, concurrent: bool):
        self._dice = random.Random(seed)
        self._coin = random.Random(f"child {seed}")
        self._names = 0
        self._left = self._dice.randint(4, 9)
        self._concurrent = concurrent

    def program(self) -> Node:
        return self._seq(0)

    def _name(self, message: str) -> str:
        self._names += 1
        return f"{message}{self._names}"

    def _seq(self, depth: int) -> Node:
        return Node("seq", parts=tuple(self._node(depth) for _ in range(self._dice.randint(1, 3 if depth else 4))))

    def _step(self, fails: bool = True) -> Node:
        self._left -= 1
        number = self._dice.choice((0, 0, 1, 1, 2)) if fails else 0
        return Node("step", self._name("s"), number=number)

    def _node(self, depth: int) -> Node:
        kinds = ["step"] * 4 + ["gate", "timer", "map"]
        if depth < 3 and self._left > 0:
            kinds += ["try"] * 5 + ["child"] * 2
            if self._concurrent:
                kinds += ["gather", "settle", "group", "race", "completed", "timeout", "cancel"] * 2
        kind = self._dice.choice(kinds)
        return getattr(self, f"_{kind}")(depth) if hasattr(self, f"_{kind}") and kind != "step" else self._step()

    def _gate(self, depth: int) -> Node:
        return Node("gate", self._name("g"))

    def _timer(self, depth: int) -> Node:
        return Node("timer", number=2)

    def _map(self, depth: int) -> Node:
        return Node("map", self._name("m"), parts=(self._step(), self._step()))

    def _try(self, depth: int) -> Node:
        some = lambda: tuple(self._step() for _ in range(self._dice.randint(0, 2)))  # noqa: E731
        handler, final, then = some(), some() if self._dice.random() < 0.4 else (), self._dice.choice(("raise", "raise", "new", "swallow"))
        return Node("try", parts=(self._seq(depth + 1),), handler=handler, final=final, then=then)

    def _child(self, depth: int) -> Node:
        return Node("child", self._name("c"), parts=(self._seq(depth + 1),))

    def _many(self, kind: str, depth: int) -> Node:
        return Node(kind, self._name("p"), parts=tuple(self._seq(depth + 1) for _ in range(self._dice.randint(2, 3))))

    def _gather(self, depth: int) -> Node:
        return self._many("gather", depth)

    def _settle(self, depth: int) -> Node:
        return self._many("settle", depth)

    def _group(self, depth: int) -> Node:
        return self._many("group", depth)

    def _race(self, depth: int) -> Node:
        quick = [
            Node("step", self._name("s"), handler=(Node("ms", number=self._dice.randint(0, 6)),)) for _ in range(self._dice.randint(1, 3))
        ]
        slow = [self._slow(30_000) for _ in range(self._dice.randint(0, 2))]
        both = [*quick, *slow]
        self._dice.shuffle(both)
        self._left -= 2
        return Node("race", self._name("r"), parts=tuple(both))

    def _completed(self, depth: int) -> Node:
        parts = [
            Node("step", self._name("s"), handler=(Node("ms", number=self._dice.randint(0, 6)),)) for _ in range(self._dice.randint(2, 4))
        ]
        self._left -= 2
        return Node("completed", self._name("a"), parts=tuple(parts))

    def _timeout(self, depth: int) -> Node:
        return Node("timeout", parts=(self._slow(30_000),), number=self._dice.choice((1, 20)))

    def _cancel(self, depth: int) -> Node:
        slow = self._slow(self._dice.choice((0, 3, 30_000)))
        return Node("cancel", parts=(slow, self._step(fails=False)))

    def _slow(self, milliseconds: int) -> Node:
        """A step that the program is to cancel; at times in a child, which waits at a gate after it."""
        step = Node("step", self._name("s"), handler=(Node("ms", number=milliseconds),))
        if self._coin.random() < 0.5:
            return step
        first = (step, Node("gate", f"g-{step.name}")) if self._coin.random() < 0.5 else (Node("gate", f"g-{step.name}"), step)
        return Node("child", f"c-{step.name}", parts=(Node("seq", parts=first),))


def nodes(node: Node) -> Iterator[Node]:
    yield node
    for part in (*node.parts, *node.handler, *node.final):
        yield from nodes(part)


def steps_in(*given: Node) -> set[str]:
    return {one.name for node in given for one in nodes(node) if one.kind == "step"}


def broken_in(program: Node) -> dict[str, int]:
    return {one.name: one.number for one in nodes(program) if one.kind == "step"}


def milliseconds(node: Node) -> int:
    return node.handler[0].number if node.handler else 0


def is_concurrent(program: Node) -> bool:
    return any(one.kind in ("gather", "settle", "group", "race", "completed", "timeout", "cancel") for one in nodes(program))


def run_program(node: Node, env: Any) -> Any:
    """Run a program that is not async. `env` makes steps, waits and children: those of Everstep, or those of the model."""
    match node.kind:
        case "seq":
            return [run_program(part, env) for part in node.parts]
        case "try":
            try:
                return run_program(node.parts[0], env)
            except Exception:
                for part in node.handler:
                    run_program(part, env)
                if node.then == "raise":
                    raise
                if node.then == "new":
                    raise Oops from None
                return "handled"
            finally:
                if not env.waits:
                    for part in node.final:
                        run_program(part, env)
        case "map":
            return env.map([part.name for part in node.parts])
        case _:
            return getattr(env, node.kind)(node)


class Env:
    """What a program without async does on Everstep. `seen` is what it saw of its steps, in this order."""

    def __init__(self, world: World, seen: list[tuple[str, str]]):
        self.world = world
        self.seen = seen
        self.waits = False  # it is for Everstep to refuse the steps of a `finally` while the run is suspended

    def step(self, node: Node) -> str:
        return self._noted(node.name, lambda: everstep.current().step(node.name, self.world.do, node.name))

    def _noted(self, name: str, call: Any) -> Any:
        try:
            result = call()
        except Exception:
            self.seen.append((name, "failed"))
            raise
        self.seen.append((name, "succeeded"))
        return result

    def map(self, names: list[str]) -> Any:
        steps = [everstep.step(self.world.do, name=name) for name in names]
        return [self._noted(name, lambda one=one, name=name: one(name)) for one, name in zip(steps, names, strict=True)]

    def gate(self, node: Node) -> Any:
        return everstep.gate(node.name)

    def timer(self, node: Node) -> None:
        everstep.sleep(node.number / 1000)

    def child(self, node: Node) -> Any:
        def body() -> Any:
            return run_program(node.parts[0], self)

        return everstep.workflow(body, name=f"random {node.name}")()


async def arun_program(node: Node, env: "AsyncEnv") -> Any:
    """The same for async programs."""
    match node.kind:
        case "seq":
            return [await arun_program(part, env) for part in node.parts]
        case "try":
            try:
                return await arun_program(node.parts[0], env)
            except Exception:
                for part in node.handler:
                    await arun_program(part, env)
                if node.then == "raise":
                    raise
                if node.then == "new":
                    raise Oops from None
                return "handled"
            finally:
                for part in node.final:
                    await arun_program(part, env)
        case "gather" | "settle" | "group" | "race" | "completed" | "timeout" | "cancel":
            return await getattr(env, node.kind)(node)
        case _:
            return await getattr(env, node.kind)(node)


class AsyncEnv:
    """What an async program does on Everstep."""

    def __init__(self, world: World, seen: list[tuple[str, str]]):
        self.world = world
        self.seen = seen

    async def step(self, node: Node) -> str:
        return await self._noted(node.name, everstep.current().step(node.name, self.world.ado, node.name, 1, milliseconds(node) / 1000))

    async def _noted(self, name: str, step: Any) -> Any:
        try:
            result = await step
        except asyncio.CancelledError:
            self.seen.append((name, "cancelled"))
            raise
        except Exception:
            self.seen.append((name, "failed"))
            raise
        self.seen.append((name, "succeeded"))
        return result

    async def map(self, node: Node) -> Any:
        return [await self.step(part) for part in node.parts]

    async def gate(self, node: Node) -> Any:
        return await everstep.gate(node.name)

    async def timer(self, node: Node) -> None:
        await everstep.sleep(node.number / 1000)

    async def child(self, node: Node) -> Any:
        async def body() -> Any:
            return await arun_program(node.parts[0], self)

        return await everstep.workflow(body, name=f"random {node.name}")()

    def _tasks(self, node: Node) -> list[asyncio.Task[Any]]:
        return [asyncio.create_task(arun_program(part, self)) for part in node.parts]

    async def gather(self, node: Node) -> Any:
        return await asyncio.gather(*(arun_program(part, self) for part in node.parts))

    async def settle(self, node: Node) -> Any:
        found = await asyncio.gather(*(arun_program(part, self) for part in node.parts), return_exceptions=True)
        return ["failed" if isinstance(one, Exception) else one for one in found]

    async def group(self, node: Node) -> Any:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(arun_program(part, self)) for part in node.parts]
        return [task.result() for task in tasks]

    async def race(self, node: Node) -> Any:
        tasks = self._tasks(node)
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        winners = sorted(task.result() for task in done)
        await everstep.current().step(f"{node.name}-won", self.world.ado, f"{node.name}-won-{'-'.join(winners)}")
        return "raced"

    async def completed(self, node: Node) -> Any:
        for n, one in enumerate(asyncio.as_completed(self._tasks(node))):
            name = await one
            await everstep.current().step(f"{node.name}-{n}", self.world.ado, f"{node.name}-{n}-{name}")
        return "all"

    async def timeout(self, node: Node) -> Any:
        try:
            async with asyncio.timeout(node.number / 1000):
                return await arun_program(node.parts[0], self)
        except TimeoutError:
            return "late"

    async def cancel(self, node: Node) -> Any:
        task = asyncio.create_task(arun_program(node.parts[0], self))
        await self.step(node.parts[1])
        task.cancel()
        await asyncio.wait([task])
        return "cancelled"


class Waits(BaseException):
    """The model of a program that waits for an answer."""


class Model:
    """What Everstep does with a sequential program, said in the plainest way: which steps are called, and how the run ends."""

    def __init__(self, broken: dict[str, int], calls: Counter[str] | None = None):
        self.calls: Counter[str] = Counter() if calls is None else calls
        self._broken = broken
        self._tries: Counter[str] = Counter()
        self._ends: dict[str, tuple[bool, Any]] = {}
        self._children: dict[str, Model] = {}
        self._answered: set[str] = set()
        self._asks = 0
        self.waits = False
        self._failed: dict[str, int] = {}
        self.outcome: tuple[str, Any] = ("running", None)

    def attempt(self, program: Node) -> tuple[str, Any]:
        """Run the program once from its beginning."""
        if self.outcome[0] == "succeeded":
            return self.outcome
        self._asks, self._failed, self.waits = 0, {}, False
        try:
            self.outcome = "succeeded", run_program(program, self)
        except Waits:
            self.outcome = "waiting", None
        except Exception as error:
            self.outcome = "failed", error
            for name, at in self._failed.items():
                if at == self._asks:  # nothing was asked for after it
                    del self._ends[name]
        return self.outcome

    def drive(self, program: Node) -> tuple[str, Any]:
        quiet = 0
        while True:
            before = self.calls.total()
            status, result = self.attempt(program)
            quiet = quiet + 1 if status == "failed" and before == self.calls.total() else 0
            if status == "succeeded" or quiet > 1:
                return status, result

    def _end(self, name: str, make: Any) -> Any:
        self._asks += 1
        at = self._asks
        if name not in self._ends:
            try:
                self._ends[name] = True, make()
            except Exception as error:
                self._ends[name] = False, error
        good, value = self._ends[name]
        if good:
            return value
        self._failed[name] = at
        raise value

    def _call(self, name: str) -> str:
        self.calls[name] += 1
        self._tries[name] += 1
        if self._tries[name] <= self._broken[name]:
            raise Down(name)
        return name

    def step(self, node: Node) -> Any:
        return self._end(node.name, lambda: self._call(node.name))

    def map(self, names: list[str]) -> Any:
        return [self._end(name, lambda name=name: self._call(name)) for name in names]

    def gate(self, node: Node) -> str:
        self._asks += 1
        if node.name not in self._answered:
            self._answered.add(node.name)  # by the next attempt
            self.waits = True
            raise Waits
        return f"yes to {node.name}"

    def timer(self, node: Node) -> None:
        self._asks += 1

    def child(self, node: Node) -> Any:
        def make() -> Any:
            child = self._children.setdefault(node.name, Model(self._broken, self.calls))
            status, result = child.attempt(node.parts[0])
            if status == "waiting":
                self.waits = True
                raise Waits
            if status == "failed":
                raise result
            return result

        return self._end(node.name, make)
