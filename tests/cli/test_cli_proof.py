"""`heads`, `verify --against` and `audit` as a person or a script uses them: exit codes, JSON, CSV, hostile texts, secrets."""

from __future__ import annotations

import csv
import io
import json
import stat
from pathlib import Path

import pytest
from cli_helpers import Shop

import everstep
from everstep.cli.draw.csv_rows import row


@pytest.fixture
def signed(shop: Shop) -> Shop:
    shop.call("heads", "--new-key", "signing.key").ok()
    shop.call("heads", "--key", "signing.key", "-o", "heads.txt").ok()
    return shop


AGAINST = ("verify", "--against", "heads.txt", "--public-key", "signing.key.pub")


def test_a_new_key_is_made_once(shop: Shop) -> None:
    called = shop.call("heads", "--new-key", "signing.key").ok()
    assert called.out.startswith("everstep-public-key:")
    assert stat.S_IMODE((shop.folder / "signing.key").stat().st_mode) == 0o600
    assert "everstep-signing-key" not in called.out + called.err
    again = shop.call("heads", "--new-key", "signing.key")
    assert again.code == 2
    assert "already exists; no key was written" in again.err
    data = shop.json("heads", "--new-key", "other.key")
    assert data["public_key"] == (shop.folder / "other.key.pub").read_text().strip()


def test_heads_need_a_key_and_say_how_to_make_one(shop: Shop) -> None:
    called = shop.call("heads")
    assert called.code == 2
    assert "there is no signing key" in called.err
    assert "everstep heads --new-key FILE" in called.err


def test_heads_never_overwrite_a_file_and_leave_none_after_an_error(signed: Shop) -> None:
    before = (signed.folder / "heads.txt").read_bytes()
    called = signed.call("heads", "--key", "signing.key", "-o", "heads.txt")
    assert called.code == 2
    assert "it was not overwritten" in called.err
    assert (signed.folder / "heads.txt").read_bytes() == before
    assert signed.call("heads", "--key", "absent.key", "-o", "new.txt").code == 2
    assert not list(signed.folder.glob("*new*"))
    assert not list(signed.folder.glob(".*.new"))


def test_heads_as_json_are_the_file(signed: Shop) -> None:
    data = signed.json("heads", "--key", "signing.key")
    (signed.folder / "again.txt").write_text(data["text"])
    assert data["runs"] == 7
    signed.call("verify", "--against", "again.txt", "--public-key", "signing.key.pub").ok()
    data = signed.json("heads", "--key", "signing.key", "-o", "third.txt")
    assert (data["file"], data["text"]) == ("third.txt", None)


def test_growth_is_fine_deletions_are_named_and_changes_are_damage(signed: Shop) -> None:
    signed.call(*AGAINST).ok()
    signed.pipe("checkpoint", "loop", stdin='{"n": 1}').ok()
    called = signed.call(*AGAINST).ok()
    assert "compared with 7 signed heads of " in called.err
    assert "6 unchanged, 1 grown, 0 deleted, 0 created since" in called.err
    signed.call("delete", "done", "--yes").ok()
    called = signed.call(*AGAINST)
    assert called.code == 6
    assert called.out.startswith("run done: deleted at 2")
    signed.call(*AGAINST, "--allow-deleted").ok()
    data = signed.json(*AGAINST, code=6)
    assert data["ok"] is True
    assert [one["run"] for one in data["against"]["deleted"]] == ["done"]
    assert data["against"] == {**data["against"], "complete": True, "runs": 7, "unchanged": 5, "grown": 1, "created": 0}


def test_another_store_in_its_place_exits_with_5(signed: Shop, tmp_path: Path) -> None:
    with everstep.open(tmp_path / "other.db") as store, store.run("loop", state={}) as run:
        run.checkpoint()
    called = signed.call(*AGAINST, "--store", str(tmp_path / "other.db"))
    assert called.code == 5
    assert "[E511]" in called.out
    assert "everstep repair" not in called.err, "there is nothing to repair"
    data = signed.json(*AGAINST, "--store", str(tmp_path / "other.db"), code=5)
    assert [problem["code"] for problem in data["problems"]] == ["E511"]


def test_a_changed_file_of_heads_exits_with_5_and_names_the_file(signed: Shop) -> None:
    file = signed.folder / "heads.txt"
    file.write_text(file.read_text().replace('"loop"', '"pool"'))
    called = signed.call(*AGAINST)
    assert called.code == 5
    assert "'heads.txt' cannot be trusted: its signature does not match its content" in called.err
    assert "[E510]" in called.err
    called = signed.call("verify", "--against", "heads.txt")
    assert called.code == 2
    assert "none was given" in called.err


def test_a_quick_comparison_says_what_it_did_not_prove(signed: Shop) -> None:
    assert "Only the heads were compared" in signed.call(*AGAINST, "--depth", "quick").ok().err
    assert "Only the heads were compared" not in signed.call(*AGAINST).ok().err


# The audit.


def rows_of(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_the_audit_is_the_same_as_text_json_and_csv(shop: Shop) -> None:
    lines = shop.call("audit", "done", "--json").ok().lines
    items = [json.loads(line) for line in lines]
    assert [item["kind"] for item in items] == ["audit"] * (len(items) - 1) + ["proof"]
    proof = items[-1]["data"]
    rows = rows_of(shop.call("audit", "done", "--csv").ok().out)
    assert rows[0] == ["time", "record", "attempt", "who", "what", "data"]
    assert [[line[0], line[1], line[3], line[4]] for line in rows[1:-1]] == [
        [one["data"]["at"], str(one["data"]["record"] or ""), one["data"]["who"] or "", one["data"]["what"]] for one in items[:-1]
    ]
    assert json.loads(rows[-1][5]) == proof
    text = shop.call("audit", "done").ok().lines
    assert len(text) == len(items)
    assert text[-1] == f"Complete: {proof['records']} records verified, from the first one to {proof['head_digest']}"


@pytest.mark.parametrize("evil", ["=HYPERLINK(1)", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "\n=1", " =1", "＝1", "  -1"])
def test_no_cell_of_csv_is_a_formula(evil: str) -> None:
    (cells,) = rows_of(row(("a", evil, 3, None)))
    assert cells[1][0] == "'"
    assert (cells[0], cells[2], cells[3]) == ("a", "3", "")
    assert "\n" not in row((evil,))


def test_hostile_names_are_escaped_in_every_form(shop: Shop) -> None:
    with everstep.open(shop.path) as store:
        store.answer("waits", "boss", "yes", by="=cmd|' /C calc'!A0\x1b[31m\nred")
    for form in ((), ("--csv",), ("--json",)):
        out = shop.call("audit", "waits", *form).ok().out
        assert "\x1b" not in out
        assert all(line for line in out.splitlines())
    cells = [line[3] for line in rows_of(shop.call("audit", "waits", "--csv").out)]
    assert not [cell for cell in cells if cell[:1] in ("=", "+", "-", "@")]
    assert any(cell.startswith("'=cmd|") for cell in cells)


def test_secrets_are_masked_in_every_form(shop: Shop) -> None:
    secret = "sk-ant-api03-" + "Ab3dE6gH9jK2mN5p" * 5
    with everstep.open(shop.path) as store:
        store.pause("waits", f"the key is {secret}")
        store.answer("waits", "boss", "yes", by=f"token={secret}")
        with store.run("loop") as run:
            run.checkpoint(f"used {secret}", meta={"password": "hunter2hunter2"})
    for run_id in ("waits", "loop"):
        for form in ((), ("--csv",), ("--json",)):
            out = shop.call("audit", run_id, *form).ok().out
            assert secret not in out
            assert "hunter2" not in out


def test_deletions_are_listed_and_the_audit_of_a_deleted_run_says_so(shop: Shop) -> None:
    shop.call("delete", "done", "--yes").ok()
    called = shop.call("audit", "done").ok()
    assert "run deleted" in called.out
    assert "Deleted: the tombstone names" in called.out
    called = shop.call("audit", "--deleted").ok()
    assert called.lines[-1] == "Complete: 7 runs created, 6 there, 1 deleted"
    assert 'run "done"' in called.lines[0]
    assert json.loads(shop.call("audit", "--deleted", "--json").ok().lines[-1])["data"]["deleted"] == 1
    assert shop.call("audit", "--deleted", "--csv").ok().lines[-1].startswith(",,,,proof,")


@pytest.mark.parametrize("args", [(), ("loop", "--deleted"), ("loop", "--csv", "--json")])
def test_what_contradicts_itself_is_refused(shop: Shop, args: tuple[str, ...]) -> None:
    assert shop.call("audit", *args).code == 2


def test_the_audit_needs_the_exact_id(shop: Shop) -> None:
    called = shop.call("audit", "loo")
    assert called.code == 3
    assert "Similar ids: loop" in called.err
    with shop.open() as store, store.run("done-2", state={}) as run:
        run.checkpoint()
    shop.call("delete", "done", "--yes").ok()
    assert "run deleted" in shop.call("audit", "done").ok().out, "not the run with the similar id"
