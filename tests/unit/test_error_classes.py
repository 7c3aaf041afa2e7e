"""Every error has its own code, a sentence and a remedy, and says whether the write happened."""

import re
from typing import Any

import pytest

from everstep import errors
from everstep.errors import EverstepError


def classes() -> list[type[EverstepError]]:
    return [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, EverstepError)]


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "Unstorable": ("state['a']", "is a socket"),
    "PlainSecret": ("state['a']",),
    "AmbiguousRef": ("ab", ["abc", "abd"]),
    "AmbiguousRun": (["a", "b"],),
    "PrunedCheckpoint": ("r", 3, (2, 9)),
    "AlreadyQueued": ("mail", "one", "r"),
    "RunDeleted": ("r",),
    "NoResult": ("r", "waiting", "run r is waiting"),
    "LeaseHeld": ("r", "host", 7, "then", "later"),
    "DamagedRecord": ("r", 3, "it is gone"),
    "IllegalTransition": ("r", "cancelled", "running"),
    "StepFailed": ("s#0", "app.Error", "no"),
    "NonDeterminism": ("r", "s#0", "(1)", "(2)"),
    "DefinitionChanged": ("it changed",),
    "OtherVersion": ("version 1 of flow executed run 'r'",),
    "InvalidWorkflow": ("no", "w.yaml", 3),
    "MissingCapability": ("toy://", "mailbox"),
    "DamagedChunk": (b"\x01" * 32, "it is not stored"),
}


@pytest.mark.parametrize("cls", classes(), ids=lambda c: c.__name__)
def test_has_code_sentence_and_remedy(cls: type[EverstepError]) -> None:
    assert re.fullmatch(r"E\d{3}", cls.code)
    assert "code" in vars(cls)
    assert (cls.__doc__ or "").strip().endswith(".")
    assert cls.remedy.strip().endswith((".", "...)", ")"))
    error = cls(*ARGUMENTS.get(cls.__name__, ()))
    assert error.message
    assert str(error) == f"{error.message} [{error.code}]\n{error.remedy}"
    assert error.written in ("yes", "no", "unknown")


def test_codes_are_unique() -> None:
    codes = [cls.code for cls in classes()]
    assert len(set(codes)) == len(codes)


def test_the_tree_on_top_of_the_module_is_the_tree() -> None:
    tree = errors.__doc__ or ""
    for cls in classes():
        if cls is not EverstepError:
            assert re.search(rf"[├└]── {cls.__name__}\s+{cls.code}\b", tree), cls
    drawn = re.findall(r"── (\w+)", tree.partition("(BaseException)")[0])
    assert sorted(drawn) == sorted(c.__name__ for c in classes() if c is not EverstepError)


def test_only_a_failed_disk_and_a_lost_transaction_leave_it_open_whether_a_write_happened() -> None:
    assert [c.__name__ for c in classes() if c.written != "no"] == ["StoreFailed", "StepFailed", "TransactionUnknown"]


def test_an_error_may_carry_its_own_remedy_and_outcome() -> None:
    error = EverstepError("odd", remedy="Do this.", written="yes")
    assert str(error) == "odd [E000]\nDo this."
    assert error.written == "yes"
    assert EverstepError.written == "no"


def test_errors_carry_what_they_are_about() -> None:
    held = errors.LeaseHeld("r1", "box", 42, "noon", "one")
    assert (held.run, held.host, held.pid, held.since, held.expires) == ("r1", "box", 42, "noon", "one")
    for word in ("'r1'", "box", "42", "noon", "one"):
        assert word in held.message
    several = errors.AmbiguousRef("ab", ["abc", "abd"], more=True)
    assert several.candidates == ["abc", "abd"]
    assert "abc, abd, …" in several.message
    damaged = errors.DamagedRecord("r", 9, "bits", number=4).of_head("r", 4, 3)
    assert (damaged.number, damaged.good) == (4, 3)
    assert "r@4" in damaged.message
    assert "r@3" in damaged.message
    assert "store.fork('r@3')" in damaged.remedy


def test_what_stops_a_run_has_a_code_a_sentence_and_a_remedy_and_is_no_error() -> None:
    for stop in (errors.Suspended("it stops"), errors.Waiting("r", "an answer"), errors.Interrupted("r", "a signal", 130)):
        assert re.fullmatch(r"E62\d", stop.code)
        assert str(stop) == f"{stop.message} [{stop.code}]\n{stop.remedy}"
        assert not isinstance(stop, Exception)
