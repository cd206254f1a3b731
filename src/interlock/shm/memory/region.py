r"""A region: one mapped file that processes share, with its header, its slots and its areas.

Rule 1: a region is seen whole or not at all: its file is filled under another name, the magic written last, then
linked; whoever attaches checks owner, mode bits, size, layout, boot and mode before mapping a byte.
Rule 2: mapping and locking go through different file descriptions: a mapping pins its description, and with it the
locks of a process that is gone.
Rule 3: memory is reserved before it is used, and a region without a name is sealed: a full or cut file would end every
process that touches it with SIGBUS.
Rule 4: closing a region never unmaps what others still use: words, doors and permits keep the memory they point to.

    offset  0  magic `ILSHM\0\0`   and the layout's version        offset 32  boot id, 16 bytes
            8  mode u8, byte order u8, slots u16, flags u32               48  number of areas, u64
           16  epoch u64                                                 64  the state word of a lifecycle
           24  bytes u64                                                128  one line of 64 bytes per slot
    then a reserved line, sixteen lines naming areas, and the areas.
    A slot's line: count u64, generation u32, flags u32, owner u64 (pid << 32 | start time), hand u64 (of a pool).
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
from interlock.shm.memory.fallback import Lock
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
from interlock.shm.memory.modes import MODES, ModeName, Operations, chosen_mode
from interlock.shm.memory.permits import Aside, Last, PermitCounter, Refuse
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
"""In the word at 8: a lifecycle of this region may not close without a cleanup."""

SLOTS_MAX = 4095
"""Slots of a region: a closer is named by 12 bits."""

AREAS_MAX = 16
AREA = struct.Struct("<40sQQ8x")

AREAS_BYTES = 16 * 1024 * 1024
"""Room for areas when nobody says: address space; memory is taken when an area is made."""

BYTES_MAX = 1 << 40

LAYOUT_SECONDS_MAX = 5.0
"""How long adding an area waits for another process that does the same: it needs microseconds, or is stopped."""


class MemoryRegion:
    """Memory shared by processes. Made by `create`, `attach`, `open` or `from_fd`; a `with` block closes it.

    >>> with MemoryRegion.create(slots=4) as region:
    ...     region.slots, region.word("hits").add(1)
    (4, 0)
    """

    def __init__(self, descriptor: int, header: Header, mode: ModeName, *, name: str | None, created: bool) -> None:
        self._created_by = os.getpid() if created else None
        self._name = name
        self._header = header
        self.buffer = _map(descriptor, header.size)
        """The mapping itself, for those who lay out an area of their own."""
        self._operations = Operations(mode, self.buffer, path=path_of(descriptor))
        self._descriptor: int | None = descriptor  # last: whoever fails before this line closes it himself

    @classmethod
    def create(
        cls, name: str | None = None, *, slots: int = 64, areas_bytes: int = AREAS_BYTES, requires_cleanup: bool = False
    ) -> MemoryRegion:
        """A new region: named, to attach to by name; or without a name, for this process, its children and `fd`.

        `slots` is how many processes may join at once. With `requires_cleanup` a lifecycle closes only in a process
        that joined with a cleanup. Raises ConflictError when the name is taken, UnavailableError when memory is not
        to be had, UsageError for a name or number that cannot be.
        """
        mode = chosen_mode()
        if name is not None:
            check_name(name)
        _check_number("slots", slots, SLOTS_MAX)
        _check_number("areas_bytes", areas_bytes, BYTES_MAX)
        head = _areas_begin(slots)
        header = Header(
            mode=MODES[mode],
            slots=slots,
            flags=int(requires_cleanup),
            epoch=int(SystemClock().token(), 16) & (2**64 - 1),
            size=-(-(head + areas_bytes) // LINE) * LINE,
            boot=boot_id(),
        )
        if name is None:
            return cls._mapped(create_memfd(header, head), header, mode, name=None, created=True)
        made: list[MemoryRegion] = []

        def fill(descriptor: int) -> None:
            made.append(cls._mapped(descriptor, header, mode, name=name, created=True))

        create_file(name, header, head, fill)
        return made[0]

    @classmethod
    def attach(cls, name: str) -> MemoryRegion:
        """The region of that name.

        Raises NotFoundError when there is none (or only one of an earlier boot), DeniedError when it is not ours
        alone, CorruptionError when it is no region, UsageError when it is of another layout or mode.
        """
        check_name(name)
        return cls._attached(open_file(name), name)

    @classmethod
    def open(
        cls, name: str, *, slots: int = 64, areas_bytes: int = AREAS_BYTES, requires_cleanup: bool = False
    ) -> MemoryRegion:
        """The region of that name, made if there is none: for processes that start together."""
        for _ in range(3):  # each round another process made it, and a third removed it at once
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
        """The region behind an inherited or received descriptor, which stays the caller's."""
        return cls._attached(open_descriptor(descriptor), None)

    @classmethod
    def _attached(cls, descriptor: int, name: str | None) -> MemoryRegion:
        try:
            mode = chosen_mode()
            header = read_header(descriptor, named=name is not None)
            if header.mode != MODES[mode]:
                wanted = next((name for name, number in MODES.items() if number == header.mode), None)
                raise UsageError(
                    f"the region uses mode {header.mode} ({wanted or 'unknown'}), this process {MODES[mode]} ({mode})",
                    code="region.mode",
                    hint=f"set INTERLOCK_SHM={wanted} here, or create the region again"
                    if wanted
                    else "create the region again with this version of Interlock",
                )
        except BaseException:
            os.close(descriptor)
            raise
        return cls._mapped(descriptor, header, mode, name=name, created=False)

    @classmethod
    def _mapped(
        cls, descriptor: int, header: Header, mode: ModeName, *, name: str | None, created: bool
    ) -> MemoryRegion:
        try:
            return cls(descriptor, header, mode, name=name, created=created)
        except BaseException:
            os.close(descriptor)
            raise

    @staticmethod
    def unlink(name: str) -> bool:
        """Remove a name; processes that are attached keep the region. False when there was none."""
        try:
            region_path(check_name(name)).unlink()
        except FileNotFoundError:
            return False
        return True

    def forget(self) -> bool:
        """Remove this region's name, unless the name means another region by now. True when this call did."""
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
        """The name to attach by; None for a region that has none."""
        return self._name

    @property
    def fd(self) -> int:
        """The descriptor, to be inherited (`pass_fds`) or sent; `from_fd` takes it on the other side."""
        if self._descriptor is None:
            raise UsageError("the region is closed", code="region.closed", hint="attach to it again")
        return self._descriptor

    @property
    def slots(self) -> int:
        """How many processes may join at once."""
        return self._header.slots

    @property
    def epoch(self) -> int:
        """A number that no other region has."""
        return self._header.epoch

    @property
    def mode(self) -> ModeName:
        """How this process operates the words."""
        return self._operations.mode

    @property
    def words(self) -> Words:
        """Operations on the region's words."""
        return self._operations.words

    @property
    def requires_cleanup(self) -> bool:
        """Whether a lifecycle closes only in a process that joined with a cleanup."""
        return bool(self.words.load(FLAGS) & FLAG_CLEANUP)

    def require_cleanup(self) -> None:
        """From now on a lifecycle closes only in a process that joined with a cleanup."""
        seen = self.words.load(FLAGS)
        while not seen & FLAG_CLEANUP:  # ends: only this bit ever changes
            seen = self.words.swap(FLAGS, seen, seen | FLAG_CLEANUP)

    def slot_line(self, slot: int) -> int:
        """Offset of a slot's line."""
        assert 0 <= slot < self.slots
        return SLOTS + slot * LINE

    def locks(self) -> ByteLocks:
        """A new file description to lock bytes of this region with; its owner closes it."""
        return ByteLocks(self._path_again())

    def exclusive(self) -> Lock:
        """The region's lock in the modes that have one; nothing otherwise. Inside, touch `buffer`, not `words`."""
        return self._operations.exclusive()

    def door(
        self, *, word: int, count: int, identity: tuple[int, int, int], refuse: Refuse, last: Last, aside: Aside
    ) -> PermitCounter:
        """A door on a gate's word (count -1), or on a state word and the count of a slot."""
        return self._operations.door(word=word, count=count, identity=identity, refuse=refuse, last=last, aside=aside)

    def word(self, name: str, *, initial: int = 0) -> AtomicWord:
        """The word of that name, on a line of its own; made with `initial` by whoever asks first."""
        offset = self.area(f"word.{name}", LINE, prepare=lambda at: self.words.store(at, initial))
        return AtomicWord(self.words, offset)

    def area(self, name: str, size: int, *, prepare: Callable[[int], None] | None = None) -> int:
        """Offset of the area of that name, of zeros, on a line's boundary; made if it is not there yet.

        `prepare` fills a new area before anybody else can see it. Raises UsageError when the area has another size
        or the region no room, UnavailableError when the machine has no memory.
        """
        tag = name.encode()
        if not 0 < len(tag) <= 40 or b"\0" in tag:
            raise UsageError(f"`{name}` names no area", code="region.area_name", hint="1 to 40 bytes")
        _check_number("size", size, BYTES_MAX)
        found = self._find_area(tag, size)
        if found is not None:
            return found
        locks = self.locks()
        try:
            self._await_layout(locks)
            found = self._find_area(tag, size)
            return self._add_area(tag, size, prepare) if found is None else found
        finally:
            locks.close()

    def close(self) -> None:
        """Let go of the descriptor. Joined lifecycles stay joined until they leave or the process ends."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._descriptor is not None and self._created_by == os.getpid():
            self.forget()
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            self.close()

    def __reduce__(self) -> tuple[Callable[[str], MemoryRegion], tuple[str]]:
        if self._name is None:
            raise UsageError(
                "a region without a name cannot be sent to another process by pickling",
                code="region.unnamed",
                hint="give it a name, or inherit `fd` and call MemoryRegion.from_fd",
            )
        return MemoryRegion.attach, (self._name,)

    def __repr__(self) -> str:
        return f"<MemoryRegion {self._name or 'without a name'} {self.mode} slots={self.slots}>"

    @property
    def _directory(self) -> int:
        return _areas_begin(self._header.slots) - AREAS_MAX * AREA.size

    def _path_again(self) -> str:
        return path_of(self.fd)

    def _find_area(self, tag: bytes, size: int) -> int | None:
        for index in range(self.words.load(AREAS)):
            known, offset, bytes_known = AREA.unpack_from(self.buffer, self._directory + index * AREA.size)
            if known.rstrip(b"\0") != tag:
                continue
            if bytes_known != size:
                raise UsageError(
                    f"area `{tag.decode()}` of the region has {bytes_known} bytes, not {size}",
                    code="region.area_size",
                    hint="give it the same sizes everywhere, or another name",
                )
            return int(offset)
        return None

    def _add_area(self, tag: bytes, size: int, prepare: Callable[[int], None] | None) -> int:
        index = self.words.load(AREAS)
        directory = self._directory
        offset = _areas_begin(self.slots)
        if index:
            _, last, bytes_last = AREA.unpack_from(self.buffer, directory + (index - 1) * AREA.size)
            offset = -(-(last + bytes_last) // LINE) * LINE
        if index >= AREAS_MAX or offset + size > self._header.size:
            raise UsageError(
                f"the region has no room for `{tag.decode()}`: {size} bytes, area {index + 1} of {AREAS_MAX}",
                code="region.full",
                hint="create it with larger `areas_bytes`, or another region",
            )
        reserve(self.fd, offset, size)
        self.buffer[offset : offset + size] = bytes(size)  # what a maker left that died before the next line
        if prepare is not None:
            prepare(offset)
        AREA.pack_into(self.buffer, directory + index * AREA.size, tag, offset, size)
        self.words.store(AREAS, index + 1)
        return offset

    def _await_layout(self, locks: ByteLocks) -> None:
        end = monotonic() + LAYOUT_SECONDS_MAX
        while not locks.claim(LAYOUT_BYTE):
            if monotonic() > end:
                raise UnavailableError(
                    "another process is adding an area to the region, and does not end",
                    code="region.layout_held",
                    hint="it is stopped; let it go on, or end it",
                )
            sleep(0.001)


def _map(descriptor: int, size: int) -> mmap:
    try:
        return mmap(descriptor, size)
    except OSError as error:
        raise UnavailableError(
            f"{size} bytes cannot be mapped: {error.strerror}", code="region.memory", hint="smaller `areas_bytes`"
        ) from None


def _areas_begin(slots: int) -> int:
    return SLOTS + slots * LINE + LINE + AREAS_MAX * AREA.size


def _check_number(what: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise UsageError(f"{what}={value} cannot be", code=f"region.{what}", hint=f"1 to {most}")
