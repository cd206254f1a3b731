"""Users of the HTTP interface: the principal that charts get, the rights, and until when each role counts.

Rule 1: rights say what a user may see and operate. Which events they may send, the chart decides from the roles of
their principal.
Rule 2: a role may have an end. `User.at` is called for every request and again while a stream is open, so a role that
has ended reaches no chart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

RIGHTS = ("read", "read:audit", "read:sensitive", "send", "operate", "bulk")
"""See entities; see refused events; see sensitive data; send and create; retry and drop work; bulk send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user: the principal that charts get, and the rights here.

    `kinds`: the only kinds that they may see and send to; None for all. `until`: when roles of the principal end.
    `expires_ms`: when the key or token ends. `idles`: their sessions end when they are unused.
    """

    principal: Mapping[str, Any]
    rights: frozenset[str]
    kinds: frozenset[str] | None = None
    until: tuple[tuple[str, int], ...] = ()
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
        ended = {role for role, until_ms in self.until if now_ms >= until_ms}
        if not ended:
            return self
        roles = [each for each in self.principal["roles"] if each not in ended]
        until = tuple(each for each in self.until if each[0] not in ended)
        return replace(self, principal={**self.principal, "roles": roles}, until=until)
