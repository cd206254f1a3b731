"""The file of a region: where it is, how it is created, and what is checked before it is mapped.

Rule 1: named files are in a private directory (0700) and are private (0600); anything else is refused.
Rule 2: a file is mapped only after every field of its header was checked against the file itself.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from interlock.errors import (
    ConflictError,
    CorruptionError,
    DeniedError,
    NotFoundError,
    UnavailableError,
    UsageError,
)
from interlock.ports.clock import SystemClock
from interlock.shm.memory.process_locks import path_of

MAGIC = b"ILSHM\0\0\1"
"""The last byte is the version of the layout."""

HEADER = struct.Struct("<8sBBHIQQ16s")
LITTLE = 1
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
SEALS = 0x1 | 0x2 | 0x4  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW
DIRECTORY_VARIABLE = "INTERLOCK_RUNTIME_DIR"
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # our directory below it is checked to be private


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of a region."""

    mode: int
    slots: int
    flags: int
    epoch: int
    size: int
    boot: bytes

    def encode(self) -> bytes:
        """Return the header as it is in the file."""
        return HEADER.pack(MAGIC, self.mode, LITTLE, self.slots, self.flags, self.epoch, self.size, self.boot)


def check_name(name: str) -> str:
    """Return the name of a region if it is valid: a file name, never a path. Raises UsageError otherwise."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"`{name}` is not a valid region name",
            code="region.name",
            hint="1 to 100 letters, digits, dots, dashes and underscores, the first a letter or digit",
        )
    return name


def region_path(name: str) -> Path:
    """Return the path of the region of that name."""
    return region_directory() / name


def boot_id() -> bytes:
    """Return the id of the current boot of the machine; zeros where it is unknown."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")
    except OSError:
        return bytes(16)
    return bytes.fromhex(text.strip().replace("-", ""))


def create_memfd(header: Header, head: int) -> int:
    """Create a sealed file without a name, with its head reserved and its header written."""
    descriptor = os.memfd_create("interlock", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, header.size)
        reserve(descriptor, 0, head)
        os.pwrite(descriptor, header.encode(), 0)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def create_file(name: str, header: Header, head: int, fill: Callable[[int], None]) -> None:
    """Create a named file: written under another name, the magic last, then linked. `fill` owns its descriptor."""
    path = region_path(name)
    draft = path.with_name(f".{name}.{SystemClock().token()}")
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            os.fchmod(descriptor, 0o600)  # whatever the umask is
            os.ftruncate(descriptor, header.size)
            reserve(descriptor, 0, head)
            os.pwrite(descriptor, header.encode()[len(MAGIC) :], len(MAGIC))
        except BaseException:
            os.close(descriptor)
            raise
        fill(descriptor)  # which owns the descriptor from here on
        with draft.open("r+b") as again:
            again.write(MAGIC)
        os.link(draft, path)
    except FileExistsError:
        raise ConflictError(
            f"region `{name}` already exists", code="region.exists", hint="attach to it, open it, or unlink it"
        ) from None
    finally:
        draft.unlink()


def open_file(name: str) -> int:
    """Return a descriptor of a named region."""
    path = region_path(name)
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise NotFoundError(
            f"unknown region `{name}`", code="region.unknown", hint="create it first, or check the name"
        ) from None
    except OSError as error:
        raise DeniedError(
            f"cannot open region `{name}`: {error.strerror}", code="region.denied", hint="check the owner of its file"
        ) from None


def open_descriptor(descriptor: int) -> int:
    """Return a new description of the file behind a descriptor."""
    try:
        return os.open(path_of(descriptor), os.O_RDWR | os.O_CLOEXEC)
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"descriptor {descriptor} is not a region: {error}", code="region.descriptor", hint="pass `MemoryRegion.fd`"
        ) from None


def read_header(descriptor: int, *, named: bool) -> Header:
    """Return the header of a file, checked."""
    known = os.fstat(descriptor)
    if not stat.S_ISREG(known.st_mode):
        raise CorruptionError("not a region: not a regular file", code="region.file")
    if known.st_uid != os.geteuid() or (known.st_nlink and known.st_mode & 0o077):
        raise DeniedError(
            f"the region belongs to user {known.st_uid} with mode {known.st_mode & 0o777:o}",
            code="region.owner",
            hint="a region must belong to this user and have mode 600",
        )
    if not named:
        _check_seals(descriptor)
    raw = os.pread(descriptor, HEADER.size, 0)
    if len(raw) < HEADER.size or raw[:7] != MAGIC[:7]:
        raise CorruptionError("this file is not a region", code="region.magic", hint="check the name or descriptor")
    if raw[:8] != MAGIC:
        raise UsageError(
            f"the region has layout {raw[7]}, this version of Interlock reads layout {MAGIC[7]}",
            code="region.layout",
            hint="run one version of Interlock in all processes of a region",
        )
    _, mode, order, slots, flags, epoch, size, boot = HEADER.unpack(raw)
    if order != LITTLE or sys.byteorder != "little":
        raise UsageError("the region has another byte order", code="region.byte_order", hint="create it here")
    if size != known.st_size or not slots or not 1 <= mode <= 3:
        raise CorruptionError(
            f"the header has {size} bytes, {slots} slots, mode {mode}; the file has {known.st_size} bytes",
            code="region.size",
            hint="the file was truncated or extended; unlink it and create it again",
        )
    if boot != boot_id():
        raise NotFoundError(
            "the region was created before the last boot", code="region.boot", hint="unlink it and create it again"
        )
    return Header(mode=mode, slots=slots, flags=flags, epoch=epoch, size=size, boot=boot)


def reserve(descriptor: int, offset: int, size: int) -> None:
    """Allocate the memory now: later, a full file system would cause SIGBUS.

    More than the machine has is refused here: a file without a name has no limit, and the kernel would kill other
    processes to find the memory.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        if size > memory:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        os.posix_fallocate(descriptor, offset, size)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.ENOMEM, errno.EDQUOT, errno.EFBIG}:
            raise
        raise UnavailableError(
            f"cannot allocate {size} bytes of shared memory",
            code="region.memory",
            hint=f"use less, or set {DIRECTORY_VARIABLE} to a directory with more space",
        ) from None


def _check_seals(descriptor: int) -> None:
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        seals = 0
    named = os.fstat(descriptor).st_nlink > 0
    if seals & SEALS != SEALS and not named:
        raise DeniedError(
            "this file is not sealed: it could be truncated while mapped",
            code="region.unsealed",
            hint="pass the fd of a MemoryRegion",
        )


def region_directory() -> Path:
    """Return the private directory of regions, created if it is missing.

    INTERLOCK_RUNTIME_DIR, else `interlock` in the user's runtime directory, else one in shared memory.
    """
    given, runtime = os.environ.get(DIRECTORY_VARIABLE), os.environ.get("XDG_RUNTIME_DIR")
    if given:
        path = Path(given)
    elif runtime and Path(runtime).is_dir():
        path = Path(runtime) / "interlock"
    else:
        path = SHARED_MEMORY / f"interlock-{os.geteuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        known = path.lstat()
    except OSError as error:
        raise UnavailableError(
            f"cannot create the directory of regions, {path}: {error.strerror}",
            code="region.directory",
            hint=f"set {DIRECTORY_VARIABLE} to a private directory, preferably on tmpfs",
        ) from None
    if not stat.S_ISDIR(known.st_mode) or known.st_uid != os.geteuid() or known.st_mode & 0o077:
        raise DeniedError(
            f"{path} is not a private directory of this user",
            code="region.directory",
            hint=f"chmod 700 it, or set {DIRECTORY_VARIABLE}",
        )
    return path
