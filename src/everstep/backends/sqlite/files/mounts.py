"""Which file system a path lies on, as far as the system tells (Linux: /proc/self/mounts). Reads only; where nothing is told, nothing is known.

SQLite needs shared memory and locks that work between all who have a store open. On a network file system they do not.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")
_NETWORK = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "davfs", "davfs2", "drvfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs",
    "nfs4", "ocfs2", "orangefs", "prl_fs", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs",
})  # fmt: skip
_NETWORK_FUSE = frozenset({
    "blobfuse", "blobfuse2", "ceph", "curlftpfs", "davfs2", "gcsfuse", "glusterfs", "goofys", "mountpoint-s3",
    "rclone", "s3fs", "sshfs",
})  # fmt: skip
_VOLATILE = frozenset({"tmpfs", "ramfs", "ramdisk"})
_ESCAPE = re.compile(r"\\([0-7]{3})")


def file_system(path: str | os.PathLike[str], mounts: Path | None = None) -> str | None:
    """The type of the file system that a path lies on: that of the deepest mount above it, the newest of several in one place."""
    real = os.path.realpath(path)
    found: tuple[int, str] | None = None
    for place, kind in _mounted(mounts):
        if (real == place or real.startswith(place + "/")) and (found is None or len(place) >= found[0]):
            found = len(place), kind
    return None if found is None else found[1]


def is_mount_point(path: Path, mounts: Path | None = None) -> bool:
    """Whether something is mounted at this very path, which must have no symbolic link in it."""
    return any(place == str(path) for place, _ in _mounted(mounts))


def _mounted(mounts: Path | None) -> list[tuple[str, str]]:
    """Every place where something is mounted, and the type of its file system; empty where the system does not say."""
    try:
        lines = (mounts or MOUNTS).read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    parts = [line.split(" ") for line in lines]
    return [(_ESCAPE.sub(lambda octal: chr(int(octal[1], 8)), part[1]).rstrip("/"), part[2]) for part in parts if len(part) >= 3]


def is_network(kind: str | None) -> bool:
    """Whether other machines may have the same files open."""
    if kind is None:
        return False
    return kind in _NETWORK or (kind.startswith("fuse.") and kind.removeprefix("fuse.") in _NETWORK_FUSE)


def is_volatile(kind: str | None) -> bool:
    """Whether files are gone when the machine is switched off."""
    return kind in _VOLATILE
