"""Backends of other packages are found by the scheme of an address, through entry points of installed distributions."""

import textwrap
from pathlib import Path

import pytest

import everstep
from everstep.backends.registry import GROUP, formats, open_backend, open_builder, open_damaged, shown
from everstep.errors import MissingCapability, UnknownBackend
from everstep.testing.conformance import ConformanceSuite, OpenHandle

CODE = """
    from everstep.backends.memory.backend import MemoryBackend

    class Toy(MemoryBackend):
        def __init__(self, address, size=1):
            super().__init__("toy " + address)
            self.url, self.size = address, size

    def open_core(address):
        whole = MemoryBackend()
        class Core:
            url, durable = address, False
            commit, run, runs, records, locate, chunks = whole.commit, whole.run, whole.runs, whole.records, whole.locate, whole.chunks
            acquire, introduce, holder = whole.acquire, whole.introduce, whole.holder
            renew, release, close = whole.renew, whole.release, whole.close
        return Core()
"""


def install(folder: Path, name: str, points: str, code: str = CODE) -> None:
    """Put a distribution there, as an installer does: a module, and a folder that describes it."""
    module = name.replace("-", "_")
    (folder / f"{module}.py").write_text(textwrap.dedent(code))
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{GROUP}]\n{points}\n")
    (about / "RECORD").write_text(f"{module}.py,,\n{about.name}/METADATA,,\n{about.name}/entry_points.txt,,\n{about.name}/RECORD,,\n")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def toy(packages: Path) -> Path:
    install(packages, "everstep-toy", "toy = everstep_toy:Toy\ntoycore = everstep_toy:open_core\nlost = everstep_toy:Gone")
    return packages


@pytest.mark.usefixtures("toy")
class TestToy(ConformanceSuite):
    @pytest.fixture
    def open_handle(self, tmp_path: Path) -> OpenHandle:
        return lambda: open_backend(f"toy://{tmp_path}")


@pytest.mark.usefixtures("toy")
def test_a_store_is_opened_by_the_scheme_of_another_package() -> None:
    with everstep.open("toy://host/a", size=7) as store:
        assert (store.url, store.backend.size) == ("toy://host/a", 7)  # type: ignore[attr-defined]
        with store.run("r", state={"n": 1}) as run:
            run.checkpoint()
    with everstep.open("toy://host/a") as store:
        assert store.load("r") == {"n": 1}


@pytest.mark.usefixtures("toy")
def test_one_that_has_only_the_core_is_opened_as_well() -> None:
    with everstep.open("toycore://x") as store:
        with store.run("r", state={"n": 1}) as run:
            run.checkpoint()
        assert store.load("r") == {"n": 1}
        with pytest.raises(MissingCapability):
            store.verify()


@pytest.mark.usefixtures("toy")
def test_what_it_does_not_offer_for_repair_is_refused() -> None:
    for ask in (
        lambda: open_damaged("toy://me:secret@h", "p"),
        lambda: open_builder("toy://me:secret@h"),
        lambda: formats("toy://me:secret@h"),
    ):
        with pytest.raises(MissingCapability, match="recovery") as caught:
            ask()
        assert "secret" not in str(caught.value)
    assert shown("toy://me:secret@host/x") == "toy://host/x"


@pytest.mark.usefixtures("toy")
def test_a_package_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(UnknownBackend, match="everstep_toy:Gone"):
        open_backend("lost://x")


def test_two_packages_for_one_scheme_are_refused(toy: Path) -> None:
    install(toy, "other-toy", "toy = other_toy:Toy")
    with pytest.raises(UnknownBackend, match="everstep_toy:Toy, other_toy:Toy"):
        open_backend("toy://x")


def test_our_own_schemes_cannot_be_taken(packages: Path) -> None:
    install(packages, "everstep-grab", "memory = everstep_grab:Toy\nsqlite = everstep_grab:Toy")
    backend = open_backend("memory://")
    assert type(backend).__module__ == "everstep.backends.memory.backend"


def test_an_unknown_scheme_names_the_group_of_entry_points() -> None:
    with pytest.raises(UnknownBackend) as caught:
        open_backend("nosuch://me:secret@host")
    assert caught.value.code == "E408"
    assert "everstep.backends" in str(caught.value)
    assert "secret" not in str(caught.value)
