"""A disk that is really full, at every point of the work: a small tmpfs, or a limit on the size of files where none may be mounted.

The program hits the full disk, gets the error, and continues in the same process when there is space again. The errors come from the system here,
not from a shim: this shows that the shim reproduces them correctly.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from errno import ENOSPC
from pathlib import Path
from random import Random
from typing import Any

from harness.faults.broken_programs import Optimist
from harness.faults.count import Count, Progress
from harness.faults.disk.retrying_program import Patient
from harness.faults.kills.crashes import forked, warm
from harness.faults.kills.shim import apart
from harness.faults.kills.sweep import settle
from harness.faults.scenarios import OPTIONS
from harness.faults.verdict import Verdict, judge

SHORT = 10
SIZE = 8 << 20
ENOUGH = 600_000
"""With this many bytes the workload comes to its end."""


@dataclass(slots=True)
class Ballast:
    """Fills a disk up to some free bytes, and frees it again."""

    folder: Path
    free: int
    error: int = ENOSPC

    def arm(self) -> None:
        with self._file.open("wb") as file:
            file.write(bytes(max(0, shutil.disk_usage(self.folder).free - self.free)))

    @property
    def _file(self) -> Path:
        return self.folder / "ballast"

    @property
    def lasts(self) -> bool:
        return self._file.exists()

    def disarm(self) -> None:
        self._file.unlink(missing_ok=True)


@dataclass(slots=True)
class Limit:
    """Keeps each file of this process below a size."""

    folder: Path
    free: int
    error: int = ENOSPC

    def arm(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.free, resource.RLIM_INFINITY))

    @property
    def lasts(self) -> bool:
        return resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY

    def disarm(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


Kind = type[Ballast] | type[Limit]


def run(folder: Path, *, deep: bool, seed: int = 0, progress: Progress = None, mounts: bool = True) -> Count:
    """Try disks with more and more space, each with a new store; in the short form at some sizes only. `mounts`: use a tmpfs, if possible."""
    sizes = list(range(0, ENOUGH, 4096)) if deep else Random(seed).sample(range(0, ENOUGH, 512), SHORT)  # noqa: S311 -- the same each time
    asked = {"folder": str(folder / "full"), "seed": seed, "sizes": sizes, "mounts": mounts}
    count = Count(**apart(__name__, asked, lambda said: progress(Count(**said)) if progress is not None else None))
    count.tell_canary("a store that swallows ENOSPC", canary(folder, seed, mounts))
    return count


def canary(folder: Path, seed: int = 0, mounts: bool = True) -> bool:
    """Whether a store that treats a full disk as a success is caught."""
    sizes = list(range(100_000, ENOUGH, 100_000))
    broken = Count(**apart(__name__, {"folder": str(folder / "canary"), "seed": seed, "sizes": sizes, "mounts": mounts, "canary": True}))
    return broken.bad > 0


def served(asked: dict[str, Any], tell: Callable[[Any], None]) -> Any:
    """Run in a separate process."""
    warm(asked["seed"])
    place, count = Path(asked["folder"]), Count("a full disk")
    with count.timed(), small_disk(place, asked["mounts"]) as kind:
        count.harness += " (a small tmpfs)" if kind is Ballast else " (a limit on the size of files)"
        for free in asked["sizes"]:
            _try(count, place, kind, free, asked["seed"], Optimist if asked.get("canary") else Patient)
            tell(asdict(count))
    return asdict(count)


@contextmanager
def small_disk(place: Path, mounts: bool) -> Iterator[Kind]:
    """Provide a folder whose store is on a separate disk, if one may be mounted; returns how it is filled."""
    store = place / "store"
    store.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(store)]
    if not mounts or os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:  # noqa: S603
        yield Limit
        return
    try:
        yield Ballast
    finally:
        subprocess.run(["umount", "-l", str(store)], check=True)  # noqa: S603, S607


def _try(count: Count, place: Path, kind: Kind, free: int, seed: int, program: type[Patient]) -> None:
    _clear(place)

    def act() -> list[str]:
        disk = kind(place / "store", free)
        playing = program(place, seed, disk=disk, busy_ms=5_000, **OPTIONS)
        disk.arm()
        playing.play()
        disk.disarm()
        return playing.errors

    where, ended = f"{free:,} bytes free", forked(act)
    if ended.hung or ended.code:
        count.tried += 1
        count.wrong += 1
        count.note(f"{where}: {'it hung' if ended.hung else ended.said}")
    elif ended.said or program is not Patient:  # otherwise there was enough space
        count.tried += 1
        count.detected += 1
        judged = forked(lambda: asdict(judge(place, seed)))
        settle(count, Verdict(**judged.said) if not judged.code else Verdict(wrong=[str(judged.said)]), where)


def _clear(place: Path) -> None:
    (place / "log").unlink(missing_ok=True)
    for left in (place / "store").iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
