"""The cost of a page of events follows the page, not the length of the runs that the page is about."""

import json
from typing import Any

import psycopg
import pytest

import everstep
from everstep.errors import DamagedRecord
from everstep.testing.postgres import Server

COMMITS, LIMIT = 1500, 100


@pytest.fixture
def long_run(place: str) -> everstep.Store:
    with everstep.open(place) as store:
        with store.run("long", state={"n": 0}, durability="exit") as run:
            for n in range(COMMITS):
                run.state["n"] = n
                run.checkpoint()
        for n in range(5):
            store.fork(f"long@{n + 1}", f"fork-{n}")
        yield store


def work(plan: dict[str, Any]) -> float:
    """How many rows the server looked at in all."""
    rows = (plan.get("Actual Rows", 0) + plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Join Filter", 0)) * plan[
        "Actual Loops"
    ]
    return rows + sum(map(work, plan.get("Plans", ())))


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize("after", [0, COMMITS // 2, COMMITS])
def test_a_page_of_events_looks_at_few_rows(long_run: everstep.Store, database: str, analyzed: bool, after: int) -> None:
    assert len(long_run.events(after, limit=LIMIT)) > 0
    sql = long_run.backend._readers.sql["feed"].decode()
    with psycopg.connect(database, autocommit=True) as connection:
        if analyzed:
            connection.execute("ANALYZE")
        ((plan,),) = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", (after, LIMIT, after, after, LIMIT, LIMIT))
    assert work((plan if isinstance(plan, list) else json.loads(plan))[0]["Plan"]) < 40 * LIMIT


@pytest.mark.parametrize("limit", [1, 2, 7, 1000])
def test_pages_of_every_size_have_every_event_once(place: str, limit: int) -> None:
    with everstep.open(place) as store:
        for name in ("a", "b", "c"):
            with store.run(name, state={"n": 0}) as run:
                for n in range(4):
                    run.state["n"] = n
                    run.checkpoint()
        store.delete("b")
        whole = [(event.position, event.run, event.seq) for event in store.events()]
        assert {run for _, run, _ in whole} == {"a", "c"}
        found, after = [], 0
        while page := store.events(after, limit=limit):
            found += [(event.position, event.run, event.seq) for event in page]
            after = page.next
        assert found == whole


@pytest.mark.parametrize("seq", [1, 2, 5])
def test_a_record_that_the_feed_names_and_that_is_gone_is_damage(place: str, database: str, server: Server, seq: int) -> None:
    with everstep.open(place) as store:
        with store.run("a", state={"n": 0}) as run:
            for n in range(3):
                run.state["n"] = n
                run.checkpoint()
        schema = place.rpartition("schema=")[2]
        last = store.backend.run("a").head_seq
        server.execute(f'DELETE FROM "{schema}".records WHERE seq = {min(seq, last)}', url=database)
        with pytest.raises(DamagedRecord):
            store.events()
