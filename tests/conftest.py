"""Shared by all tests: a store in memory, in a SQLite file or in PostgreSQL, and hypothesis kept quick and repeatable."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, Phase, settings
from pace import (  # noqa: F401 - hooks of pytest
    ALL,
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_ignore_collect,
    pytest_report_header,
    pytest_terminal_summary,
    rotation,
)
from pg_schema import Schema
from pool import pytest_cmdline_main  # noqa: F401 - a hook of pytest

import everstep
from everstep import clock as clocks
from everstep.ids import new_id
from everstep.runtime import workflow
from everstep.runtime.engine.context import frame
from everstep.runtime.limits import signals
from everstep.testing.postgres import Server
from everstep.threads import guard

settings.register_profile(
    "suite", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.register_profile("search", parent=settings.get_profile("suite"), derandomize=False, max_examples=2000)
settings.register_profile("push", parent=settings.get_profile("suite"), max_examples=40)
# For harness.mutants: a failure is enough, its smallest form is not needed.
settings.register_profile("mutants", parent=settings.get_profile("suite" if ALL else "push"), phases=[Phase.explicit, Phase.generate])
settings.load_profile(os.environ.get("EVERSTEP_HYPOTHESIS") or ("suite" if ALL else "push"))

_CLOCK = clocks.clock
BELOW_THE_STORE = {
    "test_queue_entries.py",
    "test_a_damaged_chunk_is_healed_by_a_save_of_the_same_content",
    "test_all_kinds_of_frames_mix_in_one_run",
    "test_an_async_store_awaits_start_and_resume_of_either_colour",
    "test_what_was_fired_is_forgotten_with_the_schedule",
}
"""Tests that write or read rows and frames themselves, or open the store in their own way: they have no variant with a key."""
TEST_KEY = bytes(range(64, 96))  # of the stores of kind "encrypted", which are SQLite files


@pytest.fixture(autouse=True)
def _outside_of_runs() -> Iterator[None]:
    """What a test leaves behind must not reach the next one: a run that it is inside of, a workflow of the same name, a clock."""
    known, loaded = dict(workflow._known), set(sys.modules)
    yield
    # A module that is imported once defines its workflows once, so those of a module that this test was the first to import stay.
    once = {
        name: flow for name, flow in workflow._known.items() if getattr(flow.function, "__module__", None) in sys.modules.keys() - loaded
    }
    workflow._known.update(known | once)
    guard.forget()  # nor, if it held a lock of a store by hand, that it was interrupted in a save
    frame.set(None)
    for run in list(signals._open):
        signals.unwatch(run)
    assert clocks.clock is _CLOCK, "the test left a clock of its own behind"
    assert "now_us" not in vars(_CLOCK), "the test left a fake clock behind"


class Places:
    """Opens stores of one kind in one place, again and again; closes those that a test left open."""

    def __init__(self, kind: str, folder: Path, home: str = ""):
        self.kind = kind
        self.path = folder / "store.db"
        self._opened: list[everstep.Store] = []
        self._url = f"memory://{folder.name}-{os.getpid()}" if kind == "memory" else home or str(self.path)

    def open(self, **options: Any) -> everstep.Store:
        if self.kind == "encrypted":
            options.setdefault("key", TEST_KEY)
        store = everstep.open(self._url, **options)
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            store.close()
        if self.kind == "memory":
            from everstep.backends.memory import data as memory

            memory._named.pop(self._url.removeprefix("memory://"), None)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Stores of every kind where the store and the runtime are tested, and with EVERSTEP_DEEP=1 its upkeep; elsewhere those that need no server."""
    if "places" in metafunc.fixturenames:
        deep = ("trust",) if os.environ.get("EVERSTEP_DEEP") else ()
        everywhere = Path(metafunc.definition.path).parent.name in ("store", "runtime", "queues", "resume", "encryption", *deep)
        kinds = ["memory", "sqlite", *(["postgres"] if everywhere else [])]
        name = metafunc.definition.originalname
        suits = Path(metafunc.definition.path).name not in BELOW_THE_STORE and name not in BELOW_THE_STORE
        if everywhere and suits and (ALL or crc32(metafunc.definition.nodeid.encode()) % 10 == rotation() % 10):
            kinds.append("encrypted")  # a tenth of the tests on a push, another one on each day
        metafunc.parametrize("places", kinds, indirect=True)


@pytest.fixture
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Places]:
    """Where a store may be opened several times: `places.open(**options)`."""
    home = request.getfixturevalue("emptied") if request.param == "postgres" else ""
    found = Places(request.param, tmp_path, home)
    yield found
    found.close()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One PostgreSQL server for the tests of a process, started when the first of them needs it. Not for tests that stop it."""
    with Server.start(fsync=False) as server:
        yield server


@pytest.fixture(scope="session")
def database(server: Server) -> Iterator[str]:
    url = server.database()
    yield url
    server.drop(url)


@pytest.fixture(scope="session")
def _schema(server: Server, database: str) -> Iterator[Schema]:
    made = Schema(server, database)
    yield made
    made.close()


@pytest.fixture
def emptied(_schema: Schema) -> Iterator[str]:
    """The address of an empty store in PostgreSQL, in tables that earlier tests used. Its stores must be closed when it ends."""
    yield _schema.url()
    _schema.empty()


@pytest.fixture
def place(server: Server, database: str) -> Iterator[str]:
    """The address of a store in PostgreSQL that nobody has opened yet."""
    schema = f"s_{new_id().lower()}".replace("-", "_")
    yield f"{database}{'&' if '?' in database else '?'}schema={schema}"
    server.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE', url=database)


@pytest.fixture
def store(places: Places) -> everstep.Store:
    return places.open(checking=True)
