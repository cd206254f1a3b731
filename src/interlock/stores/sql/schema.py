"""Numbered migrations of a SQL store, and the tenants of a database.

Rule 1: a migration is a file `migrations/<store>/NNNN_name.sql`. Released files are never edited.
Rule 2: a schema that a newer release wrote is refused before anything in it is touched, unless that release says that
this one may read and write it. Each migration from `oldest_reader` on records the number of the oldest schema that a
release must know: its own, or that of a comment `-- oldest reader: N` in its file, for tables and columns that older
releases need not fill. The highest of these numbers counts.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from interlock.errors import UsageError

SELECT_SCHEMA = "SELECT coalesce(max(version), 0) FROM schema_version"

SELECT_OLDEST_READER = "SELECT max(coalesce(oldest_reader, version)) FROM schema_version"

# Each tenant is found from the one before, along the key: as many steps as there are tenants, however many entities.
SELECT_TENANTS = """
    WITH RECURSIVE found (tenant) AS (
      SELECT min(tenant) FROM entity
      UNION ALL
      SELECT (SELECT min(tenant) FROM entity WHERE tenant > found.tenant) FROM found WHERE found.tenant IS NOT NULL)
    SELECT tenant FROM found WHERE tenant IS NOT NULL"""

SELECT_AUDITED = SELECT_TENANTS.replace("FROM entity", "FROM audit")
"""The tenants that have rows of the audit."""

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_OLDEST_READER = re.compile(r"^-- oldest reader: (\d+)$", re.MULTILINE)

OLDEST_READER = "oldest_reader"
"""The migration from which on the number is recorded."""


class Migration(NamedTuple):
    """A change of the schema: its number, its name, and its statements."""

    number: int
    name: str
    text: str

    @property
    def oldest_reader(self) -> int:
        """The oldest schema that a release must know to use this one."""
        found = _OLDEST_READER.search(self.text)
        return self.number if found is None else int(found[1])


class SchemaState(NamedTuple):
    """The schema number of a store, and the oldest that a release must know to use it; None if that is not recorded."""

    current: int
    oldest_reader: int | None = None


@cache
def migrations(store: str) -> tuple[Migration, ...]:
    """Return the migrations of a store (`sqlite` or `postgres`), in order."""
    folder = files("interlock.stores") / "migrations" / store
    found = ((_FILE.fullmatch(each.name), each) for each in folder.iterdir())
    return tuple(
        sorted(Migration(int(name[1]), name[2], each.read_text(encoding="utf-8")) for name, each in found if name)
    )


def newest_schema(store: str) -> int:
    """Return the schema number of this release."""
    return migrations(store)[-1].number


def record_migration(store: str, migration: Migration) -> str:
    """Return the statement that records a migration: numbers and names of our own files."""
    number, name = migration.number, migration.name
    first = next((each.number for each in migrations(store) if each.name == OLDEST_READER), None)
    if first is None or number < first:  # the column does not exist yet
        return f"INSERT INTO schema_version (version, name) VALUES ({number}, '{name}')"  # noqa: S608 - see above
    values = f"{number}, '{name}', {migration.oldest_reader}"
    return f"INSERT INTO schema_version (version, name, oldest_reader) VALUES ({values})"  # noqa: S608 - see above


def check_schema(store: str, state: SchemaState, *, place: str, url: str) -> None:
    """Raise UsageError (`schema.older`) when a schema lacks migrations that the opening must not run (`migrate=0`).

    `url` is the address for the command in the hint, without a password.
    """
    if pending_migrations(store, state, place=place):
        has = f"has schema {state.current}" if state.current else "has no tables of a store"
        message = f"{place} {has}; this release needs schema {newest_schema(store)}"
        hint = f"run `interlock db upgrade {url}`; with --dry-run it prints the statements"
        raise UsageError(message, code="schema.older", hint=hint)


def pending_migrations(store: str, state: SchemaState, *, place: str) -> tuple[Migration, ...]:
    """Return the migrations that a schema lacks. Raises UsageError (`schema.newer`) when this release cannot use it."""
    current, newest = state.current, newest_schema(store)
    oldest = current if state.oldest_reader is None else state.oldest_reader
    if current > newest and oldest > newest:
        message = (
            f"{place} has schema {current}, which needs a release that knows schema {oldest}; this release supports up "
            f"to {newest}"
        )
        raise UsageError(message, code="schema.newer", hint="use the release that wrote it, or a newer one")
    return tuple(each for each in migrations(store) if each.number > current)
