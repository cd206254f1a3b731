"""Work: what remains to be done because of an entry. It is stored with the entry, in the same write.

Rule 1: work is identified by its entity, the version that caused it and the ordinal of its effect. Handlers see this
        key, and the result is stored under it.
Rule 2: the lane says who performs it: handlers, the clock, the relay to other entities, or the relay to the bus.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Lane = Literal["effect", "timer", "outbox", "message"]

LANES: tuple[Lane, ...] = ("effect", "timer", "outbox", "message")
"""All lanes."""

ORDERED_LANES: tuple[Lane, ...] = ("outbox", "message")
"""The lanes in which only the first unfinished row of an entity can be claimed. There are two, so that sends between
entities continue while a bus is unreachable."""

CHILD_WORK = "_child"
"""The name of the work of a child entity: it creates the child and then waits for its result."""

ERASE_WORK = "_erase"
"""The name of the work of an erasure: it destroys the data key that its input names."""

EPOCH = "_epoch"
"""The name under which the body of work has the restore epoch of its entry."""

PLACE = "_place"
"""The name under which the body of a message has the version and ordinal that others see, if they are not its own."""

BUS_WORK = "bus"
"""The name of the work of messages: they go to the bus of the runtime."""


class WorkId(Struct, frozen=True, order=True, gc=False):
    """Identifies work of an entity: its lane, the version that caused it, the ordinal of its effect."""

    lane: Lane
    version: int
    ordinal: int

    def key(self, entity: str, *, epoch: int = 0) -> str:
        """Return the key of the effect: what handlers see and people name. `epoch` is that of its entry."""
        return f"{key_base(entity, self.version, epoch)}/{self.ordinal}"

    @property
    def result_key(self) -> str:
        """The key under which the result of this work is recorded, so that only the first result counts."""
        return f"_{self.lane}/{self.version}/{self.ordinal}"


def key_base(entity: str, version: int, epoch: int) -> str:
    """Return the key of an entry's effects without the ordinal: `kind/id/version`, after a restore with the epoch.

    >>> key_base("order/A-1", 7, 0), key_base("order/A-1", 7, 2)
    ('order/A-1/7', 'order/A-1/7.2')
    """
    return f"{entity}/{version}.{epoch}" if epoch else f"{entity}/{version}"


def parse_work_key(key: str) -> tuple[str, int, int]:
    """Return the entity, the version and the ordinal of a key of work. Raises ValueError when it is not one.

    >>> parse_work_key("order/A-1/7/0")
    ('order/A-1', 7, 0)
    >>> parse_work_key("order/A-1/7.2/0")
    ('order/A-1', 7, 0)
    """
    entity, place, ordinal = key.rsplit("/", 2)
    version, dot, epoch = place.partition(".")
    if "/" not in entity or not (_is_number(version) and _is_number(ordinal)) or (dot and not _is_number(epoch)):
        raise ValueError(f"expected kind/id/version/ordinal, got {key[:200]!r}")
    return entity, int(version), int(ordinal)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19  # versions are integers of 64 bits


class Work(Struct, frozen=True, gc=False, omit_defaults=True, rename={"id": "place"}):
    """One thing to do.

    | lane | `name` | `body` |
    |---|---|---|
    | `effect` | the handler, or `_child` | the effect's payload |
    | `timer` | the timer's name | `event` |
    | `outbox` | an address: `entity/<id>` or `child/<version>/<ordinal>` | `event` to deliver |
    | `message` | `bus` | the message, without what its work id adds |

    `due_ms` is the earliest time to claim it; None: it waits for something else. `body` has the restore epoch of its
    entry under `EPOCH`, unless that is 0.
    """

    id: WorkId
    name: str
    body: Any
    due_ms: int | None

    @property
    def epoch(self) -> int:
        """The restore epoch of its entry."""
        found = self.body.get(EPOCH) if isinstance(self.body, dict) else None
        return found if isinstance(found, int) else 0

    def key(self, entity: str) -> str:
        """Return its key: the same for every attempt, also after a restore."""
        return self.id.key(entity, epoch=self.epoch)

    @property
    def is_saga_step(self) -> bool:
        """Whether its result matters even if the entity no longer waits for it: it may have to be compensated."""
        return isinstance(self.body, dict) and bool(self.body.get("late"))


class WorkDelta(Struct, frozen=True, gc=False, rename={"created": "born", "finished": "ended"}):
    """The changes of one step: work created, work finished by this entry, and invokes cancelled."""

    created: tuple[Work, ...] = ()
    finished: tuple[WorkId, ...] = ()
    cancelled: tuple[WorkId, ...] = ()
