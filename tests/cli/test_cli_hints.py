"""Hints of the command line: an option before its command, and a `$dict` that has a key twice."""

import json

import pytest
from cli_helpers import Shop

from everstep.errors import InvalidArgument
from everstep.runtime import drivers
from everstep.views.stored.tagged_json import exact, from_json

TWICE = {"$dict": [[1, "a"], [1, "b"]]}


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        (["--reason", "x y", "cancel", "r"], "everstep cancel --reason 'x y' r"),
        (["--import", "x", "resume", "r"], "everstep resume --import x r"),
        (["--quiet", "--status=failed", "runs"], "everstep runs --quiet --status=failed"),
        (["--when", "a > 1", "bisect"], "everstep bisect --when 'a > 1' RUN"),
    ],
)
def test_F6_an_option_before_its_command_gets_a_hint_that_can_be_typed(shop: Shop, typed: list[str], hint: str) -> None:
    said = shop.call(*typed)
    assert said.code == 2
    assert f"hint: Options of a command come after its name: `{hint}`." in said.err


def test_a_usage_error_is_one_sentence(shop: Shop) -> None:
    said = shop.call("completion").err
    assert said.startswith("error: Missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish [usage]\nhint: ")
    assert "'x' is not a valid integer. [usage]" in shop.call("limit", "web", "--concurrency", "x").err


def test_F6_the_hint_repeats_no_password(shop: Shop) -> None:
    said = shop.call("--when", "1", "--store", "postgresql://ann:hunter2hunter2@db/x", "bisect")
    assert "Options of a command come after its name" in said.err
    assert "hunter2" not in said.err


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        (["events", "--run", "loop"], "`everstep log loop`"),
        (["events", "--run=loop", "--follow"], "`everstep log loop --follow`"),
        (["events", "--follow", "--json", "--run", "loop"], "`everstep log loop --follow --json`"),
        (["events", "--run"], "`everstep log RUN`"),
        (["events", "--run", "two words"], "`everstep log 'two words'`"),
    ],
)
def test_events_of_one_run_are_its_log(shop: Shop, typed: list[str], hint: str) -> None:
    said = shop.call(*typed)
    assert said.code == 2
    assert said.out == ""
    assert "No such option" in said.err
    if "--json" not in typed:
        assert f"hint: The events of one run are its log: {hint}." in said.err
    else:
        assert json.loads(said.err)["data"]["remedy"] == f"The events of one run are its log: {hint}."


def test_F6_other_mistakes_keep_their_hint(shop: Shop) -> None:
    for typed in (["--nope", "cancel"], ["--store", "x", "--nope"], ["cancel"], ["cancel", "--nope"]):
        said = shop.call(*typed)
        assert said.code == 2
        assert "(more: `" in said.err


def test_F6_a_dict_that_has_a_key_twice_is_refused(shop: Shop) -> None:
    for value in (
        TWICE,
        [TWICE],
        {"a": TWICE},
        {"$dict": [[2, TWICE]]},
        {"$dict": [[1, "a"], [True, "b"]]},
        {"$dict": [[[1], 1], [[1], 2]]},
    ):
        with pytest.raises(InvalidArgument, match=r"\$dict must have each key once, got .* twice"):
            from_json(value)
    before = shop.json("runs")
    said = shop.pipe("checkpoint", "new", stdin='{"x": {"$dict": [[1, "a"], [1, "b"]]}}')
    assert said.code == 2
    assert "$dict must have each key once, got 1 twice" in said.err
    assert shop.json("runs") == before


def test_F6_a_stored_dict_that_looks_like_one_is_restored(shop: Shop) -> None:
    assert from_json(exact(TWICE)) == TWICE
    assert from_json(exact({"a": [TWICE]})) == {"a": [TWICE]}
    assert from_json({"$dict": [[1, "a"], ["1", "b"]]}) == {1: "a", "1": "b"}
    assert from_json({"$dict": [[{}, 1], [{}, 2]]}) == {"$dict": [[{}, 1], [{}, 2]]}, "no dict has such keys: it is what it seems to be"


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        (["fork", "o1@1", "o2"], "continue the existing run: `everstep resume o2`"),
        (["pause", "o1"], "`everstep log o1`"),
        (["answer", "o1", "boss", "yes"], "`everstep fork o1`"),
        (["blame", "o1", "totel"], "everstep state o1@1"),
        (["state", "o1@gone"], "`everstep show o1`"),
        (["diff", "o1@1", "o1@9"], "`everstep show o1`"),
        (["fork", "o1@1", "o3", "--unset", "gone"], "`everstep state o1@1`"),
    ],
)
def test_a_hint_names_the_run_that_the_command_was_about(empty: Shop, typed: list[str], hint: str) -> None:
    with empty.open() as store:
        for name in ("o1", "o2"):
            with store.run(name, state={"total": 1}) as run:
                run.checkpoint()
    said = empty.call(*typed)
    assert said.code != 0
    assert hint in said.err


def test_resume_of_a_run_of_a_framework_asks_for_its_module(empty: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(drivers._known, "langgraph", raising=False)  # of another test in this process
    with empty.open() as store:
        store.line("t1", workflow="langgraph", meta={"adapter": "langgraph"}).checkpoint(state={"n": 1})
    said = empty.call("resume", "t1")
    assert "error: run 't1' belongs to 'langgraph', and this process has defined no driver for it [E306]" in said.err
    assert "`everstep resume t1 --import MODULE`" in said.err
    assert "store.run(" not in said.err


def test_resume_of_a_labelled_loop_asks_for_its_program(empty: Shop) -> None:
    with empty.open() as store, store.run("t2", state={}, workflow="report") as run:
        run.checkpoint()
    said = empty.call("resume", "t2")
    assert "hint: Run the program that opens it again." in said.err
    assert "MODULE" not in said.err


def test_an_unknown_gate_is_refused_before_a_person_types_the_answer(empty: Shop) -> None:
    with empty.open() as store, store.run("o1") as run:
        run.checkpoint()
    said = empty.terminal("answer", "o1", "boss")
    assert said.code == 3
    assert "has ended (succeeded) and has no open gate" in said.out
    assert "Answer:" not in said.out


@pytest.mark.parametrize("typed", [["runs", "--tree"], ["runs"], ["events"]])
def test_an_empty_store_is_said_to_be_empty(empty: Shop, typed: list[str]) -> None:
    empty.open().close()
    assert empty.call(*typed).ok().err in ("No runs.\n", "No events.\n")


def test_events_of_a_name_that_no_event_has_are_none(empty: Shop) -> None:
    with empty.open() as store, store.run("o1") as run:
        run.checkpoint()
    assert empty.call("events", "--name", "run_faild").ok().err == "No event matches.\n"
    assert empty.call("events", "--name", "run_succeeded").ok().err == ""


def test_a_misspelt_key_in_a_condition_is_named(empty: Shop) -> None:
    with empty.open() as store, store.run("o1", state={"total": 1, "items": []}) as run:
        run.checkpoint()
    said = empty.call("bisect", "o1", "--when", "totl > 0 and state.items == 3")
    assert said.code == 3
    assert "No state that was read has a key 'totl'. Did you mean total?" in said.err
    assert "'items'" not in said.err
    assert "No state" not in empty.call("bisect", "o1", "--when", "total > 5").err


def test_a_misspelt_function_and_wrong_arguments_are_told_what_exists(empty: Shop) -> None:
    (empty.folder / "shopping.py").write_text(
        "import everstep\nfrom json import dumps\n\n@everstep.workflow\ndef order(item: str, many: int = 1):\n    return item\n"
    )
    assert "hint: Did you mean order?" in empty.pipe("run", "shopping.py:ordr", "tea").err
    assert "hint: Did you mean order?" in empty.pipe("run", "shopping.py:zzz", "tea").err, "the only workflow of the module"
    said = empty.pipe("run", "shopping.py:order", "tea", "2", "3").err
    assert "invalid arguments for workflow 'order': too many positional arguments [E104]" in said
    assert "order(item: str, many: int = 1)" in said


@pytest.mark.parametrize(
    ("typed", "near"), [("lease", "LeaseHeld (E301)"), ("LeesHeld", "LeaseHeld (E301)"), ("E999", ""), ("gate", "GateTimeout (E605)")]
)
def test_explain_suggests_errors_and_repeats_what_was_typed(empty: Shop, typed: str, near: str) -> None:
    said = empty.call("explain", typed)
    assert said.code == 3
    assert f"there is no error {typed!r}" in said.err
    assert near in said.err
    assert ("Did you mean" in said.err) == bool(near)


def test_the_shell_names_its_own_help(empty: Shop) -> None:
    empty.open().close()
    said = empty.pipe("shell", stdin="zzzzzz\n")
    assert "List all commands: `help`." in said.err


@pytest.mark.parametrize("command", ["blame", "state"])
def test_a_path_that_does_not_exist_gets_the_key_that_may_be_meant(empty: Shop, command: str) -> None:
    with empty.open() as store, store.run("o1", state={"values": {"total": 1}, "a b": 2}) as run:
        run.checkpoint()
    said = empty.call(command, "o1", "values.totl").err
    assert "error: the state of o1@1 has no value at values.totl [E201]" in said
    assert "hint: Did you mean values.total? Print the state: everstep state o1@1 values" in said
    assert "Did you mean" not in empty.call(command, "o1", "values.zzz").err
    assert 'Did you mean ["a b"]?' in empty.call(command, "o1", "a_b").err


def test_the_open_gates_come_with_a_command_that_answers_one(empty: Shop) -> None:
    with empty.open() as store:
        store.line("o1").ask("boss", ask="Spend 30?", choices=["yes", "no"])
    assert "To answer: everstep answer o1 boss yes" in empty.terminal("answer", "o1").ok().out
    assert empty.call("answer", "o1").ok().err == "", "a pipe gets only data"


def test_a_failed_step_of_a_document_says_how_to_resume_its_run(empty: Shop) -> None:
    (empty.folder / "w.yaml").write_text("name: hello\nsteps:\n  - {id: a, run: exit 3}\n")
    said = empty.call("run", "w.yaml", "--id", "y1")
    assert "`everstep resume y1 --import w.yaml`" in said.err
    assert "RUN" not in said.err
