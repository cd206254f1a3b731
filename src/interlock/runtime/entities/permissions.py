"""Whether a principal may send, create or read: the chart's policy, or the authorizer that the program gave.

Rule 1: what needs the kind, the event and the principal only is decided before the entity is loaded, and the answer is
the same whether it exists or not.
Rule 2: a reader without a role is denied. To a reader who may read some entities of a kind, others do not exist.
Rule 3: without an authorizer, the policy of the chart is asked directly: a send of an open chart costs one lookup.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Mapping
from typing import Any

from msgspec.structs import replace

from interlock.errors import DeniedError, UsageError
from interlock.model.charts.sendable_events import UNKNOWN_EVENT
from interlock.model.conditions import Range
from interlock.model.event import Event
from interlock.model.journal.entry import Receipt
from interlock.model.refusal_text import denial_text, role_denial_text
from interlock.model.snapshot import Snapshot
from interlock.ports.store import EntityQuery
from interlock.ports.trust.authorizer import Allow, AuthorizationRequest, Authorizer, Decision, Deny
from interlock.runtime.entities.decision import shown_to
from interlock.runtime.entities.entities import Entities
from interlock.runtime.entities.send_request import SendRequest
from interlock.runtime.request_checks import check_principal, unknown_entity
from interlock.trust.authorization import ChartPolicy

Reader = Mapping[str, Any]
"""A principal who reads."""


class Permissions:
    """The permissions of the requests on one connection."""

    def __init__(self, entities: Entities) -> None:
        self._entities = entities
        self._revisions = entities.revisions

    @property
    def authorizer(self) -> Authorizer | None:
        """The authorizer that decides in place of the charts; None if the charts decide."""
        return self._entities.process.authorizer

    # Sending

    async def refuse_unseen(self, entity: str, request: SendRequest) -> Receipt | None:
        """Return the refusal of a sender, by the kind and the event alone; None if there is none."""
        kind, event = entity.partition("/")[0], request.event
        policy = await self._revisions.newest_policy(kind)
        if self.authorizer is not None:
            asked = _sending(entity, event, policy, None)
            return _denied(entity, event, await self._ask(self.authorizer, asked))
        if policy is None or policy.role_refusal(event) is None:
            return None
        if not policy.declares(event.name):
            if request.refusal is not None and request.refusal.code == UNKNOWN_EVENT:
                return Receipt(entity, "rejected", 0, UNKNOWN_EVENT, explanation=request.refusal.message)
            if await self._entities.store.load(entity) is not None:
                return None  # only its own revision says who may send this event
        return Receipt(
            entity, "denied", 0, "roles", explanation=role_denial_text(entity, event, policy.roles(event.name))
        )

    async def refusal_of(self, policy: ChartPolicy, event: Event, snapshot: Snapshot) -> str | None:
        """Return why the authorizer of the program denies an event, on the snapshot that is appended to."""
        assert self.authorizer is not None
        decision = await self._ask(self.authorizer, _sending(snapshot.entity, event, policy, snapshot))
        return decision.code if isinstance(decision, Deny) else None

    # Creating

    async def refuse_creation(self, entity: str, event: Event) -> Receipt | None:
        """Return the refusal of a principal who may not create an entity; None if there is none.

        A creation without a principal is the program's own.
        """
        if event.principal is None:
            return None
        policy = await self._revisions.newest_policy(entity.partition("/")[0])
        asked = AuthorizationRequest(
            action="create",
            kind=entity.partition("/")[0],
            entity=entity,
            principal=event.principal,
            event=event,
            rules=policy,
        )
        decision = asked.by_chart() if self.authorizer is None else await self._ask(self.authorizer, asked)
        if isinstance(decision, Deny) and decision.code == "roles" and policy is not None:
            text = role_denial_text(entity, event, policy.create_roles, creates=True)
            return Receipt(entity, "denied", 0, "roles", explanation=text)
        return _denied(entity, event, decision)

    # Reading

    async def check_reader(self, entity: str, reader: Reader | None) -> None:
        """Check that a reader may read an entity; without a reader, the program itself reads.

        Raises DeniedError (`read.denied`), by the kind alone; NotFoundError if the entity is unknown, or the reader may
        read others only.
        """
        if reader is None:
            return
        asked = await self._reading(entity.partition("/")[0], entity, reader)
        await self._check_kind(asked)
        if self.authorizer is None and not await self._needs_snapshot(asked):
            return
        snapshot, _ = await self._entities.load_snapshot(entity)
        kernel = await self._revisions.for_reading(snapshot.kind, snapshot.revision)
        snapshot = shown_to(kernel.chart, snapshot, asked.principal or {})
        if isinstance(await self._decide(_with_snapshot(asked, snapshot)), Deny):
            raise unknown_entity(entity)

    async def narrow(self, query: EntityQuery, reader: Reader | None) -> EntityQuery | None:
        """Return a query limited to what a reader may read; None if no entity can match.

        Raises DeniedError (`read.denied`).
        """
        if reader is None:
            return query
        allowed = await self._check_kind(await self._reading(query.kind, None, reader))
        where = dict(query.where or {})
        for field, value in allowed.where.items():
            given = where.setdefault(field, value)
            if isinstance(given, Range):
                message = f"the list is limited to `{field}` = {value!r:.80}, so it cannot have a range of `{field}`"
                raise UsageError(message, code="where.value", hint="leave the range out")
            if given != value:
                return None
        return replace(query, where=where) if allowed.where else query

    async def check_counts(self, kind: str, reader: Reader | None) -> None:
        """Check that a reader may read the counts of a kind, which are those of all its entities.

        Raises DeniedError (`read.denied`).
        """
        if reader is None:
            return
        asked = await self._reading(kind, None, reader)
        if (await self._check_kind(asked)).where:
            raise _read_denied(asked, "owner")

    async def _reading(self, kind: str, entity: str | None, reader: Reader) -> AuthorizationRequest:
        policy = await self._revisions.newest_policy(kind)
        principal = check_principal(reader, now_ms=self._entities.clock.now_ms())
        return AuthorizationRequest(action="read", kind=kind, entity=entity, principal=principal, rules=policy)

    async def _needs_snapshot(self, asked: AuthorizationRequest) -> bool:
        policy = await self._revisions.newest_policy(asked.kind)
        return policy is not None and policy.reads_by_entity(asked.principal)

    async def _check_kind(self, asked: AuthorizationRequest) -> Allow:
        decision = await self._decide(asked)
        if isinstance(decision, Deny):
            raise _read_denied(asked, decision.code)
        return decision

    async def _decide(self, asked: AuthorizationRequest) -> Decision:
        return asked.by_chart() if self.authorizer is None else await self._ask(self.authorizer, asked)

    async def _ask(self, authorizer: Authorizer, asked: AuthorizationRequest) -> Decision:
        found = authorizer.decide(asked)
        if isinstance(found, Awaitable):
            found = await found
        if not isinstance(found, Allow | Deny):
            raise UsageError(
                f"the authorizer must return Allow or Deny, got {found!r:.80}",
                code="authorizer.decision",
                hint="from interlock.ports.trust.authorizer import ALLOWED, Deny",
            )
        return found


def _sending(entity: str, event: Event, policy: ChartPolicy | None, snapshot: Snapshot | None) -> AuthorizationRequest:
    return AuthorizationRequest(
        action="send",
        kind=entity.partition("/")[0],
        entity=entity,
        principal=event.principal,
        event=event,
        snapshot=snapshot,
        rules=policy,
    )


def _with_snapshot(asked: AuthorizationRequest, snapshot: Snapshot) -> AuthorizationRequest:
    return dataclasses.replace(asked, snapshot=snapshot)


def _denied(entity: str, event: Event, decision: Decision) -> Receipt | None:
    """Return the receipt of a denial that was decided without the entity: it has no version."""
    if isinstance(decision, Allow):
        return None
    return Receipt(entity, "denied", 0, decision.code, explanation=denial_text(entity, event, decision.code))


def _read_denied(asked: AuthorizationRequest, code: str) -> DeniedError:
    reader = asked.principal or {}
    what = f"entities of the kind `{asked.kind[:80]}`" if asked.entity is not None else f"lists of `{asked.kind[:80]}`"
    hints = {
        "owner": "read the own entities, or ask for a role that reads all of them",
        "permit": "the chart decides for each entity who may read it; lists need `read: {owner: ...}`",
    }
    message = f"`{str(reader.get('id'))[:80]}` may not read {what}"
    return DeniedError(message, code="read.denied", hint=hints.get(code))
