"""Which adapter a connection gets: by its class, so that no driver is imported for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from interlock.errors import UsageError
from interlock.runtime.join.drivers import (
    Adapter,
    AiosqliteAdapter,
    AsyncpgAdapter,
    AsyncPsycopgAdapter,
    PsycopgAdapter,
    Sqlite3Adapter,
    unsupported_error,
)
from interlock.runtime.join.frameworks import DjangoAdapter, SessionAdapter, SqlAlchemyAdapter

SUPPORTED = "sqlite3, aiosqlite, psycopg (version 3), asyncpg, SQLAlchemy and Django"


class Kind(NamedTuple):
    """A class of connections: its adapter, whether its calls are awaited, and whether it runs blocking functions."""

    adapter: Callable[[Any], Adapter]
    is_async: bool = False
    runs_sync: bool = False


KINDS: Mapping[tuple[str, str], Kind] = {
    ("sqlite3", "Connection"): Kind(Sqlite3Adapter),
    ("aiosqlite", "Connection"): Kind(AiosqliteAdapter, is_async=True),
    ("psycopg", "Connection"): Kind(PsycopgAdapter),
    ("psycopg", "AsyncConnection"): Kind(AsyncPsycopgAdapter, is_async=True),
    ("asyncpg", "Connection"): Kind(AsyncpgAdapter, is_async=True),
    ("asyncpg", "PoolConnectionProxy"): Kind(AsyncpgAdapter, is_async=True),
    ("sqlalchemy", "Connection"): Kind(SqlAlchemyAdapter),
    ("sqlalchemy", "Session"): Kind(SessionAdapter),
    ("sqlalchemy", "scoped_session"): Kind(lambda scoped: SessionAdapter(scoped())),
    ("sqlalchemy", "AsyncConnection"): Kind(SqlAlchemyAdapter, is_async=True, runs_sync=True),
    ("sqlalchemy", "AsyncSession"): Kind(SessionAdapter, is_async=True, runs_sync=True),
    ("django", "BaseDatabaseWrapper"): Kind(DjangoAdapter),
    ("django", "ConnectionProxy"): Kind(DjangoAdapter),
}
"""By the package and the name of a class; a subclass is found by its bases."""


def kind_of(connection: object, *, is_async: bool) -> Kind:
    """Return what a connection is. Raises UsageError for anything else, and for one of the other sort of runtime."""
    names = [(each.__module__.partition(".")[0], each.__name__) for each in type(connection).__mro__]
    found = next((KINDS[each] for each in names if each in KINDS), None)
    what = f"{type(connection).__module__}.{type(connection).__qualname__}"
    if found is None:
        raise unsupported_error(f"`{what}`", f"pass a connection of {SUPPORTED}")
    if found.is_async and not is_async:
        hint = "use the runtime of `async with interlock.open(...)`, or a blocking connection"
        raise UsageError(f"`{what}` is an asynchronous connection", code="join.connection", hint=hint)
    if is_async and not found.is_async:
        hint = "use the runtime of `interlock.connect(...)`, or an asynchronous connection"
        raise UsageError(f"`{what}` is a blocking connection", code="join.connection", hint=hint)
    return found
