"""What a key that was recorded before means: the same event again, or another event under its key."""

from __future__ import annotations

from interlock.errors import NotFoundError, UsageError
from interlock.model.event import Event
from interlock.model.journal.entry import CREATE, Receipt
from interlock.model.keys import OWN, REQUESTS
from interlock.ports.store import Duplicate, Store


async def resolve_duplicate(store: Store, entity: str, version: int, *, key: str, event: str) -> Receipt:
    """Return the receipt for an event whose key was recorded with a version. Raises UsageError for another event."""
    is_own = key.startswith(OWN) and not key.startswith(REQUESTS)
    recorded = None if is_own else await _recorded_event(store, entity, version)
    if recorded is None or recorded.name == event:
        return Receipt(entity, "duplicate", version)
    message = (
        f"the key `{key}` of `{entity}` belongs to {_event_name(recorded.name)}, version {version}, "
        f"not to {_event_name(event)}"
    )
    raise UsageError(message, code="key.reused", hint="use one key per event, such as `<request>/<event>`")


async def find_former(store: Store, entity: str, former_key: str, event: Event) -> Receipt | None:
    """Return the receipt of a request that an earlier release recorded under its former key; None if it did not."""
    found = await store.load(entity, key=former_key)
    if not isinstance(found, Duplicate):
        return None
    recorded = await _recorded_event(store, entity, found.version)
    is_same = recorded is None or (
        recorded.name == event.name and (recorded.data == event.data or recorded.principal == event.principal)
    )
    return Receipt(entity, "duplicate", found.version) if is_same else None


async def _recorded_event(store: Store, entity: str, version: int) -> Event | None:
    """Return the event of an entry; None when the entry is archived."""
    try:
        records = await store.read(entity, after=version - 1, limit=1)
    except NotFoundError:
        return None
    return next((each.entry.event for each in records if each.version == version), None)


def _event_name(event: str) -> str:
    return "its creation" if event == CREATE else f"`{event}`"
