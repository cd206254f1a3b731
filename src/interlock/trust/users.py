"""Users of the HTTP interface: the principal that charts get, the rights, and until when each role counts.

Rule 1: rights say what a user may see and operate. Which events they may send, the chart decides from the roles of
their principal.
Rule 2: a role may have an end. `User.at` is called for every request and again while a stream is open, so a role that
has ended reaches no chart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from interlock.model.limits import ROLES_MAX
from interlock.trust.roles import active_roles

RIGHTS = ("read", "read:audit", "read:sensitive", "send", "operate", "bulk")
"""See entities; see refused events; see sensitive data; send and create; retry and drop work; bulk send."""


Moment = Annotated[datetime, Meta(tz=True)]


class TimedRole(Struct, frozen=True, forbid_unknown_fields=True):
    """A role until a time."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    until: Moment


Roles = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=200)] | TimedRole, ...], Meta(max_length=ROLES_MAX)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user: the principal that charts get, and the rights here.

    `kinds`: the only kinds that they may see and send to; None for all. `timed_roles`: all roles, if
    some of them have an end.
    `expires_ms`: when the key or token ends. `idles`: their sessions end when they are unused.
    """

    principal: Mapping[str, Any]
    rights: frozenset[str]
    kinds: frozenset[str] | None = None
    timed_roles: tuple[object, ...] = ()
    expires_ms: int | None = None
    idles: bool = True

    @property
    def name(self) -> str:
        """The id of the principal."""
        return str(self.principal["id"])

    @property
    def sees_sensitive(self) -> bool:
        """Whether nothing is hidden from the user."""
        return "read:sensitive" in self.rights

    @property
    def sees_all_kinds(self) -> bool:
        """Whether no kind is hidden from the user."""
        return self.sees_sensitive and self.kinds is None

    def at(self, now_ms: int) -> User | None:
        """Return the user without roles that have ended; None if their key or token has ended."""
        if self.expires_ms is not None and now_ms >= self.expires_ms:
            return None
        if not self.timed_roles:
            return self
        roles = active_roles(self.timed_roles, now_ms=now_ms)
        return self if roles == self.principal["roles"] else replace(self, principal={**self.principal, "roles": roles})


def role_names(roles: Roles) -> list[str]:
    """Return the names of roles, each once."""
    return list(dict.fromkeys(each if isinstance(each, str) else each.name for each in roles))


def timed_roles(roles: Roles) -> tuple[object, ...]:
    """Return roles as `trust.roles` reads them, if one of them has an end."""
    if all(isinstance(each, str) for each in roles):
        return ()
    return tuple(each if isinstance(each, str) else {"name": each.name, "until": each.until} for each in roles)


def to_ms(moment: datetime) -> int:
    """Return a time in milliseconds since 1970."""
    return int(moment.timestamp() * 1000)
