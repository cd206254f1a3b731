"""The audit of a SQL store: a chain of rows for each tenant (`model/audit.py`).

Rule: rows are appended in a transaction, after the last row of the tenant, which is locked where several connections
write. The states of an entity are looked up in the same transaction, for rows that do not name them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from interlock.model.audit import AuditRecord, AuditRow, build_record, first_head
from interlock.model.encoding.codec import UNDECODABLE
from interlock.ports.store import PAGE_MAX
from interlock.stores.sql.commit_plan import split_entity
from interlock.stores.sql.database import Ask, Questions, Statements

LAST_SEQUENCE = 2**63 - 1

_decode_states = msgspec.json.Decoder(tuple[str, ...]).decode


def append_audit(sql: Statements, tenant: str, rows: Sequence[AuditRow]) -> Questions[None]:
    """Append rows to the chain of a tenant, inside a transaction."""
    if sql.lock_audit is not None:
        yield Ask(sql.lock_audit, (tenant,))
    found = yield Ask(sql.last_audit, (tenant,))
    sequence, head = found[0] if found else (0, first_head(tenant))
    states = yield from _states(sql, tenant, rows)
    values = []
    for row in rows:
        if row.wants_states and row.entity in states:
            row = replace(row, state_from=states[row.entity])  # noqa: PLW2901 - the same row, completed
        sequence += 1
        record = build_record(row, sequence=sequence, previous=head)
        head = record.head
        values.append((sequence, record.time_ms, record.actor, record.body, head))
    yield Ask(sql.insert_audit, (tenant,), values)


def _states(sql: Statements, tenant: str, rows: Sequence[AuditRow]) -> Questions[dict[str, tuple[str, ...]]]:
    """Return the atomic states of the entities whose rows do not name them; unknown and damaged ones are left out."""
    wanted = sorted({each.entity for each in rows if each.wants_states})
    if not wanted:
        return {}
    found = yield Ask(sql.configurations, (tenant,), [split_entity(each) for each in wanted])
    states: dict[str, tuple[str, ...]] = {}
    for kind, own, configuration in found:
        with suppress(*UNDECODABLE):  # a damaged entity must not stop what is recorded about it
            states[f"{kind}/{own}"] = _decode_states(configuration)
    return states


def audit_before(
    sql: Statements, tenant: str, sequence: int | None, actor: str | None, limit: int
) -> Questions[tuple[AuditRecord, ...]]:
    """Return the rows before a number, newest first."""
    values: tuple[Any, ...] = (tenant, LAST_SEQUENCE if sequence is None else sequence, max(1, min(limit, PAGE_MAX)))
    if actor is None:
        rows = yield Ask(sql.audit_before, values)
    else:
        rows = yield Ask(sql.audit_of_actor_before, (*values, actor))
    return tuple(AuditRecord(*row) for row in rows)


def audit_after(sql: Statements, tenant: str, sequence: int, limit: int) -> Questions[tuple[AuditRecord, ...]]:
    """Return the rows after a number, in order."""
    rows = yield Ask(sql.audit_after, (tenant, sequence, max(1, min(limit, PAGE_MAX))))
    return tuple(AuditRecord(*row) for row in rows)


def former_audit_after(sql: Statements, former: int, limit: int) -> Questions[tuple[AuditRecord, ...]]:
    """Return the rows of earlier releases after a former number, of all tenants."""
    rows = yield Ask(sql.former_audit_after, (former, max(1, min(limit, PAGE_MAX))))
    return tuple(AuditRecord(*row) for row in rows)
