"""The findings of `doctor` and `verify`. Masks the sentences, which may contain a URL with a password."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everstep.errors import NotAsSigned
from everstep.fields import Shape
from everstep.store.verify.report import Depth
from everstep.views.masking import Masking

if TYPE_CHECKING:
    from everstep.api import Store
    from everstep.store.progress import Progress
    from everstep.store.verify.against import Compared

NOT_AS_SIGNED = NotAsSigned.code


class FindingView(Shape, frozen=True):
    """One finding. `remedy` is None if there is nothing to do."""

    level: str
    name: str
    sentence: str
    remedy: str | None


class DoctorView(Shape, frozen=True):
    """All findings; `level` is the worst of them: ok, warn or bad."""

    level: str
    findings: tuple[FindingView, ...]

    @property
    def ok(self) -> bool:
        return self.level == "ok"


class ProblemView(Shape, frozen=True):
    """One problem and its location."""

    code: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what} [{self.code}]"


class VerifyView(Shape, frozen=True):
    """The result of a verification: what was checked, and the problems."""

    depth: str
    ok: bool
    complete: bool
    runs: int
    records: int
    chunks: int
    unreachable: int
    unreachable_bytes: int
    seconds: float
    reached: str
    problems: tuple[ProblemView, ...]
    against: AgainstView | None = None


class GoneView(Shape, frozen=True):
    """A run of signed heads that was deleted since. `at` is None if its tombstone was dropped."""

    run: str
    at: str | None


class AgainstView(Shape, frozen=True):
    """A store compared with signed heads: when they were written, and what became of their runs. `created` counts later runs."""

    at: str
    complete: bool
    runs: int
    unchanged: int
    grown: int
    created: int
    deleted: tuple[GoneView, ...]


class HeadsView(Shape, frozen=True):
    """Signed heads that were written: to a file, or as text."""

    runs: int
    key: str
    file: str | None
    text: str | None


class NewKeyView(Shape, frozen=True):
    """A new pair of keys. `key` is the id that heads name."""

    file: str
    public_file: str
    key: str
    public_key: str


def doctor(store: Store, mask: Masking) -> DoctorView:
    """Look for unsafe settings and leftovers."""
    found = store.doctor()
    return DoctorView(found.level, tuple(FindingView(one.level, one.name, mask(one.sentence), mask(one.remedy)) for one in found))


def verify(
    store: Store,
    mask: Masking,
    depth: Depth,
    seconds: float | None = None,
    progress: Progress | None = None,
    against: str | None = None,
    public_key: str | None = None,
) -> VerifyView:
    """Check the store for damage; after `seconds`, stop and report how far it got. `against` is a file of signed heads."""
    found = store.verify(depth, progress=progress, seconds=seconds, against=against, public_key=public_key)
    return VerifyView(
        found.depth, found.ok, found.complete, found.runs, found.records, found.chunks, found.unreachable, found.unreachable_bytes,
        found.seconds, found.reached, tuple(ProblemView(one.code, one.where, mask(one.what)) for one in found.problems),
        None if found.against is None else _against(found.against),
    )  # fmt: skip


def _against(found: Compared) -> AgainstView:
    gone = tuple(GoneView(one.run, one.at) for one in found.deleted)
    return AgainstView(found.at, found.complete, found.runs, found.unchanged, found.grown, found.created, gone)
