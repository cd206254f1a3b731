"""The operation of Django's migrations that creates and upgrades the tables of stores.

Rule 1: the numbered files of the store are the only history of its schema (`contrib.tables`). A migration of Django
brings a database to the schema of the installed release; a release that changes the schema has a further one, so that
`migrate` runs. The numbers say which schema that was.
Rule 2: the tables are created in each database that a store of `INTERLOCK` is in, and in no other one.
Rule 3: it is not reversible: the tables contain the journals.
"""

from __future__ import annotations

from typing import Any

from django.db.migrations.operations.base import Operation

from interlock.contrib.django.settings import StoreSettings, all_stores
from interlock.contrib.tables import upgrade, upgrade_statements


class UpgradeTables(Operation):
    """Create or upgrade the tables of the stores in a database, in the transaction of the migration."""

    reversible = False
    reduces_to_sql = True

    def __init__(self, *, sqlite: int, postgres: int) -> None:
        self.sqlite = sqlite
        self.postgres = postgres

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Change nothing: no model has these tables."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002 - the signature of Django
        """Upgrade the tables; for `sqlmigrate`, collect the statements."""
        connection = schema_editor.connection
        for place in sorted({_place(each) for each in all_stores().values() if each.database == connection.alias}):
            prefix, schema = place
            if schema_editor.collect_sql:
                script = upgrade_statements(connection.vendor, prefix=prefix, schema=schema)
                schema_editor.collected_sql.extend(script)
            else:
                connection.ensure_connection()
                upgrade(connection, prefix=prefix, schema=schema)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Raise an error: Django does not call it for an operation that is not reversible."""
        raise NotImplementedError("the tables of a store contain its journals and are not dropped by a migration")

    def describe(self) -> str:
        """Return what `migrate --plan` prints."""
        return f"Create or upgrade the tables of stores (schema {self.sqlite} on SQLite, {self.postgres} on PostgreSQL)"


def _place(store: StoreSettings) -> tuple[str, str]:
    return store.prefix, store.schema
