"""The sizes of an inbox, where its parts stand in a region, and which bell it is rung by.

Rule 1: the sizes and the kind of the bell are kept in the area itself, so that a process with others is refused.
Rule 2: who made an inbox chose its bell; everybody else opens the same one, or is told what is missing for it.

    An area: producers u32, priorities u32, ring bytes u64, doorbell kind u64 (one line); asleep u64 (one line);
    rings u64 (one line); then for each producer its lanes, most urgent first.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from interlock.errors import UsageError
from interlock.shm.memory.file import region_path
from interlock.shm.memory.region import MemoryRegion
from interlock.shm.queue.notifier import EventNotifier, Notifier, SocketNotifier, WaiterNotifier
from interlock.shm.queue.ring import LINE, RING_BYTES_MIN, ring_bytes

PRIORITIES_MAX = 8
PRODUCERS_MAX = 4095
ASLEEP_AT, RINGS_AT, LANES_AT = LINE, 2 * LINE, 3 * LINE

_HEAD = struct.Struct("<IIQQ")
_KINDS = {EventNotifier.kind: "eventfd", SocketNotifier.kind: "socket", WaiterNotifier.kind: "waiter"}


def checked(what: str, value: int, least: int, most: int) -> int:
    """The value; raises UsageError when it is no integer within these."""
    if type(value) is not int or not least <= value <= most:
        raise UsageError(f"{what}={value!r} cannot be", code=f"inbox.{what}", hint=f"{least} to {most}")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxShape:
    """The sizes of an inbox, and where its parts stand, counted from the area's offset."""

    producers: int
    priorities: int
    ring_bytes: int

    def __post_init__(self) -> None:
        checked("producers", self.producers, 1, PRODUCERS_MAX)
        checked("priorities", self.priorities, 1, PRIORITIES_MAX)
        checked("ring_bytes", self.ring_bytes, RING_BYTES_MIN, 1 << 30)
        if self.ring_bytes & (self.ring_bytes - 1):
            raise UsageError(
                f"ring_bytes={self.ring_bytes} is no power of two", code="inbox.ring", hint="such as 65536"
            )

    @property
    def bytes(self) -> int:
        """The area."""
        return self.lane_at(self.producers, 0)

    def lane_at(self, producer: int, priority: int) -> int:
        """The lane of a producer for a priority."""
        return LANES_AT + (producer * self.priorities + priority) * ring_bytes(self.ring_bytes)


def claim_area(
    region: MemoryRegion, name: str, shape: InboxShape, doorbell: str | EventNotifier
) -> tuple[int, Notifier]:
    """The offset of the inbox in its region, which is made when there is none, and its bell.

    Raises UsageError when it has other sizes or another bell, or a bell that cannot be opened from here.
    """
    kind = _kind_wanted(region, doorbell)
    default = EventNotifier.kind if region.name is None else SocketNotifier.kind
    made: list[int] = []

    def prepare(offset: int) -> None:
        _HEAD.pack_into(region.buffer, offset, shape.producers, shape.priorities, shape.ring_bytes, kind or default)
        made.append(offset)

    offset = region.area(f"inbox.{name}", shape.bytes, prepare=prepare)
    known = _HEAD.unpack_from(region.buffer, offset)
    if known[:3] != (shape.producers, shape.priorities, shape.ring_bytes):
        raise UsageError(
            f"inbox `{name}` has producers={known[0]}, priorities={known[1]}, ring_bytes={known[2]}",
            code="inbox.shape",
            hint="give the same numbers everywhere, or another name",
        )
    if kind not in {None, known[3]}:
        raise UsageError(
            f"inbox `{name}` is rung by {_KINDS[known[3]]}", code="inbox.bell", hint="use the same doorbell"
        )
    if isinstance(doorbell, EventNotifier):
        return offset, doorbell
    bell = _opened_bell(region, offset, known[3], made=bool(made))
    if bell is None:
        raise UsageError(
            f"the doorbell of inbox `{name}` is a descriptor of its maker",
            code="inbox.bell_missing",
            hint="inherit or send `inbox.doorbell.fd`, and give doorbell=EventBell(fd)",
        )
    return offset, bell


def _kind_wanted(region: MemoryRegion, doorbell: str | EventNotifier) -> int | None:
    """The kind that was asked for; None: whatever the inbox has."""
    if isinstance(doorbell, EventNotifier):
        return EventNotifier.kind
    if doorbell == "auto":
        return None
    for kind, known in _KINDS.items():
        if known == doorbell:
            if kind == SocketNotifier.kind and region.name is None:
                raise UsageError("a region without a name has no socket", code="inbox.bell", hint="doorbell='eventfd'")
            return kind
    raise UsageError(f"`{doorbell}` is no doorbell", code="inbox.bell", hint="auto, eventfd, socket or waiter")


def _opened_bell(region: MemoryRegion, offset: int, kind: int, *, made: bool) -> Notifier | None:
    """The bell of that kind, unless it is a descriptor that we do not have."""
    if kind == WaiterNotifier.kind:
        return WaiterNotifier(region.words, offset + RINGS_AT)
    if kind == SocketNotifier.kind and region.name is not None:
        return SocketNotifier(region_path(region.name).parent, f".{region.epoch:016x}-{offset}.bell")
    return EventNotifier() if kind == EventNotifier.kind and made else None
