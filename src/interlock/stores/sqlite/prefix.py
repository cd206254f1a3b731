"""The names of a store's tables in a SQLite file that an application shares with it: each starts with a prefix.

Rule 1: statements are written without a prefix. On a connection to a shared file each is rewritten once, and then
remembered (`prefixed`); on a file of the store's own nothing is rewritten.
Rule 2: tables and indexes are those that the migrations create, so a new one needs no list here.
Rule 3: a file that has tables of an application gets the prefix `interlock_`. A file that another program marks as its
own (`PRAGMA application_id`) is refused unless the address names a prefix.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from interlock.errors import UsageError
from interlock.stores.sql.schema import migrations
from interlock.stores.sqlite.files import Connection

APPLICATION_ID = 0x494E544C
"""The `PRAGMA application_id` of our files ("INTL"): it distinguishes them from databases of other programs."""

SHARED_PREFIX = "interlock_"
"""The prefix in a file that has other tables, unless the address names another one."""

VERSIONS = "schema_version"
"""The table by which a store is recognized."""

STATEMENTS_CACHED_MAX = 2_048
"""Rewritten statements in memory: several times as many as there are."""

SELECT_NAMES = "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"

_PREFIX = re.compile(r"[a-z][a-z0-9_]{0,31}")
_CREATED = re.compile(r"\b(?:TABLE|INDEX|TRIGGER|VIEW|RENAME TO)\s+(\w+)")


@cache
def _names() -> re.Pattern[str]:
    """Return what finds the names of tables and indexes in a statement."""
    created = sorted({name for each in migrations("sqlite") for name in _CREATED.findall(each.text)}, key=len)
    names = "|".join(reversed(created))
    places = r"FROM|JOIN|INTO|UPDATE|TABLE|INDEX|INDEXED BY|TRIGGER|ON|REFERENCES|TO"
    return re.compile(rf"\b((?:{places})\s+)({names})\b|(?<![\w.])({names})(?=\.\w)")


@lru_cache(STATEMENTS_CACHED_MAX)
def prefixed(statement: str, prefix: str) -> str:
    """Return a statement with a prefix before every name of a table or an index of the store."""
    return _names().sub(lambda found: f"{found[1] or ''}{prefix}{found[2] or found[3]}", statement)


def use_prefix(connection: Connection, prefix: str) -> None:
    """Rewrite every statement of a connection from now on."""
    connection.prefix = prefix
    if not prefix:
        return
    execute, executemany = connection.execute, connection.executemany

    def execute_prefixed(statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        return execute(prefixed(statement, prefix), values)

    def executemany_prefixed(statement: str, rows: Iterable[Sequence[Any]]) -> sqlite3.Cursor:
        return executemany(prefixed(statement, prefix), rows)

    for name, function in (("execute", execute_prefixed), ("executemany", executemany_prefixed)):
        setattr(connection, name, function)


class PrefixedConnection:
    """A connection of the caller, to a file with this prefix. Rows are tuples here, whatever the caller has set."""

    def __init__(self, connection: sqlite3.Connection, prefix: str) -> None:
        self.prefix = prefix
        self._connection = connection

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run a statement."""
        return sqlite3.Cursor(self._connection).execute(self._named(statement), values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> sqlite3.Cursor:
        """Run a statement for each row."""
        return sqlite3.Cursor(self._connection).executemany(self._named(statement), rows)

    def _named(self, statement: str) -> str:
        return prefixed(statement, self.prefix) if self.prefix else statement


def find_prefix(connection: sqlite3.Connection, path: Path, wanted: str | None) -> str:
    """Return the prefix of the store's tables in a file; `wanted` is that of the address.

    Raises UsageError (`store.foreign`) for a file that belongs to another program, `store.prefix` for one that has a
    store with another prefix.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    tables = {name for (name,) in connection.execute(SELECT_NAMES)}
    is_own = application == APPLICATION_ID or not (application or tables)
    if wanted:
        if application == APPLICATION_ID and f"{wanted}{VERSIONS}" not in tables:
            message = f"{path} has a store whose tables have no prefix"
            raise UsageError(message, code="store.prefix", hint="leave out `prefix` in the address")
        return wanted
    if is_own:
        return ""
    if wanted is None and (f"{SHARED_PREFIX}{VERSIONS}" in tables or application == 0):
        return SHARED_PREFIX
    hint = f"use another file; or, to put the tables of the store next to the others, ?prefix={SHARED_PREFIX}"
    raise UsageError(f"{path} is a database of another program", code="store.foreign", hint=hint)


def check_prefix(prefix: str) -> str:
    """Return the prefix of an address. Raises UsageError for one with which no name can start."""
    if prefix and not _PREFIX.fullmatch(prefix):
        hint = "lower-case letters, digits and `_`, at most 32, such as interlock_"
        raise UsageError(f"invalid prefix `{prefix[:80]}`", code="url.option", hint=hint)
    return prefix
