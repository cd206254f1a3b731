"""What a key that was recorded before means: the same event of the same sender again, or another one under its key.

Rule 1: the key of a sender belongs to one event and one principal. Otherwise a sender who guesses a key would get
        `duplicate` where the chart denies the event, and the attempt would be missing in the audit.
Rule 2: a caller without a principal is the program itself, which may repeat the event of any sender.
Rule 3: keys of the driver name their sender, or are of a request that another process may continue: only the event of
        such a request is compared.
"""

from __future__ import annotations

from interlock.errors import NotFoundError, UsageError
from interlock.model.actor import actor_of
from interlock.model.event import Event
from interlock.model.journal.entry import CREATE, Receipt
from interlock.model.keys import OWN, REQUESTS
from interlock.ports.store import Duplicate, Store


async def resolve_duplicate(store: Store, entity: str, version: int, *, key: str, event: Event) -> Receipt:
    """Return the receipt for an event whose key was recorded with a version.

    Raises UsageError if the key belongs to another event, or to the event of another principal.
    """
    is_own = key.startswith(OWN) and not key.startswith(REQUESTS)
    recorded = None if is_own else await _recorded_event(store, entity, version)
    if recorded is None:
        return Receipt(entity, "duplicate", version)
    if recorded.name != event.name:
        message = (
            f"the key `{key}` of `{entity}` belongs to {_event_name(recorded.name)}, version {version}, "
            f"not to {_event_name(event.name)}"
        )
    elif key.startswith(OWN) or _is_same_sender(recorded, event):
        return Receipt(entity, "duplicate", version)
    else:
        message = f"the key `{key}` of `{entity}` belongs to {_event_name(event.name)} of another principal"
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


def _is_same_sender(recorded: Event, event: Event) -> bool:
    sender, before = actor_of(event.principal), actor_of(recorded.principal)
    return sender is None or (before is not None and before.id == sender.id)


def _event_name(event: str) -> str:
    return "its creation" if event == CREATE else f"`{event}`"
