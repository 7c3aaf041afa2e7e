"""What a transactional step does when nobody dies: errors, retries, replay, children, tasks, and what makes no sense."""

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from transactional_helpers import World

import everstep
from everstep.backends.contract.transactions import refuse_ends
from everstep.errors import InvalidArgument, StepTimeout, TransactionEnded, Unstorable


def adding(world: World, **options: Any) -> Any:
    """A step that adds to the total."""

    @everstep.step(transactional=world.place, **options)
    def add(sql: Any, amount: int) -> int:
        sql.execute(f"UPDATE totals SET n = n + {amount}")
        return amount

    return add


def test_a_step_gets_a_connection_and_its_statements_hold_with_its_record(world: World) -> None:
    add, store = adding(world), world.open()
    with store.run("r") as run:
        assert add(3) == 3
        assert run.step("other", add, 4) == 4
        assert run.map(add, [1, 2, 3]) == [1, 2, 3]
    assert world.total() == 13
    assert [step.address for step in store.steps("r")][:2] == ["add#0", "other#0"]
    assert store.steps("r")[0].input == "(3)"
    store.close()
    assert world.rows() == 0
    world.verify()


def test_an_error_undoes_the_statements_and_leaves_a_failed_step(world: World) -> None:
    store = world.open()

    @everstep.step(transactional=world.place)
    def fail(sql: Any) -> None:
        sql.execute("UPDATE totals SET n = 99")
        raise ValueError("no")

    with store.run("r"), pytest.raises(ValueError, match="no"):
        fail()
    assert world.total() == 0
    assert [step.status for step in store.steps("r")] == ["failed"]


def test_an_error_of_the_database_is_the_error_of_the_step(world: World) -> None:
    store = world.open()

    @everstep.step(transactional=world.place)
    def fail(sql: Any) -> None:
        sql.execute("UPDATE totals SET n = 99")
        sql.execute("UPDATE nothing SET n = 99")

    with store.run("r"), pytest.raises(Exception, match="nothing"):
        fail()
    assert world.total() == 0
    assert [step.status for step in store.steps("r")] == ["failed"]


def test_an_error_of_the_database_that_the_function_hides_commits_nothing_in_postgres_and_the_rest_in_a_file(world: World) -> None:
    store = world.open()

    @everstep.step(transactional=world.place)
    def hide(sql: Any) -> None:
        sql.execute("UPDATE totals SET n = 99")
        try:
            sql.execute("UPDATE nothing SET n = 99")
        except Exception:
            return

    if "app.db" in world.tables:
        with store.run("r"):
            hide()
        assert world.total() == 99
        return
    with store.run("r"), pytest.raises(Exception, match="aborted"):
        hide()
    assert world.total() == 0
    assert [step.status for step in store.steps("r")] == ["failed"]


@pytest.mark.parametrize("world", ["postgres", "postgres beside sqlite"], indirect=True)
def test_a_constraint_that_is_checked_at_the_end_fails_the_step(world: World) -> None:
    store = world.open()
    world.execute("CREATE TABLE parents (id INTEGER PRIMARY KEY)")
    world.execute("CREATE TABLE children (id INTEGER REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)")

    @everstep.step(transactional=world.place, retry=everstep.Retry(attempts=2, delay=0.01))
    def orphan(sql: Any) -> None:
        sql.execute("UPDATE totals SET n = n + 1")
        sql.execute("INSERT INTO children VALUES (7)")

    with store.run("r") as run, pytest.raises(Exception, match="foreign key"):
        orphan()
    assert world.total() == 0
    assert [step.status for step in store.steps("r")] == ["failed", "failed"]
    with store.run("r2") as run:  # a commit that was undone leaves the run in order
        run.state["x"] = 1
        run.checkpoint()
        assert adding(world)(2) == 2
    assert world.total() == 2
    world.verify()


def test_a_retry_begins_with_nothing_of_the_last_attempt(world: World) -> None:
    store, tries = world.open(), []

    @everstep.step(transactional=world.place, retry=everstep.Retry(attempts=3, delay=0.01))
    def fragile(sql: Any) -> int:
        sql.execute("UPDATE totals SET n = n + 1")
        tries.append(sql.execute("SELECT n FROM totals").fetchone()[0])
        if len(tries) < 3:
            raise ConnectionError("again")
        return len(tries)

    with store.run("r"):
        assert fragile() == 3
    assert tries == [1, 1, 1]
    assert world.total() == 1
    assert [step.status for step in store.steps("r")] == ["failed", "failed", "succeeded"]


def test_a_recorded_step_needs_no_database(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from everstep.transactions import step as transactional

    add = adding(world)

    @everstep.workflow
    def flow() -> Any:
        found = add(2)
        return [found, everstep.gate("go on")]

    store = world.open()
    assert store.start(flow, id="r").status == "waiting"
    monkeypatch.setattr(transactional, "open_work", None)
    store.answer("r", "go on", "yes")
    assert store.resume("r").result == [2, "yes"]
    assert store.resume("r").result == [2, "yes"]
    assert world.total() == 2


def test_validation_writes_nothing_and_takes_such_steps_from_the_journal(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from everstep.transactions import step as transactional

    add = adding(world)

    @everstep.workflow
    def flow() -> int:
        return int(add(2)) + int(everstep.current().step("plain", int, 1))

    store = world.open()
    assert store.start(flow, id="r").result == 3
    monkeypatch.setattr(transactional, "open_work", None)
    outcome = store.resume("r", replay="validate")
    assert outcome.report.differences == []
    assert world.total() == 2


def test_a_key_stands_for_the_step(world: World) -> None:
    add, store = adding(world), world.open()
    with store.run("r") as run:
        assert [run.step("add", add, 5, key="k") for _ in range(3)] == [5, 5, 5]
        assert run.map(everstep.step(transactional=world.place, key="m")(add.__wrapped__), [7, 7, 7]) == [7, 7, 7]
    assert world.total() == 12


def test_a_child_workflow_has_transactional_steps_of_its_own(world: World) -> None:
    add, store = adding(world), world.open()

    @everstep.workflow
    def child(amount: int) -> int:
        return int(add(amount)) + int(add(amount))

    @everstep.workflow
    def parent() -> int:
        return int(child(1)) + int(child(2))

    assert store.start(parent, id="p").result == 6
    assert world.total() == 6


def test_ignored_parameters_are_those_that_the_caller_gives(world: World) -> None:
    store = world.open()

    @everstep.step(transactional=world.place, ignore=("client",))
    def add(sql: Any, client: Any, amount: int) -> int:
        sql.execute(f"UPDATE totals SET n = n + {client(amount)}")
        return amount

    with store.run("r"):
        assert add(lambda amount: amount * 10, 2) == 2
    assert world.total() == 20


def test_a_masked_store_masks_what_the_caller_gives_by_the_names_of_the_parameters(world: World) -> None:
    from everstep.redact import Redactor

    store = world.open(redaction=Redactor.default())

    @everstep.step(transactional=world.place)
    def add(sql: Any, password: str, amount: int) -> int:
        sql.execute(f"UPDATE totals SET n = n + {amount}")
        return amount

    with store.run("r"):
        assert add("hunter2", 2) == 2
    shown = store.steps("r")[0].input
    assert "hunter2" not in shown
    assert "2)" in shown


def test_a_big_result_comes_back_whole(world: World) -> None:
    store = world.open()

    @everstep.step(transactional=world.place)
    def big(sql: Any) -> list[str]:
        sql.execute("UPDATE totals SET n = n + 1")
        return [f"line {i}" for i in range(20_000)]

    @everstep.workflow
    def flow() -> int:
        return len(big()) + len(big())

    assert store.start(flow, id="r").result == 40_000
    assert store.resume("r").result == 40_000
    assert len(store.steps("r")[0].result) == 20_000
    assert world.total() == 2
    world.verify()


def test_a_result_that_cannot_be_stored_undoes_the_statements(world: World) -> None:
    store = world.open()

    @everstep.step(transactional=world.place)
    def odd(sql: Any) -> Any:
        sql.execute("UPDATE totals SET n = n + 1")
        return threading.Lock()

    with store.run("r"), pytest.raises(Unstorable):
        odd()
    assert world.total() == 0
    assert [step.status for step in store.steps("r")] == ["failed"]
    with store.run("r2"):
        assert adding(world)(3) == 3
    assert world.total() == 3


@pytest.mark.parametrize("durability", ["async", "exit"])
def test_it_is_recorded_after_all_that_waits_to_be_recorded(world: World, durability: Any) -> None:
    add, store = adding(world), world.open()
    with store.run("r", durability=durability) as run:
        for i in range(5):
            run.step("plain", int, i)
            assert add(i) == i
    assert world.total() == 10
    assert [step.name for step in store.steps("r")] == ["plain", "add"] * 5
    store.close()
    assert world.rows() == 0
    world.verify()


def test_plain_and_transactional_steps_of_one_run_at_the_same_time_make_one_history(world: World) -> None:
    add, store = adding(world), world.open()

    @everstep.step
    def plain(number: int) -> int:
        return number

    with store.run("r") as run:

        def work(number: int) -> int:
            return int((add if number % 2 else plain)(number))

        assert run.map(work, range(30), concurrency=6) == list(range(30))
    assert world.total() == sum(range(1, 30, 2))
    world.verify()


def test_many_runs_at_the_same_time_lose_nothing(world: World) -> None:
    add, store = adding(world), world.open()

    @everstep.workflow
    def flow() -> int:
        return sum(add(1) for _ in range(5))

    threads = [threading.Thread(target=store.start, args=(flow,), kwargs={"id": f"r{i}"}) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert world.total() == 60
    assert {info.status for info in store.runs()} == {"succeeded"}
    world.verify()


def test_async_runs_have_plain_and_async_steps_beside_each_other(world: World) -> None:
    add, store = adding(world), world.open(policy="every 2 steps")

    @everstep.step(transactional=world.place)
    async def later(sql: Any, amount: int) -> int:
        sql.execute(f"INSERT INTO lines VALUES ({amount})")
        await asyncio.sleep(0)
        return amount

    @everstep.step
    async def plain(amount: int) -> int:
        return amount

    async def drive(name: str) -> list[int]:
        async with store.run(name) as run:
            many = [*(later(i) for i in range(10)), *(run.step("add", add, 1) for _ in range(10)), *(plain(i) for i in range(10))]
            return list(await asyncio.gather(*many))

    async def main() -> list[list[int]]:
        return await asyncio.gather(*(drive(f"r{i}") for i in range(4)))

    found = asyncio.run(main())
    assert found == [[*range(10), *[1] * 10, *range(10)]] * 4
    assert world.total() == 40
    assert len(world.lines()) == 40
    assert all(info.checkpoints > 5 for info in store.runs())
    world.verify()


def test_a_task_that_is_cancelled_inside_undoes_its_statements(world: World) -> None:
    store = world.open()

    @everstep.step(transactional=world.place)
    async def slow(sql: Any) -> None:
        sql.execute("UPDATE totals SET n = n + 1")
        await asyncio.sleep(60)

    async def main() -> None:
        async with store.run("r"):
            task = asyncio.ensure_future(slow())
            while not store.backend.run("r") or not task.get_coro() or not await asyncio.sleep(0.05, True):
                pass
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await adding_async(world)(5) == 5

    asyncio.run(main())
    assert world.total() == 5


def adding_async(world: World) -> Any:
    @everstep.step(transactional=world.place)
    async def add(sql: Any, amount: int) -> int:
        sql.execute(f"UPDATE totals SET n = n + {amount}")
        return amount

    return add


def test_a_step_that_takes_too_long_is_undone_and_its_thread_can_write_no_more(world: World) -> None:
    store, resume, said = world.open(), threading.Event(), []

    @everstep.step(transactional=world.place, timeout=0.2)
    def slow(sql: Any) -> None:
        sql.execute("UPDATE totals SET n = n + 1")
        resume.wait(60)
        try:
            sql.execute("UPDATE totals SET n = n + 1")
        except Exception as error:
            said.append(error)
        said.append(None)

    with store.run("r"):
        with pytest.raises(StepTimeout):
            slow()
        assert adding(world)(5) == 5  # nothing is locked any more
        resume.set()
        while None not in said:
            resume.wait(0.01)
        assert len(said) == 2
    assert world.total() == 5


def test_a_step_of_an_async_run_that_takes_too_long_is_undone(world: World) -> None:
    store, resume, said = world.open(), threading.Event(), []

    @everstep.step(transactional=world.place, timeout=0.2)
    async def slow(sql: Any) -> None:
        sql.execute("UPDATE totals SET n = n + 1")
        await asyncio.sleep(60)

    @everstep.step(transactional=world.place, timeout=0.2)
    def slow_thread(sql: Any) -> None:
        sql.execute("UPDATE totals SET n = n + 1")
        resume.wait(60)
        try:
            sql.execute("UPDATE totals SET n = n + 1")
        except Exception as error:
            said.append(error)
        said.append(None)

    async def main() -> None:
        async with store.run("r") as run:
            with pytest.raises(StepTimeout):
                await slow()
            with pytest.raises(StepTimeout):
                await run.step("slow", slow_thread)
            assert await adding_async(world)(5) == 5  # nothing is locked any more
            resume.set()
            while None not in said:
                await asyncio.sleep(0.01)

    asyncio.run(main())
    assert len(said) == 2
    assert world.total() == 5


def test_a_step_that_takes_too_long_in_one_statement_is_stopped_in_it(world: World) -> None:
    store, done = world.open(), []
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c WHERE x < 0"

    @everstep.step(transactional=world.place, timeout=0.3)
    def slow(sql: Any) -> None:
        sql.execute("UPDATE totals SET n = n + 1")
        try:
            sql.execute(endless).fetchone()
        finally:
            done.append(True)

    with store.run("r"):
        with pytest.raises(StepTimeout):
            slow()
        assert adding(world)(5) == 5
    while not done:
        threading.Event().wait(0.01)
    assert world.total() == 5


ENDINGS = {
    "commit": lambda sql: sql.commit(),
    "rollback": lambda sql: sql.rollback(),
    "close": lambda sql: sql.close(),
    "with": lambda sql: sql.__enter__(),
    "COMMIT": lambda sql: sql.execute("COMMIT"),
    "end in a comment": lambda sql: sql.execute("/* a */ -- b\n  end"),
    "cursor": lambda sql: sql.cursor().execute("rollback"),
    "many": lambda sql: sql.cursor().executemany("commit", [()]),
    "BEGIN": lambda sql: sql.execute("BEGIN"),
    "script or autocommit": lambda sql: sql.executescript("SELECT 1") if isinstance(sql, sqlite3.Connection) else sql.set_autocommit(True),
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_function_that_ends_its_transaction_is_refused(world: World, ending: Any) -> None:
    store = world.open()

    @everstep.step(transactional=world.place)
    def impatient(sql: Any) -> None:
        sql.execute("UPDATE totals SET n = n + 1")
        ending(sql)

    with store.run("r"), pytest.raises(TransactionEnded) as refused:
        impatient()
    assert refused.value.code == "E609"
    assert world.total() == 0
    with store.run("r2"):
        assert adding(world)(1) == 1
    assert world.total() == 1


def test_a_setting_of_sqlite3_that_commits_is_refused(tmp_path: Path) -> None:
    """`isolation_level = None` commits first, before Python 3.12."""
    tables = tmp_path / "t.db"
    with sqlite3.connect(tables) as made:
        made.execute("CREATE TABLE totals (n INTEGER)")
    made.close()

    @everstep.step(transactional=tables)
    def switching(sql: sqlite3.Connection) -> None:
        sql.execute("INSERT INTO totals VALUES (1)")
        sql.isolation_level = None
        raise ValueError("where the setting commits nothing, undo the insert by an error")

    with everstep.open(tmp_path / "s.db") as store, store.run("r"), pytest.raises((sqlite3.DatabaseError, ValueError)):
        switching()
    made = sqlite3.connect(tables)
    assert made.execute("SELECT count(*) FROM totals").fetchone() == (0,)
    made.close()


def test_savepoints_are_the_functions_own(world: World) -> None:
    store = world.open()

    @everstep.step(transactional=world.place)
    def careful(sql: Any) -> None:
        sql.execute("SAVEPOINT a")
        sql.execute("UPDATE totals SET n = 99")
        sql.execute("ROLLBACK TO SAVEPOINT a")
        sql.execute("UPDATE totals SET n = n + 1")
        sql.execute("RELEASE SAVEPOINT a")

    with store.run("r"):
        careful()
    assert world.total() == 1


def test_a_connection_that_is_kept_is_of_no_use_after_the_step(world: World) -> None:
    store, kept = world.open(), []

    @everstep.step(transactional=world.place)
    def leak(sql: Any) -> None:
        kept.append(sql)

    with store.run("r"):
        leak()
        with pytest.raises(TransactionEnded):
            kept[0].execute("UPDATE totals SET n = 99")
    assert world.total() == 0


def test_a_transactional_step_inside_another_is_refused(world: World) -> None:
    add, store = adding(world), world.open()

    @everstep.workflow
    def child() -> int:
        return int(add(1))

    @everstep.step(transactional=world.place)
    def outer(sql: Any, how: str) -> Any:
        sql.execute("UPDATE totals SET n = n + 100")
        return child() if how == "child" else add(1)

    for how in ("step", "child"):
        with store.run(how), pytest.raises(InvalidArgument, match="inside transactional step outer#0"):
            outer(how)
    assert world.total() == 0


def test_a_plain_step_inside_is_recorded_by_itself(world: World) -> None:
    store, calls = world.open(), []

    @everstep.step
    def ask(question: str) -> str:
        calls.append(question)
        return question.upper()

    @everstep.step(transactional=world.place, retry=everstep.Retry(attempts=2, delay=0.01))
    def outer(sql: Any) -> str:
        sql.execute("UPDATE totals SET n = n + 1")
        found = ask("why")
        if len(calls) == 1:
            calls.append("again")
            raise ConnectionError("again")
        return str(found)

    with store.run("r"):
        assert outer() == "WHY"
    assert calls == ["why", "again"]
    assert world.total() == 1
    world.verify()


def test_a_gate_inside_undoes_what_came_before_it(world: World) -> None:
    store = world.open()

    @everstep.step(transactional=world.place)
    def ask(sql: Any) -> Any:
        sql.execute("UPDATE totals SET n = n + 1")
        return everstep.gate("boss")

    @everstep.workflow
    def flow() -> Any:
        return ask()

    assert store.start(flow, id="r").status == "waiting"
    assert world.total() == 0
    gate = store.gates("r")[0].address
    store.answer("r", gate, "yes")
    assert store.resume("r").result == "yes"
    assert world.total() == 1


def test_outside_of_a_run_the_caller_gives_the_connection(world: World) -> None:
    seen: list[str] = []

    class Sql:
        def execute(self, statement: str) -> None:
            seen.append(statement)

    assert adding(world)(Sql(), 3) == 3
    assert seen == ["UPDATE totals SET n = n + 3"]


@pytest.mark.parametrize("world", ["sqlite", "postgres beside sqlite"], indirect=True)
def test_where_nothing_is_recorded_the_transaction_is_left(world: World) -> None:
    add, later = adding(world), adding_async(world)

    @everstep.step(transactional=world.place)
    def fail(sql: Any) -> None:
        sql.execute("UPDATE totals SET n = 99")
        raise ValueError("no")

    store = world.open(enabled=False)
    with store.run("r") as run:
        assert add(2) == run.step("add", add, 2) == 2
        with pytest.raises(ValueError, match="no"):
            fail()
        with pytest.raises(InvalidArgument):
            everstep.step(transactional=True)(add.__wrapped__)(1)

    async def main() -> int:
        async with store.run("a"):
            return int(await later(3))

    assert asyncio.run(main()) == 3
    assert world.total() == 7


def test_what_makes_no_sense_is_refused_with_a_remedy(tmp_path: Path) -> None:
    def add(sql: Any) -> None: ...

    file = tmp_path / "store.db"
    with everstep.open("memory://") as memory, everstep.open(file) as store:
        for place, where in ((True, memory), (True, store), (file, store), (f"sqlite:///{file}", store)):
            with where.run("r"), pytest.raises(InvalidArgument) as refused:
                everstep.step(transactional=place)(add)()
            assert "E104" in str(refused.value)
            assert "remedy" not in refused.value.remedy
            assert where.steps("r") == []
    for options in ({"transactional": ":memory:"}, {"transactional": 7}, {"transactional": "redis://x"}, {"transactional": "sqlite://"}):
        with pytest.raises(InvalidArgument):
            everstep.step(**options)(add)  # type: ignore[call-overload]
    with pytest.raises(InvalidArgument, match="at_most_once"):
        everstep.step(transactional=True, at_most_once=True)(add)


def test_validation_ends_where_a_step_has_no_result(world: World) -> None:
    @everstep.step(transactional=world.place, retry=everstep.Retry(attempts=2, delay=0.01))
    def fail(sql: Any) -> None:
        sql.execute("UPDATE totals SET n = n + 1")
        raise ValueError("no")

    @everstep.workflow
    def flow() -> None:
        fail()

    store = world.open()
    assert store.start(flow, id="r").status == "failed"
    before = len(store.steps("r"))
    assert store.resume("r", replay="validate").status != "succeeded"
    assert len(store.steps("r")) == before
    assert world.total() == 0


@pytest.mark.parametrize(
    "text", ["SELECT 1", "UPDATE x SET committed = 1", "rollback to a", "ROLLBACK WORK TO SAVEPOINT a", "ending", 7, b"SELECT"]
)
def test_other_statements_are_let_through(text: Any) -> None:
    refuse_ends(text)
