"""Who acted, and for whom. Both are derived from a principal.

Rule: for whom something happens gives no right. It is passed on along a chain of causes, without roles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from interlock.model.encoding.storable import describe

ActorKind = Literal["user", "service", "system"]

_KINDS: dict[str, ActorKind] = {"service": "service", "system": "system", "bus": "service", "worker": "system"}
"""What a principal may call itself, where that is not a user."""


class Actor(Struct, frozen=True):
    """Who acted: an id and its kind."""

    id: str
    kind: ActorKind


def actor_of(principal: Any) -> Actor | None:
    """Return who a principal is; None without one, or without an id."""
    if type(principal) is not dict and not isinstance(principal, Mapping):  # the first test is ten times faster
        return None
    name, kind = principal.get("id"), principal.get("kind")
    if name is None:
        return None
    is_plain = type(name) is str and name.isascii() and name.isprintable()
    return Actor(name if is_plain else describe(name), _KINDS.get(kind, "user") if type(kind) is str else "user")


def originator_of(principal: Any) -> Actor | None:
    """Return for whom a principal acts, if it says so."""
    if type(principal) is not dict and not isinstance(principal, Mapping):
        return None
    given = principal.get("for")
    return None if given is None else actor_of(given)


def whom_of(principal: Any) -> Actor | None:
    """Return for whom the consequences of an event happen: its originator, else its sender, unless that is a system."""
    found = originator_of(principal) or actor_of(principal)
    return None if found is None or found.kind == "system" else found
