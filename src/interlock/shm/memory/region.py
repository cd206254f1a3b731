r"""A region: one mapped file that processes share, with its header, its slots and its areas.

Rule 1: a region is visible only when complete: its file is written under another name, the magic last, then linked. A
process that attaches checks owner, mode bits, size, layout, boot and mode before it maps the file.
Rule 2: mapping and locking use different file descriptions: a mapping keeps its description open, and with it the
locks of a process that has ended.
Rule 3: memory is reserved before it is used, and a region without a name is sealed: a full or truncated file would end
every process that accesses it with SIGBUS.
Rule 4: closing a region does not unmap memory in use: words, permit counters and permits keep it mapped.

    offset  0  magic `ILSHM\0\0`   and the layout's version        offset 32  boot id, 16 bytes
            8  mode u8, byte order u8, slots u16, flags u32               48  number of areas, u64
           16  epoch u64                                                 64  the state word of a lifecycle
           24  bytes u64                                                128  one line of 64 bytes per slot
    then a reserved line, sixteen lines with the names of areas, and the areas.
    A slot's line: count u64, generation u32, flags u32, owner u64 (pid << 32 | start time), unused.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from contextlib import suppress
from mmap import mmap
from time import monotonic, sleep
from typing import Self

from interlock.errors import ConflictError, NotFoundError, UnavailableError, UsageError
from interlock.ports.clock import SystemClock
from interlock.shm.memory.arguments import check_int
from interlock.shm.memory.file import (
    Header,
    boot_id,
    check_name,
    create_file,
    create_memfd,
    open_descriptor,
    open_file,
    read_header,
    region_path,
    reserve,
)
from interlock.shm.memory.modes import MODES, ModeName, open_words, select_mode
from interlock.shm.memory.process_locks import LAYOUT_BYTE, ByteLocks, path_of
from interlock.shm.memory.words import AtomicWord, Words

LINE = 64
STATE = 64
"""Offset of the state word of a lifecycle."""

SLOTS = 128
"""Offset of the line of slot 0."""

AREAS = 48
FLAGS = 8
FLAG_CLEANUP = 1 << 32
"""In the word at 8: a lifecycle of this region must not close without a cleanup."""

SLOTS_MAX = 4095
"""Slots of a region: the slot of a closer has 12 bits."""

AREAS_MAX = 16
AREA = struct.Struct("<40sQQ8x")

AREAS_BYTES = 16 * 1024 * 1024
"""Default space for areas. It is address space: memory is allocated when an area is created."""

BYTES_MAX = 1 << 40

LAYOUT_SECONDS_MAX = 5.0
"""How long to wait for another process that adds an area. It needs microseconds, unless it is stopped."""


class MemoryRegion:
    """Memory shared by processes. Use `create`, `attach`, `open` or `from_fd`; a `with` block closes it.

    >>> with MemoryRegion.create(slots=4) as region:
    ...     region.slots, region.word("hits").add(1)
    (4, 0)
    """

    def __init__(self, descriptor: int, header: Header, mode: ModeName, *, name: str | None, created: bool) -> None:
        self._created_by = os.getpid() if created else None
        self._name = name
        self._header = header
        self.buffer = _map(descriptor, header.size)
        """The mapping, for code that defines the layout of an area."""
        self.mode = mode
        """How this process accesses the words."""
        self.words: Words = open_words(mode, self.buffer, path=path_of(descriptor))
        """Operations on the region's words."""
        self._descriptor: int | None = descriptor  # last: if a line before this one fails, the caller closes it

    @classmethod
    def create(
        cls, name: str | None = None, *, slots: int = 64, areas_bytes: int = AREAS_BYTES, requires_cleanup: bool = False
    ) -> MemoryRegion:
        """Create a region: with a name, to attach to; or without one, for this process, its children and `fd`.

        `slots` is how many processes can join at the same time. With `requires_cleanup`, a lifecycle closes only in a
        process that joined with a cleanup. Raises ConflictError if the name is in use, UnavailableError if there is
        not enough memory, UsageError if the name or a number is invalid.
        """
        mode = select_mode()
        if name is not None:
            check_name(name)
        check_int("slots", slots, 1, SLOTS_MAX, code="region.slots")
        check_int("areas_bytes", areas_bytes, 1, BYTES_MAX, code="region.areas_bytes")
        head = _areas_offset(slots)
        header = Header(
            mode=MODES[mode],
            slots=slots,
            flags=int(requires_cleanup),
            epoch=int(SystemClock().token(), 16) & (2**64 - 1),
            size=-(-(head + areas_bytes) // LINE) * LINE,
            boot=boot_id(),
        )
        if name is None:
            return cls._map_descriptor(create_memfd(header, head), header, mode, name=None, created=True)
        regions: list[MemoryRegion] = []

        def fill(descriptor: int) -> None:
            regions.append(cls._map_descriptor(descriptor, header, mode, name=name, created=True))

        create_file(name, header, head, fill)
        return regions[0]

    @classmethod
    def attach(cls, name: str) -> MemoryRegion:
        """Attach to the region of that name.

        Raises NotFoundError if it is unknown or from an earlier boot, DeniedError if it is not private to this user,
        CorruptionError if the file is not a region, UsageError if it has another layout or mode.
        """
        check_name(name)
        return cls._attach_descriptor(open_file(name), name)

    @classmethod
    def open(
        cls, name: str, *, slots: int = 64, areas_bytes: int = AREAS_BYTES, requires_cleanup: bool = False
    ) -> MemoryRegion:
        """Attach to the region of that name, or create it: for processes that start together."""
        for _ in range(3):  # in each round another process may create it, and a third remove it
            try:
                return cls.attach(name)
            except NotFoundError as error:
                if error.code == "region.boot":
                    cls.unlink(name)
            with suppress(ConflictError):
                return cls.create(name, slots=slots, areas_bytes=areas_bytes, requires_cleanup=requires_cleanup)
        return cls.attach(name)

    @classmethod
    def from_fd(cls, descriptor: int) -> MemoryRegion:
        """Attach to the region behind an inherited or received descriptor, which the caller still owns."""
        return cls._attach_descriptor(open_descriptor(descriptor), None)

    @classmethod
    def _attach_descriptor(cls, descriptor: int, name: str | None) -> MemoryRegion:
        try:
            mode = select_mode()
            header = read_header(descriptor, named=name is not None)
            if header.mode != MODES[mode]:
                wanted = next((name for name, number in MODES.items() if number == header.mode), None)
                raise UsageError(
                    f"the region uses mode {header.mode} ({wanted or 'unknown'}), this process {MODES[mode]} ({mode})",
                    code="region.mode",
                    hint=f"set INTERLOCK_SHM={wanted} in this process, or create the region again"
                    if wanted
                    else "create the region again with this version of Interlock",
                )
        except BaseException:
            os.close(descriptor)
            raise
        return cls._map_descriptor(descriptor, header, mode, name=name, created=False)

    @classmethod
    def _map_descriptor(
        cls, descriptor: int, header: Header, mode: ModeName, *, name: str | None, created: bool
    ) -> MemoryRegion:
        try:
            return cls(descriptor, header, mode, name=name, created=created)
        except BaseException:
            os.close(descriptor)
            raise

    @staticmethod
    def unlink(name: str) -> bool:
        """Remove a name; attached processes keep the region. False if the name was unknown."""
        try:
            region_path(check_name(name)).unlink()
        except FileNotFoundError:
            return False
        return True

    def unlink_name(self) -> bool:
        """Remove the name of this region, unless another region has it now. True if this call removed it."""
        if self._name is None:
            return False
        try:
            current = region_path(self._name).stat()
        except FileNotFoundError:
            return False
        own = os.fstat(self.fd)
        return (current.st_dev, current.st_ino) == (own.st_dev, own.st_ino) and self.unlink(self._name)

    @property
    def name(self) -> str | None:
        """The name to attach by; None for a region without a name."""
        return self._name

    @property
    def fd(self) -> int:
        """The descriptor, to inherit (`pass_fds`) or send; the other process passes it to `from_fd`."""
        if self._descriptor is None:
            raise UsageError("the region is closed", code="region.closed", hint="attach to it again")
        return self._descriptor

    @property
    def slots(self) -> int:
        """How many processes can join at the same time."""
        return self._header.slots

    @property
    def epoch(self) -> int:
        """A number that identifies this region."""
        return self._header.epoch

    @property
    def requires_cleanup(self) -> bool:
        """Whether a lifecycle closes only in a process that joined with a cleanup."""
        return bool(self.words.load(FLAGS) & FLAG_CLEANUP)

    def require_cleanup(self) -> None:
        """From now on, a lifecycle closes only in a process that joined with a cleanup."""
        seen = self.words.load(FLAGS)
        while not seen & FLAG_CLEANUP:  # ends: no other bit changes
            seen = self.words.swap(FLAGS, seen, seen | FLAG_CLEANUP)

    def slot_line(self, slot: int) -> int:
        """Return the offset of a slot's line."""
        assert 0 <= slot < self.slots
        return SLOTS + slot * LINE

    def locks(self) -> ByteLocks:
        """Return a new file description to lock bytes of this region with. The caller closes it."""
        return ByteLocks(path_of(self.fd))

    def word(self, name: str, *, initial: int = 0) -> AtomicWord:
        """Return the word of that name, on its own line. The first caller creates it with `initial`."""
        offset = self.area(f"word.{name}", LINE, prepare=lambda at: self.words.store(at, initial))
        return AtomicWord(self.words, offset)

    def area(self, name: str, size: int, *, prepare: Callable[[int], None] | None = None) -> int:
        """Return the offset of the area of that name, aligned to a line. The first caller creates it, with zeros.

        `prepare` writes to a new area before other processes can see it. Raises UsageError if the area has another
        size or the region is full, UnavailableError if the machine has no memory.
        """
        tag = name.encode()
        if not 0 < len(tag) <= 40 or b"\0" in tag:
            raise UsageError(f"`{name}` is not a valid area name", code="region.area_name", hint="1 to 40 bytes")
        check_int("size", size, 1, BYTES_MAX, code="region.size")
        found = self._find_area(tag, size)
        if found is not None:
            return found
        locks = self.locks()
        try:
            self._lock_layout(locks)
            found = self._find_area(tag, size)
            return self._add_area(tag, size, prepare) if found is None else found
        finally:
            locks.close()

    def close(self) -> None:
        """Close the descriptor. Joined lifecycles stay joined until they leave or the process ends."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._descriptor is not None and self._created_by == os.getpid():
            self.unlink_name()
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            self.close()

    def __reduce__(self) -> tuple[Callable[[str], MemoryRegion], tuple[str]]:
        if self._name is None:
            raise UsageError(
                "cannot pickle a region without a name",
                code="region.unnamed",
                hint="create it with a name, or inherit `fd` and call MemoryRegion.from_fd",
            )
        return MemoryRegion.attach, (self._name,)

    def __repr__(self) -> str:
        return f"<MemoryRegion {self._name or 'without a name'} {self.mode} slots={self.slots}>"

    @property
    def _directory(self) -> int:
        return _areas_offset(self._header.slots) - AREAS_MAX * AREA.size

    def _find_area(self, tag: bytes, size: int) -> int | None:
        for index in range(self.words.load(AREAS)):
            known, offset, bytes_known = AREA.unpack_from(self.buffer, self._directory + index * AREA.size)
            if known.rstrip(b"\0") != tag:
                continue
            if bytes_known != size:
                raise UsageError(
                    f"area `{tag.decode()}` of the region has {bytes_known} bytes, not {size}",
                    code="region.area_size",
                    hint="use the same sizes in all processes, or another name",
                )
            return int(offset)
        return None

    def _add_area(self, tag: bytes, size: int, prepare: Callable[[int], None] | None) -> int:
        index = self.words.load(AREAS)
        directory = self._directory
        offset = _areas_offset(self.slots)
        if index:
            _, last, bytes_last = AREA.unpack_from(self.buffer, directory + (index - 1) * AREA.size)
            offset = -(-(last + bytes_last) // LINE) * LINE
        if index >= AREAS_MAX or offset + size > self._header.size:
            raise UsageError(
                f"the region is full: no space for `{tag.decode()}`, {size} bytes, area {index + 1} of {AREAS_MAX}",
                code="region.full",
                hint="create the region with larger `areas_bytes`, or use another region",
            )
        reserve(self.fd, offset, size)
        self.buffer[offset : offset + size] = bytes(size)  # a process that died in this function may have written here
        if prepare is not None:
            prepare(offset)
        AREA.pack_into(self.buffer, directory + index * AREA.size, tag, offset, size)
        self.words.store(AREAS, index + 1)
        return offset

    def _lock_layout(self, locks: ByteLocks) -> None:
        end = monotonic() + LAYOUT_SECONDS_MAX
        while not locks.claim(LAYOUT_BYTE):
            if monotonic() > end:
                raise UnavailableError(
                    f"another process has been adding an area to the region for {LAYOUT_SECONDS_MAX:g} s",
                    code="region.layout_held",
                    hint="it is probably stopped; resume or end it",
                )
            sleep(0.001)


def _map(descriptor: int, size: int) -> mmap:
    try:
        return mmap(descriptor, size)
    except OSError as error:
        raise UnavailableError(
            f"cannot map {size} bytes: {error.strerror}", code="region.memory", hint="use smaller `areas_bytes`"
        ) from None


def _areas_offset(slots: int) -> int:
    return SLOTS + slots * LINE + LINE + AREAS_MAX * AREA.size
