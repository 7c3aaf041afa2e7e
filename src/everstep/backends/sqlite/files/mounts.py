"""Finds the file system of a path, as far as the system reports it (Linux: /proc/self/mounts). Reads only; elsewhere nothing is known.

SQLite needs shared memory and locks that work between all processes that have a store open. On a network file system they do not.
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
    """Return the type of a path's file system: that of the deepest mount above it, the newest of several at the same path."""
    real = os.path.realpath(path)
    found: tuple[int, str] | None = None
    for mount, kind in _mounted(mounts):
        if (real == mount or real.startswith(mount + "/")) and (found is None or len(mount) >= found[0]):
            found = len(mount), kind
    return None if found is None else found[1]


def is_mount_point(path: Path, mounts: Path | None = None) -> bool:
    """Return whether something is mounted at exactly this path, which must not contain a symbolic link."""
    return any(mount == str(path) for mount, _ in _mounted(mounts))


def _mounted(mounts: Path | None) -> list[tuple[str, str]]:
    """Return every mount point with the type of its file system; empty if the system does not report it."""
    try:
        lines = (mounts or MOUNTS).read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    parts = [line.split(" ") for line in lines]
    return [(_ESCAPE.sub(lambda octal: chr(int(octal[1], 8)), part[1]).rstrip("/"), part[2]) for part in parts if len(part) >= 3]


def is_network(kind: str | None) -> bool:
    """Return whether other machines may have the same files open."""
    if kind is None:
        return False
    return kind in _NETWORK or (kind.startswith("fuse.") and kind.removeprefix("fuse.") in _NETWORK_FUSE)


def is_volatile(kind: str | None) -> bool:
    """Return whether files are lost when the machine is switched off."""
    return kind in _VOLATILE
