"""The file of a region: where it lies, how it is made, and what is checked before it is trusted.

Rule 1: names lie in a directory of ours alone (0700), files are ours alone (0600); anything else is refused.
Rule 2: nothing is mapped before every field of the header was checked against the file itself.
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
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # our own directory below it is checked to be ours alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the first line of a region says."""

    mode: int
    slots: int
    flags: int
    epoch: int
    size: int
    boot: bytes

    def encoded(self) -> bytes:
        """The header as it stands in the file."""
        return HEADER.pack(MAGIC, self.mode, LITTLE, self.slots, self.flags, self.epoch, self.size, self.boot)


def check_name(name: str) -> str:
    """The name, if it can be one: it is a file name and never a path."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"`{name}` cannot name a region",
            code="region.name",
            hint="1 to 100 letters, digits, dots, dashes and underscores, the first a letter or digit",
        )
    return name


def region_path(name: str) -> Path:
    """Where the region of that name lies."""
    return region_directory() / name


def boot_id() -> bytes:
    """Which boot of the machine this is; zeros where it cannot be told."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")
    except OSError:
        return bytes(16)
    return bytes.fromhex(text.strip().replace("-", ""))


def create_memfd(header: Header, head: int) -> int:
    """A sealed file without a name; its head reserved and its header written."""
    descriptor = os.memfd_create("interlock", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, header.size)
        reserve(descriptor, 0, head)
        os.pwrite(descriptor, header.encoded(), 0)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def create_file(name: str, header: Header, head: int, fill: Callable[[int], None]) -> None:
    """Make a named file: filled under another name, the magic last, then linked. `fill` gets its descriptor."""
    path = region_path(name)
    draft = path.with_name(f".{name}.{SystemClock().token()}")
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            os.fchmod(descriptor, 0o600)  # whatever the umask is
            os.ftruncate(descriptor, header.size)
            reserve(descriptor, 0, head)
            os.pwrite(descriptor, header.encoded()[len(MAGIC) :], len(MAGIC))
        except BaseException:
            os.close(descriptor)
            raise
        fill(descriptor)  # from here on the descriptor is its
        with draft.open("r+b") as again:
            again.write(MAGIC)
        os.link(draft, path)
    except FileExistsError:
        raise ConflictError(
            f"there is a region `{name}` already", code="region.exists", hint="attach to it, open it, or unlink it"
        ) from None
    finally:
        draft.unlink()


def open_file(name: str) -> int:
    """A descriptor of a named region."""
    path = region_path(name)
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no region `{name}`", code="region.unknown", hint="create it first, or check the name"
        ) from None
    except OSError as error:
        raise DeniedError(
            f"the region `{name}` cannot be opened: {error.strerror}", code="region.denied", hint="check who owns it"
        ) from None


def open_descriptor(descriptor: int) -> int:
    """A description of our own of the file behind somebody's descriptor."""
    try:
        return os.open(path_of(descriptor), os.O_RDWR | os.O_CLOEXEC)
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"descriptor {descriptor} is no region: {error}", code="region.descriptor", hint="pass MemoryRegion.fd on"
        ) from None


def read_header(descriptor: int, *, named: bool) -> Header:
    """The checked header of a file."""
    known = os.fstat(descriptor)
    if not stat.S_ISREG(known.st_mode):
        raise CorruptionError("this is no file, so it is no region", code="region.file")
    if known.st_uid != os.geteuid() or (known.st_nlink and known.st_mode & 0o077):
        raise DeniedError(
            f"the region belongs to user {known.st_uid} with mode {known.st_mode & 0o777:o}",
            code="region.owner",
            hint="a region is shared by one user's processes, mode 600",
        )
    if not named:
        _check_seals(descriptor)
    raw = os.pread(descriptor, HEADER.size, 0)
    if len(raw) < HEADER.size or raw[:7] != MAGIC[:7]:
        raise CorruptionError("this file is no region", code="region.magic", hint="check the name or descriptor")
    if raw[:8] != MAGIC:
        raise UsageError(
            f"the region has layout {raw[7]}, this Interlock reads {MAGIC[7]}",
            code="region.layout",
            hint="run one version of Interlock in all its processes",
        )
    _, mode, order, slots, flags, epoch, size, boot = HEADER.unpack(raw)
    if order != LITTLE or sys.byteorder != "little":
        raise UsageError("the region is of another byte order", code="region.byte_order", hint="make it here")
    if size != known.st_size or not slots or not 1 <= mode <= 3:
        raise CorruptionError(
            f"the region says {size} bytes, {slots} slots, mode {mode}; its file has {known.st_size} bytes",
            code="region.size",
            hint="somebody cut or grew it; unlink it and make it anew",
        )
    if boot != boot_id():
        raise NotFoundError(
            "the region is of an earlier boot of this machine", code="region.boot", hint="unlink it and make it anew"
        )
    return Header(mode=mode, slots=slots, flags=flags, epoch=epoch, size=size, boot=boot)


def reserve(descriptor: int, offset: int, size: int) -> None:
    """Take the memory now: later, a full file system would be SIGBUS.

    More than the machine has is refused unasked: a file without a name has no limit of its own, and the kernel would
    end other processes to find the memory.
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
            f"no room for {size} bytes of shared memory", code="region.memory", hint=f"or set {DIRECTORY_VARIABLE}"
        ) from None


def _check_seals(descriptor: int) -> None:
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        seals = 0
    named = os.fstat(descriptor).st_nlink > 0
    if seals & SEALS != SEALS and not named:
        raise DeniedError(
            "this file could be cut while it is mapped", code="region.unsealed", hint="pass the fd of a MemoryRegion"
        )


def region_directory() -> Path:
    """The private directory of regions, made if there is none.

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
            f"no directory for regions at {path}: {error.strerror}",
            code="region.directory",
            hint=f"set {DIRECTORY_VARIABLE} to a private directory, best on tmpfs",
        ) from None
    if not stat.S_ISDIR(known.st_mode) or known.st_uid != os.geteuid() or known.st_mode & 0o077:
        raise DeniedError(
            f"{path} is not a directory of ours alone",
            code="region.directory",
            hint=f"chmod 700 it, or set {DIRECTORY_VARIABLE}",
        )
    return path
