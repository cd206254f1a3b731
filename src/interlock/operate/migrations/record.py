"""The record of a migration: an entity of the kind `interlock-migration`. Its journal says who did what, and when.

Rule 1: the process that walks is the owner. What another one notes is refused, so a process that was taken for dead
stops at its next note (`MigrationTakenOver`).
Rule 2: a note is written every few seconds, never per entity. The revisions of the entities are the truth about
progress; the cursor only saves time.
Rule 3: a migration is taken over when its owner is a process of this host that ended, or has noted nothing for
`OWNER_TIMEOUT_MS`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from interlock.errors import ConflictError, NotFoundError, RejectedError, UnavailableError
from interlock.ports.reading.paging import pages
from interlock.ports.store import PAGE_MAX, EntityQuery
from interlock.runtime.charts.registry import CONSOLE_ROLE, MIGRATION_KIND
from interlock.runtime.runtime import Runtime

OWNER_TIMEOUT_MS = 15_000
"""Time without a note after which another process may take over: three notes are missing."""

NOTE_MS = 5_000
NOTE_ENTITIES = 2_000
"""A note is written after this time, or this many entities."""


class MigrationTakenOver(Exception):
    """Another process walks now, or the migration was paused or taken back."""


class MigrationPlan(Struct, frozen=True, omit_defaults=True):
    """What a migration does: to which revision, by which mappings, and who asked for it, why.

    `mappings` has the source, the hash and the text of each.
    """

    kind: str
    to: str
    who: str
    started_ms: int
    reason: str | None = None
    mappings: tuple[dict[str, str], ...] = ()
    spread_ms: int = 0


class MigrationStatus(Struct, frozen=True):
    """A migration as it was noted last. `status`: running, paused, finished, undoing or undone."""

    id: str
    status: str
    plan: MigrationPlan
    owner: str
    noted_ms: int
    progress: dict[str, Any]

    @property
    def cursor(self) -> str | None:
        """Where the walk continues."""
        cursor = self.progress.get("cursor")
        return cursor if isinstance(cursor, str) else None


class MigrationRecord:
    """The record of one migration, as one process writes it."""

    def __init__(self, runtime: Runtime, name: str, *, who: str) -> None:
        self._runtime = runtime
        self.id = name
        self._who = who
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{runtime.clock.token()[:8]}"

    @property
    def entity(self) -> str:
        """The entity of the record."""
        return f"{MIGRATION_KIND}/{self.id}"

    async def create(self, plan: MigrationPlan) -> None:
        """Write the record before anything else."""
        context = {"plan": msgspec.to_builtins(plan), "owner": self.owner, "noted_ms": plan.started_ms}
        receipt = await self._runtime.create(
            self.entity, context, key=f"begin/{self.id}", principal=_principal(self._who), reason=plan.reason
        )
        receipt.expect()

    async def note(self, progress: dict[str, Any], *, event: str = "migration.noted") -> None:
        """Write the progress. Raises MigrationTakenOver if this process is no longer the owner."""
        await self._owned(event, {"owner": self.owner, "progress": progress})

    async def _owned(self, event: str, payload: dict[str, Any]) -> None:
        receipt = await self._runtime.send(self.entity, event, payload, principal=_principal(self._who))
        if receipt.outcome != "applied":
            raise MigrationTakenOver

    async def request(self, event: str, *, reason: str | None, owner: str | None = None) -> None:
        """Pause, resume or take back a migration. `owner` walks from now on. Raises ConflictError if it cannot be."""
        payload = {} if owner is None else {"owner": owner}
        receipt = await self._runtime.send(self.entity, event, payload, principal=_principal(self._who), reason=reason)
        try:
            receipt.expect()
        except RejectedError as error:
            status = await self.status()
            message = f"the migration {self.id} is {status.status}: it cannot be {event.partition('.')[2]}"
            raise ConflictError(message, code="migration.state") from error

    async def status(self) -> MigrationStatus:
        """Return the migration as it was noted last. Raises NotFoundError."""
        snapshot = await self._runtime.state(self.entity)
        return _status(self.id, snapshot.configuration[0], snapshot.context)

    async def has_living_owner(self) -> bool:
        """Whether another process walks, or may: one of another host that noted something recently."""
        status = await self.status()
        host, _, rest = status.owner.partition(":")
        if status.owner == self.owner or status.status not in ("running", "paused", "undoing"):
            return False
        if host == socket.gethostname():
            pid = int(rest.partition(":")[0])
            return pid != os.getpid() and _is_running(pid)
        return self._runtime.clock.now_ms() - status.noted_ms < OWNER_TIMEOUT_MS


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def migrations(runtime: Runtime, kind: str) -> tuple[MigrationStatus, ...]:
    """Return the migrations of a kind, the newest last."""
    found = []
    async for page in pages(
        runtime.store.find, EntityQuery(kind=MIGRATION_KIND, prefix=f"{kind}-", by_id=True, limit=PAGE_MAX)
    ):
        for row in page.rows:
            snapshot = await runtime.state(row.entity)
            status = _status(row.entity.partition("/")[2], row.configuration[0], snapshot.context)
            if status.plan.kind == kind:
                found.append(status)
    return tuple(sorted(found, key=lambda each: (each.plan.started_ms, each.id)))


async def newest_migration(runtime: Runtime, kind: str) -> MigrationStatus:
    """Return the newest migration of a kind. Raises NotFoundError if there is none."""
    found = await migrations(runtime, kind)
    if not found:
        message = f"no entity of `{kind}` was migrated in this store"
        raise NotFoundError(message, code="migration.unknown", hint="interlock migrate apply starts one")
    return found[-1]


async def pause_migration(runtime: Runtime, kind: str, *, who: str, reason: str | None = None) -> MigrationStatus:
    """Pause the newest migration of a kind; its process waits.

    Raises NotFoundError; ConflictError if it is not running.
    """
    return await _asked(runtime, kind, "migration.paused", who=who, reason=reason)


async def resume_migration(runtime: Runtime, kind: str, *, who: str, reason: str | None = None) -> MigrationStatus:
    """Let the process of a paused migration continue. Raises NotFoundError, ConflictError if it is not paused.

    If that process has ended, UnavailableError: `apply` starts another one.
    """
    found = await newest_migration(runtime, kind)
    record = MigrationRecord(runtime, found.id, who=who)
    if found.status == "paused" and not await record.has_living_owner():
        message = f"no process walks for the migration {found.id}"
        raise UnavailableError(message, code="migration.no_process", hint="interlock migrate apply continues it")
    if found.status != "paused":
        raise ConflictError(f"the migration {found.id} is {found.status}, not paused", code="migration.state")
    await record.request("migration.resumed", reason=reason, owner=found.owner)
    return await record.status()


async def _asked(runtime: Runtime, kind: str, event: str, *, who: str, reason: str | None) -> MigrationStatus:
    found = await newest_migration(runtime, kind)
    record = MigrationRecord(runtime, found.id, who=who)
    await record.request(event, reason=reason)
    return await record.status()


def _status(name: str, state: str, context: Mapping[str, Any]) -> MigrationStatus:
    plan = msgspec.convert(context["plan"], MigrationPlan)
    return MigrationStatus(name, state, plan, context["owner"], context["noted_ms"], context["progress"])


def _principal(who: str) -> dict[str, Any]:
    return {"id": who, "kind": "user", "roles": [CONSOLE_ROLE]}
