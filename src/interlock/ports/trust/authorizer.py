"""Who may send, create and read: one question, asked before every such request of a principal.

Rule 1: it is asked twice: before the entity is loaded (`snapshot` is None), and again on the snapshot that is appended
to or read. Both must allow. What depends on the kind, the event and the principal alone is denied at the first time, so
that a refusal does not disclose whether the entity exists.
Rule 2: after a lost swap it is asked again, on the fresh snapshot.
Rule 3: an answer depends on the request alone: no clock, no state, no I/O. An adapter that needs I/O declares
`is_async`, and every request waits for it. Such an adapter cannot decide in a transaction of a blocking connection.
Rule 4: results, timers and children are not asked about; an event that another entity sends is, with that entity as the
principal, of the kind `system`. A creation or a reading without a principal is the program's own.
Rule 5: an error of the adapter allows nothing: the request fails with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias

from interlock.model.event import Event
from interlock.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Allow:
    """The principal may. `where`: lists are limited to entities with these values of indexed fields."""

    where: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Deny:
    """The principal may not. The code is the `reason` of the receipt, such as `roles`."""

    code: str


Decision: TypeAlias = Allow | Deny

ALLOWED = Allow()


class ChartRules(Protocol):
    """What the chart says: its roles, permits and approvals."""

    def decide(self, request: AuthorizationRequest, /) -> Decision:
        """Return the decision of the chart."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationRequest:
    """What a principal wants: to send an event to an entity, to create one, or to read one.

    `event` is None for reading; that of a creation has the name `_create`, and the context in `event.data["context"]`.
    `snapshot` is None before the entity is loaded, and for a creation. `entity` is None for a list of a kind.
    """

    action: Literal["send", "create", "read"]
    kind: str
    entity: str | None
    principal: Mapping[str, Any] | None
    event: Event | None = None
    snapshot: Snapshot | None = None
    rules: ChartRules | None = None

    def by_chart(self) -> Decision:
        """Return what the chart's own roles and permits decide; an adapter can combine it with its own answer."""
        return ALLOWED if self.rules is None else self.rules.decide(self)


class Authorizer(Protocol):
    """Decides in place of the chart's roles and permits. Given to `interlock.open(..., authorizer=...)`."""

    @property
    def is_async(self) -> bool:
        """Whether `decide` returns an awaitable."""
        ...

    def decide(self, request: AuthorizationRequest, /) -> Decision | Awaitable[Decision]:
        """Return Allow or Deny."""
        ...
