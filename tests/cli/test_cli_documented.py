"""docs/cli.md says what is there, and nothing else: commands, options, exit codes, JSON shapes; and its examples are real."""

from __future__ import annotations

import os
import re
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import pytest
import warm
from cli_helpers import DOCUMENT, PROGRAMS, Called, Shop, environment

import everstep.cli
from everstep.cli import exit_codes
from everstep.cli.common import OPTIONS
from everstep.cli.main import COMMANDS, group

TEXT = DOCUMENT.read_text(encoding="utf-8")
IMPORT = ("--import", str(PROGRAMS))


def section(heading: str) -> str:
    """What stands under a heading, up to the next one of its level or above."""
    level = heading.split()[0]
    found = re.search(rf"^{re.escape(heading)}$\n(.*?)(?=^#{{1,{len(level)}}} |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, f"there is no heading {heading!r}"
    return found[1]


def of(name: str) -> str:
    return section(f"## everstep {name}")


def commands(name: str) -> list[click.Command]:
    """A command, or those that stand below it."""
    found = group.get_command(click.Context(group), name)
    assert found is not None
    return list(found.commands.values()) if isinstance(found, click.Group) else [found]


def common() -> set[str]:
    made: Any = lambda: None  # noqa: E731
    for option in OPTIONS:
        made = option(made)
    return {name for option in made.__click_params__ for name in option.opts}


def own_options(command: click.Command) -> list[click.Option]:
    return [p for p in command.params if isinstance(p, click.Option) and not set(p.opts) & common()]


def first_cells(text: str) -> str:
    """The first column of all tables."""
    return "\n".join(re.findall(r"^\| (.*?) \| ", text, re.MULTILINE))


def test_every_command_has_a_heading_and_every_heading_a_command() -> None:
    assert re.findall(r"^## everstep (\w+)$", TEXT, re.MULTILINE) == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_and_argument_is_explained(name: str) -> None:
    named = first_cells(of(name))
    for command in commands(name):
        for option in own_options(command):
            for spelling in option.opts:
                assert re.search(rf"`{spelling}[ `]", named), f"everstep {name} {spelling} is not explained"
        for argument in (p for p in command.params if isinstance(p, click.Argument)):
            assert f"`{str(argument.name).upper()}`" in (of(name) if name == "config" else named), f"everstep {name} {argument.name}"


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_is_explained_that_is_not_there(name: str) -> None:
    known = {spelling for command in commands(name) for option in own_options(command) for spelling in option.opts}
    assert set(re.findall(r"`(--?[a-z][\w-]*)", first_cells(of(name)))) <= known | common()
    for spelling in re.findall(rf"`everstep {name} (--[\w-]+)`", TEXT):
        assert spelling in known | common() | {"--help"}


def test_the_options_of_every_command_are_explained_once() -> None:
    named = first_cells(section("## Common options"))
    assert set(re.findall(r"`(--?[a-z][\w-]*)", named)) == common() | {"--help", "-h"}
    for name in COMMANDS:
        for command in commands(name):
            assert common() <= {spelling for p in command.params for spelling in p.opts}, name


def test_every_exit_code_is_in_the_table_and_no_other() -> None:
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", section("## Exit codes"), re.MULTILINE)}
    known = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
    assert codes == known | {143}


def kinds_in_the_code() -> set[str]:
    folder = Path(everstep.cli.__file__).parent
    texts = [path.read_text() for path in folder.rglob("*.py") if "shell" not in path.parts]
    found = {kind for text in texts for kind in re.findall(r'\.(?:data|item)\(\s*"(\w+)"', text)}
    found |= {kind for text in texts for kind in re.findall(r'stop_command\("(\w+)"', text)}
    return found | {kind for text in texts for kind in re.findall(r'"kind": "(\w+)"', text)}


def test_every_kind_of_json_is_named_and_no_other() -> None:
    assert set(re.findall(r"kind `(\w+)`", TEXT)) == kinds_in_the_code()


# Which call answers with which kind, and where its keys stand. Each is a real one, on the store of the tests.
SAMPLES: list[tuple[str, str, tuple[str, ...], int]] = [
    ("init", "init", ("init",), 0),
    ("new", "new", ("new", "agent", "fresh"), 0),
    ("run", "outcome", ("run", f"{PROGRAMS}:order", "tea", "--id", "new"), 0),
    ("run", "outcome", ("run", f"{PROGRAMS}:broken", "--id", "new"), 1),
    ("run", "outcome", ("resume", "done", "--replay", "validate", *IMPORT), 0),
    ("runs", "runs", ("runs",), 0),
    ("runs", "runs", ("runs", "-n", "1", "--tree"), 0),
    ("show", "run", ("show", "waits"), 0),
    ("show", "run", ("show", "broken"), 0),
    ("show", "run", ("show", "loop"), 0),
    ("log", "log", ("log", "done"), 0),
    ("events", "events", ("events", "-n", "5"), 0),
    ("log", "graph", ("log", "done", "--graph", "dot"), 0),
    ("state", "state", ("state", "loop", "messages[0]"), 0),
    ("diff", "diff", ("diff", "loop@1", "loop@2"), 0),
    ("blame", "blame", ("blame", "loop", "total"), 0),
    ("bisect", "bisect", ("bisect", "loop", "--when", "total > 10"), 0),
    ("bisect", "bisect", ("bisect", "loop", "--when", "total > 1000"), 3),
    ("stats", "stats", ("stats",), 0),
    ("resume", "can_resume", ("resume", "waits", "--check"), 6),
    ("wake", "wake", ("wake", *IMPORT), 0),
    ("inbox", "inbox", ("inbox",), 0),
    ("answer", "answer", ("answer", "waits", "boss", "yes"), 0),
    ("retry", "retry", ("retry", "broken"), 0),
    ("skip", "skip", ("skip", "broken", "look", "1"), 0),
    ("delete", "delete", ("delete", "broken", "--yes"), 0),
    ("help", "help", ("help", "config", "validate"), 0),
    ("pause", "pause", ("pause", "waits"), 0),
    ("cancel", "cancel", ("cancel", "waits"), 0),
    ("enqueue", "enqueued", ("enqueue", "hello", *IMPORT), 0),
    ("limit", "limit", ("limit", "mail", "--rate", "10/60s"), 0),
    ("restore", "restore", ("restore", "loop"), 0),
    ("restore", "restore", ("restore", "loop", "-o", "x.json"), 0),
    ("prune", "prune", ("prune", "--keep-last", "1", "--dry-run"), 0),
    ("gc", "gc", ("gc",), 0),
    ("cleanup", "cleanup", ("cleanup", "--completed", "delete", "--keep-within", "0s", "--dry-run"), 0),
    ("verify", "verify", ("verify", "--depth", "full"), 0),
    ("heads", "heads", ("heads", "--key", "signing.key"), 0),
    ("heads", "heads", ("heads", "--key", "signing.key", "-o", "heads.txt"), 0),
    ("verify", "verify", ("verify", "--against", "signed.txt", "--public-key", "signing.key.pub"), 0),
    ("repair", "repair", ("repair", ".everstep/store.db", "new.db"), 0),
    ("encrypt", "encrypt", ("encrypt", "--to", "new.db", "--key-source", "command:printf %064d 1"), 0),
    ("doctor", "doctor", ("doctor",), 6),
    ("migrate", "migrate", ("migrate",), 0),
    ("completion", "completion", ("completion", "bash"), 0),
    ("explain", "explain", ("explain", "E301"), 0),
]
SHAPES: list[tuple[str, str, tuple[str, ...]]] = [
    ("run", "fork", ("fork", "loop", "new")),
    ("schedule", "schedule", ("schedule", "daily", "hello", "name=Ann", "--cron", "0 0 * * *", *IMPORT)),
    ("step", "step", ("show", "broken", "look")),
    ("step", "step", ("show", "done", "price#1")),
    ("checkpoint", "checkpoint", ("show", "loop@3")),
    ("checkpoint", "checkpoint", ("tag", "loop@3", "t")),
    ("checkpoint", "checkpoint", ("checkpoint", "new", "--state", "s.json")),
]
LISTS: list[tuple[str, str, tuple[str, ...]]] = [
    ("gate", "gates", ("answer", "waits")),
    ("queue", "queues", ("queues",)),
    ("schedule", "schedules", ("schedules",)),
    ("stranded", "stranded", ("queues", "--stranded")),
]
FREE = {
    "rekey",
    "resumed",
    "error",
    "event",
    "worker_event",
    "unschedule",
    "config",
    "config_validate",
    "config_migrate",
    "codes",
    "demo",
    "workers",
    "enqueued_batch",
    "audit",
    "proof",
    "deletions",
    "key",
}


def keys(text: str) -> dict[str, str]:
    """The documented keys with their types."""
    found: dict[str, str] = {}
    for table in re.findall(r"^\| key \| type \| meaning \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", text, re.MULTILINE):
        found |= dict(re.findall(r"^\| `([^`]+)` \| (.*?) \| ", table, re.MULTILINE))
    return found


def fits(value: Any, documented: dict[str, str], where: str = "") -> None:
    """Whether an object has the documented keys, all of them and no other, each of its type."""
    tops = {re.split(r"\.|\[\]", key)[0] for key in documented}
    assert set(value) == tops, f"{where}: {set(value) ^ tops}"
    for top in tops:
        inner = {
            key.removeprefix(f"{top}[]").removeprefix(top)[1:]: kind
            for key, kind in documented.items()
            if key != top and re.match(rf"{top}[.\[]", key)
        }
        if not inner:
            assert_type(value[top], documented[top], f"{where}.{top}")
        elif f"{top}[]" in "".join(documented):
            for item in value[top]:
                fits(item, inner, f"{where}.{top}[]")
        else:
            fits(value[top], inner, f"{where}.{top}")


def assert_type(value: Any, kind: str, where: str) -> None:
    if kind.endswith(" or null"):
        if value is None:
            return
        kind = kind.removesuffix(" or null")
    if kind.startswith("list of "):
        assert isinstance(value, list), where
        for item in value:
            assert_type(item, kind.removeprefix("list of "), f"{where}[]")
        return
    shape = re.fullmatch(r"\[(\w+)\]\(#\1\)", kind)
    if shape:
        fits(value, keys(section(f"### {shape[1]}")), where)
        return
    assert TYPES[kind](value), f"{where}: {value!r:.80} is no {kind}"


def is_time(value: Any) -> bool:
    return isinstance(value, str) and value.endswith("Z") and datetime.fromisoformat(value).tzinfo is not None


TYPES: dict[str, Any] = {
    "any": lambda value: True,
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "time": is_time,
}


@pytest.mark.parametrize(("name", "kind", "args", "code"), SAMPLES, ids=lambda value: value if isinstance(value, str) else None)
def test_json_has_the_documented_keys_and_types(name: str, kind: str, args: tuple[str, ...], code: int, shop: Shop) -> None:
    if any("sign" in arg for arg in args):
        shop.call("heads", "--new-key", "signing.key").ok()
        shop.call("heads", "--key", "signing.key", "-o", "signed.txt").ok()
    called = shop.call(*args, "--json")
    assert called.code == code, called.out + called.err
    fits(called.json, keys(section("## JSON").partition("### run")[0]))
    assert (called.json["everstep"], called.json["kind"]) == (1, kind)
    documented = keys(of(name))
    if name == "log":
        documented = {key: kind_of for key, kind_of in documented.items() if key == "run" or (key == "events") == (kind == "log")}
    elif name == "run":
        documented = keys(of("run"))
    fits(called.data, documented, name)


@pytest.mark.parametrize(("shape", "kind", "args"), SHAPES, ids=lambda value: value if isinstance(value, str) else None)
def test_json_has_the_documented_shape(shape: str, kind: str, args: tuple[str, ...], shop: Shop) -> None:
    (shop.folder / "s.json").write_text("{}")
    called = shop.call(*args, "--json").ok()
    assert called.json["kind"] == kind
    assert f"kind `{kind}`, a [{shape}](#{shape})" in TEXT
    fits(called.data, keys(section(f"### {shape}")), shape)


@pytest.mark.parametrize(("shape", "kind", "args"), LISTS)
def test_json_is_a_list_of_the_documented_shape(shape: str, kind: str, args: tuple[str, ...], shop: Shop) -> None:
    shop.call("enqueue", "hello", *IMPORT).ok()
    shop.call("limit", "mail", "--rate", "10/60s").ok()
    shop.call("schedule", "daily", "hello", "--cron", "0 0 * * *", *IMPORT).ok()
    called = shop.call(*args, "--json").ok()
    assert called.json["kind"] == kind
    assert called.data
    for one in called.data:
        fits(one, keys(section(f"### {shape}")), shape)


def test_a_stream_of_events_has_the_documented_shape(shop: Shop) -> None:
    called = shop.pipe("log", "done", "--follow", "--json").ok()
    for line in called.lines:
        one = type(called)(0, line)
        assert one.json["kind"] == "event"
        fits(one.data, keys(section("### event")), "event")
    assert len(called.lines) > 5


@pytest.mark.parametrize(("args", "end"), [(("done",), "proof"), (("waits",), "proof"), (("--deleted",), "deletions")])
def test_the_lines_of_an_audit_have_the_documented_shape(shop: Shop, args: tuple[str, ...], end: str) -> None:
    shop.call("delete", "broken", "--yes").ok()
    lines = [Called(0, line) for line in shop.call("audit", *args, "--json").ok().lines]
    assert [line.json["kind"] for line in lines] == [*["audit"] * (len(lines) - 1), end]
    for line in lines:
        fits(line.data, keys(section(f"### {line.json['kind']}")), line.json["kind"])
    assert len(lines) > 1


def test_a_new_key_has_the_documented_keys(shop: Shop) -> None:
    assert set(shop.json("heads", "--new-key", "signing.key")) == {"file", "public_file", "key", "public_key"}


def test_the_events_of_a_worker_have_the_documented_shape(shop: Shop) -> None:
    for _ in range(2):
        shop.call("enqueue", "broken", *IMPORT).ok()
    called = shop.pipe("worker", "--until-idle", *IMPORT).ok()
    names = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"^\| ([a-z_, ]+) \| ", of("worker"), re.MULTILINE))))
    for line in called.lines:
        one = type(called)(0, line)
        assert one.json["kind"] == "worker_event"
        assert one.data["event"] in names
        fits(one.data, keys(section("### worker_event")), "worker_event")
    assert len(called.lines) == 6


def test_a_run_in_a_queue_has_the_documented_queue_entry(shop: Shop) -> None:
    shop.call("enqueue", "hello", "--id", "queued", "--key", "k", *IMPORT).ok()
    fits(shop.json("show", "queued")["queue_entry"], keys(section("### queue_entry")), "queue_entry")
    fits(shop.json("stats")["queues"][0], keys(section("### queue")), "queue")


def test_a_schedule_that_is_forgotten_is_named(shop: Shop) -> None:
    shop.call("schedule", "daily", "hello", "--cron", "0 0 * * *", *IMPORT).ok()
    fits(shop.json("unschedule", "daily"), keys(of("unschedule")), "unschedule")


def test_differences_of_a_validated_replay_have_their_keys(shop: Shop) -> None:
    changed = shop.folder / "cli_programs.py"
    changed.write_text(PROGRAMS.read_text().replace("return 10 * len(item)", "return 11 * len(item)"))
    called = shop.call("resume", "done", "--replay", "validate", "--import", "cli_programs.py", "--json")
    assert called.code == exit_codes.FOUND
    differences = called.data["report"]["differences"]
    assert [(one["step"], one["recorded"], one["now"]) for one in differences] == [("price#0", "30", "33"), ("price#1", "40", "44")]
    fits(called.data, keys(of("run")), "outcome")


def test_every_kind_is_compared_with_the_document() -> None:
    compared = {kind for _, kind, *_ in (*SAMPLES, *SHAPES, *LISTS)}
    assert compared | FREE == kinds_in_the_code()


NOISE = [
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "<time>"), (r"\d+(\.\d+)? (ms|s|KB|MB|B)\b", "<size>"), (r"\b[0-9a-f]{64}\b", "<digest>"),
    (r'worker "[^"]*"', "<worker>"), (r"worker +\S+:\d+", "<worker>"), (r"\d+(\.\d+)? times as much", "<times>"), (r"[ \t]+", " "),
    (r'"w-\w+"', '"<worker>"'), (r'"seconds": [\d.]+', '"seconds": <seconds>'),
]  # fmt: skip


def quiet(text: str) -> list[str]:
    """Without what differs from one call to the next."""
    for pattern, instead in NOISE:
        text = re.sub(pattern, instead, text)
    return [line.rstrip() for line in text.splitlines()]


def test_every_example_prints_what_it_says(empty: Shop) -> None:
    folder = empty.folder / "bin"
    folder.mkdir()
    warm.command(folder / "everstep")
    (empty.folder / "shop.py").write_text(re.findall(r"```python\n(# shop\.py\n.*?)```", TEXT, re.DOTALL)[0])
    env = environment(PATH=f"{folder}{os.pathsep}{os.environ['PATH']}")
    blocks = re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) > 15
    for block in blocks:
        for command, said in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            done = subprocess.run(
                ["bash", "-c", command], cwd=empty.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
            )
            assert quiet(done.stdout) == quiet(said), command


def test_every_command_but_a_few_has_an_example() -> None:
    shown = set(re.findall(r"^\$ (?:.*\| )?everstep (\w+)", TEXT, re.MULTILINE))
    assert set(COMMANDS) - shown <= {
        "demo",
        "shell",
        "pause",
        "cancel",
        "gc",
        "repair",
        "encrypt",
        "rekey",
        "doctor",
        "config",
        "completion",
        "retry",
        "skip",
        "help",
    }
