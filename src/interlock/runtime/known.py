"""What a key that was kept before means: the same event again, or a key that belongs to another one.

Rule 1: a key names one event of an entity, creation among them. The same event again is `duplicate`; another event
under a sender's key is a mistake of the sender, who would take `duplicate` for his event being kept: it is told.
Rule 2: payloads are not compared: what is sent again may carry another time.
Rule 3: keys that begin with `_` are the driver's own, made of what they name: nobody asks whose they are.
Rule 4: an entry that an archive has cannot be asked; its key is `duplicate`.
"""

from __future__ import annotations

from interlock.errors import NotFoundError, UsageError
from interlock.model.entry import CREATE, Receipt
from interlock.ports.store import Store


async def known(store: Store, entity: str, version: int, *, key: str, event: str) -> Receipt:
    """The answer to an event whose key was kept with a version. Raises UsageError when that was another event."""
    kept = None if key.startswith("_") else await _kept(store, entity, version)
    if kept is None or kept == event:
        return Receipt(entity, "duplicate", version)
    message = f"the key `{key}` of `{entity}` belongs to {_named(kept)}, version {version}, not to {_named(event)}"
    raise UsageError(message, code="key.reused", hint="one key per event, such as `<request>/<event>`")


async def _kept(store: Store, entity: str, version: int) -> str | None:
    """The name of the event of an entry; None when the entry is no longer there."""
    try:
        records = await store.read(entity, after=version - 1, limit=1)
    except NotFoundError:
        return None
    return next((each.entry.event.name for each in records if each.version == version), None)


def _named(event: str) -> str:
    return "its creation" if event == CREATE else f"`{event}`"
