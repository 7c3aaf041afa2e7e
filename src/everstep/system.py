"""Differences between operating systems: syncing, the boot, clocks, processes and locks. The only module that checks which system it runs
on.

    Linux          fsync reaches the disk. The kernel names each boot, CLOCK_BOOTTIME runs during sleep, /proc names processes.
    macOS          fsync stops at the drive's cache; F_FULLFSYNC reaches the disk. kern.bootsessionuuid names each boot, CLOCK_MONOTONIC_RAW
                   runs during sleep. A process has no name that outlives its pid, so leases end by time alone on PostgreSQL.
    other POSIX    fsync. Boots have no name: leases rely on locks and on time.
    Windows        not supported; `import everstep` says so.

Locks are POSIX record locks (fcntl) everywhere. Marks are locks on a file that belong to an open descriptor (OFD locks, Linux only).
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

TESTED = ("Linux",)
"""The systems on which the test suites were run."""
UNKNOWN_BOOT = "unknown-boot"
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NAMES = {"linux": "Linux", "darwin": "macOS"}


def name() -> str:
    """Return the usual name of the system."""
    return _NAMES.get(sys.platform, sys.platform)


@cache
def login_and_host() -> str:
    """Return the login name of this process with the name of its machine. A container may have no name for its user: then its number."""
    import pwd  # not on every start of Python

    try:
        login = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        login = f"uid {os.getuid()}"
    return f"{login}@{os.uname().nodename}"


def needs_full_sync() -> bool:
    """Whether fsync leaves data in the drive's cache, so that SQLite must use F_FULLFSYNC."""
    return _FULL_SYNC is not None


def sync(descriptor: int) -> None:
    """Write a file to the disk itself. Uses fsync if the file system has no F_FULLFSYNC."""
    if _FULL_SYNC is not None:
        with suppress(OSError):
            fcntl.fcntl(descriptor, _FULL_SYNC)
            return
    os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: without it a power cut can lose a file that was created or renamed there."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def sync_parents(folder: Path) -> None:
    """Make a folder's own name durable, and those of the folders above it: their creator may not have synced them."""
    device = folder.stat().st_dev
    for parent in folder.parents:
        if parent.stat().st_dev != device:
            return
        try:
            sync_folder(parent)
        except OSError as error:
            if not (isinstance(error, PermissionError) or is_unsupported(error)):
                raise  # an I/O error: the name may not be on the disk


def boot_ns() -> int:
    """Return the nanoseconds since the machine booted, including sleep."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW if sys.platform == "darwin" else time.CLOCK_MONOTONIC)


def boot_id() -> str:
    """Return the name of this boot, or UNKNOWN_BOOT if the system has none: a guess from the wall clock would change when the clock is set."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return (_sysctl("kern.bootsessionuuid") if sys.platform == "darwin" else None) or UNKNOWN_BOOT


def _sysctl(key: str) -> str | None:
    import ctypes

    value, size = ctypes.create_string_buffer(128), ctypes.c_size_t(128)
    try:
        failed = ctypes.CDLL(None).sysctlbyname(key.encode(), value, ctypes.byref(size), None, 0)
    except (AttributeError, OSError):
        return None
    return None if failed else value.value.decode("ascii", "replace")


def process_name(pid: int) -> str:
    """Return a name for a live process that no later process gets: pid namespace, pid and start time. Empty if the system does not provide
    it.
    """
    try:
        space = Path("/proc/self/ns/pid").readlink()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return f"{space} {pid} {fields[19]}"


def is_alive(pid: int) -> bool:
    """Whether a process with this pid exists. Sends no signal."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def lock(descriptor: int) -> None:
    """Lock a file for this process, and wait for it if needed. The system drops the lock when the process dies."""
    fcntl.lockf(descriptor, fcntl.LOCK_EX)


def try_lock(descriptor: int) -> bool:
    """Lock a file for this process; False if another process has it."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


_MARKS = 1 << 40
"""Marks are between this offset and its double: far beyond the bytes that SQLite locks and beyond the end of any file."""
_FLOCK = "hhqqi4x"


def has_marks() -> bool:
    """Whether files can be marked on this system."""
    return sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK")


def mark(descriptor: int, number: int) -> None:
    """Mark a file with a number below 2**40, as long as the descriptor is open. Needs `has_marks`."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, _MARKS + number, 1, 0))


def other_mark(descriptor: int, number: int) -> bool:
    """Whether another descriptor, of any process, marks the file with another number."""
    for start, length in ((_MARKS, number), (_MARKS + number + 1, _MARKS - number - 1)):
        if length:
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
            found = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))
            if found[0] != fcntl.F_UNLCK:
                return True
    return False


def is_unsupported(error: OSError) -> bool:
    """Whether a file system refused a call because it does not support it."""
    return error.errno in (errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
