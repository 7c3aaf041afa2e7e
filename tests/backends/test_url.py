"""From an address to a backend."""

from pathlib import Path

import pytest

from everstep.backends.contract.core import Commit
from everstep.backends.registry import open_backend
from everstep.errors import InvalidArgument, NotAStore, StoreError, UnknownBackend
from everstep.testing.rows import new_run


def test_no_address_makes_a_store_in_the_working_folder_with_its_own_gitignore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_backend().close()
    folder = tmp_path / ".everstep"
    assert (folder / "store.db").exists()
    assert (folder / ".gitignore").read_text() == "*\n"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_no_address_finds_the_store_of_a_folder_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_backend().close()
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    backend = open_backend()
    assert backend.url == f"sqlite:///{tmp_path.resolve()}/.everstep/store.db"
    assert not (deep / ".everstep").exists()
    backend.close()


@pytest.mark.parametrize("form", ["path", "text", "relative", "absolute"])
def test_sqlite_is_named_by_path_or_url(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    forms = {"path": tmp_path / "x.db", "text": "x.db", "relative": "sqlite:///x.db", "absolute": f"sqlite:///{tmp_path}/x.db"}
    backend = open_backend(forms[form])
    backend.close()
    assert (tmp_path / "x.db").exists()
    open_backend(backend.url).close()


def test_the_url_of_a_backend_opens_the_same_store_again(tmp_path: Path) -> None:
    backend = open_backend(tmp_path / "odd name %41?#.db")
    row = new_run()
    backend.commit(Commit(row, None))
    other = open_backend(backend.url)
    assert other.run(row.id) == row
    backend.close()
    other.close()


def test_memory_is_fresh_at_each_open_and_shared_by_name() -> None:
    row = new_run()
    fresh, named = open_backend("memory://"), open_backend("memory://by-name")
    fresh.commit(Commit(row, None))
    named.commit(Commit(row, None))
    assert open_backend("memory://").run(row.id) is None
    assert open_backend("memory://by-name").run(row.id) == row


def test_an_unknown_scheme_is_named_without_its_password() -> None:
    with pytest.raises(UnknownBackend, match="mongodb://") as caught:
        open_backend("mongodb://me:secret@host/db")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("address", ["", 7, "sqlite://x.db", "sqlite:///"])
def test_what_is_no_address_is_refused(address: object) -> None:
    with pytest.raises(InvalidArgument):
        open_backend(address)  # type: ignore[arg-type]


def test_a_store_is_not_made_when_asked_not_to(tmp_path: Path) -> None:
    with pytest.raises(NotAStore) as caught:
        open_backend(tmp_path / "x.db", create=False)
    assert caught.value.missing
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_kind_is_not_called_missing(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("there is no store at all in here")
    with pytest.raises(NotAStore) as caught:
        open_backend(tmp_path / "x.db", create=False)
    assert not caught.value.missing


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot create a store"):
        open_backend(tmp_path / "missing" / "x.db")
