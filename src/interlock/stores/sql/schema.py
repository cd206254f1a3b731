"""Numbered migrations of a SQL store, and the tenants of a database.

Rule 1: a migration is a file `migrations/<store>/NNNN_name.sql`. Released files are never edited.
Rule 2: a schema that a newer release wrote is refused before anything in it is touched.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from interlock.errors import UsageError

SELECT_SCHEMA = "SELECT coalesce(max(version), 0) FROM schema_version"

# Each tenant is found from the one before, along the key: as many steps as there are tenants, however many entities.
SELECT_TENANTS = """
    WITH RECURSIVE found (tenant) AS (
      SELECT min(tenant) FROM entity
      UNION ALL
      SELECT (SELECT min(tenant) FROM entity WHERE tenant > found.tenant) FROM found WHERE found.tenant IS NOT NULL)
    SELECT tenant FROM found WHERE tenant IS NOT NULL"""

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


class Migration(NamedTuple):
    """A change of the schema: its number, its name, and its statements."""

    number: int
    name: str
    text: str


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


def check_schema(store: str, current: int, *, place: str, url: str) -> None:
    """Raise UsageError (`schema.older`) when a schema lacks migrations that the opening must not run (`migrate=0`).

    `url` is the address for the command in the hint, without a password.
    """
    if pending_migrations(store, current, place=place):
        has = f"has schema {current}" if current else "has no tables of a store"
        message = f"{place} {has}; this release needs schema {newest_schema(store)}"
        hint = f"run `interlock db upgrade {url}`; with --dry-run it prints the statements"
        raise UsageError(message, code="schema.older", hint=hint)


def pending_migrations(store: str, current: int, *, place: str) -> tuple[Migration, ...]:
    """Return the migrations that a schema lacks. Raises UsageError (`schema.newer`) when a newer release wrote it."""
    newest = newest_schema(store)
    if current > newest:
        message = f"{place} has schema {current}; this release supports up to {newest}"
        raise UsageError(message, code="schema.newer", hint="use the release that wrote it, or a newer one")
    return tuple(each for each in migrations(store) if each.number > current)
