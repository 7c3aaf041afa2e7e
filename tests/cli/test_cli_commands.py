"""Every command does what it says: through a pipe, on a terminal, and in JSON."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from random import Random

import pace
import pytest
import sample
from cli_helpers import LONG, PROGRAMS, Called, Shop, ended, plain

import everstep
from everstep.backends.sqlite.files import format as sqlite_format
from everstep.cli.main import COMMANDS
from everstep.snapshot import saver
from everstep.store.verify.signing_keys import new_file
from harness.faults import format_0

ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
IMPORT = ("--import", str(PROGRAMS))

# Each command with what it must print: a pattern in what a pipe gets on stdout, one on stderr, and one on a terminal.
TABLE: dict[str, tuple[tuple[str, ...], str, str, str]] = {
    "new": (("agent", "fresh"), r"\Afresh/agent\.py\nfresh/test_agent\.py\n\Z", r"\ANext:\n  cd fresh\n", r"Next:\n  cd fresh\n"),
    "init": ((), r"\A\Z", r"Already exists: .*store\.db", r"Already exists: "),
    "run": ((f"{PROGRAMS}:hello", "Ann", "--id", "h"), r"\Ahello Ann\n\Z", r"h: succeeded", r"h: succeeded\nhello Ann"),
    "runs": ((), rf"loop +succeeded .*{ISO}  chat, prod  a chat about tea", r"\A\Z", r"loop .* (?:now|ago) +chat, prod  a chat"),
    "show": (("loop",), rf"loop@6 +manual  {ISO}  add#5 +turn 6", r"\A\Z", r"loop@3 .* half +turn 3"),
    "log": (("done",), rf"{ISO}  ✓ price#1  attempt 2  ", r"\A\Z", r"\d\d:\d\d:\d\d  ✓ price#1  attempt 2  "),
    "state": (("loop@2", "messages[1].content"), r'\A"message 2"\n\Z', r"\A\Z", r'\A"message 2"\n\Z'),
    "diff": (("loop@3", "alternative"), r'\A~ topic: "tea" -> "coffee"\n\Z', r"\A\Z", r'~ topic: "tea" -> "coffee"'),
    "blame": (
        ("loop", "messages[2].content"),
        rf"\Aloop@3  {ISO}  after step add#2  turn 3\n\Z",
        r"\A\Z",
        r"loop@3  (?:now|\d+ \w+ ago)  after step add#2",
    ),
    "bisect": (("loop", "--when", "total > 30"), rf"\Aloop@4  {ISO}  after step add#3  turn 4\n\Z", r"\A\Z", r"loop@4  .*after step add#3"),
    "stats": ((), r"by status +1 failed, 4 succeeded, 2 waiting\n", r"\A\Z", r"step time +p50 "),
    "resume": (
        ("broken", *IMPORT),
        r"\A\Z",
        r"broken: failed: ValueError: no milk on the shelf",
        r"✗ look#0  failed  attempt 2\nbroken: failed: ValueError: no milk",
    ),
    "fork": (
        ("loop@2", "other"),
        r"\Aother\n\Z",
        r"Forked from loop@2. To continue, run the program that opens it.",
        r"\Aother\nForked from loop@2",
    ),
    "answer": (
        ("waits", "boss", "yes"),
        r"\A\Z",
        r"Answer recorded. To continue: everstep resume waits --import MODULE",
        r"Answer recorded",
    ),
    "pause": (("waits",), r"\A\Z", r"waits: waiting", r"waits: waiting"),
    "cancel": (("waits",), r"\A\Z", r"waits: cancelled", r"waits: cancelled"),
    "enqueue": (("hello", *IMPORT, "--id", "q"), r"\Aq\n\Z", r"\AEnqueued in default\n\Z", r"\Aq\nEnqueued in default\n\Z"),
    "queues": ((), r"mail +0 +0 +0 +0 +3 at once", r"\A\Z", r"mail +0 +0 +0 +0 +3 at once"),
    "limit": (("mail", "--rate", "10/60s"), r"\Amail: 3 at once, 10 per 1 min\n\Z", r"\A\Z", r"\Amail: 3 at once, 10 per 1 min\n\Z"),
    "schedule": (("daily", "hello", "--cron", "0 0 * * *", *IMPORT), rf"\Adaily: next at {ISO}\n\Z", r"\A\Z", r"daily: next at "),
    "schedules": ((), rf"nightly +hello +0 3 \* \* \* +Europe/Berlin +{ISO} +once +default", r"\A\Z", r"nightly +hello "),
    "unschedule": (("nightly",), r"\A\Z", r"\ARemoved schedule nightly\.\n\Z", r"Removed schedule nightly"),
    "checkpoint": (("loop", "--state", "state.json"), r"\Aloop@7\n\Z", r"\A\Z", r"\Aloop@7\n\Z"),
    "restore": (("alternative",), r'"topic": "coffee"', r"\A\Z", r'"topic": "coffee"'),
    "tag": (("loop@2", "early"), r"\A\Z", r"loop@early now names loop@2", r"loop@early now names loop@2"),
    "prune": (
        ("loop", "--keep-last", "2"),
        r"\Aloop@1  .*\nloop@2  .*\nloop@4  .*\n\Z",
        r"Dropped 3 states \(.*\)\. Run `everstep gc`",
        r"Dropped 3 states",
    ),
    "gc": ((), r"\A\Z", r"Freed 0 chunks \(0 B\) and returned .* to the disk", r"Freed 0 chunks"),
    "cleanup": (("--keep-last", "2", "--yes"), r"loop@4  ", r"Deleted 0 runs", r"Deleted 0 runs"),
    "verify": (("--depth", "full"), r"\A\Z", r"all good: 7 runs, \d+ records, \d+ chunks", r"all good: 7 runs"),
    "heads": (
        ("--key", "signing.key"),
        r"\Aeverstep-heads 1\n\{.*\}\nrun 1 [0-9a-f ]+ \".*\"\n(run .*\n)+end 7\nsignature [0-9a-f]{16} \S{88}\n\Z",
        r"\A\Z",
        r"\nend 7\n",
    ),
    "audit": (
        ("waits",),
        rf"{ISO}  #\d+ +\S+:\d+  gate opened  gate \"boss#0\".*\n(.*\n)*Complete: \d+ records verified, from the first one to [0-9a-f]{{64}}\n",
        r"\A\Z",
        r"gate opened +gate ",
    ),
    "repair": ((".everstep/store.db", "new.db"), r"7 runs", r"\A\Z", r"7 runs"),
    "doctor": ((), r"✓ engine: SQLite .*\n(.*\n)*! verify: never verified", r"\A\Z", r"! verify: never verified"),
    "migrate": ((), r"\A\Z", r"The store already has format \d+, the current format", r"the current format"),
    "config": (("show", "store"), r"store ", r"\A\Z", r"store "),
    "completion": (("bash",), r"_everstep_completion", r"To install it permanently: eval", r"_everstep_completion"),
    "help": (("runs",), r"\AUsage: everstep runs ", r"\A\Z", r"\AUsage: everstep runs "),
    "inbox": ((), rf'waits +boss +Spend 30\? +"yes" \| "no" +{ISO}', r"\A\Z", r"To answer: everstep answer waits boss yes"),
    "events": (("-n", "3"), rf"{ISO}  {LONG[1]}  ■ succeeded", r"\A\Z", rf"\d\d:\d\d:\d\d  {LONG[1]}  ■ succeeded"),
    "delete": (("broken", "--yes"), r"\A\Z", r"\ADeleted 1 run\. Run `everstep gc`", r"Deleted 1 run\."),
    "skip": (("broken", "look", "milk"), r"\A\Z", r"Step look will be skipped\. To continue: everstep resume broken", r"will be skipped"),
    "retry": (("broken",), r"\A\Z", r"Step look#0 will be called again\. To continue: everstep resume", r"called again"),
    "wake": (IMPORT, r"\A\Z", r"\ANo run is due\.\n\Z", r"No run is due\."),
    "explain": (("E301",), r"\AE301 LeaseHeld: Another writer has the run open\.", r"\A\Z", r"E301 LeaseHeld"),
}
ENDS = {"resume": 1, "doctor": 6}


def prepare(shop: Shop) -> None:
    (shop.folder / "state.json").write_text('{"n": 1}')
    new_file(shop.folder / "signing.key")
    with shop.open() as store:
        store.limit("mail", concurrency=3)
        store.schedule("nightly", "hello", cron="0 3 * * *", zone="Europe/Berlin")


def test_every_command_is_in_the_table_or_has_a_file_of_its_own() -> None:
    own = {name for name in ("demo", "shell", "worker") if Path(__file__).with_name(f"test_{name}.py").exists()}
    assert set(COMMANDS) - own <= {
        *TABLE,
        "shell",
        "workers",
        "encrypt",
        "rekey",
    }  # tests/workers/test_bulk_enqueue.py, tests/encryption/test_key_commands.py
    assert set(TABLE) <= set(COMMANDS)


@pytest.mark.whole
@pytest.mark.parametrize("name", TABLE)
def test_a_command_works_through_a_pipe(name: str, shop: Shop) -> None:
    prepare(shop)
    args, out, err, _ = TABLE[name]
    in_turn = pace.ALL or sample.third_of(name) == pace.rotation() % sample.THIRDS  # the others are forked from a warm parent
    called = shop.pipe(name, *args, new=in_turn)
    assert called.code == ENDS.get(name, 0), called.out + called.err
    assert re.search(out, called.out), called.out
    assert re.search(err, called.err), called.err
    assert "\x1b" not in called.out + called.err


@pytest.mark.parametrize("name", TABLE)
def test_a_command_works_on_a_terminal(name: str, shop: Shop) -> None:
    prepare(shop)
    args, _, _, pattern = TABLE[name]
    called = shop.terminal(name, *args)
    assert called.code == ENDS.get(name, 0), called.out
    assert re.search(pattern, plain(called.out)), called.out


def test_init_makes_a_private_store_that_git_leaves_alone(empty: Shop) -> None:
    data = empty.json("init", "--config-file")
    assert data == {"store": ".everstep/store.db", "new": True, "config": "everstep.toml"}
    assert empty.path.stat().st_mode & 0o777 == 0o600
    assert (empty.folder / ".everstep" / ".gitignore").read_text().strip() == "*"
    assert "store" in (empty.folder / "everstep.toml").read_text()
    (empty.folder / "everstep.toml").write_text("# mine\n")
    assert empty.json("init", "--config-file") == {"store": ".everstep/store.db", "new": False, "config": None}
    assert (empty.folder / "everstep.toml").read_text() == "# mine\n"


def test_init_in_another_folder_and_at_another_place(empty: Shop) -> None:
    (empty.folder / "sub").mkdir()
    empty.call("init", "sub").ok()
    assert (empty.folder / "sub" / ".everstep" / "store.db").is_file()
    assert empty.json("init", "--store", "mine.db")["new"] is True
    assert empty.json("init", "--store", "mine.db")["new"] is False
    assert empty.call("init", "nowhere").code == 2


def test_a_command_in_a_folder_below_finds_the_store(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    below = shop.folder / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert "loop" in shop.call("runs").ok().out


def test_run_passes_arguments_as_json_or_text(empty: Shop) -> None:
    data = empty.json("run", f"{PROGRAMS}:order", "tea", '"7"', "limit=7", "--id", "o")
    assert (data["status"], data["reason"] is not None) == ("waiting", True)
    assert data["gates"][0]["ask"] == "Spend 40?"
    assert empty.json("state", "o", "items")["state"] == ["tea", "7"]
    data = empty.json("resume", "o", *IMPORT, "--answer", "boss=no")
    assert data["result"] == {"total": 40, "answer": "no", "limit": 7}
    assert data["report"]["kept"] == 2
    assert empty.json("run", f"{PROGRAMS}:order", "tea", '"7"', "limit=7", "--id", "o")["result"] == data["result"]  # again, not anew


def test_run_takes_named_arguments_from_a_file_and_from_standard_input(empty: Shop) -> None:
    (empty.folder / "in.json").write_text('{"name": "Bo"}')
    assert empty.call("run", f"{PROGRAMS}:hello", "--input", "in.json").ok().out == "hello Bo\n"
    assert empty.pipe("run", f"{PROGRAMS}:hello", "--input", "-", stdin='{"name": "Cy"}').ok().out == "hello Cy\n"
    assert empty.call("run", f"{PROGRAMS}:hello", "name=Di", "--input", "in.json").ok().out == "hello Di\n"
    (empty.folder / "in.json").write_text("[1]")
    assert empty.call("run", f"{PROGRAMS}:hello", "--input", "in.json").code == 2


def test_run_takes_a_yaml_document(empty: Shop) -> None:
    (empty.folder / "greet.yaml").write_text("name: greet\nsteps:\n  - id: say\n    run: {shell: echo hello}\n")
    called = empty.pipe("run", "greet.yaml", "--id", "y")
    assert called.code == 0, called.err
    assert empty.json("show", "y")["run"]["workflow"] == "greet"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nothing.yaml", "nothing.yaml"),
        ("no.such.module:f", "module 'no.such.module' was not found"),
        ("nothing.py:f", "does not exist"),
        (f"{PROGRAMS}:nobody", "does not define 'nobody'"),
        (f"{PROGRAMS}:time", "time"),
        ("plain", "the target must be a YAML file"),
    ],
)
def test_a_target_that_makes_no_sense_is_named(target: str, said: str, empty: Shop) -> None:
    called = empty.call("run", target)
    assert called.code == 2, called.err
    assert said in called.err
    assert "Traceback" not in called.err
    assert not empty.path.exists()


@pytest.mark.parametrize("arguments", [("1", "2", "3"), ("unknown=3",), ("id=3",)])
def test_arguments_that_the_workflow_does_not_take_are_named(arguments: tuple[str, ...], empty: Shop) -> None:
    called = empty.call("run", f"{PROGRAMS}:hello", *arguments)
    assert called.code == 2, called.out + called.err
    assert "Traceback" not in called.err
    assert "argument" in called.err


def test_a_file_that_is_named_as_a_value_is_not_read_for_further_names(empty: Shop) -> None:
    (empty.folder / "a.txt").write_text("@b.txt")
    (empty.folder / "b.txt").write_text("a secret")
    assert empty.call("run", f"{PROGRAMS}:hello", "@a.txt").ok().out == "hello @b.txt\n"


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--status", "failed"), ["broken"]),
        (("--tag", "chat", "--tag", "prod"), ["alternative", "loop"]),
        (("--session", "monday"), ["alternative", "loop"]),
        (("--workflow", "broken"), ["broken"]),
        (("--parent", "loop"), ["alternative"]),
        (("--note", "about TEA"), ["loop"]),
        (("--where", "who=ann", "--where", "n=3"), ["alternative", "loop"]),
        (("--where", "n=4"), []),
        (("--since", "1h", "--status", "failed"), ["broken"]),
        (("--until", "1h"), []),
        (("--since", "yesterday", "--status", "failed"), ["broken"]),
        (("--oldest-first", "-n", "2"), ["done", "waits"]),
    ],
)
def test_runs_filters(options: tuple[str, ...], found: list[str], shop: Shop) -> None:
    assert [run["id"] for run in shop.json("runs", *options)["runs"]] == found


def test_runs_goes_on_behind_a_page(shop: Shop) -> None:
    all_of_them, after = [], []
    while True:
        data = shop.json("runs", "-n", "3", *after)
        all_of_them += [run["id"] for run in data["runs"]]
        if data["next"] is None:
            break
        after = ["--after", str(data["next"])]
    assert all_of_them == [LONG[1], LONG[0], "alternative", "loop", "broken", "waits", "done"]
    called = shop.call("runs", "-n", "3")
    assert re.search(r"More runs: --after \d+", called.err)


def test_runs_says_why_it_shows_nothing(shop: Shop, tmp_path: Path) -> None:
    assert shop.call("runs", "--status", "queued").err == "No run matches.\n"
    shop.call("init", "--store", str(tmp_path / "other.db")).ok()
    assert shop.call("runs", "--store", str(tmp_path / "other.db")).err == "No runs.\n"


def test_show_tells_of_a_run_and_of_a_checkpoint(shop: Shop) -> None:
    data = shop.json("show", "loop")
    assert data["run"]["session"] == "monday"
    assert data["run"]["meta"] == {"who": "ann", "n": 3}
    assert [one["number"] for one in data["checkpoints"]] == [6, 5, 4, 3, 2, 1]
    assert [fork["id"] for fork in data["forks"]] == ["alternative"]
    assert shop.json("show", "loop", "-n", "2")["checkpoints"][1]["number"] == 5
    assert shop.json("show", "loop@half")["note"] == "turn 3"
    assert shop.json("show", "loop~1")["number"] == 5
    assert shop.json("show", "@last")["run"]["id"] == LONG[1]
    assert shop.json("show", "@last@1")["ref"] == f"{LONG[1]}@1"
    assert shop.json("show", "waits")["gates"][0]["gate"] == "boss"
    assert shop.json("show", "broken")["run"]["error"]["message"] == "no milk on the shelf"
    assert "forked from loop@3" in shop.call("show", "alternative").out
    assert "error     ValueError: no milk on the shelf" in shop.call("show", "broken").out


def test_show_says_what_to_type_next_on_a_terminal_only(shop: Shop) -> None:
    assert "everstep answer waits boss VALUE" in plain(shop.terminal("show", "waits").out)
    assert "everstep resume broken" in plain(shop.terminal("show", "broken").out)
    assert "everstep answer" not in shop.pipe("show", "waits").out


def test_log_tells_the_whole_story_or_the_end_of_it(shop: Shop) -> None:
    out = shop.call("log", "done").ok().out
    for said in (
        "↻ price#1  retrying  attempt 1",
        "the shop is busy",
        "gate boss#0: Spend 70?",
        'gate boss#0 answered by ann: "yes"',
        "checkpoint @2  priced",
    ):
        assert said in out, said
    assert out.index("asked for") < out.index("priced") < out.index("decided")
    assert "└─ fork alternative" in shop.call("log", "loop").out
    short = shop.call("log", "loop", "-n", "2")
    assert len(short.lines) <= 3
    assert re.search(r"\d+ earlier entries: use --all to show them", short.err)
    assert [e["position"] for e in shop.json("log", "loop", "-n", "2")["events"]] == [
        e["position"] for e in shop.json("log", "loop", "--all")["events"]
    ][-2:]


def test_log_follows_a_run_until_it_has_ended(shop: Shop) -> None:
    child = shop.spawn("log", "waits", "--follow", "--json")
    child.expect_exact("gate_opened")
    shop.pipe("answer", "waits", "boss", "yes").ok()
    shop.pipe("resume", "waits", *IMPORT).ok()
    called = ended(child)
    assert called.code == 0
    assert json.loads(called.lines[-1])["data"]["name"] == "run_succeeded"


def test_state_prints_the_whole_or_a_part(shop: Shop) -> None:
    assert shop.json("state", "loop@half") == {"ref": "loop@3", "path": [], "state": json.loads(shop.call("state", "loop@3").out)}
    assert shop.json("state", "loop", "messages[-1].role")["state"] == "user"
    assert shop.json("state", "loop", '["messages", 0, "content"]')["state"] == "message 1"


@pytest.mark.parametrize("path", ["missing", "messages[99]", "topic.deeper", "messages.first", "total[0]"])
def test_a_path_that_is_not_there_is_named(path: str, shop: Shop) -> None:
    for name in ("state", "blame"):
        called = shop.call(name, "loop", path)
        assert called.code == 3, called.err
        assert "Traceback" not in called.err


@pytest.mark.parametrize("path", ["a..b", "a[", "a[x]", "['a", "a]b"])
def test_a_path_that_cannot_be_read_is_a_usage_error(path: str, shop: Shop) -> None:
    assert shop.call("state", "loop", path).code == 2


def test_diff_of_one_ref_is_what_its_checkpoint_changed(shop: Shop) -> None:
    data = shop.json("diff", "loop@2")
    assert sorted((c["path"], c["kind"]) for c in data["changes"]) == [(["messages", 1], "added"), (["total"], "changed")]
    assert shop.call("diff", "loop@1").code == 2
    assert shop.call("diff", "loop@2", "--exit-code").code == 6
    assert shop.call("diff", "loop@2", "loop@2", "--exit-code").code == 0
    limited = shop.call("diff", "loop@1", "loop@6", "-n", "2")
    assert len(limited.lines) == 2
    assert "more difference" in limited.err


def test_diff_cuts_long_values_unless_all_is_wanted(shop: Shop) -> None:
    shop.pipe("checkpoint", "long", stdin=json.dumps({"a": "x" * 5000})).ok()
    shop.pipe("checkpoint", "long", stdin=json.dumps({"a": "y" * 5000})).ok()
    assert "y" * 5000 not in shop.call("diff", "long").out
    assert "y" * 5000 in shop.call("diff", "long", "--full").out


def test_resume_goes_on_after_an_answer_and_pays_for_nothing_twice(shop: Shop) -> None:
    shop.call("answer", "waits", "boss", "yes", "--by", "bo").ok()
    called = shop.pipe("resume", "waits", *IMPORT).ok()
    assert json.loads(called.out) == {"total": 30, "answer": "yes", "limit": 100}
    assert "1 step kept" in called.err
    with shop.open() as store:
        assert store.gates("waits")[0].by == "bo"


def test_resume_says_which_workflow_is_unknown_and_how_to_name_it(shop: Shop) -> None:
    called = shop.pipe("resume", "waits")
    assert called.code == 1
    assert "[E306]" in called.err
    assert "everstep resume waits --import MODULE" in called.err


def test_resume_offers_a_choice_on_a_terminal_and_asks_for_the_argument_without_one(shop: Shop) -> None:
    called = shop.pipe("resume", *IMPORT)
    assert called.code == 2
    assert "Missing argument 'RUN'" in called.err
    child = shop.spawn("resume", *IMPORT)
    child.expect(r"1\s+broken\s+failed .*Which one to resume \[1\]: ")
    child.sendline("1")
    assert "broken: failed" in plain(ended(child).out)


def test_resume_checks_without_going_on(shop: Shop) -> None:
    before = shop.counts()
    data = shop.json("resume", "waits", "--check", code=6)
    assert data["can_resume"] is False
    assert data["reasons"]
    shop.call("answer", "waits", "boss", "yes").ok()
    assert shop.json("resume", "waits", "--check", *IMPORT)["can_resume"] is True
    assert {run[1] for run in shop.counts()["runs"]} == {run[1] for run in before["runs"]}


def test_resume_from_a_step_goes_on_in_a_fork(shop: Shop) -> None:
    data = shop.json("resume", "done", "--from-step", "price#1", *IMPORT)
    assert data["run"] != "done"
    assert data["status"] == "waiting"
    assert shop.json("show", data["run"])["run"]["parent"] == "done"


def test_resume_can_validate_without_writing(shop: Shop) -> None:
    before = shop.counts()
    assert shop.json("resume", "done", "--replay", "validate", *IMPORT)["report"]["differences"] == []
    assert shop.counts() == before


def test_fork_edits_the_state(shop: Shop) -> None:
    data = shop.json("fork", "loop@2", "edited", "--set", "topic=logs", "--set", "messages[0].content='hi'", "--unset", "total")
    assert (data["id"], data["parent"], data["parent_checkpoint"]) == ("edited", "loop", 2)
    state = shop.json("state", "edited")["state"]
    assert (state["topic"], state["messages"][0]["content"], "total" in state) == ("logs", "'hi'", False)
    (shop.folder / "whole.json").write_text('{"a": [1, 2]}')
    shop.call("fork", "loop", "whole", "--state", "whole.json", "--set", "a[1]=3").ok()
    assert shop.json("state", "whole")["state"] == {"a": [1, 3]}
    assert shop.json("state", "loop@2")["state"]["topic"] == "tea"
    assert re.fullmatch(r"loop-[a-z0-9]{6}", shop.call("fork", "loop").ok().out.strip())


@pytest.mark.parametrize(
    "edit",
    [
        ("--set", "nothing"), ("--set", "=1"), ("--set", "[]=1"), ("--set", "messages[99]=1"), ("--set", "topic.x=1"), ("--set", "no.x=1"),
        ("--set", "messages.x=1"), ("--unset", "missing"), ("--unset", "messages[99]"), ("--unset", "[]"), ("--state", "missing.json"), ("--state", "null.json"), ("--state", "text.json"),
    ],
)  # fmt: skip
def test_an_edit_that_makes_no_sense_makes_no_fork(edit: tuple[str, ...], shop: Shop) -> None:
    (shop.folder / "null.json").write_text("null")
    (shop.folder / "text.json").write_text("no JSON")
    before = shop.counts()
    called = shop.call("fork", "loop", "other", *edit)
    assert called.code == 2, called.err
    assert "Traceback" not in called.err
    assert shop.counts() == before


def test_a_fork_begins_with_any_json_state(shop: Shop) -> None:
    for text in ("[1]", '"@b"', "3"):
        (shop.folder / "s.json").write_text(text)
        made = shop.call("fork", "loop", "--state", "s.json").ok().out.strip()
        assert shop.call("restore", made).ok().out.split() == json.dumps(json.loads(text), indent=2).split()


def test_answer_lists_the_gates_that_wait_and_takes_the_first_answer(shop: Shop) -> None:
    assert shop.call("answer", "waits").out == 'boss: Spend 30? ("yes" | "no")\n'
    assert shop.json("answer", "waits")[0]["gate"] == "boss"
    assert shop.json("answer", "loop") == []
    assert shop.call("answer", "loop").code == 3
    assert shop.call("answer", "waits", "boss").code == 2
    assert shop.call("answer", "waits", "boss", "perhaps").code == 2
    assert shop.json("answer", "waits", "boss", "yes") == {"run": "waits", "gate": "boss", "value": "yes"}
    assert shop.call("answer", "waits", "boss", "no").code == 4


def test_answer_takes_json_or_text(shop: Shop) -> None:
    with shop.open() as store:
        for name in ("asks", "asks-text", "asks-nan"):
            with pytest.raises(everstep.errors.Waiting), store.run(name) as run:
                run.gate("g", ask="What?")
    shop.call("answer", "asks", "g", '{"n": [1]}').ok()
    assert shop.json("answer", "asks-text", "g", "12", "--text")["value"] == "12"
    assert shop.json("answer", "asks-nan", "g", "NaN")["value"] == "NaN"
    answers = []
    with shop.open() as store:
        for name in ("asks", "asks-text", "asks-nan"):
            with store.run(name) as run:
                answers.append(run.gate("g", ask="What?"))
    assert answers == [{"n": [1]}, "12", "NaN"]


def test_an_answer_from_standard_input_is_read_once(shop: Shop) -> None:
    assert shop.pipe("answer", "waits", "boss", "@-", "--json", stdin='"yes"').ok().data["value"] == "yes"
    assert shop.json("resume", "waits", *IMPORT)["result"]["answer"] == "yes"


def test_only_a_run_of_a_workflow_is_said_to_be_resumed(shop: Shop) -> None:
    assert "To continue: everstep resume other --import MODULE" in shop.call("fork", "done@priced", "other").err
    assert "everstep resume" not in shop.call("fork", "loop", "another").err
    with shop.open() as store, pytest.raises(ValueError), store.run("loop-failed"):
        raise ValueError("no luck")
    assert "everstep resume" not in plain(shop.terminal("show", "loop-failed").out)
    child = shop.spawn("resume", *IMPORT)
    child.expect_exact("Which one to resume")
    assert re.findall(r"^ +\d+  (\S+)", child.before, re.MULTILINE) == ["broken", "other", "waits"]
    child.sendeof()
    assert ended(child).code == 130


def test_answer_asks_a_person_for_the_value(shop: Shop) -> None:
    child = shop.spawn("answer", "waits", "boss")
    child.expect_exact("Spend 30?")
    child.expect_exact("Answer")
    child.sendline("perhaps")
    child.expect_exact("Answer")
    child.sendline("no")
    assert ended(child).code == 0
    assert shop.json("resume", "waits", *IMPORT)["result"]["answer"] == "no"


def test_pause_and_cancel_are_heard_by_a_process_that_drives_the_run(shop: Shop) -> None:
    for name, status, code in (("pause", "waiting", 0), ("cancel", "cancelled", 1)):
        flag = shop.folder / f"{name}.flag"
        child = shop.spawn("run", f"{PROGRAMS}:slow", str(flag), "--id", f"slow-{name}")
        child.expect_exact("nap#1")
        said = shop.call(name, f"slow-{name}", "--reason", "enough")
        assert "requested; its process stops at the next step" in said.err
        called: Called = ended(child)
        assert f"slow-{name}: {status}" in plain(called.out)
        assert called.code == code
        assert "enough" in shop.call("log", f"slow-{name}").out


def test_cancel_is_for_good(shop: Shop) -> None:
    assert shop.json("cancel", "waits", "--reason", "no money")["run"]["status"] == "cancelled"
    assert shop.call("resume", "waits", *IMPORT).code == 4
    assert shop.call("pause", "waits").code == 4


def test_tag_names_a_checkpoint(shop: Shop) -> None:
    assert shop.json("tag", "loop@2", "early")["tags"] == ["early"]
    assert shop.json("show", "loop@early")["number"] == 2
    assert shop.call("tag", "loop@2", "not a tag").code == 2


def test_prune_says_beforehand_exactly_what_it_then_does(shop: Shop) -> None:
    before = shop.counts()
    said = shop.json("prune", "--keep-last", "2", "--keep-tag", "half", "--dry-run")
    assert shop.counts() == before
    done = shop.json("prune", "--keep-last", "2", "--keep-tag", "half")
    assert (said.pop("dry_run"), done.pop("dry_run")) == (True, False)
    assert done == said
    dropped = [f"{run['run']}@{d['number']}" for run in done["runs"] for d in run["decisions"] if not d["kept"]]
    assert {"loop@1", "loop@2", "loop@4"} <= set(dropped)
    assert "loop@3" not in dropped
    with shop.open() as store:
        assert sorted(dropped) == sorted(c.ref for r in store.runs() for c in store.checkpoints(r.id) if c.pruned)


def test_gc_says_beforehand_exactly_what_it_then_frees(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saver, "BASE_EVERY", 5)  # bases that nobody needs, after a few checkpoints
    monkeypatch.setattr(saver, "MOST_DELTAS", 20)
    with shop.open() as store:
        with store.run("big") as run:
            for n in range(70):
                run.state[f"text {n % 5}"] = Random(n).randbytes(10_000).hex()
                run.checkpoint()
        store.prune({"keep_last": 1}, run="big")
    before = shop.counts()
    said = shop.json("gc", "--dry-run")
    assert said["chunks"] > 0
    assert shop.counts() == before
    done = shop.json("gc")
    assert (done["chunks"], done["freed"], done["kept"]) == (said["chunks"], said["freed"], said["kept"])
    assert shop.counts()["stats"]["chunks"] == before["stats"]["chunks"] - said["chunks"]
    assert shop.json("gc", "--compact")["chunks"] == 0


def test_cleanup_says_beforehand_exactly_which_runs_it_then_deletes(shop: Shop) -> None:
    before = shop.counts()
    said = shop.json("cleanup", "--completed", "delete", "--keep-within", "0s", "--dry-run")
    assert shop.counts() == before
    refused = shop.call("cleanup", "--completed", "delete", "--keep-within", "0s")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert shop.counts() == before
    done = shop.json("cleanup", "--completed", "delete", "--keep-within", "0s", "--yes")
    assert [one["run"] for one in done["deleted"]] == [one["run"] for one in said["deleted"]]
    left = {run[0] for run in shop.counts()["runs"]}
    assert left == {run[0] for run in before["runs"]} - {one["run"] for one in said["deleted"]}
    assert "waits" in left
    assert "done" not in left


def test_cleanup_asks_a_person_before_it_deletes(shop: Shop) -> None:
    before = shop.counts()
    child = shop.spawn("cleanup", "--completed", "delete", "--keep-within", "0s")
    child.expect(r"This deletes \d runs permanently. Continue\? \[y/N\]: ")
    child.sendline("n")
    assert ended(child).code == 1
    assert shop.counts() == before


def test_verify_stops_in_time_and_says_so(shop: Shop) -> None:
    data = shop.json("verify", "--depth", "full")
    assert (data["ok"], data["complete"], data["runs"], data["problems"]) == (True, True, 7, [])
    data = shop.json("verify", "--depth", "full", "--seconds", "0.00001s", code=6)
    assert data["complete"] is False
    assert data["reached"]


def test_repair_writes_a_new_store_and_leaves_the_old_one(shop: Shop) -> None:
    before = shop.path.read_bytes()
    data = shop.json("repair", str(shop.path), "new.db")
    assert data["lost"] == []
    assert shop.path.read_bytes() == before
    new = shop.json("runs", "--store", "new.db")
    assert {run["id"] for run in new["runs"]} == {run["id"] for run in shop.json("runs")["runs"]}
    assert shop.call("repair", str(shop.path), "new.db").code != 0  # never over something that is there


def test_stats_count_steps_attempts_and_costs(shop: Shop) -> None:
    data = shop.json("stats")
    assert data["store"]["runs"] == 7
    assert data["statuses"] == {"succeeded": 4, "waiting": 2, "failed": 1}
    assert data["steps"]["tokens"] == 30
    assert data["steps"]["cost"] == 0.75
    assert data["steps"]["failed"] >= 2
    assert data["resumes"]["runs"] >= 0
    assert shop.json("stats", "--runs", "1")["steps"]["runs"] == 1
    assert shop.json("stats", "--since", "yesterday")["statuses"] == data["statuses"]


def test_explain_knows_every_code(shop: Shop) -> None:
    from everstep.cli.commands.explain import classes

    assert [one["code"] for one in shop.json("explain")] == sorted(classes())
    assert len(shop.call("explain").lines) == len(classes()) + 1
    assert shop.json("explain", "e501")["exit_code"] == 5
    assert shop.call("explain", "E999").code == 3


def test_the_figures_of_stats_stand_below_each_other(shop: Shop) -> None:
    lines = shop.call("stats").ok().lines
    assert {"full copies", "steps", "spent"} <= {line.partition("  ")[0] for line in lines}
    assert {re.search(r"  +(?=\S)", line).end() for line in lines} == {len("full copies  ")}  # type: ignore[union-attr]


def test_migrate_looks_first(shop: Shop) -> None:
    data = shop.json("migrate", "--dry-run")
    assert data["from"] == data["to"]
    assert data["dry_run"] is True


def test_migrate_brings_an_old_store_up(empty: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_format, "OLDER", {})
    format_0.register()
    place = empty.folder / "old.db"
    format_0.make(place)
    before = place.read_bytes()
    said = empty.json("migrate", "--dry-run", "--store", "old.db")
    assert (said["from"], said["to"]) == (0, 1)
    assert empty.call("migrate", "--dry-run", "--store", "old.db").ok().err == "Would migrate the store from format 0 to format 1.\n"
    assert place.read_bytes() == before
    done = empty.json("migrate", "--store", "old.db")
    assert (done["from"], done["to"]) == (0, 1)
    assert empty.json("migrate", "--store", "old.db")["from"] == 1


@pytest.mark.parametrize(
    "option", [("runs", "--where"), ("checkpoint", "r", "--meta"), ("fork", "loop", "--set"), ("resume", "waits", "--answer")]
)
def test_a_pair_without_a_name_or_a_value_is_refused_by_every_option(option: tuple[str, ...], shop: Shop) -> None:
    (shop.folder / "s.json").write_text("{}")
    before = shop.counts()
    for text in ("novalue", "=noname"):
        more = ("--state", "s.json") if option[0] == "checkpoint" else ()
        called = shop.call(*option, text, *more)
        assert called.code == 2, called.err
        assert re.search(rf"{option[-1]} must be \w+=VALUE, got '{text}'", called.err)
    assert shop.counts() == before


def test_a_file_that_failed_as_it_was_loaded_is_loaded_anew(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    program = shop.folder / "half_made_program.py"
    program.write_text("def halfway():\n    return 'half'\n\nraise OSError('not today')\n")
    assert shop.call("run", "half_made_program.py:halfway").code == 2
    assert "half_made_program" not in sys.modules
    assert "not today" in shop.call("run", "half_made_program.py:halfway").err
    program.write_text("import everstep\n\n@everstep.workflow\ndef halfway():\n    return 'whole'\n")
    try:
        assert shop.call("run", "half_made_program.py:halfway").ok().out == "whole\n"
    finally:
        sys.modules.pop("half_made_program", None)


def test_config_migrate_rewrites_the_file_and_leaves_its_mode(empty: Shop) -> None:
    file = empty.folder / "everstep.toml"
    file.write_text("retention_days = 30\n")
    file.chmod(0o640)
    assert empty.json("config", "migrate", "--dry-run")["changes"]
    assert file.read_text() == "retention_days = 30\n"
    assert empty.json("config", "migrate")["changes"]
    assert empty.json("config", "show", "retention.keep_within")["retention.keep_within"]["value"] == "30d"
    assert "retention_days" not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in empty.folder.iterdir()] == ["everstep.toml"]
    assert empty.json("config", "migrate")["changes"] == []
