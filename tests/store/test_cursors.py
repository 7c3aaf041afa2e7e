"""An events cursor from before a restore is refused, however far the restored store has come by then; every other cursor goes on."""

import shutil
from pathlib import Path

import pytest

import everstep
from everstep.errors import HistoryChanged, InvalidArgument
from everstep.store.events.cursor import Cursor
from everstep.testing.postgres import Server


def go(store: everstep.Store, *names: str, checkpoints: int = 3) -> None:
    for name in names:
        with store.run(name, state={"n": 0}) as run:
            for n in range(checkpoints):
                run.state["n"] = n
                run.checkpoint()


def keep(store: everstep.Store) -> str:
    """The cursor behind all events."""
    return str(store.events(limit=10_000).next)


@pytest.mark.parametrize("grown", [0, 1, 5])
@pytest.mark.parametrize("delete", [False, True])
def test_a_cursor_from_before_a_restore_is_refused(tmp_path: Path, grown: int, delete: bool) -> None:
    path, copy = tmp_path / "s.db", tmp_path / "copy.db"
    with everstep.open(path) as store:
        go(store, "old")
        old = keep(store)
    shutil.copy(path, copy)
    with everstep.open(path) as store:
        go(store, "lost-1", "lost-2")
        kept = keep(store)
    for name in ("s.db-wal", "s.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    shutil.copy(copy, path)
    with everstep.open(path, accept_older=True) as store:
        go(store, *(f"lost-{n}" for n in range(1, grown + 1)))  # the same ids, and as many records
        if delete and grown:
            store.delete("lost-1")
            store.delete("lost-2") if grown > 1 else None
        for after in (kept, Cursor.parse(kept)):
            with pytest.raises(HistoryChanged, match="older backup"):
                store.events(after)
        assert len({event.run for event in store.events(old)}) == max(
            0, grown - (2 if delete and grown > 1 else 1 if delete and grown else 0)
        )


@pytest.mark.parametrize("grown", [0, 1, 5])
def test_a_cursor_from_before_a_restore_of_the_server_is_refused(server: Server, grown: int) -> None:
    first = server.database()
    with everstep.open(first) as store:
        go(store, "old")
        old = keep(store)
    backup = server.database(template=first.partition("?")[0].rpartition("/")[2])
    with everstep.open(first) as store:
        go(store, "lost-1", "lost-2")
        kept = keep(store)
    with everstep.open(backup) as store:
        go(store, *(f"lost-{n}" for n in range(1, grown + 1)))
        with pytest.raises(HistoryChanged):
            store.events(kept)
        assert len({event.run for event in store.events(old)}) == grown
    server.drop(first)
    server.drop(backup)


def test_a_cursor_goes_on_when_the_runs_that_it_saw_were_deleted(store: everstep.Store) -> None:
    go(store, "a", "b")
    kept = keep(store)
    store.delete("a")
    store.delete("b")
    page = store.events(kept)
    assert list(page) == []
    go(store, "c")
    assert {event.run for event in store.events(str(page.next))} == {event.run for event in store.events(kept)} == {"c"}


def test_cursors_are_numbers_texts_and_texts_from_before(store: everstep.Store) -> None:
    go(store, "a", "b")
    page = store.events(limit=3)
    rest = list(store.events(page.next))
    assert page.next == 3
    assert (
        list(store.events(3)) == list(store.events("3")) == list(store.events(str(page.next))) == list(store.events(f"{page.next}")) == rest
    )
    assert str(page.next).startswith("3:3:3:")
    assert str(page.next).endswith(":a")


@pytest.mark.parametrize("wrong", [-1, "-1", "x", "", "1:2", "1:2:3:zz:00:a", "1:2:x:00:00:a", 1.5, None, True, b"1", "1:-2:3:00:00:a"])
def test_what_is_no_cursor_is_refused_clearly(store: everstep.Store, wrong: object) -> None:
    go(store, "a")
    with pytest.raises(InvalidArgument, match="after must be"):
        store.events(wrong)


def test_a_position_beyond_the_end_is_refused(store: everstep.Store) -> None:
    go(store, "a")
    end = store.backend.feed_end()
    assert list(store.events(end)) == []
    with pytest.raises(HistoryChanged, match=str(end)):
        store.events(end + 1)
