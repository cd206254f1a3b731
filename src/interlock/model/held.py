"""What an entity remembers while an operator holds it, and the events that begin and end that (ADR 0167)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

HOLD = "_hold"
"""The event that holds an entity."""

RESUME = "_resume"
"""The event that ends a hold. Its data has the timers that are due at another time because of the hold."""

HELD_FIELD = "_held"
"""The name in the context under which a held entity has its `Held`."""

HELD_TAG = ":held"
"""The tag under which held entities are listed. No chart can have a tag of such a name."""


class Held(Struct, frozen=True, omit_defaults=True):
    """Since when an entity, or all entities of a kind, are held, by whom and why."""

    at_ms: int
    by: str | None = None
    reason: str | None = None


def held_of(context: Mapping[str, Any]) -> Held | None:
    """Return how an entity with this context is held; None if it is not.

    >>> held_of({"amount": 1})
    >>> held_of({"_held": {"at_ms": 7, "by": "ann"}}).by
    'ann'
    """
    found = context.get(HELD_FIELD)
    return None if found is None else msgspec.convert(found, Held)
