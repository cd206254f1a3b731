"""The calls of the file store to the file system: about two dozen, each one a point where a process can crash.

Rule 1: everything below the root is reached by a directory descriptor and a single name; symbolic links are not
followed, so no id can lead out of the store.
Rule 2: no call here decides or retries anything, except that `lock` waits. Errors are the system's own OSError.
Rule 3: time and random numbers come from the given clock.

The crash tests have a simulated file system with the same protocol, so they test the production code.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import stat
import time
from collections.abc import Hashable
from pathlib import Path
from typing import Protocol

from interlock.ports.clock import Clock, SystemClock

NETWORK = frozenset({"9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"})
"""File systems on which flock, rename or fsync may not work as on a local disk."""

LOCK_PAUSE_MS_MAX = 16
"""Longest pause between two attempts at a lock: an append holds it for about one flush, so a long sleep starves."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UPDATE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_APPEND = _UPDATE | os.O_APPEND
_NEW = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class FileSystem(Protocol):
    """The calls of the file store. `at` is the descriptor of a directory, `name` a name in it."""

    def parent(self, root: str) -> tuple[int, str]:
        """The open directory that contains the root, and the name of the root in it. Follows symbolic links."""

    def network_type(self, directory: int) -> str | None:
        """The type of a network file system; None for a local one."""

    def make_directory(self, at: int, name: str) -> None:
        """Create a directory for the owner only. Raises FileExistsError when the name exists."""

    def open_directory(self, at: int, name: str) -> int:
        """Open a directory: its descriptor is used to lock, to flush and to open names in it."""

    def open_file(self, at: int, name: str) -> int:
        """Open a file for reading."""

    def open_append(self, at: int, name: str) -> int:
        """Open a file for reading and appending; create it when it is missing."""

    def open_update(self, at: int, name: str) -> int:
        """Open a file for reading and writing at any offset; create it when it is missing."""

    def create(self, at: int, name: str) -> int:
        """Create a file for appending. Raises FileExistsError when the name exists."""

    def names(self, directory: int) -> list[str]:
        """The names in a directory, unordered."""

    def size(self, file: int) -> int:
        """The size of a file in bytes."""

    def read(self, file: int, offset: int, count: int) -> bytes:
        """At most `count` bytes from an offset; empty at the end."""

    def write(self, file: int, data: bytes) -> int:
        """Append in one call, also to a file that was truncated; return the number of bytes written."""

    def write_at(self, file: int, offset: int, data: bytes) -> int:
        """Write at an offset in one call; return the number of bytes written."""

    def truncate(self, file: int, size: int) -> None:
        """Truncate a file."""

    def fdatasync(self, file: int) -> None:
        """Flush the bytes and the size of a file to stable storage."""

    def fsync(self, file: int) -> None:
        """Flush a whole file to stable storage; its name is not flushed."""

    def sync_directory(self, directory: int) -> None:
        """Flush the names in a directory to stable storage."""

    def protect(self, file: int) -> None:
        """Make a file read-only for everyone."""

    def drop_cache(self, file: int) -> None:
        """Drop clean pages of a file from the cache, so that the next read returns what the disk has."""

    def rename(self, at: int, old: str, new: str) -> None:
        """Rename a file, replacing another, or a directory, atomically."""

    def link(self, at: int, old: str, new: str) -> None:
        """Give a file a second name. Raises FileExistsError when that exists."""

    def unlink(self, at: int, name: str) -> None:
        """Remove a name."""

    def remove_directory(self, at: int, name: str) -> None:
        """Remove an empty directory."""

    def identity(self, file: int) -> Hashable:
        """A value that identifies a file, whatever its names are."""

    def resolve(self, root: str) -> str:
        """The absolute path of a root."""

    def identity_at(self, path: str) -> Hashable | None:
        """The identity of the file at a path; None when it does not exist."""

    def lock(self, directory: int, ms_max: int) -> None:
        """Take the exclusive lock of an open directory. Raises TimeoutError, with the holder, when it stays locked."""

    def unlock(self, directory: int) -> None:
        """Release the lock."""

    def close(self, descriptor: int) -> None:
        """Close a descriptor, which releases its lock."""

    def unique(self) -> str:
        """A new random name."""

    def seconds(self) -> float:
        """The seconds of a clock that only goes forward, the same one for all processes of a host."""


def _regular(file: int) -> int:
    """Return the descriptor of a regular file. Others are refused: a pipe in a shared folder blocks its reader."""
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise OSError(errno.EINVAL, "not a regular file")


class OperatingSystem:
    """The real file system."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    def parent(self, root: str) -> tuple[int, str]:
        path = Path(root).resolve()
        return os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), path.name

    def network_type(self, directory: int) -> str | None:
        device = os.fstat(directory).st_dev
        wanted = f"{os.major(device)}:{os.minor(device)}"
        with contextlib.suppress(OSError):
            for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
                before, _, after = line.partition(" - ")
                kind = after.split(" ", 1)[0]
                if before.split(" ", 3)[2] == wanted:
                    return kind if kind in NETWORK or kind.startswith("fuse.") else None
        return None

    def make_directory(self, at: int, name: str) -> None:
        os.mkdir(name, 0o700, dir_fd=at)

    def open_directory(self, at: int, name: str) -> int:
        return os.open(name, _DIRECTORY, dir_fd=at)

    def open_file(self, at: int, name: str) -> int:
        return _regular(os.open(name, _READ, dir_fd=at))

    def open_append(self, at: int, name: str) -> int:
        return _regular(os.open(name, _APPEND, 0o600, dir_fd=at))

    def open_update(self, at: int, name: str) -> int:
        return _regular(os.open(name, _UPDATE, 0o600, dir_fd=at))

    def create(self, at: int, name: str) -> int:
        return os.open(name, _NEW, 0o600, dir_fd=at)

    def names(self, directory: int) -> list[str]:
        return os.listdir(directory)

    def size(self, file: int) -> int:
        return os.fstat(file).st_size

    def read(self, file: int, offset: int, count: int) -> bytes:
        return os.pread(file, count, offset)

    def write(self, file: int, data: bytes) -> int:
        return os.write(file, data)

    def write_at(self, file: int, offset: int, data: bytes) -> int:
        return os.pwrite(file, data, offset)

    def truncate(self, file: int, size: int) -> None:
        os.ftruncate(file, size)

    def fdatasync(self, file: int) -> None:
        os.fdatasync(file)

    def fsync(self, file: int) -> None:
        os.fsync(file)

    def sync_directory(self, directory: int) -> None:
        os.fsync(directory)

    def protect(self, file: int) -> None:
        os.fchmod(file, 0o400)

    def drop_cache(self, file: int) -> None:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)

    def rename(self, at: int, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=at, dst_dir_fd=at)

    def link(self, at: int, old: str, new: str) -> None:
        os.link(old, new, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)

    def unlink(self, at: int, name: str) -> None:
        os.unlink(name, dir_fd=at)

    def remove_directory(self, at: int, name: str) -> None:
        os.rmdir(name, dir_fd=at)

    def identity(self, file: int) -> Hashable:
        found = os.fstat(file)
        return found.st_dev, found.st_ino

    def resolve(self, root: str) -> str:
        return str(Path(root).resolve())

    def identity_at(self, path: str) -> Hashable | None:
        try:
            found = os.stat(path)  # noqa: PTH116 - at every append; `Path.stat` takes twice as long
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino

    def lock(self, directory: int, ms_max: int) -> None:
        waited_ms, pause_ms = 0.0, 1.0
        while True:
            _locked[directory] = None  # first: a child that is forked in between must not inherit the lock
            try:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _locked.pop(directory, None)
                if waited_ms >= ms_max:
                    raise TimeoutError(self._holder(directory)) from None
            except BaseException:
                _locked.pop(directory, None)
                raise
            else:
                return
            nap_ms = pause_ms * (0.5 + self._clock.jitter() / 2)
            time.sleep(nap_ms / 1000)
            waited_ms += nap_ms
            pause_ms = min(LOCK_PAUSE_MS_MAX, pause_ms * 2)

    def _holder(self, directory: int) -> str:
        """The holder of the lock, from the kernel's list."""
        found = os.fstat(directory)
        device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        with contextlib.suppress(OSError):
            for line in Path("/proc/locks").read_text(encoding="utf-8").splitlines():
                fields = line.split()
                if fields[1] == "FLOCK" and fields[5] == device:
                    return f"process {fields[4]}"
        return "another holder"

    def unlock(self, directory: int) -> None:
        fcntl.flock(directory, fcntl.LOCK_UN)
        _locked.pop(directory, None)

    def close(self, descriptor: int) -> None:
        _locked.pop(descriptor, None)  # first: once closed, the number may be another file's
        os.close(descriptor)

    def unique(self) -> str:
        return self._clock.token()

    def seconds(self) -> float:
        return time.monotonic()


_locked: dict[int, None] = {}
"""The descriptors of this process that are locked, or are being locked."""


def _release_inherited_locks() -> None:
    """In a forked child: release the locks of the parent's threads.

    A flock belongs to the open file description, which the child shares: if the parent is killed, the lock would be
    held until the child ends. The number of the descriptor stays in use, because objects still have it.
    """
    descriptors = list(_locked)
    _locked.clear()
    if not descriptors:
        return
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for each in descriptors:
        with contextlib.suppress(OSError):  # it was closed meanwhile
            os.dup2(nothing, each, inheritable=False)
    os.close(nothing)


os.register_at_fork(after_in_child=_release_inherited_locks)


def open_journals_max() -> int:
    """How many journals may stay open at the same time: two descriptors each; the process needs others for itself."""
    return max(1, min(512, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))
