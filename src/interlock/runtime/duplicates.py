"""What a key that was kept before means: the same event again, or a key that belongs to another one.

Rule 1: a key names one event of an entity, creation among them. The same event again is `duplicate`; another event
under a sender's key is a mistake of the sender, who would take `duplicate` for his event being kept: it is told.
Rule 2: payloads are not compared: what is sent again may carry another time.
Rule 3: keys that begin with `_` are the driver's own, made of what they name: nobody asks whose they are. Those that
stand for a request from outside (`model.keys.REQUESTS`) belong to one event, as a sender's does.
Rule 4: an entry that an archive has cannot be asked; its key is `duplicate`.
Rule 5: a former key of a request counts only for an entry of the same event, with the same payload or from the same
principal: a sender may have taken that key, and must not suppress the request by that.
"""

from __future__ import annotations

from interlock.errors import NotFoundError, UsageError
from interlock.model.event import Event
from interlock.model.journal.entry import CREATE, Receipt
from interlock.model.keys import OWN, REQUESTS
from interlock.ports.store import Duplicate, Store


async def resolve_duplicate(store: Store, entity: str, version: int, *, key: str, event: str) -> Receipt:
    """The answer to an event whose key was kept with a version. Raises UsageError when that was another event."""
    is_own = key.startswith(OWN) and not key.startswith(REQUESTS)
    kept = None if is_own else await _kept(store, entity, version)
    if kept is None or kept.name == event:
        return Receipt(entity, "duplicate", version)
    message = f"the key `{key}` of `{entity}` belongs to {_named(kept.name)}, version {version}, not to {_named(event)}"
    raise UsageError(message, code="key.reused", hint="one key per event, such as `<request>/<event>`")


async def known_before(store: Store, entity: str, former: str, event: Event) -> Receipt | None:
    """The answer to a request that an earlier release kept under its former key; None when it did not (rule 5)."""
    found = await store.load(entity, key=former)
    if not isinstance(found, Duplicate):
        return None
    kept = await _kept(store, entity, found.version)
    is_same = kept is None or (
        kept.name == event.name and (kept.data == event.data or kept.principal == event.principal)
    )
    return Receipt(entity, "duplicate", found.version) if is_same else None


async def _kept(store: Store, entity: str, version: int) -> Event | None:
    """The event of an entry; None when the entry is no longer there."""
    try:
        records = await store.read(entity, after=version - 1, limit=1)
    except NotFoundError:
        return None
    return next((each.entry.event for each in records if each.version == version), None)


def _named(event: str) -> str:
    return "its creation" if event == CREATE else f"`{event}`"
