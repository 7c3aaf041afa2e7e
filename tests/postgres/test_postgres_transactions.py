"""Transactional steps on a server that goes away: a transaction whose connection is lost at its end is settled to yes or no, or said to be unknown."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pg_proxy import Proxy

import everstep
from everstep.backends.postgres.user_transaction import PostgresTransaction
from everstep.errors import LeaseHeld, StoreError, StoreUnreachable, TransactionEnded, TransactionUnknown
from everstep.testing.postgres import Server
from everstep.transactions import postgres
from everstep.transactions.postgres import PostgresSession

RETRY = everstep.Retry(attempts=3, delay=0.01, only=(psycopg.OperationalError,))


class Bank:
    """A store, a table and a wire to the server that can be cut when a transaction ends."""

    def __init__(self, kind: str, wire: Proxy, database: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.inside = kind == "inside"
        self.place: Any = True if self.inside else wire.url
        self.url = wire.url if self.inside else str(folder / "store.db")
        self.options: dict[str, Any] = {"patience": 3.0} if self.inside else {}
        self._database, self._monkeypatch = database, monkeypatch
        self.execute("DROP TABLE IF EXISTS bank, everstep_steps, everstep_runs")
        self.execute("CREATE TABLE bank (n integer)")
        self.calls = 0

    def execute(self, sql: str) -> list[Any]:
        with psycopg.connect(self._database, autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def rows(self) -> int:
        return int(self.execute("SELECT count(*) FROM bank")[0][0])

    def open(self) -> everstep.Store:
        return everstep.open(self.url, **self.options)

    def before_commit(self, action: Any) -> None:
        """Do something once, when all statements are made and COMMIT is next."""
        cls, name = (PostgresTransaction, "_last_statement") if self.inside else (PostgresSession, "_write")
        original, left = getattr(cls, name), [action]

        def then(*args: Any) -> Any:
            found = original(*args)
            if left:
                left.pop()()
            return found

        self._monkeypatch.setattr(cls, name, then)

    def put(self, retry: everstep.Retry | None = None) -> Any:
        @everstep.step(transactional=self.place, retry=retry)
        def put(sql: Any) -> int:
            self.calls += 1
            sql.execute("INSERT INTO bank VALUES (%s)", [self.calls])
            return self.calls

        return put


@pytest.fixture(params=["inside", "beside"])
def bank(request: pytest.FixtureRequest, wire: Proxy, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bank:
    return Bank(request.param, wire, database, tmp_path, monkeypatch)


def broken_off(bank: Bank, call: Any) -> None:
    """Call a step whose connection is lost. Where that is the store's own, the attempt is broken: nothing is recorded, and the run can be opened again."""
    with bank.open() as store:
        with pytest.raises(StoreUnreachable), store.run("r"):
            call()
        assert store.steps("r") == []


def cut(wire: Proxy, what: str, refuse: bool = False) -> None:
    wire.cut, wire.refuse = what, refuse


def test_a_commit_whose_reply_is_lost_is_found_and_the_result_is_taken(bank: Bank, wire: Proxy) -> None:
    bank.before_commit(lambda: cut(wire, "reply"))
    with bank.open() as store:
        with store.run("r"):
            assert bank.put()() == 1
        assert [step.status for step in store.steps("r")] == ["succeeded"]
    assert (bank.calls, bank.rows(), wire.cuts) == (1, 1, 1)


def test_a_commit_that_never_arrived_has_left_nothing_and_the_step_may_run_again(bank: Bank, wire: Proxy) -> None:
    bank.before_commit(lambda: cut(wire, "request"))
    put = bank.put(RETRY)
    if bank.inside:
        broken_off(bank, put)
    with bank.open() as store:
        with store.run("r"):
            assert put() == 2
        assert [step.status for step in store.steps("r")] == (["succeeded"] if bank.inside else ["failed", "succeeded"])
        assert store.verify("full").ok
    assert (bank.calls, bank.rows(), wire.cuts) == (2, 1, 1)


def test_a_commit_that_never_arrived_fails_a_step_that_has_no_retry(bank: Bank, wire: Proxy) -> None:
    bank.before_commit(lambda: cut(wire, "request"))
    if bank.inside:
        broken_off(bank, bank.put())
    else:
        with bank.open() as store:
            with store.run("r"), pytest.raises(psycopg.OperationalError):
                bank.put()()
            assert [step.status for step in store.steps("r")] == ["failed"]
    assert bank.rows() == 0


@pytest.mark.parametrize(("what", "made"), [("reply", 1), ("request", 0)])
def test_a_server_that_stays_away_leaves_it_unknown_and_the_next_attempt_finds_out(
    bank: Bank, wire: Proxy, monkeypatch: pytest.MonkeyPatch, what: str, made: int
) -> None:
    monkeypatch.setattr(postgres, "_PATIENCE_SECONDS", 0.5)
    bank.options = {"patience": 0.5} if bank.inside else {}
    bank.before_commit(lambda: cut(wire, what, refuse=True))

    @everstep.workflow
    def flow() -> int:
        return int(bank.put()())

    with bank.open() as store:
        with pytest.raises(TransactionUnknown) as unknown, store.run("loop"):
            bank.put()()
        assert (unknown.value.code, unknown.value.written) == ("E610", "unknown")
    assert bank.rows() == made
    wire.refuse = False
    with bank.open() as store:
        with store.run("loop"):
            assert bank.put()() == 2 - made
        assert [step.status for step in store.steps("loop")] == ["succeeded"]
        assert store.verify("full").ok
    assert (bank.calls, bank.rows()) == (2 - made, 1)


def test_a_connection_that_is_lost_in_the_function_fails_the_attempt(bank: Bank, wire: Proxy) -> None:
    @everstep.step(transactional=bank.place, retry=RETRY)
    def put(sql: Any) -> int:
        bank.calls += 1
        sql.execute("INSERT INTO bank VALUES (1)")
        if bank.calls == 1:
            wire.cut = "request"
        sql.execute("INSERT INTO bank VALUES (2)")
        return bank.calls

    if bank.inside:
        broken_off(bank, put)
    with bank.open() as store:
        with store.run("r"):
            assert put() == 2
        assert [step.status for step in store.steps("r")] == (["succeeded"] if bank.inside else ["failed", "succeeded"])
    assert bank.rows() == 2


def test_a_function_that_hides_that_its_connection_was_lost_commits_nothing(bank: Bank, wire: Proxy) -> None:
    @everstep.step(transactional=bank.place)
    def put(sql: Any) -> None:
        sql.execute("INSERT INTO bank VALUES (1)")
        wire.cut = "request"
        with pytest.raises(psycopg.OperationalError):
            sql.execute("INSERT INTO bank VALUES (2)")

    if bank.inside:
        broken_off(bank, put)
    else:
        with bank.open() as store:
            with store.run("r"), pytest.raises(psycopg.OperationalError):
                put()
            assert [step.status for step in store.steps("r")] == ["failed"]
    assert bank.rows() == 0


def test_a_pooled_connection_that_died_while_it_lay_idle_is_replaced(bank: Bank) -> None:
    put = bank.put()
    with bank.open() as store, store.run("r"):
        put()
        bank.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
        assert put() == 2
    assert bank.rows() == 2


def test_what_a_function_sets_is_gone_in_the_next_step(bank: Bank) -> None:
    @everstep.step(transactional=bank.place)
    def strange(sql: Any) -> None:
        sql.execute("SET search_path = pg_catalog")
        sql.execute("SET synchronous_commit = off")
        sql.row_factory = psycopg.rows.dict_row

    @everstep.step(transactional=bank.place)
    def look(sql: Any) -> list[str]:
        return [sql.execute(f"SHOW {name}").fetchone()[0] for name in ("search_path", "synchronous_commit")]

    with bank.open() as store, store.run("r"):
        strange()
        assert look() == ['"$user", public', "on"]


def test_many_steps_at_the_same_time_share_a_few_connections(bank: Bank) -> None:
    seen: list[int] = []

    @everstep.step(transactional=bank.place)
    async def put(sql: Any) -> None:
        found = sql.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'")
        seen.append(found.fetchone()[0])
        await asyncio.sleep(0.01)
        sql.execute("INSERT INTO bank VALUES (1)")

    async def drive(store: everstep.Store, name: str) -> None:
        async with store.run(name):
            await asyncio.gather(*(put() for _ in range(20)))

    async def main() -> None:
        with bank.open() as store:
            await asyncio.gather(*(drive(store, f"r{i}") for i in range(3)))

    asyncio.run(main())
    assert bank.rows() == 60
    assert 1 < max(seen) <= 16


def test_a_block_of_the_driver_is_a_savepoint(bank: Bank) -> None:
    kept: list[Any] = []

    @everstep.step(transactional=bank.place)
    def put(sql: Any) -> None:
        kept.append(sql)
        with sql.transaction():
            sql.execute("INSERT INTO bank VALUES (1)")
        with sql.transaction():
            sql.execute("INSERT INTO bank VALUES (2)")
            raise psycopg.Rollback

    with bank.open() as store, store.run("r"):
        put()
        with pytest.raises(TransactionEnded), kept[0].transaction():
            pass
    assert bank.execute("SELECT n FROM bank") == [(1,)]


def test_in_the_stores_database_a_function_chooses_its_isolation(
    wire: Proxy, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = Bank("inside", wire, database, tmp_path, monkeypatch)
    tries: list[int] = []

    @everstep.step(transactional=True, retry=everstep.Retry(attempts=3, delay=0.01, only=(psycopg.errors.SerializationFailure,)))
    def put(sql: Any) -> str:
        sql.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        found = sql.execute("SELECT count(*) FROM bank").fetchone()[0]
        if not tries:
            bank.execute("UPDATE bank SET n = n + 1")
        tries.append(found)
        sql.execute("UPDATE bank SET n = n + 10")
        return str(sql.execute("SHOW transaction_isolation").fetchone()[0])

    bank.execute("INSERT INTO bank VALUES (0)")
    with bank.open() as store, store.run("r"):
        assert put() == "serializable"
    assert len(tries) == 2
    assert bank.execute("SELECT n FROM bank") == [(11,)]


def test_statements_that_end_a_transaction_behind_others_are_found_out(bank: Bank) -> None:
    for text in ("SELECT 1; COMMIT", "SELECT 1; COMMIT; BEGIN", "SELECT 1; ROLLBACK; BEGIN"):

        @everstep.step(transactional=bank.place)
        def put(sql: Any) -> None:
            sql.execute(text)  # noqa: B023

        with bank.open() as store, store.run(), pytest.raises(TransactionEnded, match="ended the transaction"):
            put()


def test_the_store_and_the_table_agree_while_the_server_is_killed_and_restarted(tmp_path: Path) -> None:
    with Server.start() as server:
        url = server.database()
        server.execute("CREATE TABLE bank (run text, n integer)", url=url)
        retry = everstep.Retry(attempts=50, delay=0.05, max_delay=0.2)

        @everstep.step(transactional=True, retry=retry)
        def put(sql: Any, run: str, number: int) -> int:
            sql.execute("INSERT INTO bank VALUES (%s, %s)", [run, number])
            return number

        @everstep.workflow
        def flow(run: str) -> int:
            return sum(put(run, number) for number in range(40))

        if not server.own:
            pytest.skip("the server is not ours to stop")

        def driven(store: everstep.Store, name: str) -> None:
            """A connection that is lost in a transaction breaks the attempt. The run is given back, and starting it once more continues it."""
            limit = time.monotonic() + 60
            while time.monotonic() < limit:
                try:
                    store.start(flow, name, id=name)
                    return
                except (StoreError, LeaseHeld):
                    time.sleep(0.1)

        with everstep.open(url, patience=60.0) as store:
            threads = [threading.Thread(target=driven, args=(store, f"r{i}")) for i in range(4)]
            for thread in threads:
                thread.start()
            for end in (server.kill, server.halt, server.kill):
                time.sleep(0.3)
                end()
                server.start_again()
            for thread in threads:
                thread.join()
            assert {info.status for info in store.runs()} == {"succeeded"}
            done = {(info.id, step.result) for info in store.runs() for step in store.steps(info.id) if step.status == "succeeded"}
            assert sorted(server.execute("SELECT run, n FROM bank", url=url)) == sorted(done)
            assert len(done) == 160
            assert store.verify("full").ok
