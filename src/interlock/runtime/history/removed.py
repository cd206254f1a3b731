"""What retention has removed, as the runtime asks for it: entities, and the beginnings of journals.

Rule: it is read only when something is missing, so it costs nothing otherwise.
"""

from __future__ import annotations

from interlock.errors import CompactedError, NotFoundError, PrunedError
from interlock.ports.store import Store
from interlock.ports.trust.retention import JournalBase
from interlock.runtime.request_checks import unknown_entity


async def missing_entity(store: Store, entity: str) -> NotFoundError:
    """Return the error for an entity that the store does not have: unknown, or removed by retention."""
    found = None if store.retention is None else await store.retention.tombstone(entity)
    return unknown_entity(entity) if found is None else PrunedError(entity, found.version, found.archive)


async def beginning(store: Store, error: CompactedError, entity: str) -> JournalBase:
    """Return where a journal starts that cannot be read from its start. Raises the error if that is unknown."""
    found = None if store.retention is None else await store.retention.journal_base(entity)
    if found is None:
        raise error
    return found
