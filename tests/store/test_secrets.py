"""A store without a key refuses a Secret wherever it comes from, before anything is written, and one that may keep it gives it back."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import Redactor, Retention, Secret
from everstep.errors import InvalidArgument, PlainSecret, Waiting

VALUE = "hunter2-hunter2"
SECRET = Secret(VALUE)


@dataclasses.dataclass
class Login:
    user: str
    key: Secret
    more: list[Any] = dataclasses.field(default_factory=list)


everstep.register(Login, name="test.Login")


@everstep.workflow
def sign_in(key: Any, *, again: int = 0) -> Any:
    run = everstep.current()
    run.state["key"] = key
    run.checkpoint()
    return run.step("keep", lambda: {"key": key, "again": again})


@everstep.workflow
def ask() -> Any:
    return everstep.gate("key", "Which key?")


def in_state(store: everstep.Store) -> None:
    with store.run("r") as run:
        run.state["deep"] = {"list": [1, (2, SECRET)]}
        run.checkpoint()


def in_first_state(store: everstep.Store) -> None:
    with store.run("r", state={"login": Login("ann", SECRET)}) as run:
        run.checkpoint()


def in_a_long_list(store: everstep.Store) -> None:
    with store.run("r", state={"log": [f"entry {n} {'x' * 50}" for n in range(5_000)]}) as run:
        run.state["log"][3_000] = [SECRET]
        run.checkpoint()


def in_an_object(store: everstep.Store) -> None:
    with store.run("r", state={"login": Login("ann", Secret(""))}) as run:
        run.state["login"].more = [SECRET]
        run.checkpoint()


def as_a_key(store: everstep.Store) -> None:
    with store.run("r", state={"keys": {SECRET: 1}}) as run:
        run.checkpoint()


def in_an_argument(store: everstep.Store) -> None:
    with store.run("r") as run:
        run.step("call", lambda user, token: None, "ann", token=[SECRET])


def in_a_result(store: everstep.Store) -> None:
    with store.run("r") as run:
        run.step("call", lambda: {"key": SECRET})


def in_a_large_result(store: everstep.Store) -> None:
    with store.run("r") as run:
        run.step("call", lambda: {"text": ["x" * 100] * 1_000, "key": SECRET})


def in_a_workflow(store: everstep.Store) -> None:
    store.start(sign_in, SECRET, id="r")


def in_the_result_of_a_workflow(store: everstep.Store) -> None:
    outcome = store.start(everstep.workflow(lambda: SECRET, name="gives_secret"), id="r")
    if outcome.error is not None:
        raise outcome.error


def in_a_queue(store: everstep.Store) -> None:
    store.enqueue(sign_in, SECRET, id="r")


def in_a_schedule(store: everstep.Store) -> None:
    store.schedule("nightly", sign_in, SECRET, cron="0 3 * * *")


def in_an_answer(store: everstep.Store) -> None:
    store.start(ask, id="r")
    store.answer("r", "key", {"key": SECRET})


def in_a_default(store: everstep.Store) -> None:
    with store.run("r") as run:
        run.gate("key", timeout="1h", default=SECRET)


def in_an_event(store: everstep.Store) -> None:
    with store.run("r") as run:
        run.emit("login", key=SECRET)


def in_a_line(store: everstep.Store) -> None:
    store.line("r", state={"key": SECRET}).checkpoint()


def in_an_edit(store: everstep.Store) -> None:
    with store.run("r") as run:
        run.checkpoint()
    store.fork("r", id="f", edit={"key": SECRET})


PLACES: dict[Callable[[everstep.Store], None], str] = {
    in_state: "state['deep']['list'][1][1]", in_first_state: "state['login'].key", in_a_long_list: "state['log'][3000][0]",
    in_an_object: "state['login'].", as_a_key: "state['keys'] (key Secret([redacted]))", in_an_argument: "call#0: kwargs['token'][0]",
    in_a_result: "result of call#0['key']", in_a_large_result: "result of call#0['key']", in_a_workflow: "argument 1 of the workflow sign_in is",
    in_the_result_of_a_workflow: "the workflow's result", in_a_queue: "argument 1 of the workflow sign_in is", in_a_schedule: "argument 1 of the workflow sign_in is",
    in_an_answer: "answer['key']", in_a_default: "default of key#0", in_an_event: "event custom:login['key']", in_a_line: "state['key']",
    in_an_edit: "state['key']",
}  # fmt: skip


def text_of(error: BaseException | None) -> str:
    import traceback

    return "" if error is None else f"{error!r} {error} {''.join(traceback.format_exception(error))}"


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_a_store_without_a_key_refuses_a_secret_and_says_where_it_is(place: Callable[[everstep.Store], None], places: Any) -> None:
    store = places.open()
    assert store.encrypted is False
    with pytest.raises(PlainSecret) as caught:
        place(store)
    assert PLACES[place] in str(caught.value)
    assert "[E106]" in str(caught.value)
    assert "plain_secrets=True" in str(caught.value)
    assert "hunter2" not in text_of(caught.value)
    if places.kind == "sqlite":
        assert_nowhere(places.path)


def assert_nowhere(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        assert not file.is_file() or VALUE.encode() not in file.read_bytes(), file


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_a_store_that_is_allowed_to_keeps_it(place: Callable[[everstep.Store], None], places: Any) -> None:
    store = places.open(plain_secrets=True)
    try:
        place(store)
    except Waiting:
        assert place is in_a_default


def test_the_files_of_a_store_that_is_allowed_to_do_hold_it(tmp_path: Path) -> None:
    """So the search in the files finds what it looks for."""
    with everstep.open(tmp_path / "s.db", compression="none", plain_secrets=True) as store:
        in_state(store)
        with pytest.raises(AssertionError):
            assert_nowhere(tmp_path / "s.db")


def test_it_comes_back_on_load_resume_fork_copy_and_after_maintenance(places: Any) -> None:
    with places.open(plain_secrets=True) as store:
        with store.run("r", state={"login": Login("ann", SECRET), "log": [], "odd": {1: [SECRET]}}) as run:
            for turn in range(120):
                run.state["log"].append([turn, Secret(str(turn))])
                run.checkpoint()
        with store.run("r") as run:
            assert run.state["log"][7] == [7, Secret("7")]
            run.state["login"].more.append(Secret(b"later"))
            run.checkpoint()
        wanted = {"login": Login("ann", SECRET, [Secret(b"later")]), "log": [[n, Secret(str(n))] for n in range(120)], "odd": {1: [SECRET]}}
        assert store.load("r") == wanted
        assert store.load(store.fork("r@60", edit={"more": SECRET}).id) == {**store.load("r@60"), "more": SECRET}
        assert store.load(store.copy("r", id="c").id) == wanted
        assert all("hunter2" not in repr(change) and "hunter2" not in str(change) for change in store.diff("r@1", "r"))
        assert store.blame("r", ["login", "more"]).number == 121
        assert store.load("r")["login"].key.reveal() == VALUE
    with places.open() as store:  # not allowed any more: maintenance still works, and nothing new is taken
        store.prune(Retention(keep_last=2), run="r")
        store.gc()
        assert store.verify("full").ok
        assert store.load("r") == wanted
        if not store.encrypted:
            with pytest.raises(PlainSecret, match="of run 'r'"), store.run("r"):
                pass
        store.delete("r")


def test_a_workflow_gives_it_back_on_replay(places: Any) -> None:
    with places.open(plain_secrets=True) as store:
        first = store.start(sign_in, SECRET, id="w", again=1)
        assert first.result == {"key": SECRET, "again": 1}
        again = store.start(sign_in, SECRET, id="w", again=1)
        assert again.result == first.result
        with pytest.raises(everstep.EverstepError) as caught:
            store.start(sign_in, Secret("other"), id="w", again=1)
        assert "hunter2" not in text_of(caught.value)
        assert "hunter2" not in repr(store.step("w", "keep"))
        fork = store.fork("w@1")
        assert store.resume(fork.id).result == first.result
        waiting = store.start(ask, id="a")
        assert waiting.status == "waiting"
        store.answer("a", "key", SECRET)
        assert store.resume("a").result == SECRET
        assert "hunter2" not in repr(store.gates("a"))


def test_async_runs_keep_it_too(places: Any) -> None:
    async def main() -> None:
        refusing, store = everstep.AsyncStore(places.open()), everstep.AsyncStore(places.open(plain_secrets=True))
        assert refusing.encrypted is False
        with pytest.raises(PlainSecret):
            async with refusing.run("r") as run:
                await run.step("call", give)
        async with store.run("s") as run:
            run.state["key"] = await run.step("call", give)
            await run.checkpoint()
        assert (await store.load("s"))["key"] == SECRET

    async def give() -> Secret:
        return SECRET

    asyncio.run(main())


def test_a_step_with_a_key_or_an_ignored_argument_takes_one_and_stores_nothing_of_it(places: Any) -> None:
    with places.open() as store:
        with store.run("r") as run:
            assert run.step("call", lambda key: len(key.reveal()), SECRET, key="one") == len(VALUE)
            call = everstep.step(lambda user, key: user, ignore=["key"], name="ignoring")
            assert run.step(call, "ann", SECRET) == "ann"
        assert "Secret" not in repr(store.step("r", "ignoring").input)
    if places.kind == "sqlite":
        assert_nowhere(places.path)


def test_the_error_of_a_step_is_recorded_without_the_secret_in_it(places: Any) -> None:
    with places.open() as store:
        with pytest.raises(ValueError), store.run("r") as run:
            run.step("call", fails)
        [attempt] = store.step("r", "call").attempts
        assert attempt.status == "failed"
        assert "[redacted]" in attempt.error["message"]
        with pytest.raises(ValueError) as caught, store.run("r") as run:
            run.step("call", fails)
        assert "hunter2" not in text_of(caught.value)
    if places.kind == "sqlite":
        assert_nowhere(places.path)


def fails() -> None:
    raise ValueError("wrong key", SECRET, {"key": SECRET})


def test_redaction_before_storing_and_a_secret_meet(places: Any) -> None:
    with places.open(plain_secrets=True, redaction=Redactor.default()) as store:
        with store.run("r", state={"password": SECRET, "token": "other"}) as run:
            run.checkpoint()
            run.step("call", lambda password: {"password": password}, SECRET)
        assert store.load("r") == {"password": SECRET, "token": "[redacted]"}
        assert store.step("r", "call").output == {"password": SECRET}
    with places.open(redaction=Redactor.default()) as store:
        if store.encrypted:
            in_redacted_state(store)
            assert store.load("q") == {"password": SECRET}
        else:
            with pytest.raises(PlainSecret, match=r"state\['password'\]"):
                in_redacted_state(store)


def in_redacted_state(store: everstep.Store) -> None:
    with store.run("q", state={"password": SECRET}) as run:
        run.checkpoint()


def test_metadata_tags_and_notes_are_no_place_for_it(places: Any) -> None:
    store = places.open(plain_secrets=True)
    with pytest.raises(InvalidArgument, match="got a Secret"):
        store.run("r", meta={"key": SECRET})
    for given in ({"note": SECRET}, {"tags": [SECRET]}, {"session": SECRET}, {"id": SECRET}):
        with pytest.raises((InvalidArgument, TypeError)) as caught, store.run(**{"id": "r", **given}):
            pass
        assert "hunter2" not in text_of(caught.value)


def test_bytes_that_look_like_a_secret_are_only_bytes(places: Any) -> None:
    """A process that has no Secret cannot be stopped by a file that holds the mark of one."""
    import subprocess
    import sys

    code = "import everstep\nwith everstep.open('memory://') as s, s.run('r', state={'b': b'\\x17\\xc1Secret\\xc1tx'}) as r:\n    r.checkpoint()\n"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_save_after_a_refused_one_holds_everything(places: Any) -> None:
    chance = random.Random(3)
    with places.open(checking=True) as store, store.run("r", state={"log": [], "keep": {}}) as run:
        for turn in range(60):
            run.state["log"].append([turn])
            if chance.random() < 0.4:
                where = chance.choice(["keep", "log"])
                if where == "keep":
                    run.state["keep"]["key"] = SECRET
                else:
                    run.state["log"].append(SECRET)
                with pytest.raises(PlainSecret):
                    run.checkpoint()
                if where == "keep":
                    del run.state["keep"]["key"]
                else:
                    run.state["log"].pop()
            run.checkpoint()
            assert store.load("r") == {"log": [[n] for n in range(turn + 1)], "keep": {}}


def test_an_order_in_another_transaction_refuses_it(places: Any, tmp_path: Path) -> None:
    store = places.open()
    connection = sqlite3.connect(tmp_path / "own.db")
    with pytest.raises(PlainSecret):
        store.enqueue(sign_in, SECRET, id="o", connection=connection)
    connection.close()


def test_an_open_run_refuses_after_the_configuration_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reload makes a new framer, which must know what the old one knew."""
    from everstep.codec.frame import Framer
    from everstep.store.store import frame_with

    with everstep.open("memory://") as store:
        frame_with(store, Framer("gzip"))
        with pytest.raises(PlainSecret):
            in_state(store)


# What doctor finds.


def test_doctor_names_the_places_of_credentials_and_never_their_values(places: Any) -> None:
    with places.open(plain_secrets=True) as store:
        with store.run("r", state={"login": {"password": "swordfish"}, "plain": [SECRET], "tokens": 512, "token": ""}) as run:
            run.step("call", lambda url: {"text": "use sk-abcdefghijklmnopqrstuvwx"}, "postgres://ann:swordfish@db/x")
            run.checkpoint()
        store.start(ask, id="a")
        store.answer("a", "key", {"api_key": "swordfish"})
        store.resume("a")
        store.start(sign_in, {"private_key": "swordfish"}, id="w")
        found = store.doctor()["credentials"]
        assert found.level == "bad"
        assert not store.doctor().ok
        every = found_places(store)
        assert {
            "r@1 state['login']['password']",
            "r@1 state['plain'][0]",
            "r step call#0 input[0]",
            "r step call#0 result['text']",
        } <= every
        assert {"a answer of key#0['api_key']", "w arguments[0][0]['private_key']"} <= every
        assert not any("tokens" in place or place.endswith("['token']") for place in every)
        for text in (str(found), *every):
            assert not any(value in text for value in ("swordfish", "sk-abc", "hunter2"))
        assert "newest 3 of 3 runs" in found.sentence
        for run_id in ("r", "a", "w"):
            store.delete(run_id)
        assert store.doctor()["credentials"].level == "ok"


def found_places(store: everstep.Store) -> set[str]:
    from everstep.store.verify import credentials

    before, credentials._SHOWN = credentials._SHOWN, 1_000
    try:
        [found] = credentials.credentials(store.backend, Redactor.default(), 3)
    finally:
        credentials._SHOWN = before
    return set(found.sentence.split("; ")[1].split(", "))


def test_doctor_finds_nothing_after_redaction(places: Any) -> None:
    with places.open(redaction=Redactor.default()) as store:
        with store.run("r", state={"password": "swordfish", "list": ["sk-abcdefghijklmnopqrstuvwx"]}) as run:
            run.step("call", lambda password: password, "swordfish")
            run.checkpoint()
        assert store.doctor()["credentials"].level == "ok"


def test_doctor_looks_at_a_bounded_number_of_runs_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    from everstep.store.verify import credentials

    monkeypatch.setattr(credentials, "RUNS", 7)
    with everstep.open("memory://") as store:
        for number in range(30):
            with store.run(f"r{number}", state={"password": "swordfish"} if number < 10 else {"n": [number] * 100}) as run:
                run.checkpoint()
        found = store.doctor()["credentials"]
        assert found.level == "ok"
        assert "newest 7 of 30 runs" in found.sentence
        monkeypatch.setattr(credentials, "RUNS", 100)
        monkeypatch.setattr(credentials, "VALUES", 250)
        assert "newest 3 of 30 runs" in store.doctor()["credentials"].sentence
