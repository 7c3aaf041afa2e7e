"""Where it was asked for, nothing that is to be masked reaches the disk; the program keeps its values, and a resumed run finds its steps again."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
import pytest

import everstep
from everstep.codec.frame import Framer
from everstep.config.settings import load
from everstep.errors import BadAnswer, EverstepError, Unstorable
from everstep.redact import MASK, Redactor

KEY = "sk-proj-Zq8vTn4KxW2mB7yLr9"  # known by its looks
WORD = "correct-horse-battery"  # known by the name that it stands under
MAIL = "ann.secretive@example.org"  # by choice
SECRETS = (KEY, WORD, MAIL)
HIDING = Redactor.default(keys=["pin"], patterns=["email"])


@everstep.register
@dataclass
class Account:
    user: str
    password: str
    notes: list[str]


@everstep.register
class Profile(pydantic.BaseModel):
    mail: str
    api_key: str


@everstep.register
class LoginFailed(Exception):
    def __init__(self, message: str, password: str = ""):
        self.password = password
        super().__init__(message)


@pytest.fixture
def store() -> Iterator[everstep.Store]:
    with everstep.open("runs.db", compression="none", redaction=HIDING) as opened:
        yield opened


def assert_nothing_leaked() -> None:
    """Look at every byte beside and in the store, as it lies on the disk."""
    seen = 0
    for file in Path.cwd().rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            seen += len(data)
            for secret in SECRETS:
                for form in (secret.encode(), secret.encode("utf-16-le"), secret.encode().hex().encode()):
                    assert form not in data, (file.name, secret)
                assert secret[4:-4].encode() not in data, (file.name, secret)
    assert seen > 10_000
    assert MASK.encode() in Path("runs.db").read_bytes() + Path("runs.db-wal").read_bytes() if Path("runs.db-wal").exists() else True


def fetch(password: str, url: str, *, account: Account | None = None) -> Any:
    return {"token": WORD, "text": f"{url} answered {KEY} to {MAIL}", "account": account, "big": ["x" * 100 + " " + KEY] * 400}


def fail(token: str, how: str = "") -> None:
    raise LoginFailed(f"{how} {KEY} was refused for {MAIL}, password={WORD!r}", token)


def fail_plain(token: str) -> None:
    raise ValueError({"password": token, "seen": [KEY]})


def drive(store: everstep.Store, attempt: int) -> None:
    account = Account("ann", WORD, [KEY, "fine"])
    with store.run("loop", state={"password": WORD, "log": []}, note=f"for {MAIL}", meta={"token": WORD, "who": MAIL}) as run:
        found = run.step("fetch", fetch, WORD, f"https://x.org/?token={WORD}", account=account)
        assert found["token"] == (WORD if attempt == 1 else MASK)
        for function in (fail, fail_plain):
            with pytest.raises((LoginFailed, ValueError)):
                run.step("fail", function, WORD)
        run.state["log"].append({"role": "user", "content": f"my key is {KEY}"})
        run.state["account"] = account
        run.state["profile"] = Profile(mail=MAIL, api_key=WORD)
        run.state[KEY] = {"a": {WORD[:3]: [(KEY, {"cookie": WORD})]}}
        run.checkpoint(note=f"with {KEY}", meta={"password": WORD, "n": 1})
        assert run.state["account"].password == WORD
        run.emit("login", password=WORD, text=KEY)
        run.milestone("m", note=MAIL)
        run.state["password"] = WORD
        run.state["log"].append("harmless")


def test_no_secret_of_a_loop_reaches_the_disk(store: everstep.Store) -> None:
    drive(store, 1)
    assert_nothing_leaked()
    store.close()
    assert_nothing_leaked()
    with everstep.open("runs.db") as again:
        state = again.load("loop")
        assert state["password"] == MASK
        assert state["account"] == Account("ann", MASK, [MASK, "fine"])
        assert state["profile"] == Profile(mail=MASK, api_key=MASK)
        assert state["log"] == [{"role": "user", "content": f"my key is {MASK}"}, "harmless"]
        assert again.get("loop").meta == {"token": MASK, "who": MASK}
        assert [c.note for c in again.checkpoints("loop")][-1] == f"with {MASK}"
        first = again.steps("loop")[0]
        assert first.result["token"] == MASK
        assert MASK in first.input
        assert again.verify("full").ok


def test_the_program_sees_its_own_values_until_it_ends(store: everstep.Store) -> None:
    with store.run("r", state={"password": WORD, "n": 0}) as run:
        for n in range(60):  # past the first base
            run.state["n"] = n
            run.checkpoint()
            assert run.state["password"] == WORD
        run.checkpoint(state={"password": WORD, "handed": KEY})
        assert run.state == {"password": WORD, "handed": KEY}
    assert store.load("r@60") == {"password": MASK, "n": 59}
    assert store.load("r") == {"password": MASK, "handed": MASK}
    assert_nothing_leaked()


def test_a_resumed_loop_sees_masked_values_and_finds_its_steps_again(store: everstep.Store) -> None:
    calls: list[str] = []

    def login(password: str) -> dict[str, str]:
        calls.append(password)
        return {"session_token": WORD, "name": "ann"}

    def body(password: str, dies: bool) -> Any:
        with store.run("r", state={"password": password}) as run:
            found = run.step("login", login, password)
            used = run.step("use", dict, found)
            if dies:
                raise RuntimeError("the program dies here")
            return used

    with pytest.raises(RuntimeError):
        body(WORD, True)
    with pytest.raises(RuntimeError):
        body(MASK, True)
    assert body(WORD, False) == {"session_token": MASK, "name": "ann"}
    assert calls == [WORD]
    assert_nothing_leaked()


def measure(api_key: str) -> int:
    return len(api_key)


@everstep.workflow(name="masked-inner")
def inner(api_key: str) -> str:
    return f"{everstep.current().step('measure', measure, api_key)} {KEY}"


@everstep.workflow(name="masked-report")
def report(password: str, topic: str, **more: Any) -> dict[str, Any]:
    """A workflow whose own source has a key in it: sk-live-in-source-0123456789."""
    run = everstep.current()
    found = run.step("fetch", fetch, password, topic)
    made = inner(found["token"])
    answer = everstep.gate("go", ask=f"Use {KEY} of {MAIL}?", default={"password": WORD, "why": KEY}, timeout=1000)
    return {"secret": found["token"], "made": made, "answer": answer}


def test_no_secret_of_a_workflow_reaches_the_disk_and_it_goes_on_with_masked_values(store: everstep.Store) -> None:
    outcome = store.start(report, WORD, f"about {MAIL}", id="w", token=WORD, extra=KEY)
    assert outcome.status == "waiting"
    assert_nothing_leaked()
    store.answer("w", "go", {"ok": True, "password": WORD, "text": KEY}, by="ann")
    assert_nothing_leaked()
    outcome = store.resume("w")
    assert outcome.status == "succeeded", outcome
    assert outcome.report.kept == 2  # nothing was run again, although the values are masked now
    assert outcome.result == {
        "secret": MASK,
        "made": f"{len(WORD)} {MASK}",
        "answer": {"ok": True, "password": MASK, "text": MASK},
    }
    again = store.start(report, WORD, f"about {MAIL}", id="w", token=WORD, extra=KEY)
    assert again.reason == "recorded before"
    assert store.gates("w")[0].ask == f"Use {MASK} of {MASK}?"
    assert not outcome.report.changed
    assert_nothing_leaked()
    files = [file.read_bytes() for file in Path.cwd().glob("runs.db*") if file.is_file()]
    assert any(b"whose own source has a key in it" in data for data in files)
    assert not any(b"in-source-0123456789" in data for data in files)


def test_a_default_that_a_timeout_brings_is_masked(store: everstep.Store) -> None:
    @everstep.workflow
    def waits() -> Any:
        return everstep.gate("go", ask="?", default={"password": WORD}, timeout=0.01)

    store.start(waits, id="w")
    import time

    time.sleep(0.05)
    (outcome,) = store.wake()
    assert outcome.result == {"password": MASK}
    assert_nothing_leaked()


def test_an_answer_that_does_not_fit_once_it_is_masked_is_refused(store: everstep.Store) -> None:
    @everstep.workflow
    def waits() -> Any:
        return everstep.gate("pin", ask="?", schema={"type": "object", "properties": {"pin": {"type": "integer"}}})

    store.start(waits, id="w")
    with pytest.raises(BadAnswer):
        store.answer("w", "pin", {"pin": 1234})
    store.answer("w", "pin", {"other": 1})
    assert store.resume("w").result == {"other": 1}


def test_forks_messages_and_reasons_are_masked(store: everstep.Store) -> None:
    with store.run("r", state={"n": 1}) as run:
        run.checkpoint()
    store.fork("r", id="a", edit={"password": WORD, "text": KEY})
    store.fork("r", id="b", edit=lambda state: {**state, "mail": MAIL})
    assert store.load("a") == {"n": 1, "password": MASK, "text": MASK}

    @everstep.workflow
    def skipped() -> Any:
        everstep.gate("first")
        return everstep.current().step("late", fetch, WORD, "x")

    store.start(skipped, id="w")
    store.skip("w", "late#0", {"password": WORD, "text": KEY})
    store.answer("w", "first", "yes")
    assert store.resume("w").result == {"password": MASK, "text": MASK}
    store.start(skipped, id="p")
    store.pause("p", f"because of {KEY}")
    store.cancel("p", f"password={WORD}")
    assert_nothing_leaked()


def test_messages_of_a_process_that_masks_nothing_are_masked_when_they_are_recorded(store: everstep.Store) -> None:
    @everstep.workflow
    def skipping() -> Any:
        said = everstep.gate("first")
        return [said, everstep.current().step("late", fetch, WORD, "x")]

    store.start(skipping, id="w")
    with everstep.open("runs.db", compression="none") as other:
        other.skip("w", "late#0", {"password": "letter-word-of-one", "n": 1})
        other.answer("w", "first", {"password": "letter-word-of-two"})
    store.resume("w")
    (step,) = store.steps("w")
    assert step.result == {"password": MASK, "n": 1}
    assert store.gates("w")[0].answer == {"password": MASK}


def test_a_failed_workflow_keeps_no_secret_of_its_error(store: everstep.Store) -> None:
    @everstep.workflow
    def fails() -> None:
        everstep.current().step("fail", fail, WORD)

    outcome = store.start(fails, id="w")
    assert outcome.status == "failed"
    assert KEY in str(outcome.error)  # the live one
    again = store.start(fails, id="w")
    assert isinstance(again.error, LoginFailed)
    assert again.error.password == MASK
    assert MASK in str(again.error)
    assert_nothing_leaked()


@pytest.mark.parametrize("length", range(1_900, 2_000, 3))
def test_a_secret_that_is_cut_through_leaves_no_half_behind(length: int) -> None:
    def fails() -> None:
        raise ValueError("x" * length + " " + KEY * 3 + "y" * 30_000)

    with everstep.open("memory://", redaction=HIDING) as store:
        with store.run("r") as run, pytest.raises(ValueError):
            run.step("fails", fails)
        (step,) = store.steps("r")
        assert KEY[:8] not in repr(step.error)
        assert KEY[-8:] not in repr(step.error)


def test_checkpoints_in_the_middle_of_a_step_are_masked(store: everstep.Store) -> None:
    def wait() -> None:
        import time

        end = time.monotonic() + 20
        while not store.checkpoints("r") and time.monotonic() < end:
            time.sleep(0.01)

    with store.run("r", state={"password": WORD}, policy="every 0.02 s") as run:
        run.step("wait", wait)
    assert len(store.checkpoints("r")) >= 1
    assert store.load("r@1") == {"password": MASK}
    assert_nothing_leaked()


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_every_durability_masks(store: everstep.Store, durability: Any) -> None:
    with store.run("r", state={"password": WORD}, durability=durability) as run:
        run.step("fetch", fetch, WORD, KEY)
        run.checkpoint(note=KEY)
    assert_nothing_leaked()


def test_an_async_run_masks_too(store: everstep.Store) -> None:
    async def work(password: str) -> dict[str, str]:
        return {"api_key": password}

    async def main() -> None:
        async with store.run("r", state={"password": WORD}) as run:
            assert await run.step("work", work, WORD) == {"api_key": WORD}
            await run.checkpoint(note=KEY)
            assert run.state["password"] == WORD

    asyncio.run(main())
    assert store.load("r") == {"password": MASK}
    assert_nothing_leaked()


def test_a_map_and_keyed_steps_are_masked_and_found_again(store: everstep.Store) -> None:
    calls: list[Any] = []

    def use(password: str) -> str:
        calls.append(password)
        return f"password={password} {KEY}"

    def body() -> None:
        with store.run("r") as run:
            run.map(use, [WORD, "x"])
            run.step("keyed", use, WORD, key="k")
            raise RuntimeError("again")

    for _ in range(2):
        with pytest.raises(RuntimeError):
            body()
    assert len(calls) == 3
    assert_nothing_leaked()


def test_validation_compares_what_is_stored(store: everstep.Store) -> None:
    @everstep.workflow
    def flow(password: str) -> Any:
        return everstep.current().step("fetch", fetch, password, "x")["token"]

    store.start(flow, WORD, id="w")
    outcome = store.resume("w", replay="validate")
    assert outcome.report.differences == []


def test_a_state_that_was_stored_before_is_masked_at_its_next_save() -> None:
    with everstep.open("old.db", compression="none") as plain, plain.run("r", state={"password": "old-secret-word", "n": 1}) as run:
        run.checkpoint()
    with everstep.open("old.db", compression="none", redaction=HIDING) as hiding:
        with hiding.run("r") as run:
            assert run.state["password"] == "old-secret-word"
            run.state["n"] = 2
            run.checkpoint()
        assert hiding.load("r@1") == {"password": "old-secret-word", "n": 1}  # what is stored stays
        assert hiding.load("r") == {"password": MASK, "n": 2}
        assert hiding.verify("full").ok


def test_an_agent_works_and_goes_on_with_masked_values(store: everstep.Store) -> None:
    def think(state: Any) -> Any:
        if len(state.messages) > 4:
            return everstep.Decision(answer=f"done with {KEY}")
        return everstep.Decision(actions=[everstep.Action("login", {"password": WORD, "text": KEY})])

    def login(password: str, text: str) -> dict[str, str]:
        return {"token": password, "text": text}

    outcome = everstep.AgentLoop(think, tools=[login]).run(store, "a", f"use {KEY} of {MAIL}")
    assert outcome.status == "succeeded", outcome
    assert_nothing_leaked()


def test_only_what_changed_is_stored_as_a_delta(store: everstep.Store) -> None:
    with store.run("r", state={"password": WORD, "log": ["x" * 50] * 2000}) as run:
        run.checkpoint()
        sizes = []
        for n in range(10):
            run.state["log"].append(f"{n} {KEY}")
            run.checkpoint()
            row = store.backend.run("r")
            assert row is not None
            sizes.append(row.stored)
    assert max(b - a for a, b in itertools.pairwise(sizes)) < 500


def test_a_value_that_cannot_be_stored_is_named_by_its_place_and_nothing_is_lost(store: everstep.Store) -> None:
    with store.run("r", state={"password": WORD}) as run:
        run.state["bad"] = {"deep": [object()]}
        with pytest.raises(Unstorable, match=r"state\['bad'\]\['deep'\]\[0\]"):
            run.checkpoint()
        with pytest.raises(EverstepError, match="args"):
            run.step("one", lambda x: x, object())
        del run.state["bad"]
        run.checkpoint()
    assert store.load("r") == {"password": MASK}


def test_with_checking_every_state_is_compared() -> None:
    with everstep.open("memory://", checking=True, redaction=HIDING) as store:
        for _ in range(3):
            with store.run("r", state={"password": WORD, "n": []}) as run:
                for n in range(5):
                    run.state["n"].append(n)
                    run.checkpoint()
        assert store.load("r")["n"] == [0, 1, 2, 3, 4] * 3


def test_without_redaction_everything_is_there() -> None:
    """The canary: the same search finds the secrets where nothing hides them."""
    with everstep.open("runs.db", compression="none") as store:
        drive(store, 1)
    data = Path("runs.db").read_bytes()
    assert all(secret.encode() in data for secret in SECRETS)
    with pytest.raises(AssertionError):
        assert_nothing_leaked()


def test_compressed_content_holds_no_secret_either() -> None:
    Path("everstep.toml").write_text(
        'store = "runs.db"\n[redaction]\nstore = true\nkeys = ["pin"]\npatterns = ["email"]\n[compression]\nthreshold = 0\n'
    )
    assert load(environ={})["redaction.store"] is True
    with everstep.open() as store:
        drive(store, 1)
    with sqlite3.connect("runs.db") as connection:
        names = [row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")]
        blobs = [v for name in names for row in connection.execute(f'select * from "{name}"') for v in row if isinstance(v, (bytes, str))]
    opened = 0
    for blob in blobs:
        data = blob.encode() if isinstance(blob, str) else blob
        try:
            data += Framer().unwrap(data)
            opened += 1
        except EverstepError:
            pass
        assert not any(secret.encode() in data for secret in SECRETS)
    assert opened > 5
