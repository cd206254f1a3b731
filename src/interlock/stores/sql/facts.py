"""Facts in a SQL store: one row each, changed by compare and swap."""

from __future__ import annotations

from interlock.stores.sql.database import Ask, Questions, Statements


def read_fact(sql: Statements, tenant: str, name: str) -> Questions[str | None]:
    """Return the value of a fact; None when it was never written."""
    rows = yield Ask(sql.fact, (tenant, name))
    return rows[0][0] if rows else None


def write_fact(sql: Statements, tenant: str, name: str, value: str, expected: str | None) -> Questions[bool]:
    """Write a fact if it has the expected value; return whether it was written."""
    if expected is None:
        return bool((yield Ask(sql.insert_fact, (tenant, name, value))))
    return bool((yield Ask(sql.swap_fact, (tenant, name, value, expected))))
