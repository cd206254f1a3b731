"""The tables of a store as a revision of Alembic, next to those of the application's models.

In `env.py`, so that autogenerate leaves them alone:

    context.configure(..., include_name=interlock.contrib.tables.include_name)

In a revision, and in a further one after each update of Interlock that changes the tables:

    def upgrade(): upgrade_tables(op)
    def downgrade(): refuse_downgrade()
"""

from __future__ import annotations

from typing import Any, NoReturn

from interlock.contrib.tables import SCHEMA, upgrade, upgrade_statements
from interlock.errors import UsageError
from interlock.stores.sqlite.prefix import SHARED_PREFIX


def upgrade_tables(op: Any, *, prefix: str = SHARED_PREFIX, schema: str = SCHEMA) -> None:
    """Create the tables of a store, or upgrade them to this release, in the transaction of the revision.

    `op` is `alembic.op`. With `alembic upgrade --sql` the statements for a new store are printed. Raises as
    `tables.upgrade` does.
    """
    context = op.get_context()
    if not context.as_sql:
        upgrade(op.get_bind(), prefix=prefix, schema=schema)
        return
    for statement in upgrade_statements(context.dialect.name, prefix=prefix, schema=schema):
        context.impl.static_output(statement)  # as it is: `op.execute` would read `:name` as a parameter


def refuse_downgrade() -> NoReturn:
    """Raise UsageError (`tables.downgrade`): the tables contain the journals, and no release can go back."""
    hint = "restore a backup, or keep the tables: they are not in the way of older models"
    raise UsageError("the tables of a store cannot be downgraded", code="tables.downgrade", hint=hint)
