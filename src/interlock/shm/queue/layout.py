"""The sizes of an inbox, where its parts are in a region, and which notifier it uses.

Rule 1: the sizes and the kind of notifier are stored in the area, so that a process with other values is refused.
Rule 2: the process that creates an inbox chooses the notifier; all others open the same one, or get an error that
says what is missing.

    An area: producers u32, priorities u32, ring bytes u64, kind of notifier u64 (one line); asleep u64 (one line);
    notifications u64 (one line); then for each producer its rings, most urgent first.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from interlock.errors import UsageError
from interlock.shm.memory.arguments import check_int
from interlock.shm.memory.file import region_path
from interlock.shm.memory.region import LINE, MemoryRegion
from interlock.shm.queue.notifier import EventNotifier, Notifier, SocketNotifier, WaiterNotifier
from interlock.shm.queue.priority import PRIORITIES_MAX
from interlock.shm.queue.ring import RING_BYTES_MIN, ring_area_bytes

PRODUCERS_MAX = 4095
ASLEEP_AT, NOTIFICATIONS_AT, RINGS_AT = LINE, 2 * LINE, 3 * LINE

_HEAD = struct.Struct("<IIQQ")
_KINDS = {EventNotifier.kind: "eventfd", SocketNotifier.kind: "socket", WaiterNotifier.kind: "waiter"}


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxLayout:
    """The sizes of an inbox, and the offsets of its parts in its area."""

    producers: int
    priorities: int
    ring_bytes: int

    def __post_init__(self) -> None:
        check_int("producers", self.producers, 1, PRODUCERS_MAX, code="inbox.producers")
        check_int("priorities", self.priorities, 1, PRIORITIES_MAX, code="inbox.priorities")
        check_int("ring_bytes", self.ring_bytes, RING_BYTES_MIN, 1 << 30, code="inbox.ring_bytes")
        if self.ring_bytes & (self.ring_bytes - 1):
            raise UsageError(
                f"ring_bytes={self.ring_bytes} is not a power of two", code="inbox.ring", hint="such as 65536"
            )

    @property
    def bytes(self) -> int:
        """The bytes of the area."""
        return self.ring_at(self.producers, 0)

    def ring_at(self, producer: int, priority: int) -> int:
        """Return the offset of the ring of a producer for a priority."""
        return RINGS_AT + (producer * self.priorities + priority) * ring_area_bytes(self.ring_bytes)


def open_inbox_area(
    region: MemoryRegion, name: str, layout: InboxLayout, notifier: str | EventNotifier
) -> tuple[int, Notifier]:
    """Return the offset of the inbox in its region and its notifier. The first caller creates the area.

    Raises UsageError if the inbox has other sizes or another notifier, or if this process cannot open its notifier.
    """
    kind = _requested_kind(region, notifier)
    default = EventNotifier.kind if region.name is None else SocketNotifier.kind
    created: list[int] = []

    def prepare(offset: int) -> None:
        _HEAD.pack_into(region.buffer, offset, layout.producers, layout.priorities, layout.ring_bytes, kind or default)
        created.append(offset)

    offset = region.area(f"inbox.{name}", layout.bytes, prepare=prepare)
    stored = _HEAD.unpack_from(region.buffer, offset)
    if stored[:3] != (layout.producers, layout.priorities, layout.ring_bytes):
        raise UsageError(
            f"inbox `{name}` has producers={stored[0]}, priorities={stored[1]}, ring_bytes={stored[2]}",
            code="inbox.shape",
            hint="use the same numbers in all processes, or another name",
        )
    if kind not in {None, stored[3]}:
        raise UsageError(
            f"inbox `{name}` has the notifier {_KINDS[stored[3]]}", code="inbox.bell", hint="use the same notifier"
        )
    if isinstance(notifier, EventNotifier):
        return offset, notifier
    opened = _open_notifier(region, offset, stored[3], created=bool(created))
    if opened is None:
        raise UsageError(
            f"the notifier of inbox `{name}` is a descriptor of the process that created it",
            code="inbox.bell_missing",
            hint="inherit or send `inbox.notifier.fd`, and pass notifier=EventNotifier(fd)",
        )
    return offset, opened


def _requested_kind(region: MemoryRegion, notifier: str | EventNotifier) -> int | None:
    """Return the kind that the caller asked for; None means the kind of the inbox."""
    if isinstance(notifier, EventNotifier):
        return EventNotifier.kind
    if notifier == "auto":
        return None
    for kind, name in _KINDS.items():
        if name == notifier:
            if kind == SocketNotifier.kind and region.name is None:
                raise UsageError("a region without a name has no socket", code="inbox.bell", hint="notifier='eventfd'")
            return kind
    raise UsageError(f"unknown notifier `{notifier}`", code="inbox.bell", hint="auto, eventfd, socket or waiter")


def _open_notifier(region: MemoryRegion, offset: int, kind: int, *, created: bool) -> Notifier | None:
    """Return the notifier of that kind, or None if it is a descriptor that this process does not have."""
    if kind == WaiterNotifier.kind:
        return WaiterNotifier(region.words, offset + NOTIFICATIONS_AT)
    if kind == SocketNotifier.kind and region.name is not None:
        return SocketNotifier(region_path(region.name).parent, f".{region.epoch:016x}-{offset}.bell")
    return EventNotifier() if kind == EventNotifier.kind and created else None
