"""Work: what an entry leaves to do. It is kept with the entry, in the same write, and ends with the entry that answers
it.

Rule 1: a piece of work is known by its entity, the version that caused it and the ordinal of its effect there: the
key that handlers see, and the key under which its answer is kept.
Rule 2: a lane says who takes it up: handlers, the clock, or the relay that delivers.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Lane = Literal["effect", "timer", "outbox"]

CHILD = "_child"
"""The name of the work that stands for a child entity: it begins the child, and then waits for its answer."""

BUS = "bus"
"""The address of messages: wherever the runtime's bus leads."""


class Place(Struct, frozen=True, order=True, gc=False):
    """Which piece of work of an entity: its lane, the version that caused it, the ordinal of its effect."""

    lane: Lane
    version: int
    ordinal: int

    @property
    def answer_key(self) -> str:
        """The key under which the answer to this work is kept: whoever answers first, answers."""
        return f"_{self.lane}/{self.version}/{self.ordinal}"


class Work(Struct, frozen=True, gc=False, omit_defaults=True):
    """One thing to do.

    | lane | `name` | `body` |
    |---|---|---|
    | `effect` | the handler, or `_child` | the effect's payload |
    | `timer` | the timer's name | `event` |
    | `outbox` | an address: `entity/<id>`, `child/<version>/<ordinal>` or `bus` | `event` to deliver, or `message` |

    `due_ms` is when it may first be taken up; None: it waits for something else.
    """

    place: Place
    name: str
    body: Any
    due_ms: int | None

    @property
    def is_saga_step(self) -> bool:
        """Whether it must be known how this ended, even when nobody waits for it: it may have to be made up for."""
        return isinstance(self.body, dict) and bool(self.body.get("late"))


class Left(Struct, frozen=True, gc=False):
    """What a step leaves: work born, work that ends with this entry, and invokes that were cancelled."""

    born: tuple[Work, ...] = ()
    ended: tuple[Place, ...] = ()
    cancelled: tuple[Place, ...] = ()
