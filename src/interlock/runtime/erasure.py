"""Erase the personal data of an entity: destroy its data key, so that no copy of a token can be opened any more.

    append `_erase`  ->  destroy the key  ->  finish the work row of the erasure

Rule 1: the entry comes first and leaves a work row, so an erasure that was started is finished by any worker with a
keyring, whatever dies in between.
Rule 2: nothing else of the journal changes: replay, time travel and the chain are unchanged.
Rule 3: a child has the key of its parent: it is the same person's life, and is erased with the parent.
Rule 4: values that were sent to other entities are sealed with their keys. They are listed, and erased if asked for.
Rule 5: after a restore from an older copy, erasures are applied again (`reapply`): the ids of destroyed keys are kept,
and so are entities that remember their erasure.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from interlock.effects.lanes import RunningWork
from interlock.effects.work_delta import child_address
from interlock.errors import NotFoundError, RejectedError
from interlock.model.event import Event
from interlock.model.journal.entry import ERASE, Entry
from interlock.model.journal.work import ERASE_WORK
from interlock.model.limits import ERASURES_FOLLOWED_MAX, LEASE_MS
from interlock.model.personal_token import KEY_FIELD, contains_token
from interlock.model.snapshot import Snapshot
from interlock.ports.store import PAGE_MAX, EntityQuery
from interlock.ports.trust.data_keys import DATA_KEYS_PAGE, DataKey
from interlock.ports.work import Settlement, WorkQuery
from interlock.runtime.entities.entities import Entities
from interlock.runtime.entities.send_request import SendRequest
from interlock.runtime.entities.sender import EntitySender
from interlock.runtime.history.replay import entries_after
from interlock.runtime.vault import PersonalVault, missing_keyring


class Erasure(Struct, frozen=True, kw_only=True):
    """What an erasure did, or would do.

    `erased_ms` is when the entity forgot its key; None in a preview. `destroyed` says what remains of the key:
    `final`, nothing; `pending`, its bytes until a reader of the key file ends; `epoch`, wrapped copies until the master
    key of `epoch` is destroyed.

    `pending` is work of the entity that still runs or waits, `children` share its key, `targets` are other entities
    that were sent personal values, and `messages` are messages of the bus that contained some: topic and key.
    """

    entity: str
    version: int
    kid: str
    is_ended: bool
    erased_ms: int | None = None
    destroyed: str | None = None
    epoch: int | None = None
    pending: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    messages: tuple[tuple[str, str], ...] = ()


class Eraser:
    """Erases the personal data of entities of one store."""

    def __init__(self, entities: Entities, sender: EntitySender) -> None:
        vault = entities.process.vault
        if vault is None:
            raise missing_keyring()
        self._entities = entities
        self._sender = sender
        self._vault: PersonalVault = vault

    async def preview(self, entity: str) -> Erasure:
        """Return what an erasure would do. Raises as `erase`, but not for an entity that has not ended."""
        snapshot, _ = await self._entities.load_snapshot(entity)
        owner = await self._owner(snapshot)
        kid = owner["kid"] if isinstance(owner, dict) else owner
        row = await self._vault.keys.find_key(kid)
        left = await self._left_behind(snapshot)
        return Erasure(
            entity=entity,
            version=snapshot.version,
            kid=kid,
            is_ended=snapshot.ended is not None,
            erased_ms=owner["erased_ms"] if isinstance(owner, dict) else None,
            epoch=row.epoch if isinstance(row, DataKey) else None,
            pending=await self._pending(entity),
            **left,
        )

    async def erase(
        self, entity: str, *, reason: str | None, principal: Mapping[str, Any] | None, live: bool = False
    ) -> Erasure:
        """Erase an entity. May be repeated: what was done before is not done again.

        Raises NotFoundError, and RejectedError for an entity without personal data (`personal.none`), for a child
        (`personal.child`), and without `live` for one that has not ended (`personal.live`).
        """
        found = await self.preview(entity)
        if not (found.is_ended or live or found.erased_ms is not None):
            waiting = f"; pending: {', '.join(found.pending[:5])}" if found.pending else ""
            hint = "let it end first; or erase it now (`live`): effects that need the data then fail"
            raise RejectedError(f"`{entity}` has not ended{waiting}", code="personal.live", hint=hint)
        if found.erased_ms is None:
            event = Event(ERASE, type="platform", principal=None if principal is None else dict(principal))
            receipt = await self._sender.send(entity, SendRequest(event, ERASE, reason=reason))
            if receipt.outcome not in ("applied", "duplicate"):
                raise RejectedError(f"`{entity}` was not erased: {receipt.reason}", code=str(receipt.reason))
        destroyed = await self._vault.destroy(found.kid)
        await self._finish_work(entity)
        snapshot, _ = await self._entities.load_snapshot(entity)
        owner = snapshot.context.get(KEY_FIELD)
        erased_ms = owner["erased_ms"] if isinstance(owner, dict) else None
        return replace(found, version=snapshot.version, erased_ms=erased_ms, destroyed=destroyed.value)

    async def _owner(self, snapshot: Snapshot) -> Any:
        """Return the data key that the entity records. Raises RejectedError when it has no own one."""
        owner = snapshot.context.get(KEY_FIELD)
        if owner is None:
            hint = "no field of its chart is marked `personal: true`, or it was created before one was"
            message = f"`{snapshot.entity}` has no data key, so it has no sealed personal data"
            raise RejectedError(message, code="personal.none", hint=hint)
        if snapshot.parent is not None:
            above = await self._snapshot_of(snapshot.parent.entity)
            of_parent = None if above is None else above.context.get(KEY_FIELD)
            if of_parent is not None and _kid(of_parent) == _kid(owner):
                message = f"`{snapshot.entity}` has the data key of its parent"
                hint = f"erase the parent, and this child with it: {snapshot.parent.entity}"
                raise RejectedError(message, code="personal.child", hint=hint)
        return owner

    async def _snapshot_of(self, entity: str) -> Snapshot | None:
        try:
            snapshot, _ = await self._entities.load_snapshot(entity)
        except NotFoundError:
            return None
        return snapshot

    async def _pending(self, entity: str) -> tuple[str, ...]:
        queue = self._entities.store.work
        if queue is None:
            return ()
        page = await queue.list_work(WorkQuery(entity=entity))
        return tuple(f"{row.work.name} {row.work.key(entity)}" for row in page.rows if row.work.name != ERASE_WORK)

    async def _finish_work(self, entity: str) -> None:
        """Finish the work row of an erasure whose key was destroyed; another worker may have done it."""
        queue, clock = self._entities.store.work, self._entities.clock
        if queue is None:
            return
        now_ms = clock.now_ms()
        owner = clock.token()
        claims = await queue.claim(
            "effect", (ERASE_WORK,), owner=owner, now_ms=now_ms, until_ms=now_ms + LEASE_MS, limit=DATA_KEYS_PAGE
        )
        for claim in claims:
            if claim.entity != entity:
                await self._vault.destroy(claim.work.body["input"]["kid"])
        await queue.settle(tuple(Settlement(claim, "done") for claim in claims), now_ms=clock.now_ms())

    # What the key of the entity does not reach

    async def _left_behind(self, snapshot: Snapshot) -> dict[str, Any]:
        """Return other entities and messages that got personal values, and the children that share the key."""
        targets: dict[str, None] = {}
        messages: dict[tuple[str, str], None] = {}
        async for entry in self._entries(snapshot.entity):
            for effect in entry.effects:
                if effect.type == "send" and contains_token(effect.payload.get("data")):
                    to = str(effect.payload.get("to"))
                    if not to.startswith("#_") and to != snapshot.entity:
                        targets[to] = None
                elif effect.type == "message" and contains_token(effect.payload.get("data")):
                    messages[str(effect.payload["type"]), effect.key] = None
        children = await self._children(snapshot)
        return {"targets": tuple(targets), "messages": tuple(messages), "children": children}

    async def _entries(self, entity: str) -> AsyncIterator[Entry]:
        after = 0
        while found := await entries_after(self._entities.store, entity, after=after, limit=PAGE_MAX):
            for each in found:
                yield each
            after = found[-1].version

    async def _children(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the addresses of invokes that are children now; children that ended are in the journal only."""
        return tuple(child_address(each.key) for each in snapshot.invokes if each.child)

    # After a restore

    async def reapply(self, kinds: Iterable[str], *, reason: str) -> tuple[str, ...]:
        """Erase again what was erased before the store was restored from an older copy; return those entities."""
        done = []
        async for entity, owner in self.revived(kinds):
            if isinstance(owner, dict):
                await self._vault.destroy(owner["kid"])
            elif not await self._erase_again(entity, reason):
                continue
            done.append(entity)
        return tuple(done)

    async def _erase_again(self, entity: str, reason: str) -> bool:
        try:
            await self.erase(entity, reason=reason, principal={"id": "system", "roles": ["system"]}, live=True)
        except RejectedError as error:
            if error.code != "personal.child":
                raise
            return False  # its parent is erased
        return True

    async def revived(self, kinds: Iterable[str]) -> AsyncIterator[tuple[str, Any]]:
        """Yield entities that were erased and are readable again, with their record of the key.

        Two traces show it: the id of a destroyed key that an entity still has, and an erased entity whose key exists.
        """
        destroyed = {each async for each in self._destroyed_kids()}
        for kind in kinds:
            async for entity in self._entities_of(kind):
                snapshot = await self._snapshot_of(entity)
                owner = None if snapshot is None else snapshot.context.get(KEY_FIELD)
                if isinstance(owner, dict):
                    if isinstance(await self._vault.keys.find_key(owner["kid"]), DataKey):
                        yield entity, owner
                elif owner in destroyed:
                    yield entity, owner

    async def _destroyed_kids(self) -> AsyncIterator[str]:
        after = ""
        while page := await self._vault.keys.destroyed_keys(after=after):
            for each in page:
                yield each.kid
            after = page[-1].kid

    async def _entities_of(self, kind: str) -> AsyncIterator[str]:
        cursor: str | None = None
        while True:
            page = await self._entities.store.find(EntityQuery(kind=kind, by_id=True, after=cursor, limit=PAGE_MAX))
            for row in page.rows:
                yield row.entity
            cursor = page.after
            if cursor is None:
                return


def _kid(owner: Any) -> Any:
    return owner["kid"] if isinstance(owner, dict) else owner


class ErasureWork:
    """Finishes erasures that were started and not finished: the work of a lane."""

    def __init__(self, vault: PersonalVault) -> None:
        self._vault = vault

    async def perform(self, work: RunningWork) -> Settlement:
        """Destroy the key."""
        await self._vault.destroy(work.claim.work.body["input"]["kid"])
        return Settlement(work.claim, "done")


async def follow(
    eraser: Eraser, first: Erasure, *, reason: str | None, principal: Mapping[str, Any] | None
) -> tuple[Erasure, ...]:
    """Erase the entities that an erased one sent personal values to, and those that they sent some to, each once."""
    found: list[Erasure] = []
    seen, waiting = {first.entity}, list(first.targets)
    while waiting and len(found) < ERASURES_FOLLOWED_MAX:
        entity = waiting.pop(0)
        if entity in seen:
            continue
        seen.add(entity)
        try:
            erased = await eraser.erase(entity, reason=reason, principal=principal, live=True)
        except (NotFoundError, RejectedError):
            continue  # it never got the value, or has no own key
        found.append(erased)
        waiting += erased.targets
    return tuple(found)
