"""Every key of a configuration does something, and what is given to open() wins over it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import hook_functions
import pytest

import everstep
from everstep.codec.frame import Framer
from everstep.config.keys import KEYS
from everstep.config.settings import load
from everstep.config.workflow_files import expanded
from everstep.errors import Interrupted, InvalidArgument, InvalidConfig, WrongKey

TEXT = "a text that can be made much smaller " * 100


def opened(text: str, **given: Any) -> everstep.Store:
    Path("everstep.toml").write_text(text)
    return everstep.open(**given)


def size_of(store: everstep.Store) -> int:
    with store.run("r", state={"text": TEXT}) as run:
        run.checkpoint()
    row = store.backend.run("r")
    assert row is not None
    return row.stored


def test_enabled() -> None:
    with opened('enabled = false\nstore = "x.db"\n') as store, store.run("r") as run:
        assert run.step("one", lambda: 1) == 1
        run.checkpoint()
    assert [path.name for path in Path.cwd().iterdir()] == ["everstep.toml"]


def test_store() -> None:
    with opened('store = "deep.db"\n') as store:
        assert Path("deep.db").exists()
        assert store.url.endswith("deep.db")
    assert not Path(".everstep").exists()


def test_preset() -> None:
    with opened('preset = "development"\nstore = "memory://"\n') as store:
        assert str(store.policy) == "every 1 step"
        assert store.get_retention() == everstep.Retention(keep_last=10)


def test_durability() -> None:
    with opened('durability = "exit"\nstore = "memory://"\n') as store:
        with store.run("r") as run:
            run.checkpoint()
            assert list(store.checkpoints("r")) == []  # it is durable when the block is left
        assert len(store.checkpoints("r")) == 1
        with store.run("s", durability="sync") as run:
            run.checkpoint()
            assert len(store.checkpoints("s")) == 1


def test_durability_of_workflows() -> None:
    seen: list[int] = []
    with opened('durability = "exit"\nstore = "memory://"\n') as store:

        def flow() -> None:
            everstep.current().checkpoint()
            seen.append(len(store.checkpoints("w")))

        assert store.start(flow, id="w").status == "succeeded"
    assert seen == [0]


def test_policy() -> None:
    with opened('policy = "every 2 steps"\nstore = "memory://"\n') as store, store.run("r") as run:
        for _ in range(4):
            run.step("one", lambda: 1)
        assert len(store.checkpoints("r")) == 2


def test_policy_off_records_nothing() -> None:
    with opened('policy = "off"\nstore = "x.db"\n') as store:
        assert not store.enabled
    assert not Path("x.db").exists()


def test_compression_codec() -> None:
    with opened('store = "memory://"\n[compression]\ncodec = "none"\n') as plain, opened('store = "memory://"\n') as packed:
        assert size_of(plain) > 3_000 > 2_000 > size_of(packed)


def test_compression_level() -> None:
    with opened('store = "memory://"\n[compression]\nlevel = 19\n') as store:
        assert store.framer._level == 19


def test_compression_threshold() -> None:
    with opened('store = "memory://"\n[compression]\nthreshold = 100_000\n') as store:
        assert size_of(store) > 3_000


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("keep_last = 3", {"keep_last": 3}),
        ('keep_within = "2d"', {"keep_within": timedelta(days=2)}),
        ('keep_within = "90min"', {"keep_within": timedelta(minutes=90)}),
        ("keep_within = 30", {"keep_within": timedelta(seconds=30)}),
        ("keep_daily = 3", {"keep_daily": 3}),
        ("keep_weekly = 3", {"keep_weekly": 3}),
        ("keep_tagged = true", {"keep_tagged": True}),
        ('keep_tagged = ["a"]', {"keep_tagged": ["a"]}),
        ('keep_kinds = ["final"]', {"keep_kinds": ["final"]}),
        ("max_bytes = 100", {"max_bytes": 100}),
        ('completed = "final"', {"completed": "final"}),
        ("minimum = 4", {"minimum": 4}),
    ],
)
def test_retention(line: str, expected: dict[str, Any]) -> None:
    with opened(f'store = "memory://"\n[retention]\n{line}\n') as store:
        assert store.get_retention() == everstep.Retention(**expected)


def test_schedule() -> None:
    def fill(text: str) -> int:
        with opened(text) as store, store.run("r") as run:
            for n in range(5):
                run.state["n"] = n
                run.checkpoint()
        with opened(text) as store:
            return len([c for c in store.checkpoints("r") if not c.pruned])

    assert fill('store = "never.db"\n[retention]\nkeep_last = 1\n') == 5
    assert fill('store = "always.db"\nschedule = "on_open"\n[retention]\nkeep_last = 1\n') == 1


def test_protect() -> None:
    with opened('store = "memory://"\nprotect = ["gold"]\n') as store:
        with store.run("r") as run:
            for n in range(5):
                run.state["n"] = n
                run.checkpoint(tags=["gold"] if n == 1 else [])
        store.prune(everstep.Retention(keep_last=1))
        assert [c.number for c in store.checkpoints("r") if not c.pruned] == [5, 2]


def test_lease_seconds() -> None:
    with opened('store = "memory://"\nlease_seconds = 7\n') as store:
        assert store.keeper._ttl_us == 7_000_000


def test_imports_are_named_for_the_command_line_and_not_imported_by_open() -> None:
    with opened('store = "memory://"\nimports = ["imported_by_nobody"]\n'):
        Path("imported_by_nobody.py").write_text("")
        assert load(environ={})["imports"] == ["imported_by_nobody"]
        assert "imported_by_nobody" not in sys.modules


def test_workflows_are_files_beside_the_configuration_and_not_loaded_by_open() -> None:
    with opened('store = "memory://"\nworkflows = ["flows/**/*.yaml", "loaded_by_nobody.py"]\n'):
        Path("flows/deep").mkdir(parents=True)
        Path("flows/deep/a.yaml").write_text("this is not a workflow")
        Path("loaded_by_nobody.py").write_text("")
        found = expanded(load(environ={})["workflows"])
        assert [Path(file).relative_to(Path.cwd()).as_posix() for file in found] == ["flows/deep/a.yaml", "loaded_by_nobody.py"]
        assert "loaded_by_nobody" not in sys.modules
        Path("loaded_by_nobody.py").unlink()
        with pytest.raises(InvalidConfig, match=r"loaded_by_nobody\.py', which does not exist"):
            expanded(load(environ={})["workflows"])


def test_hooks() -> None:
    hook_functions.HEARD.clear()
    text = 'store = "memory://"\n[[hooks]]\nevent = "after_checkpoint"\ncall = "hook_functions:heard"\npriority = 3\ntimeout = 9.0\n'
    with opened(text) as store:
        with store.run("r") as run:
            run.checkpoint()
        (hook,) = store.hooks()
        assert (hook.priority, hook.timeout) == (3, 9.0)
    assert hook_functions.HEARD == ["after_checkpoint"]


@pytest.mark.parametrize("call", ["no_such_module:f", "hook_functions:nothing", "hook_functions:NO_FUNCTION"])
def test_a_hook_that_cannot_be_had_is_named_before_anything_is_made(call: str) -> None:
    with pytest.raises(InvalidConfig, match=f"^everstep.toml:2: hooks: call = '{call}'"):
        opened(f'store = "x.db"\nhooks = [{{ event = "error", call = "{call}" }}]\n')
    assert not Path("x.db").exists()


def drive(store: everstep.Store, work: Callable[[], None]) -> None:
    with store.run("r") as run:
        for _ in range(5):
            run.step("work", work)


@pytest.mark.parametrize(("line", "steps"), [("steps = 3", 3), ("tokens = 30", 3), ("cost = 2.0", 2), ("seconds = 0.5", 1)])
def test_limits(line: str, steps: int) -> None:
    def work() -> None:
        everstep.current().usage(tokens=10, cost=1.0)
        threading.Event().wait(0.6 if "seconds" in line else 0)

    def flow() -> None:
        for _ in range(5):
            everstep.current().step("work", work)

    with opened(f'store = "memory://"\n[limits]\n{line}\n') as store:
        outcome = store.start(flow, id="w")
        assert outcome.status == "waiting"
        assert "budget" in (outcome.reason or "")
        assert len(store.steps("w")) == steps
        with pytest.raises(Interrupted):
            drive(store, work)
        assert len(store.steps("r")) == steps
        with store.run("free", budget=everstep.Budget(steps=100)) as run:
            for _ in range(5):
                run.step("work", lambda: None)


def test_limits_timeout() -> None:
    def flow() -> None:
        for _ in range(500):
            everstep.current().step("work", lambda: threading.Event().wait(0.01))

    with opened('store = "memory://"\n[limits]\ntimeout = 0.05\n') as store:
        outcome = store.start(flow, id="w")
        assert outcome.status == "waiting"
        assert "timeout" in (outcome.reason or "")


@pytest.mark.parametrize(("line", "masked"), [('keys = ["pin"]', {"pin": "[redacted]", "x": "K-77"}), ('patterns = ["K-[0-9]+"]', {"pin": 7, "x": "[redacted]"})])  # fmt: skip
def test_redaction(line: str, masked: dict[str, Any]) -> None:
    with opened(f'store = "memory://"\n[redaction]\nstore = true\n{line}\n') as store:
        with store.run("r", state={"pin": 7, "x": "K-77"}) as run:
            run.checkpoint()
        assert store.load("r") == masked
    with opened(f'store = "memory://"\n[redaction]\n{line}\n') as store:
        with store.run("r", state={"pin": 7, "x": "K-77"}) as run:
            run.checkpoint()
        assert store.load("r") == {"pin": 7, "x": "K-77"}
    assert load(environ={}).redactor().value({"pin": 7, "x": "K-77"}) == masked


def test_reload() -> None:
    before = threading.active_count()
    with opened('store = "memory://"\nreload = "file"\n'):
        assert "everstep-config" in [thread.name for thread in threading.enumerate()]
    with opened('store = "memory://"\n'):
        assert "everstep-config" not in [thread.name for thread in threading.enumerate()]
    assert threading.active_count() == before


def test_encryption(tmp_path: Path) -> None:
    first, second = bytes(range(32)), bytes(range(32, 64))
    (tmp_path / "first.key").write_text(first.hex())
    with opened(f'store = "s.db"\n[encryption]\nkey = "file:{tmp_path / "first.key"}"\n') as store, store.run("r", state={"n": 1}) as run:
        run.checkpoint()
    with opened(f'store = "s.db"\n[encryption]\nkey = "{second.hex()}"\nold_keys = ["file:{tmp_path / "first.key"}"]\n') as store:
        assert store.load("r") == {"n": 1}
    with pytest.raises(WrongKey):
        opened(f'store = "s.db"\n[encryption]\nkey = "{second.hex()}"\n')


def test_a_key_file_is_beside_the_configuration() -> None:
    Path("etc").mkdir()
    Path("etc/store.key").write_text(bytes(range(32)).hex())
    Path("etc/everstep.toml").write_text('store = "memory://"\n[encryption]\nkey = "file:store.key"\n')
    with everstep.open(config="etc/everstep.toml") as store:
        assert store.framer.encrypted


def test_every_key_has_a_test_of_its_effect() -> None:
    tests = " ".join(name for name in globals() if name.startswith("test_"))
    assert [name for name in KEYS if f"test_{name.split('.')[0]}" not in tests] == []


ARGUMENTS: dict[str, tuple[str, Any, Callable[[everstep.Store], Any]]] = {
    "compression": ('compression.codec = "none"', "zstd", lambda s: s.framer._code),
    "level": ("compression.level = 9", None, lambda s: s.framer._level),
    "threshold": ("compression.threshold = 9", 256, lambda s: s.framer._threshold),
    "policy": ('policy = "every step"', None, lambda s: str(s.policy)),
    "enabled": ("enabled = false", True, lambda s: s.enabled),
    "durability": ('durability = "exit"', "sync", lambda s: s.durability),
    "budget": ("limits.steps = 3", None, lambda s: s.budget),
    "timeout": ("limits.timeout = 3", None, lambda s: s.timeout),
    "retention": ("retention.keep_last = 3", None, lambda s: s.get_retention()),
    "protect": ('protect = ["a"]', (), lambda s: s.protect),
    "redaction": ("redaction.store = true", None, lambda s: s.mask),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_wins_even_if_it_is_the_default(name: str) -> None:
    line, default, look = ARGUMENTS[name]
    with everstep.open("memory://") as plain, opened(f'store = "memory://"\n{line}\n') as configured:
        assert look(plain) != look(configured)
        with everstep.open(**{name: default}) as given:
            assert look(given) == look(plain)


def test_an_address_wins_and_without_config_nothing_is_read() -> None:
    Path("everstep.toml").write_text('store = "x.db"\npolicy = "every step"\n')
    with everstep.open("memory://") as store:
        assert str(store.policy) == "manual"
    with everstep.open("memory://", config=True) as store:
        assert store.url == "memory://"
        assert str(store.policy) == "every 1 step"
    with everstep.open(config=False) as store:
        assert store.url.endswith(".everstep/store.db")
    assert not Path("x.db").exists()
    Path("other.toml").write_text('store = "memory://"\npolicy = "every 7 steps"\n')
    with everstep.open(config="other.toml") as store:
        assert str(store.policy) == "every 7 steps"
    Path("everstep.toml").write_text("nonsense")
    everstep.open("memory://").close()


def test_the_environment_alone_is_a_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSTEP_STORE", "memory://")
    with everstep.open() as store:
        assert store.url == "memory://"
    monkeypatch.setenv("EVERSTEP_POLICY", "never")
    with pytest.raises(InvalidConfig, match="environment EVERSTEP_POLICY"):
        everstep.open()


@pytest.mark.parametrize("given", [{"config": 5}, {"durability": "no"}, {"budget": 3}, {"timeout": -1}, {"redaction": "all"}])
def test_a_bad_argument_is_refused_before_a_file_is_made(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        everstep.open("x.db", **given)
    assert not Path("x.db").exists()


def test_a_codec_that_is_given_takes_no_level_that_was_meant_for_another() -> None:
    with opened('store = "memory://"\n[compression]\nlevel = 19\n', compression="gzip") as store:
        assert store.framer._level == Framer("gzip")._level


def test_without_a_configuration_nothing_that_parses_is_imported() -> None:
    import subprocess

    code = "import sys, everstep; everstep.open().close(); print([m for m in ('tomllib', 'everstep.config.keys', 'everstep.redact') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
