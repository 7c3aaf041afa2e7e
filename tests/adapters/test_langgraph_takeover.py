"""Threads of SqliteSaver and PostgresSaver are taken over: whole or not at all, and compared."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph.checkpoint.sqlite", reason="pip install 'everstep[langgraph,dev-adapters]'")

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command
from pydantic import BaseModel
from test_langgraph_tools import State, approving, graph_of

import everstep
from everstep.adapters.langgraph import Saver, takeover
from everstep.adapters.langgraph.__main__ import main
from everstep.errors import InvalidArgument


class Order(BaseModel):
    id: int


def of(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def fill(saver: Any, threads: tuple[str, ...] = ("user@example.com", "b")) -> Any:
    """Threads that wait for an answer, with a subgraph, history and pending writes."""
    graph = graph_of(saver, approving(None))
    for thread in threads:
        graph.invoke({"messages": [HumanMessage(f"hi {thread}", id="1")]}, of(thread))
    graph.invoke(Command(resume="one"), of(threads[0]))
    return graph


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.sqlite"
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        fill(SqliteSaver(connection))
    return path


def test_threads_of_a_sqlite_saver_continue_here(old: Path, places: Any) -> None:
    before = old.read_bytes()
    store = places.open()
    taken = takeover.take_over(str(old), store)
    assert (taken.threads, taken.known) == (2, [])
    assert taken.checkpoints > 4
    assert sorted(everstep.unquote(run.id) for run in store.runs()) == ["b", "user@example.com"]
    graph = graph_of(Saver(store), approving(None))
    result = graph.invoke(Command(resume="two"), of("user@example.com"))
    assert result["got"] == ["one", "two"]
    assert graph.invoke({"messages": [HumanMessage("next")]}, of("b"))["messages"][-1].content == "next"
    assert old.read_bytes() == before
    assert store.verify("full").ok


def test_a_second_time_recognizes_them_and_a_changed_thread_is_refused(old: Path, places: Any) -> None:
    store = places.open()
    assert takeover.take_over(str(old), store, threads=["b"]).threads == 1
    assert takeover.take_over(str(old), store).known == ["b"]
    graph_of(Saver(store), approving(None)).invoke({"messages": []}, of("b"))
    with pytest.raises(InvalidArgument, match="already has a different thread 'b'"):
        takeover.take_over(str(old), store)


def test_a_thread_that_differs_is_not_taken_over_and_nothing_is_left(old: Path, places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = places.open()
    kept = Saver.encode
    monkeypatch.setattr(Saver, "encode", lambda self, value, path: kept(self, [] if path == "messages" else value, path))
    with pytest.raises(InvalidArgument, match="differs from the source"):
        takeover.take_over(str(old), store)
    assert list(store.runs()) == []


def test_types_must_be_allowed(tmp_path: Path, places: Any) -> None:
    path, store = tmp_path / "typed.sqlite", places.open()

    def node(state: State) -> State:
        return {"got": [Order(id=7)]}

    with sqlite3.connect(path, check_same_thread=False) as connection:
        graph_of(SqliteSaver(connection), node).invoke({"messages": []}, of("t"))
    with pytest.raises(InvalidArgument, match="Order, which would come back as plain data"):
        takeover.take_over(str(path), store)
    assert list(store.runs()) == []
    takeover.take_over(str(path), store, types=[Order])
    assert graph_of(Saver(store, types=[Order]), node).get_state(of("t")).values["got"] == [Order(id=7)]


def test_threads_of_a_postgres_saver(database: str, tmp_path: Path) -> None:
    postgres = pytest.importorskip("langgraph.checkpoint.postgres", reason="pip install 'everstep[dev-adapters]'")
    with postgres.PostgresSaver.from_conn_string(database) as saver:
        saver.setup()
        fill(saver, ("p1", "p2"))
    with everstep.open(tmp_path / "s.db") as store:
        assert takeover.take_over(database, store).threads == 2
        assert graph_of(Saver(store), approving(None)).invoke(Command(resume="two"), of("p1"))["got"] == ["one", "two"]


def test_the_command(old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = str(tmp_path / "new.db")
    main(["take-over", str(old), "--store", url], standalone_mode=False)
    assert "Took over 2 threads with" in capsys.readouterr().out
    for bad, reason in (
        (tmp_path / "none", "there is no file"),
        (Path(__file__), "cannot be read"),
        (Path(url), "is not a file of SqliteSaver"),
    ):
        with pytest.raises(SystemExit):
            main(["take-over", str(bad), "--store", url], standalone_mode=False)
        assert reason in capsys.readouterr().err
    assert "test_langgraph_takeover" in sys.modules
