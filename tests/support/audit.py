"""What a store has recorded in its audit."""

from __future__ import annotations

from interlock.model.audit import AuditRow
from interlock.ports.store import Store


async def audit_rows(store: Store) -> list[AuditRow]:
    """Return the first thousand rows, in order."""
    assert store.audit is not None
    return [each.decode() for each in await store.audit.audit_after(0)]
