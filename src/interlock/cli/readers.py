"""What `--principal` shows of an entity: what this reader may see, in the shapes that the commands print.

Rule: without sensitive data that is hidden from the reader, it is the truth. Otherwise it is made from what they see
only, and has no work, keys or effects.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from interlock.model.event import Event
from interlock.model.journal.entry import CREATE, Entry
from interlock.model.snapshot import Invocation, Snapshot, Timer
from interlock.model.visible import VisibleSnapshot
from interlock.runtime.entities.permissions import Reader
from interlock.runtime.history.replay import At
from interlock.runtime.runtime import Runtime
from interlock.trust.visibility import VisibleEntry


async def state_for(
    runtime: Runtime, entity: str, reader: Reader | None, *, at: At | None = None
) -> tuple[Snapshot, bool]:
    """Return an entity for a reader, and whether something of it may be hidden from them. Raises as `Runtime.state`."""
    if reader is not None:
        visible = await runtime.state(entity, at=at, reader=reader)
        if visible.masked:
            return _snapshot(visible), True
    return await runtime.state(entity, at=at), False


async def is_masked(runtime: Runtime, entity: str, reader: Reader | None) -> bool:
    """Whether something of an entity may be hidden from a reader. Raises as `Runtime.state`."""
    return reader is not None and (await runtime.state(entity, reader=reader)).masked


async def entries_for(
    runtime: Runtime, entity: str, reader: Reader, *, after: int, limit: int | None, follow: bool
) -> AsyncIterator[Entry]:
    """Yield the entries that a reader sees, by the versions that they see."""
    for each in await runtime.journal(entity, after=after, limit=limit, reader=reader):
        yield _entry(each)
        after, limit = each.version, None if limit is None else limit - 1
    if follow and limit != 0:
        async for each in runtime.watch(entity, after=after, reader=reader):
            yield _entry(each)
            limit = None if limit is None else limit - 1
            if limit == 0:
                return


def _snapshot(visible: VisibleSnapshot) -> Snapshot:
    timers = tuple(Timer(each.name, each.event, each.due_ms, 0, 0, state=each.state) for each in visible.timers)
    return Snapshot(
        visible.kind,
        visible.entity,
        visible.version,
        visible.revision,
        visible.configuration,
        visible.context,
        timers=timers,
        invokes=tuple(Invocation(each.id, each.state, 0, "") for each in visible.invokes),
        ended=visible.ended,
        output=visible.output,
    )


def _entry(visible: VisibleEntry) -> Entry:
    name = CREATE if visible.event == "create" else visible.event
    principal = None if visible.principal is None else {"id": visible.principal}
    event = Event(name, visible.data, principal=principal, time_ms=visible.time_ms)
    return Entry(
        visible.version,
        event,
        visible.outcome,
        visible.before,
        visible.after,
        visible.revision,
        visible.key or "",
        visible.reason,
        reason_given=visible.reason_given,
    )
