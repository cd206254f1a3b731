"""Work: what an entry leaves to do. It is kept with the entry, in the same write, and ends with the entry that answers
it.

Rule 1: a piece of work is known by its entity, the version that caused it and the ordinal of its effect there: the
key that handlers see, and the key under which its answer is kept.
Rule 2: a lane says who takes it up: handlers, the clock, the relay that delivers to entities, or the one to the bus.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Lane = Literal["effect", "timer", "outbox", "message"]

ORDERED_LANES: tuple[Lane, ...] = ("outbox", "message")
"""The lanes in which only an entity's first living row stands in line. They are two: while a bus is away, messages
wait, and what entities send to each other does not."""

CHILD_WORK = "_child"
"""The name of the work that stands for a child entity: it begins the child, and then waits for its answer."""

BUS_WORK = "bus"
"""The name of messages as work: they go wherever the runtime's bus leads."""


class WorkId(Struct, frozen=True, order=True, gc=False):
    """Which piece of work of an entity: its lane, the version that caused it, the ordinal of its effect."""

    lane: Lane
    version: int
    ordinal: int

    def key(self, entity: str) -> str:
        """Return the key of this work of an entity, `kind/id/version/ordinal`: what handlers see and people name."""
        return f"{entity}/{self.version}/{self.ordinal}"

    @property
    def result_key(self) -> str:
        """The key under which the result of this work is recorded, so that only the first result counts."""
        return f"_{self.lane}/{self.version}/{self.ordinal}"


def parse_work_key(key: str) -> tuple[str, int, int]:
    """Return the entity, the version and the ordinal of a key of work. Raises ValueError when it is not one.

    >>> parse_work_key("order/A-1/7/0")
    ('order/A-1', 7, 0)
    """
    entity, version, ordinal = key.rsplit("/", 2)
    if "/" not in entity or not (_is_number(version) and _is_number(ordinal)):
        raise ValueError(f"expected kind/id/version/ordinal, got {key[:200]!r}")
    return entity, int(version), int(ordinal)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19  # versions are integers of 64 bits


class Work(Struct, frozen=True, gc=False, omit_defaults=True):
    """One thing to do.

    | lane | `name` | `body` |
    |---|---|---|
    | `effect` | the handler, or `_child` | the effect's payload |
    | `timer` | the timer's name | `event` |
    | `outbox` | an address: `entity/<id>` or `child/<version>/<ordinal>` | `event` to deliver |
    | `message` | `bus` | the message, without what its place says |

    `due_ms` is when it may first be taken up; None: it waits for something else.
    """

    place: WorkId
    name: str
    body: Any
    due_ms: int | None

    @property
    def is_saga_step(self) -> bool:
        """Whether it must be known how this ended, even when nobody waits for it: it may have to be made up for."""
        return isinstance(self.body, dict) and bool(self.body.get("late"))


class WorkDelta(Struct, frozen=True, gc=False):
    """What a step leaves: work born, work that ends with this entry, and invokes that were cancelled."""

    born: tuple[Work, ...] = ()
    ended: tuple[WorkId, ...] = ()
    cancelled: tuple[WorkId, ...] = ()
