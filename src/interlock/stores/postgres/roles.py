"""Two roles of a PostgreSQL server: the owner, who creates and upgrades the tables, and the application, which cannot
change or remove a row of the audit.

Rule 1: the owner is stopped by triggers, which it can remove; the application lacks the privileges. So programs connect
as the application, and only `db upgrade` connects as the owner.
Rule 2: default privileges give the application the tables that a later upgrade creates.
"""

from __future__ import annotations

import re

from interlock.errors import UsageError

APPEND_ONLY = ("audit",)
"""Tables to which the application can only add rows."""

READ_ONLY = ("audit_gate", "schema_version")
"""Tables that only the owner changes."""

SELECT_PRIVILEGES = """
    SELECT p.name FROM unnest(ARRAY['UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER']) AS p (name)
    WHERE has_table_privilege('audit', p.name)"""
"""The privileges of the connection's role by which it could change the audit."""

_ROLE = re.compile(r"[A-Za-z_][A-Za-z0-9_$-]{0,62}")


def grant_script(schema: str, role: str) -> str:
    """Return the statements that the owner of a schema runs once for the role of the application.

    Raises UsageError for text that is no name of a role.
    """
    if not _ROLE.fullmatch(role):
        hint = "letters, digits, `_`, `-` and `$`, at most 63"
        raise UsageError(f"invalid role `{role[:80]}`", code="role.malformed", hint=hint)
    to = f'"{role}"'
    place = f'"{schema}"'
    append_only = ", ".join(f"{place}.{each}" for each in APPEND_ONLY)
    read_only = ", ".join(f"{place}.{each}" for each in READ_ONLY)
    statements = (
        "BEGIN",
        f"GRANT USAGE ON SCHEMA {place} TO {to}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {place} TO {to}",
        f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {place} TO {to}",
        f"REVOKE UPDATE, DELETE, TRUNCATE, TRIGGER, REFERENCES ON {append_only} FROM {to}, PUBLIC",
        f"REVOKE INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER, REFERENCES ON {read_only} FROM {to}, PUBLIC",
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA {place} GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {to}",
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA {place} GRANT USAGE, SELECT ON SEQUENCES TO {to}",
        "COMMIT",
    )
    return "".join(f"{each};\n" for each in statements)
